"""The next safe step of a broker group: each state of the table, and what closes each gate."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from samples.operating import World
from tidemill_operator.broker_groups import plan
from tidemill_operator.desired.wanted import parse_group
from tidemill_operator.marks import timestamp
from tidemill_operator.observed import SETTLED_MS, Observed, observe
from tidemill_operator.rollout import Baton, Move, baton_of, next_move, next_rollout, with_baton
from tidemill_operator.steps import Ask, Delete, Plan

HELD = Baton(1, wanted=True, held=True)


def standing(slaves: int = 1, groups: int = 1) -> World:
    world = World(groups=groups, slaves=slaves)
    world.settle()
    return world


def outdate(world: World, *names: str) -> None:
    """These pods are of an older template."""
    for name in names:
        world.get("Pod", name)["metadata"]["labels"]["controller-revision-hash"] = "older"


def look(world: World, group: str = "g0", *, heard: bool = True) -> Observed:
    seen = world.view(("BrokerGroup", group), heard=heard)
    assert seen.cluster is not None
    return observe(seen, parse_group(seen.resource, seen.cluster, seen.image))


def move_of(world: World, *, heard: bool = True) -> Move:
    seen = world.view(("BrokerGroup", "g0"), heard=heard)
    assert seen.cluster is not None
    group = parse_group(seen.resource, seen.cluster, seen.image)
    return next_move(observe(seen, group), group, world.now_ms)


def deleted(move: Move) -> str:
    assert isinstance(move.step, Delete)
    return move.step.reference.name


def crash(world: World, name: str) -> None:
    """Its process does not run, and meta has noticed."""
    world.stuck.add(name)
    world.get("Pod", name)["status"] = {"containerStatuses": [{"state": {"waiting": {}}}]}
    world.pass_time(8_000)


# -- states ------------------------------------------------------------------------------------------------------


def test_nothing_is_done_when_all_are_as_they_should_be() -> None:
    move = move_of(standing())

    assert (move.reason, move.acts, move.waits_for, move.again_ms) == ("RolloutComplete", False, "", None)


def test_an_outdated_slave_is_replaced_before_the_master() -> None:
    """RocketMQ's operator restarted the master first, and its slaves after it."""
    world = standing(slaves=2)
    outdate(world, "g0-0", "g0-1", "g0-2")

    move = move_of(world)

    assert (move.reason, deleted(move)) == ("RollingSlaves", "g0-2")


def test_a_pod_is_deleted_by_its_uid() -> None:
    world = standing()
    outdate(world, "g0-1")
    step = move_of(world).step

    assert isinstance(step, Delete)
    assert (step.uid, step.orphan) == (world.get("Pod", "g0-1")["metadata"]["uid"], False)


def test_the_last_outdated_one_hands_over_when_it_is_master() -> None:
    world = standing(slaves=2)
    outdate(world, "g0-0")

    move = move_of(world)

    assert move.reason == "SwitchingOver"
    version = world.at_meta["g0"].version
    assert move.step == Ask("POST", "/v1/groups/g0/handover", {"to": "g0-1", "version": version})
    assert [one.reason for one in move.events] == ["SwitchoverStarted"]


def test_a_hand_over_goes_to_whom_meta_names() -> None:
    world = standing(slaves=2)
    outdate(world, "g0-0")
    seen = look(world)
    assert seen.master is not None
    row = {**(seen.master.row or {}), "hand_over_to": "g0-2"}
    brokers = tuple(one if one is not seen.master else tampered(one, row=row) for one in seen.brokers)
    group = parse_group(world.get("BrokerGroup", "g0"), world.get("QueueCluster", "prod"), "i:1")

    step = next_move(tampered(seen, brokers=brokers), group, world.now_ms).step

    assert isinstance(step, Ask)
    assert (step.body or {})["to"] == "g0-2"


def test_a_group_of_one_is_restarted_where_it_is() -> None:
    world = standing(slaves=0)
    outdate(world, "g0-0")

    move = move_of(world)

    assert (move.reason, deleted(move), move.needs_baton) == ("RollingMaster", "g0-0", True)


def test_what_is_outdated_and_does_not_run_is_replaced_at_once() -> None:
    """A bad setting must be mendable: no gate, no turn, and no other broker is asked about."""
    world = standing(slaves=2)
    crash(world, "g0-1")
    world.slow.add("g0-2")
    outdate(world, "g0-1")

    move = move_of(world)

    assert (deleted(move), move.needs_baton) == ("g0-1", False)
    assert deleted(move_of(world, heard=False)) == "g0-1"


def test_what_runs_and_never_came_to_meta_serves_nobody() -> None:
    """As with a wrong address of meta: the process runs, is not ready, and meta does not know it."""
    world = standing()
    pod = world.get("Pod", "g0-1")
    pod["status"]["conditions"] = []
    del world.at_meta["g0"].members["g0-1"]
    outdate(world, "g0-1")

    assert not move_of(world).needs_baton
    assert not move_of(world, heard=False).acts


