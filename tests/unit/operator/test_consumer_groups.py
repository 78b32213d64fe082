"""ConsumerGroups: what is theirs beside what they have in common with Subjects."""

from __future__ import annotations

import json

import pytest

from samples.kubernetes import KEDA, NAMESPACE, World, a_world, manifest
from tidemill_operator import marks
from tidemill_operator.autoscaling import said_of, wanted_of
from tidemill_operator.scaling import Advice, Wanted
from tidemill_operator.steps import Seek
from tidemill_operator.store import Key

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "mailer"}


@pytest.fixture
def world() -> World:
    made = a_world()
    made.apply(manifest("Subject", "orders-object", {"subjectName": "orders"}))
    return made


def mailer(world: World, **spec: object) -> Key:
    return world.apply(manifest("ConsumerGroup", "mailer", {"subjectRef": {"name": "orders-object"}, **spec}))


def seek(world: World, key: Key, **said: object) -> None:
    world.annotate(key, marks.SEEK, json.dumps({"requestId": "a1", "to": "Earliest", **said}))


def test_a_group_waits_for_its_subject_and_is_declared_with_its_name(world: World) -> None:
    key = mailer(world)
    world.settle()
    assert world.groups["orders", "mailer"]["declared"]["spec"]["subjectName"] == "orders"
    assert world.ready(key) == ("True", "Reconciled")


def test_a_group_whose_subject_is_not_at_meta_yet_declares_nothing(world: World) -> None:
    key = mailer(world)
    world.step(key)
    assert world.groups == {}
    assert world.ready(key) == ("Unknown", "Progressing")


def test_a_reference_that_leads_nowhere_is_said_and_looked_at_again(world: World) -> None:
    key = mailer(world, subjectRef={"name": "nothing"})
    assert world.plan(key).again_ms is not None
    world.settle()
    assert world.ready(key) == ("False", "ReferenceNotFound")
    world.apply(manifest("Subject", "nothing"))
    world.settle()
    assert world.ready(key) == ("True", "Reconciled")


def test_a_subject_by_name_that_meta_does_not_know_is_not_made(world: World) -> None:
    key = world.apply(manifest("ConsumerGroup", "mailer", {"subjectName": "unknown"}))
    world.settle()
    assert world.ready(key) == ("False", "ReferenceNotFound")
    assert "unknown" not in world.subjects


def test_two_ways_to_name_one_subject_are_one_conflict(world: World) -> None:
    first = mailer(world)
    second = world.apply(manifest("ConsumerGroup", "post", {"subjectName": "orders", "groupName": "mailer"}))
    world.settle()
    assert world.ready(first) == ("True", "Reconciled")
    assert world.ready(second) == ("False", "ResourceConflict")


def test_a_suspended_group_says_so(world: World) -> None:
    key = mailer(world, state="Suspended")
    world.settle()
    assert world.ready(key) == ("True", "Suspended")
    assert world.groups["orders", "mailer"]["declared"]["spec"]["state"] == "Suspended"


def test_a_group_whose_subject_object_is_gone_is_still_removed(world: World) -> None:
    key = mailer(world, deletionPolicy="Delete")
    world.settle()
    world.delete(Key("Subject", NAMESPACE, "orders-object"))
    world.delete(key)
    world.settle()
    assert world.store.get(key) is None
    assert world.groups == {}


# -- seeking ---------------------------------------------------------------------------------------------------


def test_a_seek_is_done_once_noted_and_taken_away(world: World) -> None:
    key = mailer(world)
    world.settle()
    world.lags["orders", "mailer"] = {"lag": 5, "consumers": 0}
    seek(world, key)
    world.settle()
    assert world.sought == [Seek("orders", "mailer", "earliest")]
    resource = world.store.get(key)
    assert resource is not None
    assert resource["status"]["lastReset"]["requestId"] == "a1"
    assert marks.command(resource, marks.SEEK) is None
    assert ("mailer", "SeekDone") in world.events
    seek(world, key)
    world.settle()
    assert len(world.sought) == 1, "the same request was obeyed twice"
    seek(world, key, requestId="a2", to="Timestamp", timestamp="2026-09-01T00:00:00Z")
    world.settle()
    assert world.sought[-1] == Seek("orders", "mailer", 1_788_220_800_000)


@pytest.mark.parametrize("lag", [{"lag": 5, "consumers": 2}, None])
def test_a_seek_waits_for_consumers_to_be_gone(world: World, lag: dict[str, int] | None) -> None:
    key = mailer(world)
    world.settle()
    if lag is not None:
        world.lags["orders", "mailer"] = lag
    seek(world, key)
    world.settle()
    assert world.sought == []
    assert world.condition(key, "Reconciling")["reason"] == "SeekWaits"
    seek(world, key, force=True)
    world.settle()
    assert len(world.sought) == 1
    assert world.condition(key, "Reconciling") == {}


