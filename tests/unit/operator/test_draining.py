"""A broker group that is deleted: emptied, retired, stopped, forgotten, let go; and when nobody waits for that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from samples.operating import World
from tidemill_operator.broker_groups import plan
from tidemill_operator.draining import GROUPS, QUIET_MS, asks, master_of
from tidemill_operator.marks import FINALIZER
from tidemill_operator.steps import Ask, Hold, Plan
from tidemill_wire.leftovers import PATH, Leftover

KEY = ("BrokerGroup", "g0")


def leaving(left: int = 0, groups: int = 2, **spec: Any) -> World:
    world = World(groups=groups)
    if spec:
        world.change("BrokerGroup", "g0", **spec)
    world.settle()
    world.at_meta["g0"].left = left
    world.done.clear()
    world.remove(*KEY)
    return world


def asked(made: Plan) -> list[str]:
    return [one.path.rpartition("/")[2] for one in made.steps if isinstance(one, Ask)]


def lets_go(made: Plan) -> bool:
    return Hold(held=False) in made.steps


def ready(made: Plan) -> tuple[str, str]:
    return next((one.reason, one.message) for one in made.conditions if one.type == "Ready")


def live(world: World, seconds: int) -> None:
    for _ in range(seconds):
        for key in world.ours():
            world.act(key)
        world.pass_time(1_000)


def test_an_empty_group_leaves_step_by_step() -> None:
    world = leaving()

    live(world, 90)

    assert KEY not in world.objects
    assert [one for one in world.done if not one.startswith("refused")] == [
        "drain g0",
        "drain g0",
        "retire g0",
        "brokers g0",
        "brokers g0",
    ]
    assert "g0" not in world.at_meta
    assert [one["metadata"]["name"] for one in world.of("PersistentVolumeClaim")][:2] == [
        "data-g0-0",
        "data-g0-1",
    ]


def test_what_is_left_holds_it_and_is_named() -> None:
    world = leaving(left=1_234)
    live(world, 60)

    reason, message = ready(world.plan(KEY))

    assert reason == "DrainBlocked"
    assert "billing of order.created: 1,234 to consume" in message
    assert world.done == ["drain g0"]
    assert len(world.pods("g0")) == 2

    world.at_meta["g0"].left = 0
    live(world, 90)
    assert KEY not in world.objects


def test_late_senders_are_waited_for() -> None:
    world = leaving()
    live(world, QUIET_MS // 1_000 - 5)
    world.at_meta["g0"].position += 1
    live(world, QUIET_MS // 1_000 - 5)
    assert "retire g0" not in world.done

    live(world, 20)

    assert "retire g0" in world.done


def test_a_master_that_does_not_say_what_is_left_holds_it() -> None:
    world = leaving()
    live(world, 3)
    seen = replace(world.view(KEY), brokers={})

    assert "does not say" in ready(plan(seen, world.now_ms + 3_600_000))[1]


def test_a_master_of_another_epoch_does_not_know_what_is_left() -> None:
    """One that was deposed, and has not heard of it, knows nothing of what came of its messages since."""
    world = leaving()
    live(world, 3)
    seen = world.view(KEY)
    world.at_meta["g0"].epoch += 1
    late = replace(world.view(KEY), brokers=seen.brokers)

    assert "does not say" in ready(plan(late, world.now_ms + 3_600_000))[1]


def test_what_is_no_answer_holds_it() -> None:
    world = leaving()
    live(world, 3)
    seen = world.view(KEY)
    for said in ([], {}, {"epoch": 1, "subjects": [{"subject": "order.created"}]}, "", None):
        made = plan(replace(seen, brokers={"g0-0": {PATH: said}}), world.now_ms + 3_600_000)
        assert "does not say" in ready(made)[1], said
    unlisted = {path: rows for path, rows in (seen.meta or {}).items() if path != GROUPS}
    assert "does not say" in ready(plan(replace(seen, meta=unlisted), world.now_ms + 3_600_000))[1]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Leftover("s", pending=2), "2 messages of s in transactions that nobody has decided"),
        (Leftover("s", hidden=1), "1 message of s that slaves do not have yet"),
        (Leftover("s", unarchived=3), "3 messages of s that no archive has"),
    ],
)
def test_what_no_group_can_see_is_left_too(row: Leftover, said: str) -> None:
    world = leaving()
    live(world, 3)
    answer = {PATH: {"epoch": world.at_meta["g0"].epoch, "subjects": [row.to_map()]}}

    made = plan(replace(world.view(KEY), brokers={"g0-0": answer}), world.now_ms + 3_600_000)

    assert ready(made)[0] == "DrainBlocked"
    assert said in ready(made)[1]


def test_a_group_that_has_never_begun_there_holds_it() -> None:
    world = leaving()
    world.groups.add("late")
    live(world, 60)

    assert "late of order.created: 100 messages that it has not begun with" in ready(world.plan(KEY))[1]
    assert "retire g0" not in world.done

    world.at_meta["g0"].begun.add("late")
    live(world, 90)
    assert KEY not in world.objects


def test_order_keys_that_came_after_the_drain_are_moved_by_another_one() -> None:
    """A subject that was not in order when the group was drained, and is now, has its keys there still."""
    world = leaving()
    live(world, 3)
    world.at_meta["g0"].keyed = 1

    live(world, 90)

    assert KEY not in world.objects


def test_groups_of_all_subjects_are_asked_for_only_when_a_broker_group_goes() -> None:
    world = leaving()

    assert GROUPS in asks(world.get(*KEY))
    assert GROUPS not in asks(world.get("BrokerGroup", "g1"))
    assert GROUPS not in asks(world.get("QueueCluster", "prod"))


def test_without_meta_nothing_is_asked_and_nothing_goes() -> None:
    world = leaving()

    made = world.plan(KEY, heard=False)

    assert (asked(made), lets_go(made)) == ([], False)


def test_what_a_person_gives_up_goes_at_once() -> None:
    world = leaving(left=9)
    world.annotate("BrokerGroup", "g0", skip_drain_check="true")

    live(world, 30)

    assert KEY not in world.objects
    assert world.done[:3] == ["drain g0", "drain g0", "retire g0"]


def test_what_a_person_gives_up_goes_without_meta_too() -> None:
    world = leaving(left=9)
    world.annotate("BrokerGroup", "g0", skip_drain_check="true")

    assert lets_go(world.plan(KEY, heard=False))


def test_a_finalizer_lets_go_when_the_namespace_goes() -> None:
    world = leaving(left=9)

    assert plan(replace(world.view(KEY), namespace_goes=True), 0).steps == (Hold(held=False),)


def test_a_finalizer_lets_go_when_the_cluster_is_gone() -> None:
    world = leaving(left=9)

    assert lets_go(plan(replace(world.view(KEY), cluster=None), 0))


def test_a_finalizer_lets_go_of_what_is_not_managed() -> None:
    world = leaving(left=9)
    world.annotate("BrokerGroup", "g0", managed="false")

    assert world.plan(KEY).steps == (Hold(held=False),)


def test_with_the_whole_cluster_retained_volumes_are_enough() -> None:
    world = leaving(left=9)
    world.get("QueueCluster", "prod")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert lets_go(world.plan(KEY))


def test_with_the_whole_cluster_volumes_that_are_deleted_are_emptied_first() -> None:
    retention = {"size": "10Gi", "className": "fast", "retention": {"whenDeleted": "Delete"}}
    world = leaving(left=9, storage=retention)
    world.get("QueueCluster", "prod")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    made = world.plan(KEY)
    assert (lets_go(made), asked(made), ready(made)[0]) == (False, [], "DrainBlocked")

    world.at_meta["g0"].left = 0

    assert lets_go(world.plan(KEY))


def test_a_namesake_that_goes_touches_nothing_at_meta() -> None:
    """Two objects for one group: the younger one never had it, and must not drain the elder's."""
    world = leaving()
    del world.get(*KEY)["metadata"]["deletionTimestamp"]
    world.pass_time(5_000)
    world.add_group("twin", groupName="g0")
    twin = world.get("BrokerGroup", "twin")
    twin["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": [FINALIZER],
    }

    made = world.plan(("BrokerGroup", "twin"))

    assert (asked(made), lets_go(made)) == ([], True)


