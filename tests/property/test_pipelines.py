"""Replays under everything that people, Spark, meta and an operator that is killed may do: none is run by mistake."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from samples.kubernetes import NAMESPACE, manifest
from samples.pipelines import ARCHIVE, REPLAY, Pipelines, a_pipeline
from tidemill_operator import marks
from tidemill_operator.store import Key

AGAIN = Key("Replay", NAMESPACE, "again")
HOURLY = Key("Archive", NAMESPACE, "hourly")
LIMIT = 2
STATES = ("SUBMITTED", "RUNNING", "FAILED", "COMPLETED", "UNKNOWN", "PENDING_RERUN")


def happen(world: Pipelines, choice: random.Random) -> None:
    """One thing."""
    going = [
        str(one["metadata"]["name"])
        for one in world.applications()
        if marks.part(one, "status", "applicationState").get("state") not in {"COMPLETED", "FAILED"}
    ]
    match choice.randrange(9):
        case 0 | 1 if going:
            world.turn(choice.choice(going), choice.choice(STATES), "it said so")
        case 2 if world.applications():
            gone = choice.choice(world.applications())
            world.store.drop("SparkApplication", NAMESPACE, str(gone["metadata"]["name"]))
        case 3:
            state = choice.choice(("Active", "Suspended"))
            world.apply(manifest("Replay", "again", {**REPLAY, "backoffLimit": LIMIT, "state": state}))
        case 4:
            world.meta_is_there = not world.meta_is_there
        case 5:
            world.image = f"registry.example.org/tidemill-spark:{choice.randrange(9)}"
        case 6:
            world.now_ms += choice.choice((1_000, 20_000, 600_000))
        case 7:
            world.annotate(AGAIN, marks.PAUSED, choice.choice(("true", None)))
        case _:
            world.served = frozenset() if choice.random() < 0.2 else type(world)().served


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_replay_is_never_run_by_mistake_and_comes_to_an_end(seed: int) -> None:
    world, choice = a_pipeline(), random.Random(seed)
    world.apply(manifest("Archive", "hourly", ARCHIVE))
    world.apply(manifest("Replay", "again", {**REPLAY, "backoffLimit": LIMIT}))
    over = ""
    for _ in range(60):
        happen(world, choice)
        # None: the operator is killed after so many steps of its pass, before it says anything.
        world.step(AGAIN, steps=choice.choice((None, None, None, 0, 1)))
        active = [
            one
            for one in world.applications()
            if marks.part(one, "status", "applicationState").get("state") not in {"COMPLETED", "FAILED"}
        ]
        assert len(active) <= 1
        assert world.changed == [], "Spark's operator runs it all again"
        said = [
            kind for kind in ("Complete", "Failed") if world.condition(AGAIN, kind).get("status") == "True"
        ]
        assert over in {"", *said}, "what was over is over"
        over = said[0] if said else over
    # What was counted is not made again. One that nobody had seen yet may have been deleted, and is made once more.
    assert len({*world.made}) <= LIMIT + 1

    world.served, world.meta_is_there = type(world)().served, True
    world.annotate(AGAIN, marks.PAUSED, None)
    world.apply(manifest("Replay", "again", {**REPLAY, "backoffLimit": LIMIT}))
    for _ in range(12):
        for one in world.applications():
            if marks.part(one, "status", "applicationState").get("state") not in {"COMPLETED", "FAILED"}:
                world.turn(str(one["metadata"]["name"]), "COMPLETED")
        world.step(AGAIN)
        world.now_ms += 300_000
    assert {world.condition(AGAIN, kind).get("status") for kind in ("Complete", "Failed")} & {"True"}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_of_an_archive_that_went_nothing_is_left(seed: int) -> None:
    world, choice = a_pipeline(), random.Random(seed)
    world.apply(manifest("Archive", "hourly", ARCHIVE))
    for number in range(20):
        schedules = [str(one["metadata"]["name"]) for one in world.schedules()]
        match choice.randrange(5):
            case 0:
                minute = choice.randrange(3)
                world.apply(manifest("Archive", "hourly", {**ARCHIVE, "schedule": f"{minute} * * * *"}))
            case 1 if schedules:
                run = world.run(choice.choice(schedules), number)
                world.turn(run, choice.choice(STATES))
            case 2:
                world.meta_is_there = not world.meta_is_there
            case 3:
                world.now_ms += 1_000_000
            case _:
                pass
        world.step(HOURLY, steps=choice.choice((None, None, 0, 1, 2)))
        assert len([*world.schedules()]) <= 3
    world.meta_is_there = True
    world.delete(HOURLY)
    for _ in range(10):
        world.step(HOURLY, steps=choice.choice((None, 0, 1)))
    world.settle()
    assert world.store.get(HOURLY) is None
    assert world.applications() == []
    assert {one["state"] for one in world.reports.values()} <= {"Ended"}
