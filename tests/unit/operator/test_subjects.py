"""Subjects: what is asked of meta and said of them, in each state that the planner knows."""

from __future__ import annotations

import pytest

from samples.kubernetes import CLUSTER, NAMESPACE, World, a_world, manifest
from tidemill_operator import marks
from tidemill_operator.steps import Ask, Hold
from tidemill_operator.store import Key


@pytest.fixture
def world() -> World:
    return a_world()


def orders(world: World, **spec: object) -> Key:
    return world.apply(manifest("Subject", "orders", spec))


def test_a_subject_is_declared_and_then_ready(world: World) -> None:
    key = orders(world, retention={"messageSeconds": 3600})
    world.settle()
    assert world.subjects["orders"]["declared"]["spec"]["retention"]["messageSeconds"] == 3600
    assert world.ready(key) == ("True", "Reconciled")
    resource = world.store.get(key)
    assert resource is not None
    assert resource["status"]["brokerGroups"] == ["g0", "g1"]
    assert resource["status"]["observedGeneration"] == 1
    assert world.events == [("orders", "Created")]


def test_nothing_is_written_when_nothing_changed(world: World) -> None:
    orders(world)
    world.settle()
    writes = world.writes
    world.now_ms += 3_600_000
    world.settle(passes=1)
    assert world.writes == writes


def test_what_only_the_operator_reads_is_not_told_to_meta(world: World) -> None:
    orders(world, deletionPolicy="Delete")
    world.settle()
    told = world.subjects["orders"]["declared"]
    assert "clusterRef" not in told["spec"]
    assert told["spec"]["deletionPolicy"] == "Retain"
    assert told["metadata"] == {"name": "orders", "namespace": NAMESPACE}


def test_a_changed_spec_is_told(world: World) -> None:
    key = orders(world)
    world.settle()
    orders(world, retention={"messageSeconds": 7200})
    world.settle()
    assert world.subjects["orders"]["declared"]["spec"]["retention"]["messageSeconds"] == 7200
    assert world.events[-1] == ("orders", "Updated")
    assert world.condition(key, "Ready")["observedGeneration"] == 2


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        ({"brokerGroups": ["g0", "g1"]}, ""),
        ({"minBrokerGroups": 2}, ""),
        (
            {"brokerGroups": ["g0", "g1", "g2"]},
            "it lies on g0, g1, and not on g2: `tidemill expand orders --to g2`",
        ),
        ({"brokerGroups": ["g1"]}, "it lies on g0, g1, and g0 is not named: drain it, or name it"),
        (
            {"minBrokerGroups": 3},
            "it lies on g0, g1, and minBrokerGroups is 3: `tidemill expand orders --partitions 3`",
        ),
    ],
)
def test_a_placement_that_was_changed_when_it_lay_elsewhere_is_said_and_moves_nothing(
    world: World, placement: dict[str, object], said: str
) -> None:
    key = orders(world)
    world.settle()
    orders(world, placement=placement)
    world.settle()
    condition = world.condition(key, "Placed")
    assert (condition["status"], condition["reason"]) == (
        ("False", "Misplaced") if said else ("True", "Reconciled")
    )
    assert condition["message"] == (said or "it lies where the spec says")
    assert world.ready(key) == ("True", "Reconciled")
    orders(world)
    world.settle()
    assert "Placed" not in {one["type"] for one in world.store.get(key)["status"]["conditions"]}  # type: ignore[index]


def test_what_was_there_already_is_adopted(world: World) -> None:
    world.subjects["orders"] = {"name": "orders", "declared": None, "route": None, "version": 1}
    key = orders(world)
    world.settle()
    assert world.events == [("orders", "Adopted")]
    assert world.ready(key) == ("True", "Reconciled")


def test_drift_is_reverted_counted_and_told(world: World) -> None:
    key = orders(world, retention={"messageSeconds": 3600})
    world.settle()
    world.drift("orders", retention={"messageSeconds": 60, "archive": "Optional"})
    world.step(key)
    assert world.condition(key, "Synced")["reason"] == "DriftReverted"
    world.settle()
    assert world.subjects["orders"]["declared"]["spec"]["retention"]["messageSeconds"] == 3600
    resource = world.store.get(key)
    assert resource is not None
    assert resource["status"]["drift"]["count"] == 1
    assert resource["status"]["drift"]["fields"] == ["retention.messageSeconds"]
    assert world.condition(key, "Synced")["reason"] == "InSync"
    assert world.events[-1] == ("orders", "DriftReverted")