def test_a_broker_too_many_is_removed_from_the_end() -> None:
    world = standing(slaves=2)
    world.change("BrokerGroup", "g0", slaves=0)

    move = move_of(world)

    assert (move.removes and move.removes.name, move.reason) == ("g0-2", "RollingSlaves")


def test_a_master_too_many_hands_over_to_one_that_stays() -> None:
    world = standing(slaves=2)
    world.at_meta["g0"].master = "g0-2"
    world.change("BrokerGroup", "g0", slaves=1)

    step = move_of(world).step

    assert isinstance(step, Ask)
    assert (step.body or {})["to"] in {"g0-0", "g0-1"}


# -- gates -------------------------------------------------------------------------------------------------------


def test_without_meta_nothing_that_serves_is_taken_away() -> None:
    world = standing()
    outdate(world, "g0-0", "g0-1")

    move = move_of(world, heard=False)

    assert (move.reason, move.acts) == ("WaitingForSync", False)
    assert "meta was not heard" in move.message


def test_without_a_row_at_meta_nothing_is_taken_away() -> None:
    world = standing()
    outdate(world, "g0-1")
    del world.at_meta["g0"]

    assert not move_of(world).acts


def test_without_a_master_nothing_is_taken_away() -> None:
    world = standing(slaves=2)
    outdate(world, "g0-2")
    world.at_meta["g0"].master = ""

    assert "nobody leads" in move_of(world).message


@pytest.mark.parametrize(
    "how", ["not ready", "ready just now", "not alive", "out of sync", "epoch", "goes", "gone"]
)
def test_another_broker_that_is_not_well_closes_the_gate(how: str) -> None:
    world = standing(slaves=2)
    outdate(world, "g0-2")
    other, member = world.get("Pod", "g0-1"), world.at_meta["g0"].members["g0-1"]
    match how:
        case "not ready":
            other["status"]["conditions"] = []
        case "ready just now":
            other["status"]["conditions"][0]["lastTransitionTime"] = timestamp(
                world.now_ms - SETTLED_MS + 1_000
            )
        case "not alive":
            member.heard_ms = 0
        case "out of sync":
            member.in_sync = False
        case "epoch":
            member.epoch -= 1
        case "goes":
            other["metadata"]["deletionTimestamp"] = timestamp(world.now_ms)
        case "gone":
            del world.objects["Pod", "g0-1"]

    move = move_of(world)

    assert (move.acts, move.waits_for, move.reason) == (False, "g0-1", "WaitingForSync")


def test_a_clock_that_is_ahead_closes_the_gate() -> None:
    """The kubelet's clock says that a pod is ready since tomorrow."""
    world = standing()
    outdate(world, "g0-1")
    world.get("Pod", "g0-0")["status"]["conditions"][0]["lastTransitionTime"] = timestamp(
        world.now_ms + 86_400_000
    )

    assert not move_of(world).acts


def test_a_slave_that_meta_does_not_let_stop_stays() -> None:
    world = standing(slaves=2)
    outdate(world, "g0-2")
    seen = look(world)
    row = {**(seen.brokers[2].row or {}), "safe_to_stop": False, "why_not": "g0-1 was not heard lately"}
    group = parse_group(world.get("BrokerGroup", "g0"), world.get("QueueCluster", "prod"), "i:1")

    move = next_move(
        tampered(seen, brokers=(*seen.brokers[:2], tampered(seen.brokers[2], row=row))), group, world.now_ms
    )

    assert (move.acts, move.message) == (False, "g0-1 was not heard lately")


def test_a_master_with_nobody_to_hand_over_to_stays() -> None:
    world = standing()
    outdate(world, "g0-0")
    world.at_meta["g0"].members["g0-1"].in_sync = False

    assert not move_of(world).acts


def test_a_revision_that_is_not_known_yet_outdates_nobody() -> None:
    world = standing()
    workload = world.get("StatefulSet", "g0")
    outdate(world, "g0-1")
    workload["metadata"]["generation"] += 1

    assert not move_of(world).acts


def test_a_volume_that_waits_for_its_file_system_gets_one_new_pod() -> None:
    world = standing()
    world.pass_time(120_000)
    pending = {"type": "FileSystemResizePending", "status": "True"}
    claim = world.get("PersistentVolumeClaim", "data-g0-1")
    claim["status"]["conditions"] = [{**pending, "lastTransitionTime": timestamp(world.now_ms - 10_000)}]
    assert not move_of(world).acts

    claim["status"]["conditions"] = [{**pending, "lastTransitionTime": timestamp(world.now_ms - 90_000)}]
    assert deleted(move_of(world)) == "g0-1"

    world.get("Pod", "g0-1")["metadata"]["creationTimestamp"] = timestamp(world.now_ms - 30_000)
    assert not move_of(world).acts


# -- the baton ---------------------------------------------------------------------------------------------------