def test_scaling_to_nothing_keeps_volumes_that_are_kept_with_the_group() -> None:
    """``whenScaled: Delete`` is about a slave too many, and not about the group that goes."""
    world = leaving(storage={"size": "10Gi", "className": "fast", "retention": {"whenScaled": "Delete"}})
    live(world, 2)
    world.at_meta["g0"].retired = True

    applied = [one.manifest for one in world.plan(KEY).steps if hasattr(one, "manifest")]

    [workload] = [one for one in applied if one["kind"] == "StatefulSet"]
    assert workload["spec"]["replicas"] == 0
    assert workload["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Retain"


def test_a_delay_group_is_stopped_when_no_message_waits() -> None:
    """Meta does not retire it, for only its master knows what it keeps."""
    world = leaving(left=3, kind="Delay")
    live(world, 60)
    reason, message = ready(world.plan(KEY))
    assert (reason, world.done) == ("DrainBlocked", ["drain g0"])
    assert "3 messages for later" in message

    world.at_meta["g0"].left = 0
    live(world, 90)

    assert KEY not in world.objects
    assert [one for one in world.done if not one.startswith("refused")] == [
        "drain g0",
        "brokers g0",
        "brokers g0",
    ]


def test_a_page_of_metrics_without_the_number_holds_a_delay_group() -> None:
    world = leaving(kind="Delay")
    live(world, 3)
    seen = world.view(KEY)
    answers = {name: {"/metrics": "tidemill_delay_due 0\n"} for name in seen.brokers}

    assert ready(plan(replace(seen, brokers=answers), world.now_ms + 3_600_000))[0] == "DrainBlocked"


def test_masters_are_asked_only_about_groups_that_go() -> None:
    world = leaving()

    meta = world.view(KEY).meta or {}
    asked = master_of(world.get(*KEY), meta)

    assert asked == ("g0-0", "g0-0:7401", "/v1/left")
    assert master_of(world.get("BrokerGroup", "g1"), meta) is None
    assert master_of(world.get(*KEY), {}) is None


def test_a_slave_that_was_taken_away_is_forgotten_by_meta() -> None:
    world = World(groups=1, slaves=2)
    world.settle()
    world.change("BrokerGroup", "g0", slaves=1)

    world.settle()

    assert sorted(world.at_meta["g0"].members) == ["g0-0", "g0-1"]
    assert world.done[-1].startswith("brokers g0")
    assert ("PersistentVolumeClaim", "data-g0-2") in world.objects
