"""Archives: what is made for one, what its status says, and what is left when it goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samples.kubernetes import NAMESPACE, manifest
from samples.pipelines import ARCHIVE, Pipelines, a_pipeline
from tidemill_operator import marks
from tidemill_operator.archives import UNSEEN_MS, WATERMARKS_MAX
from tidemill_operator.steps import Manifest
from tidemill_operator.store import Key

SEPTEMBER_MS = 1_788_220_800_000
HOURLY = "/v1/archives/hourly"


@pytest.fixture
def world() -> Pipelines:
    return a_pipeline()


def hourly(world: Pipelines, **spec: Any) -> Key:
    return world.apply(manifest("Archive", "hourly", {**ARCHIVE, **spec}))


def status(world: Pipelines, key: Key) -> dict[str, Any]:
    return dict(marks.status(found(world, key)))


def found(world: Pipelines, key: Key) -> Manifest:
    resource = world.store.get(key)
    assert resource is not None
    return resource


def condition(world: Pipelines, key: Key, kind: str) -> tuple[str, str]:
    said = world.condition(key, kind)
    return said.get("status", ""), said.get("reason", "")


def accepted(world: Pipelines, **spec: Any) -> tuple[Key, str]:
    """An Archive whose schedule Spark's operator has taken."""
    key = hourly(world, **spec)
    world.settle()
    [schedule] = world.schedules()
    world.accept(schedule["metadata"]["name"], nextRun="2027-01-15T09:15:00Z")
    world.settle()
    return key, schedule["metadata"]["name"]


def test_an_archive_becomes_a_schedule_and_is_held_before(world: Pipelines) -> None:
    key = hourly(world)
    plan = world.plan(key)
    assert [type(one).__name__ for one in plan.steps] == ["Hold", "Ask", "Apply"]
    world.settle()
    [schedule] = world.schedules()
    assert schedule["metadata"]["labels"][marks.ARCHIVE_LABEL] == "hourly"
    assert condition(world, key, "Scheduled") == ("Unknown", "Pending")
    assert status(world, key)["scheduledSparkApplication"] == schedule["metadata"]["name"]


def test_a_schedule_that_was_taken_is_ready_and_says_when_it_is_due(world: Pipelines) -> None:
    key, _ = accepted(world)
    assert world.ready(key) == ("True", "Reconciled")
    assert condition(world, key, "Scheduled") == ("True", "Reconciled")
    assert condition(world, key, "LastRunSucceeded") == ("Unknown", "Pending")
    assert status(world, key)["nextScheduleTime"] == "2027-01-15T09:15:00Z"


def test_nothing_is_written_when_nothing_changed(world: Pipelines) -> None:
    accepted(world)
    writes = world.writes
    world.now_ms += 3_600_000
    world.settle(passes=1)
    assert world.writes == writes


def test_meta_knows_of_its_subjects_before_its_first_run_and_again_when_they_are_others(
    world: Pipelines,
) -> None:
    """So that meta keeps for it what is not archived."""
    hourly(world, source={"selector": {"matchLabels": {"archive": "true"}}})
    world.settle()
    assert world.reports[HOURLY]["subjects"] == ["order.created"]
    world.apply(manifest("Subject", "invoices", labels={"archive": "true"}))
    world.settle()
    assert world.reports[HOURLY]["subjects"] == ["invoices", "order.created"]


def test_one_of_the_name_of_one_that_ended_begins_anew(world: Pipelines) -> None:
    world.reports[HOURLY] = {**report(1), "state": "Ended"}
    hourly(world)
    world.settle()
    assert world.reports[HOURLY]["state"] == "Active"
    assert world.reports[HOURLY]["watermarks"] == report(1)["watermarks"]