def test_what_was_removed_past_its_object_is_made_again(world: World) -> None:
    key = orders(world)
    world.settle()
    del world.subjects["orders"]
    world.settle()
    assert "orders" in world.subjects
    assert world.ready(key) == ("True", "Reconciled")


def test_only_told_to_create_it_leaves_drift_and_says_so(world: World) -> None:
    key = orders(world, managementPolicy="CreateOnly", retention={"messageSeconds": 3600})
    world.settle()
    world.drift("orders", retention={"messageSeconds": 60})
    world.settle()
    assert world.subjects["orders"]["declared"]["spec"]["retention"]["messageSeconds"] == 60
    assert world.condition(key, "Synced")["reason"] == "DriftReported"


def test_an_observer_asks_for_nothing(world: World) -> None:
    key = orders(world, managementPolicy="Observe", deletionPolicy="Delete")
    world.settle()
    assert world.subjects == {}
    assert world.ready(key) == ("False", "ReferenceNotFound")
    world.subjects["orders"] = {"name": "orders", "declared": None, "route": None, "version": 1}
    world.settle()
    assert world.condition(key, "Synced")["reason"] == "DriftReported"
    world.delete(key)
    assert world.store.get(key) is None
    assert "orders" in world.subjects


# -- deletion --------------------------------------------------------------------------------------------------


def test_by_default_nothing_is_removed(world: World) -> None:
    key = orders(world)
    world.settle()
    world.delete(key)
    assert world.store.get(key) is None
    assert "orders" in world.subjects


def test_the_finalizer_is_held_before_anything_is_declared(world: World) -> None:
    key = orders(world, deletionPolicy="Delete")
    steps = world.plan(key).steps
    assert [type(one) for one in steps] == [Hold, Ask]
    assert steps[0] == Hold(True)


@pytest.mark.parametrize(
    "policy, path", [("Delete", "/v1/subjects/orders"), ("DeleteIfEmpty", "/v1/subjects/orders?if_empty=1")]
)
def test_a_deletion_policy_removes_it_and_then_lets_go(world: World, policy: str, path: str) -> None:
    key = orders(world, deletionPolicy=policy)
    world.settle()
    world.delete(key)
    assert world.plan(key).steps == (Ask("DELETE", path),)
    world.settle()
    assert world.store.get(key) is None
    assert world.subjects == {}


def test_what_is_in_use_stays_until_it_is_not(world: World) -> None:
    key = orders(world, deletionPolicy="Delete")
    world.settle()
    world.used.add("orders")
    world.delete(key)
    world.step(key)
    assert world.store.get(key) is not None
    assert "orders" in world.subjects
    world.used.clear()
    world.settle()
    assert world.store.get(key) is None


def test_a_policy_of_the_last_moment_counts(world: World) -> None:
    key = orders(world, deletionPolicy="Delete")
    world.settle()
    world.used.add("orders")
    world.delete(key)
    world.apply(manifest("Subject", "orders", {"deletionPolicy": "Retain"}))
    world.settle()
    assert world.store.get(key) is None
    assert "orders" in world.subjects


def test_a_silent_meta_holds_what_it_must_remove(world: World) -> None:
    key = orders(world, deletionPolicy="Delete")
    world.settle()
    world.meta_is_there = False
    world.delete(key)
    world.step(key)
    assert world.ready(key) == ("Unknown", "Deleting")
    world.meta_is_there = True
    world.settle()
    assert world.subjects == {}


@pytest.mark.parametrize("how", ["cluster gone", "cluster goes", "namespace goes", "unmanaged"])
def test_the_finalizer_lets_go_when_nobody_is_left_to_remove_anything(world: World, how: str) -> None:
    key = orders(world, deletionPolicy="Delete")
    world.settle()
    world.meta_is_there = False
    cluster = Key("QueueCluster", NAMESPACE, CLUSTER)
    match how:
        case "cluster gone":
            world.delete(cluster)
        case "cluster goes":
            world.apply(manifest("QueueCluster", CLUSTER, finalizers=["somebody's"]))
            world.delete(cluster)
        case "namespace goes":
            world.namespace_goes = True
        case _:
            world.annotate(key, marks.MANAGED, "false")
    world.delete(key)
    world.step(key)
    assert world.store.get(key) is None
    assert "orders" in world.subjects


