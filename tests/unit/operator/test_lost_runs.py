"""Runs of which meta hears no more: what Archives and Replays say of them, and what Spark's operator knows better."""

from __future__ import annotations

from typing import Any

import pytest

from samples.kubernetes import NAMESPACE, manifest
from samples.pipelines import ARCHIVE, REPLAY, Pipelines, a_pipeline
from tidemill_operator.replays import path_of
from tidemill_operator.store import Key


@pytest.fixture
def world() -> Pipelines:
    return a_pipeline()


def an_archive(world: Pipelines, **source: Any) -> tuple[Key, str]:
    """One whose schedule Spark's operator has taken."""
    key = world.apply(manifest("Archive", "hourly", {**ARCHIVE, "source": {**ARCHIVE["source"], **source}}))
    world.settle()
    [schedule] = world.schedules()
    world.accept(schedule["metadata"]["name"])
    world.settle()
    return key, schedule["metadata"]["name"]


def said(world: Pipelines, key: Key, kind: str) -> tuple[str, str]:
    found = world.condition(key, kind)
    return found["status"], found["reason"]


def lost(world: Pipelines, run: str) -> dict[str, Any]:
    return {"run": run, "state": "Lost", "heard_at": world.now_ms}


def test_a_run_that_nothing_runs_and_nobody_hears_is_lost_until_the_next_one_ends(world: Pipelines) -> None:
    """Somebody deleted it while it ran: no object is left that could say how it ended."""
    key, name = an_archive(world)
    run = world.run(name, 1)
    world.turn(run, "RUNNING")
    known = {"name": "hourly", "state": "Active", "subjects": ["order.created"], "watermarks": {}}
    world.reports["/v1/archives/hourly"] = {**known, "runs": [lost(world, run)]}
    world.settle()
    assert said(world, key, "LastRunSucceeded")[0] == "Unknown", "it may have lost meta alone"
    world.store.drop("SparkApplication", NAMESPACE, run)
    world.settle()
    assert said(world, key, "LastRunSucceeded") == ("False", "RunLost")
    message = world.condition(key, "LastRunSucceeded")["message"]
    assert f"the driver of {run} was last heard of at " in message
    world.now_ms += 3_600_000
    world.turn(world.run(name, 2), "COMPLETED")
    world.settle()
    assert said(world, key, "LastRunSucceeded") == ("True", "RunSucceeded")


def test_a_replay_of_which_meta_hears_no_more_says_so_and_ends_as_spark_says(world: Pipelines) -> None:
    world.apply(manifest("Archive", "hourly", ARCHIVE))
    key = world.apply(manifest("Replay", "again", REPLAY))
    world.settle()
    [name] = world.made
    world.turn(name, "RUNNING")
    world.settle()
    assert said(world, key, "Complete") == ("Unknown", "Progressing")
    resource = world.store.get(key)
    assert resource is not None
    world.reports[path_of(resource)] = {"name": "again", **lost(world, name)}
    world.settle()
    assert said(world, key, "Complete") == ("Unknown", "RunLost")
    world.turn(name, "COMPLETED")
    world.settle()
    assert said(world, key, "Complete") == ("True", "RunSucceeded")


@pytest.mark.parametrize("place", ["Slave", "Master"])
def test_where_an_archive_reads_is_said_to_its_jobs(world: Pipelines, place: str) -> None:
    """Of the default nothing is said: an image of an earlier version knows no such word."""
    an_archive(world, readFrom=place)
    [schedule] = world.schedules()
    words = schedule["spec"]["template"]["arguments"]
    told = [words[at + 1] for at, word in enumerate(words) if word == "--read-from"]
    assert told == (["Master"] if place == "Master" else [])
