"""Replays: begun once, tried again as often as was said, and never again because something is missing."""

from __future__ import annotations

from typing import Any

import pytest

from samples.kubernetes import NAMESPACE, manifest
from samples.pipelines import ARCHIVE, REPLAY, Pipelines, a_pipeline
from tidemill_operator import marks
from tidemill_operator.desired.jobs import run_name
from tidemill_operator.replays import BACKOFF_MS, path_of
from tidemill_operator.steps import Manifest
from tidemill_operator.store import Key


@pytest.fixture
def world() -> Pipelines:
    made = a_pipeline()
    made.apply(manifest("Archive", "hourly", ARCHIVE))
    return made


def again(world: Pipelines, **spec: Any) -> Key:
    return world.apply(manifest("Replay", "again", {**REPLAY, **spec}))


def found(world: Pipelines, key: Key) -> Manifest:
    resource = world.store.get(key)
    assert resource is not None
    return resource


def said(world: Pipelines, key: Key, kind: str = "Complete") -> tuple[str, str]:
    condition = world.condition(key, kind)
    return condition.get("status", ""), condition.get("reason", "")


def status(world: Pipelines, key: Key) -> dict[str, Any]:
    return dict(marks.status(found(world, key)))


def begun(world: Pipelines, **spec: Any) -> tuple[Key, str]:
    """A Replay whose first attempt runs."""
    key = again(world, **spec)
    world.settle()
    [name] = world.made
    world.turn(name, "RUNNING")
    world.settle()
    return key, name


def test_a_replay_is_begun_once_after_its_name_was_written_down(world: Pipelines) -> None:
    key = again(world)
    plan = world.step(key)
    assert plan is not None
    assert plan.steps == ()
    noted = status(world, key)["sparkApplication"]
    assert world.made == []
    world.settle()
    assert world.made == [noted]
    assert status(world, key)["attempts"] == 1
    assert said(world, key) == ("Unknown", "Progressing")


def test_what_is_done_is_complete_and_says_what_became_of_the_messages(world: Pipelines) -> None:
    key, name = begun(world)
    world.reports[path_of(found(world, key))] = {
        "state": "Succeeded",
        "dry_run": False,
        "counts": {"messages": 100, "bytes": 102_400},
    }
    world.now_ms += 5_000
    world.turn(name, "COMPLETED")
    ended = marks.timestamp(world.now_ms)
    world.settle()
    assert said(world, key) == ("True", "RunSucceeded")
    assert status(world, key)["counts"] == {"sent": "100"}
    assert status(world, key)["completionTime"] == ended
    assert ("again", "ReplayCompleted") in world.events


def test_counts_that_come_late_are_said_all_the_same(world: Pipelines) -> None:
    key, name = begun(world)
    world.meta_is_there = False
    world.turn(name, "COMPLETED")
    world.settle()
    assert said(world, key) == ("True", "RunSucceeded")
    world.meta_is_there = True
    world.reports[path_of(found(world, key))] = {"counts": {"messages": 7}}
    world.settle()
    assert status(world, key)["counts"] == {"sent": "7"}


def test_what_a_dry_run_counts_was_not_sent(world: Pipelines) -> None:
    key, name = begun(world, mode="DryRun")
    world.reports[path_of(found(world, key))] = {"dry_run": True, "counts": {"messages": 7}}
    world.turn(name, "COMPLETED")
    world.settle()
    assert status(world, key)["counts"] == {"read": "7"}


def test_what_failed_is_tried_again_after_a_pause_under_one_name_at_meta(world: Pipelines) -> None:
    key, first = begun(world, backoffLimit=1)
    world.turn(first, "FAILED", "driver container failed")
    world.settle()
    assert world.made == [first]
    assert "driver container failed" in world.condition(key, "Complete")["message"]
    world.now_ms += BACKOFF_MS
    world.settle()
    assert len(world.made) == 2
    runs = {
        words[words.index("--run") + 1]
        for words in (one["spec"]["arguments"] for one in world.applications())
    }
    assert runs == {run_name(found(world, key))}
    world.turn(world.made[1], "FAILED", "again")
    world.now_ms += 10 * BACKOFF_MS
    world.settle()
    assert len(world.made) == 2
    assert said(world, key) == ("False", "BackoffLimitExceeded")
    assert said(world, key, "Failed") == ("True", "BackoffLimitExceeded")
    assert "again" in status(world, key)["lastError"]


def test_an_attempt_that_is_gone_is_not_made_again(world: Pipelines) -> None:
    """Somebody deleted it: whether it has sent anything, nobody knows."""
    key, name = begun(world)
    world.store.drop("SparkApplication", NAMESPACE, name)
    world.settle()
    assert world.made == [name]
    assert said(world, key, "Failed") == ("True", "Vanished")