def test_another_object_of_the_same_subject_keeps_it_from_being_removed(world: World) -> None:
    key = orders(world, deletionPolicy="Delete")
    world.settle()
    other = world.apply(manifest("Subject", "orders-again", {"subjectName": "orders"}))
    world.delete(key)
    world.settle()
    assert world.store.get(key) is None
    assert "orders" in world.subjects
    assert world.ready(other) == ("True", "Reconciled")
    assert world.events[-1] == ("orders-again", "Adopted")


def test_what_another_object_took_over_is_not_removed(world: World) -> None:
    key = orders(world, deletionPolicy="Delete")
    world.settle()
    world.subjects["orders"]["declared"]["metadata"]["namespace"] = "elsewhere"
    world.delete(key)
    world.step(key)
    assert world.store.get(key) is None
    assert "orders" in world.subjects


# -- what stands against it ------------------------------------------------------------------------------------


def test_of_two_objects_for_one_subject_the_older_one_wins(world: World) -> None:
    first = orders(world)
    second = world.apply(
        manifest("Subject", "orders-again", {"subjectName": "orders", "retention": {"messageSeconds": 60}})
    )
    world.settle()
    assert world.ready(first) == ("True", "Reconciled")
    assert world.ready(second) == ("False", "ResourceConflict")
    assert f"{NAMESPACE}/orders" in world.condition(second, "Ready")["message"]
    assert world.condition(second, "Stalled")["status"] == "True"
    assert ("orders-again", "Conflict") in world.events
    world.delete(first)
    world.settle()
    assert world.ready(second) == ("True", "Reconciled")


def test_a_missing_cluster_is_said_and_waited_for() -> None:
    world = World()
    key = orders(world)
    plan = world.plan(key)
    assert plan.again_ms is not None
    world.settle()
    assert world.ready(key) == ("False", "ReferenceNotFound")
    world.apply(manifest("QueueCluster", CLUSTER))
    world.settle()
    assert world.ready(key) == ("True", "Reconciled")


def test_a_silent_meta_is_said(world: World) -> None:
    world.meta_is_there = False
    key = orders(world)
    world.settle()
    assert world.ready(key) == ("Unknown", "ClusterUnavailable")
    world.meta_is_there = True
    world.settle()
    assert world.ready(key) == ("True", "Reconciled")


def test_a_paused_object_is_left_alone_and_what_stood_there_stays(world: World) -> None:
    key = orders(world)
    world.settle()
    world.annotate(key, marks.PAUSED, "true")
    orders(world, retention={"messageSeconds": 60})
    world.settle()
    assert world.condition(key, "Paused")["status"] == "True"
    assert world.ready(key) == ("True", "Reconciled")
    assert "messageSeconds" not in world.subjects["orders"]["declared"]["spec"]["retention"]
    world.annotate(key, marks.PAUSED, None)
    world.settle()
    assert world.condition(key, "Paused") == {}
    assert world.subjects["orders"]["declared"]["spec"]["retention"]["messageSeconds"] == 60


def test_an_object_that_is_not_managed_lets_go(world: World) -> None:
    key = orders(world, deletionPolicy="Delete")
    world.settle()
    world.annotate(key, marks.MANAGED, "false")
    world.settle()
    resource = world.store.get(key)
    assert resource is not None
    assert not marks.is_held(resource)
    assert world.condition(key, "Unmanaged")["status"] == "True"


def test_who_is_let_go_is_let_go_also_when_it_is_paused(world: World) -> None:
    key = orders(world, deletionPolicy="Delete")
    world.settle()
    world.annotate(key, marks.PAUSED, "true")
    world.annotate(key, marks.MANAGED, "false")

    world.settle()

    assert not marks.is_held(world.store.get(key) or {})
    assert (world.condition(key, "Unmanaged")["status"], world.condition(key, "Paused")) == ("True", {})


def test_a_spec_that_this_version_cannot_read_is_said(world: World) -> None:
    key = orders(world, config=[{"name": "ofTomorrow", "value": "1"}])
    world.settle()
    assert world.ready(key) == ("False", "InvalidSpec")
    assert world.subjects == {}
