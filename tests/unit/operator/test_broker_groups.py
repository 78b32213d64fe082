"""BrokerGroup: what is applied, what is said, and what a person may order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from samples.operating import World
from tidemill_operator.broker_groups import plan
from tidemill_operator.steps import Apply, Ask, Hold, Plan

KEY = ("BrokerGroup", "g0")


def standing(slaves: int = 1, groups: int = 1) -> World:
    world = World(groups=groups, slaves=slaves)
    world.settle()
    return world


def said(made: Plan) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in made.conditions}


def applied(made: Plan, kind: str) -> list[Any]:
    return [one.manifest for one in made.steps if isinstance(one, Apply) and one.manifest["kind"] == kind]


def asked(made: Plan) -> list[str]:
    return [one.path for one in made.steps if isinstance(one, Ask)]


def test_a_new_group_says_what_is_missing_until_it_is_ready() -> None:
    world = World(groups=1)

    first = said(world.plan(KEY))

    assert first["Ready"] == ("Unknown", "Pending")
    assert first["Writable"] == ("False", "NoMaster")
    world.settle()
    assert said(world.plan(KEY)) == {
        "Ready": ("True", "Reconciled"),
        "Progressing": ("False", "RolloutComplete"),
        "Degraded": ("False", "Reconciled"),
        "Writable": ("True", "ReadWrite"),
        "StorageResizing": ("False", "Reconciled"),
    }


def test_the_finalizer_is_there_before_anything_else() -> None:
    assert World(groups=1).plan(KEY).steps[0] == Hold(held=True)


def test_a_group_without_slaves_says_that_it_is_not_redundant() -> None:
    assert said(standing(slaves=0).plan(KEY))["Degraded"] == ("True", "NotRedundant")


def test_a_slave_that_is_down_or_behind_is_named() -> None:
    world = standing(slaves=2)
    world.at_meta["g0"].members["g0-1"].in_sync = False
    assert said(world.plan(KEY))["Degraded"] == ("True", "OutOfSync")

    del world.objects["Pod", "g0-2"]

    degraded = next(one for one in world.plan(KEY).conditions if one.type == "Degraded")
    assert (degraded.reason, degraded.message) == ("SlaveDown", "not there: g0-2")


def test_without_meta_nothing_is_claimed() -> None:
    made = standing().plan(KEY, heard=False)

    assert {said(made)[one] for one in ("Ready", "Degraded", "Writable")} == {
        ("Unknown", "ClusterUnavailable")
    }
    assert "master" not in made.status


def test_a_group_without_a_master_says_why() -> None:
    world = standing()
    world.at_meta["g0"].master = ""

    made = world.plan(KEY)

    assert said(made)["Ready"] == ("False", "NoMaster")


@pytest.mark.parametrize(
    "how, reason", [("drain", "ReadOnlyByDrain"), ("allowed", "ReadOnlyBySpec"), ("full", "ReadOnlyByLag")]
)
def test_why_a_group_takes_nothing_is_said(how: str, reason: str) -> None:
    world = standing()
    seen = world.view(KEY)
    row = {
        "drain": {"draining": True, "state": "R"},
        "allowed": {"allowed": "R", "state": "R"},
        "full": {"state": "R"},
    }[how]
    rows = [{**one, **row} for one in (seen.meta or {})["/v1/brokers"]]

    made = plan(replace(seen, meta={"/v1/brokers": rows, "/v1/delays": []}), world.now_ms)

    assert said(made)["Writable"] == ("False", reason)


@pytest.mark.parametrize("written, state", [("ReadOnly", "R"), ("Offline", "NRW"), ("ReadWrite", None)])
def test_what_a_group_may_take_is_said_to_meta_once(written: str, state: str | None) -> None:
    world = standing()
    world.change(*KEY, writeAvailability=written)

    asked = [one for one in world.plan(KEY).steps if isinstance(one, Ask)]
    assert [(one.path, one.body) for one in asked] == (
        [("/v1/groups/g0/state", {"state": state})] if state else []
    )
    world.settle()

    assert not any(isinstance(one, Ask) for one in world.plan(KEY).steps)


def test_a_drain_that_a_person_asked_for_stays() -> None:
    world = standing()
    world.at_meta["g0"].draining = True

    assert not any(isinstance(one, Ask) for one in world.plan(KEY).steps)


def test_meta_is_asked_again_for_it_tells_nobody_of_a_change() -> None:
    world = World(groups=2)
    assert world.plan(KEY).again_ms == 5_000
    world.settle()
    assert world.plan(KEY).again_ms == 15_000
    assert world.plan(KEY, heard=False).again_ms == 5_000

    world.image("2")
    world.act(KEY)
    world.pass_time(500)

    assert world.plan(KEY).again_ms == 2_000


def test_pods_are_labelled_with_what_meta_says_by_their_uid() -> None:
    world = standing()
    world.at_meta["g0"].master = "g0-1"

    pods = applied(world.plan(KEY), "Pod")

    assert [(one["metadata"]["name"], one["metadata"]["labels"]) for one in pods] == [
        ("g0-0", {"tidemill.dev/role": "slave"}),
        ("g0-1", {"tidemill.dev/role": "master"}),
    ]
    assert pods[0]["metadata"]["uid"] == world.get("Pod", "g0-0")["metadata"]["uid"]
    assert applied(world.plan(KEY, heard=False), "Pod") == []


def test_the_status_names_the_master_and_every_broker() -> None:
    status = standing().get(*KEY)["status"]

    assert status["master"] == {"broker": "g0-0", "pod": "g0-0", "epoch": "1", "address": "g0-0:7400"}
    assert [(one["pod"], one["role"], one["inSync"], one["claim"]) for one in status["brokers"]] == [
        ("g0-0", "Master", True, "data-g0-0"),
        ("g0-1", "Slave", True, "data-g0-1"),
    ]
    assert (status["replicas"], status["readyReplicas"], status["inSync"]) == (2, 2, 2)


def test_a_status_says_nothing_empty() -> None:
    """An empty text would be refused by the schema, and an absent one written again and again."""

    def values(block: Any) -> list[Any]:
        if isinstance(block, dict):
            return [one for value in block.values() for one in values(value)]
        return (
            [one for value in block for one in values(value)] if isinstance(block, (list, tuple)) else [block]
        )

    world = World(groups=1)
    assert all(one not in {"", None} for one in values(dict(world.plan(KEY).status)))
    world.settle()

    assert all(one not in {"", None} for one in values(dict(world.plan(KEY).status)))


def test_more_slaves_come_at_once_whatever_else_is_not_well() -> None:
    world = standing()
    world.at_meta["g0"].members["g0-1"].in_sync = False
    world.change(*KEY, slaves=3)

    assert applied(world.plan(KEY, heard=False), "StatefulSet")[0]["spec"]["replicas"] == 4


def test_fewer_slaves_go_one_by_one_and_only_with_the_baton() -> None:
    world = standing(slaves=3)
    world.change(*KEY, slaves=1)

    made = world.plan(KEY)

    assert applied(made, "StatefulSet")[0]["spec"]["replicas"] == 4
    assert said(made)["Progressing"] == ("True", "WaitingForLock")
    world.settle()
    assert [one for one in world.done if one.startswith("take")] == ["take g0-3", "take g0-2"]


def test_a_master_too_many_whose_pod_is_not_there_for_a_moment_is_not_scaled_away() -> None:
    """It leads, the slave that is to stay has not caught up, and its node is lost: its volume alone has all."""
    world = standing(slaves=1)
    known = world.at_meta["g0"]
    known.asked(["handover"], {"to": "g0-1", "version": known.version}, world.now_ms)
    known.members["g0-0"].in_sync = False
    world.slow.add("g0-0")
    world.change(*KEY, slaves=0)
    for _ in range(20):
        world.act(KEY)
        world.act(("QueueCluster", "prod"))

    world.kill("g0-1")
    made = world.plan(KEY)

    assert applied(made, "StatefulSet")[0]["spec"]["replicas"] == 2
    # Its controller makes no pod for a while, as when no node is free.
    world.now_ms += 60_000
    known.members["g0-0"].heard_ms = world.now_ms
    for _ in range(20):
        assert asked(world.plan(KEY)) == []
        assert world.act(KEY) in {True, False}  # an act that harms raises
    assert world.get("StatefulSet", "g0")["spec"]["replicas"] == 2

    world.settle()
    assert (known.master, sorted(known.members)) == ("g0-0", ["g0-0"])
    assert world.get("StatefulSet", "g0")["spec"]["replicas"] == 1


def test_a_replica_too_many_is_waited_for_while_meta_is_not_heard() -> None:
    world = standing(slaves=2)
    world.change(*KEY, slaves=0)
    for name in ("g0-1", "g0-2"):
        world.kill(name)

    for heard in (False, True):
        made = world.plan(KEY, heard=heard)
        assert applied(made, "StatefulSet")[0]["spec"]["replicas"] == 3, heard


def test_a_broker_that_meta_takes_for_in_sync_is_not_forgotten() -> None:
    """Also not when its StatefulSet wants it no more: then somebody else scaled it, and its volume is there."""
    world = standing(slaves=1)
    known = world.at_meta["g0"]
    known.asked(["handover"], {"to": "g0-1", "version": known.version}, world.now_ms)
    known.members["g0-0"].in_sync = False
    world.slow.add("g0-0")
    world.change(*KEY, slaves=0)
    world.get("StatefulSet", "g0")["spec"]["replicas"] = 1
    world.kill("g0-1")
    world.now_ms += 60_000
    known.members["g0-0"].heard_ms = world.now_ms

    made = world.plan(KEY)

    assert asked(made) == []
    assert applied(made, "StatefulSet")[0]["spec"]["replicas"] == 2, "who leads is run"


def test_who_leaves_in_a_pass_gets_no_label_in_it() -> None:
    """It would be refused, for the pod may be gone by then, and end the pass."""
    world = standing(slaves=2)
    world.change(*KEY, slaves=1)
    for _ in range(60):
        made = world.plan(KEY)
        if applied(made, "StatefulSet")[0]["spec"]["replicas"] == 2:
            break
        for key in world.ours():
            world.act(key)
        world.pass_time(1_000)
    world.get("Pod", "g0-2")["metadata"]["labels"].pop("tidemill.dev/role")

    made = world.plan(KEY)

    assert (applied(made, "StatefulSet")[0]["spec"]["replicas"], applied(made, "Pod")) == (2, [])


def test_an_older_group_of_the_same_name_wins() -> None:
    world = standing()
    world.pass_time(5_000)
    world.add_group("twin", groupName="g0")

    made = world.plan(("BrokerGroup", "twin"))

    assert (made.steps, said(made)["Ready"]) == ((), ("False", "ResourceConflict"))
    assert said(world.plan(KEY))["Ready"] == ("True", "Reconciled")


def test_what_belongs_to_somebody_else_is_not_written() -> None:
    world = World(groups=1)
    owner = {"uid": "somebody", "controller": True}
    world.put("Service", "g0", {"metadata": {"ownerReferences": [owner], "labels": {}}, "spec": {}}, api="v1")

    assert said(world.plan(KEY))["Ready"] == ("False", "ResourceConflict")


def test_a_cluster_that_is_not_there_is_named() -> None:
    world = standing()

    made = plan(replace(world.view(KEY), cluster=None), 0)

    assert made.steps == ()
    assert "QueueCluster prod" in made.conditions[0].message


def test_a_spec_that_cannot_be_stalls_and_a_deletion_of_it_waits() -> None:
    world = standing()
    world.change(*KEY, config=[{"name": "meta", "value": "x"}])
    assert said(world.plan(KEY))["Ready"] == ("False", "InvalidSpec")

    world.remove(*KEY)

    assert Hold(held=False) not in world.plan(KEY).steps


def test_a_rollout_says_once_that_another_broker_leads() -> None:
    world = standing()
    world.image("2")

    world.settle()

    assert world.at_meta["g0"].master == "g0-1"
    told = [reason for name, reason in world.events if name == "g0" and reason.startswith("Switchover")]
    assert told == ["SwitchoverStarted", "SwitchoverCompleted"]


def test_a_switchover_is_told_also_when_meta_is_deaf_right_after_it() -> None:
    world = standing()
    world.image("2")
    for _ in range(100):
        for key in world.ours():
            world.act(key)
        world.pass_time(1_000)
        if world.at_meta["g0"].master == "g0-1":
            break
    world.act(KEY, heard=False)
    assert "master" not in world.get(*KEY)["status"], "what is not known is not said"
    world.settle()

    told = [reason for name, reason in world.events if name == "g0" and reason.startswith("Switchover")]
    assert told == ["SwitchoverStarted", "SwitchoverCompleted"]
    assert "leader" not in world.get(*KEY)["status"]["rollout"]


def test_a_master_that_fails_by_itself_is_no_switchover() -> None:
    world = standing()
    world.stuck.add("g0-0")
    world.kill("g0-0")
    world.settle()

    assert world.at_meta["g0"].master == "g0-1"
    assert world.events == []


def test_a_paused_group_is_left_alone_in_the_middle_of_a_rollout() -> None:
    world = standing(groups=2)
    world.image("2")
    for _ in range(3):
        for key in world.ours():
            world.act(key)
        world.pass_time(1_000)
    status = world.get(*KEY)["status"]
    world.annotate(*KEY, paused="true")

    made = world.plan(KEY)

    assert made.steps == ()
    assert made.status["rollout"] == status["rollout"]
    assert said(made)["Paused"] == ("True", "PausedByAnnotation")


def test_the_template_that_an_operator_before_made_is_told() -> None:
    world = standing()
    workload = world.get("StatefulSet", "g0")
    workload["metadata"]["annotations"]["tidemill.dev/template-hash"] = "before"

    made = world.plan(KEY)

    progressing = next(one for one in made.conditions if one.type == "Progressing")
    assert "rolling-restart-at says when" in progressing.message
    assert (
        applied(made, "StatefulSet")[0]["metadata"]["annotations"]["tidemill.dev/template-hash"] == "before"
    )