def test_another_version_of_the_operator_leaves_what_runs_as_it_is(world: Pipelines) -> None:
    key, name = begun(world)
    world.image = "registry.example.org/tidemill-spark:9.9.9"
    world.settle()
    assert (world.made, world.changed) == ([name], [])
    assert said(world, key) == ("Unknown", "Progressing")


def test_a_suspended_replay_waits_and_goes_on(world: Pipelines) -> None:
    key, name = begun(world)
    again(world, state="Suspended")
    world.settle()
    [application] = world.applications()
    assert application["spec"]["suspend"] is True
    assert said(world, key) == ("Unknown", "Suspended")
    assert said(world, key, "Suspended") == ("True", "Suspended")
    world.turn(name, "SUSPENDED")
    world.now_ms += 86_400_000
    world.settle()
    assert said(world, key) == ("Unknown", "Suspended"), "the time that it waits is not counted"
    again(world, state="Active")
    world.settle()
    [application] = world.applications()
    assert application["spec"]["suspend"] is False
    assert said(world, key) == ("Unknown", "Progressing")
    assert said(world, key, "Suspended") == ("", "")
    assert (world.made, world.changed) == ([name], [])


def test_a_replay_that_is_suspended_from_the_start_begins_when_it_is_not(world: Pipelines) -> None:
    key = again(world, state="Suspended")
    world.settle()
    assert world.made == []
    assert said(world, key) == ("Unknown", "Suspended")
    again(world, state="Active")
    world.settle()
    assert len(world.made) == 1


def test_what_takes_too_long_is_ended_and_has_failed(world: Pipelines) -> None:
    key, _ = begun(world, activeDeadlineSeconds=3600)
    world.now_ms += 3_601_000
    world.settle()
    assert said(world, key, "Failed") == ("True", "DeadlineExceeded")
    assert world.applications() == []


def test_what_ran_it_is_taken_away_later_and_the_result_stays(world: Pipelines) -> None:
    key, name = begun(world, ttlSecondsAfterFinished=60)
    world.reports[path_of(found(world, key))] = {"counts": {"messages": 7}}
    world.turn(name, "COMPLETED")
    world.settle()
    assert len(world.applications()) == 1
    world.now_ms += 62_000
    world.settle()
    assert world.applications() == []
    assert said(world, key) == ("True", "RunSucceeded")
    assert status(world, key)["counts"] == {"sent": "7"}
    writes = world.writes
    world.now_ms += 3_600_000
    world.settle(passes=1)
    assert world.writes == writes


def test_without_an_operator_of_spark_it_waits_and_says_so(world: Pipelines) -> None:
    key = again(world)
    served, world.served = world.served, frozenset()
    world.settle()
    assert said(world, key) == ("False", "SparkOperatorMissing")
    world.served = served
    world.settle()
    assert len(world.made) == 1


def test_an_archive_that_is_not_there_is_waited_for(world: Pipelines) -> None:
    source = {**REPLAY["source"], "archiveRef": {"name": "nightly"}}
    key = again(world, source=source)
    world.settle()
    assert said(world, key) == ("False", "ReferenceNotFound")
    world.apply(manifest("Archive", "nightly", ARCHIVE))
    world.settle()
    assert len(world.made) == 1


def test_the_archive_says_where_it_is_and_by_which_secret(world: Pipelines) -> None:
    again(world)
    world.settle()
    [application] = world.applications()
    words = application["spec"]["arguments"]
    assert words[words.index("--from-uri") + 1] == "s3a://archive/prod"
    for role in ("driver", "executor"):
        [container] = application["spec"][role]["template"]["spec"]["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "archive-keys"}}]
    assert not any("archive-keys" in word for word in words)


def test_a_replay_of_the_same_name_is_another_one(world: Pipelines) -> None:
    key, _ = begun(world)
    world.delete(key)
    assert world.store.get(key) is None
    again(world)
    world.settle()
    assert len(world.made) == len({*world.made}) == 2


@pytest.mark.parametrize("annotation, kind", [(marks.PAUSED, "Paused"), (marks.MANAGED, "Unmanaged")])
def test_one_that_is_paused_or_not_managed_begins_nothing(
    world: Pipelines, annotation: str, kind: str
) -> None:
    value = "true" if annotation == marks.PAUSED else "false"
    key = world.apply(manifest("Replay", "again", REPLAY, annotations={annotation: value}))
    world.settle()
    assert world.made == []
    assert said(world, key, kind) == ("True", f"{kind}ByAnnotation")
    assert world.condition(key, "Ready") == {}