def test_without_an_operator_of_spark_the_conditions_say_so(world: Pipelines) -> None:
    world.served = frozenset()
    key = hourly(world)
    world.settle()
    assert world.ready(key) == ("False", "SparkOperatorMissing")
    assert condition(world, key, "Scheduled") == ("False", "SparkOperatorMissing")
    assert not marks.is_held(found(world, key)), "nothing has to be taken back"


def test_a_schedule_of_which_nobody_says_anything_is_in_a_namespace_that_nobody_watches(
    world: Pipelines,
) -> None:
    key = hourly(world)
    world.settle()
    world.now_ms += UNSEEN_MS + 1_000
    world.step(key)
    assert condition(world, key, "Scheduled") == ("False", "NamespaceNotWatched")
    assert world.ready(key) == ("False", "NamespaceNotWatched")


def test_a_schedule_that_is_refused_says_why(world: Pipelines) -> None:
    key = hourly(world, timeZone="Europe/Atlantis")
    world.settle()
    [schedule] = world.schedules()
    world.accept(schedule["metadata"]["name"], "FailedValidation", reason="Invalid timezone: unknown")
    world.step(key)
    assert condition(world, key, "Scheduled") == ("False", "ScheduleInvalid")
    assert "Invalid timezone: unknown" in world.condition(key, "Scheduled")["message"]


def test_another_time_is_another_object_and_what_is_under_way_goes_on(world: Pipelines) -> None:
    """Spark's operator would not look again at when the old one is due, nor at all at one that it has refused."""
    key, name = accepted(world)
    run = world.run(name, 1)
    world.turn(run, "RUNNING")
    hourly(world, schedule="30 * * * *")
    world.settle()
    [schedule] = world.schedules()
    assert schedule["metadata"]["name"] != name
    assert schedule["spec"]["schedule"] == "30 * * * *"
    assert [one["metadata"]["name"] for one in world.applications()] == [run]
    assert status(world, key)["scheduledSparkApplication"] == schedule["metadata"]["name"]


def test_another_size_is_the_same_object(world: Pipelines) -> None:
    _, name = accepted(world)
    hourly(world, spark={"executor": {"instances": 5}})
    world.settle()
    [schedule] = world.schedules()
    assert schedule["metadata"]["name"] == name
    assert schedule["spec"]["template"]["executor"]["instances"] == 5


def test_a_suspended_archive_begins_nothing(world: Pipelines) -> None:
    key, _ = accepted(world)
    hourly(world, state="Suspended")
    world.settle()
    [schedule] = world.schedules()
    assert schedule["spec"]["suspend"] is True
    assert world.ready(key) == ("True", "Suspended")
    assert condition(world, key, "Scheduled") == ("False", "Suspended")
    assert "nextScheduleTime" not in status(world, key)


def test_subjects_are_named_as_meta_knows_them(world: Pipelines) -> None:
    accepted(world)
    [schedule] = world.schedules()
    words = schedule["spec"]["template"]["arguments"]
    assert words[words.index("--subject") + 1] == "order.created"


def test_a_subject_that_is_missing_is_waited_for(world: Pipelines) -> None:
    key = hourly(world, source={"subjects": [{"name": "invoices"}]})
    world.settle()
    assert world.ready(key) == ("False", "ReferenceNotFound")
    assert world.schedules() == []
    world.apply(manifest("Subject", "invoices"))
    world.settle()
    assert len(world.schedules()) == 1


def test_subjects_that_get_the_label_later_are_archived_too(world: Pipelines) -> None:
    hourly(world, source={"selector": {"matchLabels": {"archive": "true"}}})
    world.settle()
    world.apply(manifest("Subject", "invoices", labels={"archive": "true"}))
    world.apply(manifest("Subject", "logs", labels={"archive": "false"}))
    world.settle()
    [schedule] = world.schedules()
    words = schedule["spec"]["template"]["arguments"]
    assert [words[n + 1] for n, word in enumerate(words) if word == "--subject"] == [
        "invoices",
        "order.created",
    ]