def test_without_the_baton_a_group_asks_for_it_and_waits() -> None:
    world = standing()
    outdate(world, "g0-1")
    whole = move_of(world)

    waiting = with_baton(whole, Baton(0, wanted=False, held=False, holder="g1"))

    assert (waiting.reason, waiting.acts) == ("WaitingForLock", False)
    assert "until g1 has rolled" in waiting.message
    row, stuck = next_rollout(world.get("BrokerGroup", "g0"), whole, Baton(4, False, False), world.now_ms)
    assert (row["stage"], stuck) == ("Waiting 5", False)


def test_a_baton_is_held_while_both_say_the_same_number() -> None:
    group = {"metadata": {"name": "g0"}, "status": {"rollout": {"stage": "Rolling 3"}}}

    def held(stage: str, name: str = "g0") -> bool:
        return baton_of(group, {"status": {"rollout": {"group": name, "stage": stage}}}).held

    assert held("Turn 3")
    assert not held("Turn 2")
    assert not held("Turn 3", "g1")
    assert not baton_of(group, None).held
    group["status"]["rollout"]["stage"] = "Waiting 3"
    assert held("Turn 3")
    group["status"]["rollout"]["stage"] = "Rolled 3"
    assert not held("Turn 3")


def test_a_baton_is_given_back_only_when_all_are_well() -> None:
    resource: dict[str, Any] = {"metadata": {"name": "g0"}, "status": {"rollout": {"stage": "Rolling 3"}}}
    unwell = Move("RolloutComplete", "", waits_for="g0-1")
    well = Move("RolloutComplete", "")

    assert next_rollout(resource, unwell, HELD, 0)[0]["stage"] == "Rolling 1"
    assert next_rollout(resource, well, HELD, 0)[0] == {"stage": "Rolled 1"}
    assert with_baton(unwell, HELD).reason == "WaitingForSync"


def test_a_group_that_lost_its_status_in_the_middle_goes_on_with_the_next_number() -> None:
    """As when a pass failed, and only that was written: it is named in the cluster's status, and not well."""
    group: dict[str, Any] = {"metadata": {"name": "g0"}}
    baton = baton_of(group, {"status": {"rollout": {"group": "g0", "stage": "Turn 3"}}})
    unwell, well = Move("RolloutComplete", "", waits_for="g0-1"), Move("RolloutComplete", "")

    assert (baton.ticket, baton.wanted, baton.held, baton.named) == (3, False, False, True)
    assert next_rollout(group, unwell, baton, 0)[0]["stage"] == "Waiting 4"
    assert next_rollout(group, well, baton, 0)[0] == {"stage": "Rolled 3"}


def test_a_group_that_wants_nothing_has_no_ticket() -> None:
    never = next_rollout(
        {"metadata": {"name": "g0"}}, Move("RolloutComplete", "", waits_for="g0-1"), Baton(0, False, False), 0
    )

    assert never == ({}, False)


def test_a_rollout_that_waits_for_long_is_stuck_and_keeps_the_baton() -> None:
    waiting = Move("WaitingForSync", "g0-1 is not ready", waits_for="g0-1")
    row, stuck = next_rollout(
        {"metadata": {}, "status": {"rollout": {"stage": "Rolling 1"}}}, waiting, HELD, 60_000
    )
    assert not stuck

    later, stuck = next_rollout(
        {"metadata": {}, "status": {"rollout": row}}, waiting, HELD, 60_000 + 11 * 60_000
    )

    assert (later, stuck) == (row, True)
    other = Move("WaitingForSync", "g0-2 is not ready", waits_for="g0-2")
    assert not next_rollout({"metadata": {}, "status": {"rollout": row}}, other, HELD, 60_000 + 11 * 60_000)[
        1
    ]


def test_a_stuck_group_says_so_and_goes_on_when_it_can() -> None:
    world = standing(groups=2)
    world.image("bad")
    for _ in range(400):
        for key in world.ours():
            world.act(key)
        world.pass_time(2_000)
    said = {one["type"]: one for one in world.get("BrokerGroup", "g0")["status"]["conditions"]}
    assert (said["Progressing"]["status"], said["Progressing"]["reason"]) == ("False", "RolloutStuck")
    assert world.done == ["take g0-1"]

    world.image("3")
    world.settle(900)

    assert {one["spec"]["containers"][0]["image"] for one in world.pods("g0") + world.pods("g1")} == {
        "registry.test/tidemill:3"
    }


def test_the_same_view_gives_the_same_plan() -> None:
    world = standing()
    outdate(world, "g0-1")
    seen = world.view(("BrokerGroup", "g0"))
    before = copy.deepcopy(seen)

    plans: list[Plan] = [plan(seen, world.now_ms) for _ in range(2)]

    assert plans[0] == plans[1]
    assert seen == before


def tampered(value: Any, **changes: Any) -> Any:
    """Another value of a frozen class."""
    made = copy.copy(value)
    for name, change in changes.items():
        object.__setattr__(made, name, change)
    return made