def test_a_suspended_group_is_moved_while_consumers_are_there(world: World) -> None:
    key = mailer(world, state="Suspended")
    world.settle()
    world.lags["orders", "mailer"] = {"lag": 5, "consumers": 2}
    seek(world, key, to="Latest")
    world.settle()
    assert world.sought == [Seek("orders", "mailer", "latest")]


@pytest.mark.parametrize(
    "written",
    ["earliest", "[]", '{"to": "Earliest"}', '{"requestId": "a", "to": "Yesterday"}', '{"requestId": "a", "to": []}',
     '{"requestId": "a", "to": "Timestamp"}', '{"requestId": "a", "to": "Earliest", "force": "yes"}',
     '{"requestId": "a", "to": "Earliest", "timestamp": "2026-09-01T00:00:00Z"}', '{"requestId": "a", "at": 3}'],
)  # fmt: skip
def test_an_annotation_that_is_no_command_is_refused_with_a_sentence(world: World, written: str) -> None:
    key = mailer(world)
    world.settle()
    world.annotate(key, marks.SEEK, written)
    world.settle()
    assert world.sought == []
    resource = world.store.get(key)
    assert resource is not None
    assert marks.command(resource, marks.SEEK) is None
    assert world.events[-1] == ("mailer", "SeekRefused")


# -- lag -------------------------------------------------------------------------------------------------------


def test_the_status_says_lag_in_buckets_and_at_most_each_minute(world: World) -> None:
    key = mailer(world)
    world.settle()
    world.lags["orders", "mailer"] = {"lag": 1520, "consumers": 12}
    world.settle()
    resource = world.store.get(key)
    assert resource is not None
    assert resource["status"]["lag"]["messages"] == "1000"
    assert resource["status"]["consumers"] == 10
    writes = world.writes
    world.lags["orders", "mailer"] = {"lag": 90_000, "consumers": 12}
    world.settle()
    assert world.writes == writes, "sooner than after a minute"
    world.now_ms += 60_000
    world.settle()
    assert world.writes == writes + 1
    world.lags["orders", "mailer"] = {"lag": 99_000, "consumers": 14}
    world.now_ms += 60_000
    world.settle()
    assert world.writes == writes + 1, "the same buckets"


# -- autoscaling -----------------------------------------------------------------------------------------------


def test_a_scaled_object_is_made_where_keda_is_and_goes_with_the_mode(world: World) -> None:
    wanted = {"mode": "Keda", "scaleTargetRef": TARGET, "maxReplicas": 9, "lagPerReplica": 50}
    key = mailer(world, autoscaling=wanted)
    world.settle()
    scaler = Key("ScaledObject", NAMESPACE, "mailer")
    assert world.store.get(scaler) is None, "there is no KEDA"
    world.served = KEDA
    world.settle()
    made = world.store.get(scaler)
    assert made is not None
    assert made["spec"]["maxReplicaCount"] == 9
    trigger = made["spec"]["triggers"][0]["metadata"]
    assert trigger["url"] == f"http://operator:8080/v1/scaling/{NAMESPACE}/mailer"
    assert (trigger["valueLocation"], trigger["targetValue"]) == ("replicas", "1")
    resource = world.store.get(key)
    assert resource is not None
    assert made["metadata"]["ownerReferences"][0]["uid"] == marks.metadata(resource)["uid"]
    mailer(world, autoscaling={"mode": "Disabled"})
    world.settle()
    assert world.store.get(scaler) is None


def test_what_a_spec_wants_of_scaling_is_what_the_rule_is_given() -> None:
    said = {"minReplicas": 2, "maxReplicas": 9, "lagPerReplica": 50, "idleReplicas": 0}
    assert wanted_of(manifest("ConsumerGroup", "mailer", {"autoscaling": said})) == Wanted(60.0, 2, 9, 50, 0)
    assert wanted_of(manifest("ConsumerGroup", "mailer")) == Wanted(60.0, 1, 50, 1000, None)


@pytest.mark.parametrize(
    ("advice", "sentence"),
    [
        (Advice(40, 3, None, None, None, 3), "unknown: it was looked at once; ask again after five seconds"),
        (Advice(40, 3, 9.0, 8.0, None, 4), "never: no more is handled than arrives"),
        (Advice(40, 3, 8.0, 12.0, 10.0, 4), "draining"),
        (Advice(0, 3, 8.0, 8.0, 0.0, 4), "done"),
    ],
)
def test_the_http_port_says_when_a_group_is_drained_or_why_nobody_knows(
    advice: Advice, sentence: str
) -> None:
    said = said_of(advice)
    assert (said["drains"], said["drainsInSeconds"], said["replicas"]) == (
        sentence, advice.drains_in_s, advice.replicas
    )  # fmt: skip