@pytest.mark.parametrize(
    "spec, said",
    [
        ({"schedule": "0 0 */2 * mon"}, "restrict one of the two"),
        ({"spark": {"conf": [{"name": "spark.master", "value": "local"}]}}, "drop it"),
        (
            {"spark": {"conf": [{"name": "spark.kubernetes.driver.podTemplateFile", "value": "/etc"}]}},
            "drop it",
        ),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(world: Pipelines, spec: dict[str, Any], said: str) -> None:
    key = hourly(world, **spec)
    world.settle()
    assert world.ready(key) == ("False", "InvalidSpec")
    assert said in world.condition(key, "Ready")["message"]


def test_without_an_image_it_says_where_to_name_one(world: Pipelines) -> None:
    world.image = ""
    key = hourly(world)
    world.settle()
    assert "spec.spark.image" in world.condition(key, "Ready")["message"]


def test_the_status_says_how_the_last_run_ended_and_how_far_the_archive_is(world: Pipelines) -> None:
    key, name = accepted(world)
    run = world.run(name, 1)
    world.turn(run, "RUNNING")
    world.settle()
    assert status(world, key)["lastRunState"] == "Running"
    world.reports[HOURLY] = report(2)
    world.turn(run, "COMPLETED")
    world.settle()
    said = status(world, key)
    assert condition(world, key, "LastRunSucceeded") == ("True", "RunSucceeded")
    assert (said["lastRunName"], said["lastRunState"]) == (run, "Succeeded")
    assert said["lastSuccessfulTime"] == marks.timestamp(world.now_ms - world.now_ms % 1000)
    assert said["archived"] == {"messages": "2000", "bytes": "2048000"}
    assert said["watermarks"][0] == {
        "subject": "order.created",
        "brokerGroup": "g0",
        "sequence": "0",
        "time": "2026-09-01T00:00:00Z",
    }


def report(count: int, error: str = "") -> dict[str, Any]:
    """As meta answers, after a run that went well, and with ``error`` one that failed."""
    watermarks = {f"g{number}": {"order.created": number * 10} for number in range(count)}
    counts = {"messages": 1000 * count, "written_bytes": 1_024_000 * count, "files": 3}
    runs = [{"run": "r1", "state": "Succeeded", "counts": counts, "through": SEPTEMBER_MS}]
    runs += [{"run": "r2", "state": "Failed", "error": error}] if error else []
    return {
        "name": "hourly",
        "state": "Active",
        "subjects": ["order.created"],
        "watermarks": watermarks,
        "runs": runs,
    }


def test_too_many_watermarks_are_in_a_config_map(world: Pipelines) -> None:
    key, _ = accepted(world)
    world.reports[HOURLY] = report(WATERMARKS_MAX + 1)
    world.settle()
    said = status(world, key)
    kept = world.store.get(Key("ConfigMap", NAMESPACE, said["watermarksConfigMap"]))
    assert kept is not None
    assert "watermarks" not in said
    assert len(json.loads(kept["data"]["watermarks.json"])) == WATERMARKS_MAX + 1
    world.reports[HOURLY] = report(1)
    world.settle()
    assert "watermarksConfigMap" not in status(world, key)


def test_a_run_that_failed_says_why_and_what_stood_there_stays(world: Pipelines) -> None:
    key, name = accepted(world)
    world.reports[HOURLY] = report(1)
    world.turn(world.run(name, 1), "COMPLETED")
    world.settle()
    well = status(world, key)["lastSuccessfulTime"]
    world.now_ms += 3_600_000
    world.reports[HOURLY] = report(1, error="the bucket is full")
    run = world.run(name, 2)
    world.turn(run, "FAILED", "driver container failed with exit code 1")
    world.settle()
    assert condition(world, key, "LastRunSucceeded") == ("False", "RunFailed")
    assert "the bucket is full" in world.condition(key, "LastRunSucceeded")["message"]
    assert status(world, key)["lastError"] == "the bucket is full"
    assert status(world, key)["lastSuccessfulTime"] == well
    assert world.events[-1] == ("hourly", "RunFailed")
    assert world.ready(key) == ("True", "Reconciled"), "the next one may go well"


def test_a_run_whose_driver_never_comes_is_taken_away_and_said(world: Pipelines) -> None:
    """With Forbid nothing else would ever run."""
    key, name = accepted(world, startDeadlineSeconds=600)
    world.turn(world.run(name, 1), "COMPLETED")
    world.settle()
    run = world.run(name, 2)
    world.turn(run, "SUBMITTED")
    world.now_ms += 599_000
    world.settle()
    assert run in {one["metadata"]["name"] for one in world.applications()}
    world.now_ms += 2_000
    world.settle()
    assert run not in {one["metadata"]["name"] for one in world.applications()}
    assert condition(world, key, "LastRunSucceeded") == ("False", "RunStuck")
    assert status(world, key)["lastRunState"] == "Stuck"
    assert ("hourly", "RunStuck") in world.events


def test_what_is_known_stays_while_meta_is_silent_and_runs_are_forgotten(world: Pipelines) -> None:
    key, name = accepted(world)
    world.reports[HOURLY] = report(1)
    run = world.run(name, 1)
    world.turn(run, "COMPLETED")
    world.settle()
    before = status(world, key)
    world.store.drop("SparkApplication", NAMESPACE, run)
    world.meta_is_there = False
    world.settle()
    assert status(world, key) == before


def test_an_archive_that_goes_ends_its_runs_and_tells_meta_then(world: Pipelines) -> None:
    key, name = accepted(world)
    world.turn(world.run(name, 1), "RUNNING")
    world.reports[HOURLY] = report(1)
    world.delete(key)
    world.meta_is_there = False
    world.settle()
    assert world.schedules() == world.applications() == []
    assert world.ready(key) == ("Unknown", "Deleting"), "meta has to know"
    world.meta_is_there = True
    world.settle()
    assert world.store.get(key) is None
    assert world.reports[HOURLY]["state"] == "Ended"


def test_meta_is_not_told_while_a_run_could_still_say_otherwise(world: Pipelines) -> None:
    key, name = accepted(world)
    world.turn(world.run(name, 1), "RUNNING")
    world.reports[HOURLY] = report(1)
    hourly(world, schedule="30 * * * *")
    world.settle()  # the run has no schedule any more
    world.delete(key)
    for _ in range(3):
        assert world.reports[HOURLY]["state"] == "Active" or world.applications() == []
        world.step(key)
    world.settle()
    assert world.store.get(key) is None
    assert world.applications() == []


@pytest.mark.parametrize("how", ["namespace", "cluster", "unmanaged", "no cluster"])
def test_nobody_is_held_when_nobody_is_left_to_tell(world: Pipelines, how: str) -> None:
    key, _ = accepted(world)
    world.reports[HOURLY] = report(1)
    world.meta_is_there = False
    cluster = Key("QueueCluster", NAMESPACE, "prod")
    match how:
        case "namespace":
            world.namespace_goes = True
        case "cluster":
            resource = dict(found(world, cluster))
            resource["metadata"] = {**resource["metadata"], "finalizers": [marks.FINALIZER]}
            world.store.drop(*cluster)
            world.store.put(resource)
            world.delete(cluster)
        case "unmanaged":
            world.annotate(key, marks.MANAGED, "false")
        case _:
            world.store.drop(*cluster)
    world.delete(key)
    world.settle()
    assert world.store.get(key) is None


def test_a_paused_archive_is_left_as_it_is(world: Pipelines) -> None:
    key, name = accepted(world)
    world.annotate(key, marks.PAUSED, "true")
    hourly(world, schedule="30 * * * *")
    world.settle()
    assert [one["metadata"]["name"] for one in world.schedules()] == [name]
    assert condition(world, key, "Paused") == ("True", "PausedByAnnotation")
