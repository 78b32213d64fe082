"""Archives at meta: how far they have come only grows, the least of all is told, and who has ended holds nothing."""

from __future__ import annotations

from typing import Any

import pytest

from samples.calls import calls_of
from samples.metas import World, pair
from tidemill_meta.archive_values import Archive, ReplayRecord
from tidemill_meta.archives import (
    archive_row,
    beat_replay,
    beat_run,
    drop_archive,
    put_archive,
    put_replay,
    put_run,
    replay_row,
)
from tidemill_meta.asked import Asked
from tidemill_meta.errors import Denied
from tidemill_meta.subjects import declare, remove_subject, told_to
from tidemill_meta.values import Removal, SubjectRecord
from tidemill_wire.declarations import API_VERSION, parse_manifest

SUBJECT = "order.paid"
KEPT = {"retention": {"archive": "Required"}}


@pytest.fixture
def world() -> World:
    world = World()
    pair(world)
    manifest = parse_manifest(
        {"apiVersion": API_VERSION, "kind": "Subject", "metadata": {"name": SUBJECT}, "spec": KEPT}
    )
    world.first.change(lambda draft, now_ms: declare(draft, world.first.meta.senses, [manifest], now_ms))
    return world


def archive(world: World, name: str, **said: Any) -> None:
    world.first.change(lambda draft, _: put_archive(draft, name, Asked(said)))


def run(world: World, name: str, number: str, sequence: int, **said: Any) -> None:
    body = {"state": "Succeeded", "watermarks": {"g1": {SUBJECT: sequence}}, **said}
    world.first.change(lambda draft, now_ms: put_run(draft, name, number, Asked(body), now_ms))


def told(world: World) -> tuple[list[list[Any]], list[str]]:
    found = told_to(world.first.meta.registry, "g1", 0)
    return found["archived"], found["released"]


def test_a_watermark_only_grows_and_masters_hear_it_with_their_beats(world: World) -> None:
    assert told(world) == ([], [])
    archive(world, "a", subjects=["order.*"])
    before = world.beat("g1", "g1-0")["declared"]
    run(world, "a", "r1", 7)
    assert world.beat("g1", "g1-0")["declared"] > before
    run(world, "a", "r0", 3)  # it comes late

    assert told(world) == ([[SUBJECT, 7]], [])


def test_the_least_of_all_archives_is_told_and_none_of_one_that_has_nothing(world: World) -> None:
    archive(world, "a", subjects=[SUBJECT])
    run(world, "a", "r", 7)
    archive(world, "b", subjects=["*"])
    assert told(world) == ([[SUBJECT, 0]], [])
    run(world, "b", "r", 5)
    assert told(world) == ([[SUBJECT, 5]], [])


def test_who_has_ended_holds_nothing(world: World) -> None:
    archive(world, "a", subjects=[SUBJECT])
    run(world, "a", "r", 7)
    archive(world, "b", subjects=[SUBJECT], state="Ended")
    assert told(world) == ([[SUBJECT, 7]], [])
    archive(world, "a", state="Ended")
    assert told(world) == ([], [SUBJECT])


def test_subject_that_begins_anew_has_nothing_in_an_archive(world: World) -> None:
    """Its messages count from 0 again; those of the former life must not let them go."""
    archive(world, "a", subjects=["order.*"])
    run(world, "a", "r", 1_000, watermarks={"g1": {SUBJECT: 1_000, f"{SUBJECT}#1": 9, "order.open": 5}})
    assert told(world)[0] == [[SUBJECT, 1_000], [f"{SUBJECT}#1", 9]]

    world.first.change(
        lambda draft, now_ms: remove_subject(draft, world.first.meta.senses, SUBJECT, now_ms, force=True)
    )
    found = world.first.meta.registry.get(Archive, "a")
    assert found is not None
    assert found.watermarks == (("g1", "order.open", 5),)


def test_thousands_of_subjects_are_told_in_a_moment(world: World) -> None:
    """What is counted is Python's own calls: each subject was compared with each watermark."""
    names = [f"many.{number}" for number in range(300)]
    declared = [
        parse_manifest(
            {"apiVersion": API_VERSION, "kind": "Subject", "metadata": {"name": name}, "spec": KEPT}
        )
        for name in names
    ]
    world.first.change(lambda draft, now_ms: declare(draft, world.first.meta.senses, declared, now_ms))
    run(world, "a", "r", 1, subjects=["many.*"], watermarks={"g1": dict.fromkeys(names, 3)})

    seen = calls_of(lambda: told(world))

    assert len(told(world)[0]) == 300
    assert seen < 300 * 100


def test_what_was_told_is_shown_and_outlives_the_replica(world: World) -> None:
    for number in range(25):
        run(world, "a", f"r{number}", number, counts={"messages": number}, subjects=[SUBJECT])
    world.first.change(
        lambda draft, now_ms: put_replay(
            draft, "again", Asked({"state": "Failed", "error": "no room", "dry_run": "true"}), now_ms
        )
    )
    registry = world.first.meta.registry
    found, replay = registry.get(Archive, "a"), registry.get(ReplayRecord, "again")
    assert found is not None
    assert replay is not None

    row = archive_row(found, world.now_ms, 0)
    assert (row["subjects"], row["watermarks"], len(row["runs"])) == ([SUBJECT], {"g1": {SUBJECT: 24}}, 20)
    assert row["runs"][-1] == {"run": "r24", "state": "Succeeded", "counts": {"messages": 24}}
    assert replay_row(replay, world.now_ms, 0) == {
        "name": "again", "state": "Failed", "error": "no room", "dry_run": True, "version": replay.version,
    }  # fmt: skip
    assert Archive.from_map("a", found.version, found.to_map()) == found


@pytest.mark.parametrize(
    "body",
    [
        {"state": "Odd"},
        {"state": "Failed", "watermarks": {"g1": {"no name": 3}}},
        {"state": "Failed", "watermarks": {"g1": {SUBJECT: -1}}},
        {"state": "Failed", "counts": {str(number): 1 for number in range(40)}},
        {"state": "Failed", "subjects": [3]},
    ],
)
def test_what_cannot_be_is_refused(world: World, body: dict[str, Any]) -> None:
    with pytest.raises(Exception) as caught:
        world.first.change(lambda draft, _: put_run(draft, "a", "r", Asked(body), world.now_ms))
    assert "Error" not in type(caught.value).__name__


def test_an_archive_that_is_not_there_is_not_forgotten(world: World) -> None:
    with pytest.raises(Denied, match="no archive"):
        world.first.change(lambda draft, _: drop_archive(draft, "a"))


def made_at(world: World) -> int:
    found = world.first.meta.registry.get(SubjectRecord, SUBJECT)
    assert found is not None
    return found.made_ms


def make_again(world: World) -> None:
    """The subject is removed, and declared anew."""
    senses = world.first.meta.senses
    world.first.change(lambda draft, now_ms: remove_subject(draft, senses, SUBJECT, now_ms, force=True))
    world.beat("g1", "g1-0", told=world.first.meta.registry.revision)
    manifest = parse_manifest(
        {"apiVersion": API_VERSION, "kind": "Subject", "metadata": {"name": SUBJECT}, "spec": KEPT}
    )
    world.first.change(lambda draft, now_ms: declare(draft, senses, [manifest], now_ms))


def test_lake_that_tells_of_a_subject_that_was_removed_says_nothing_of_the_next_one(world: World) -> None:
    """It has the watermarks of all that it ever archived, and tells them with each run."""
    archive(world, "a", subjects=[SUBJECT])
    former = made_at(world)
    run(world, "a", "r1", 1_000, made={SUBJECT: former})
    assert told(world)[0] == [[SUBJECT, 1_000]]
    make_again(world)

    run(world, "a", "r2", 1_000, made={SUBJECT: former})
    assert told(world)[0] == [], "nothing of the new one is archived"
    run(world, "a", "r3", 1_000, made={})
    assert told(world)[0] == []

    assert made_at(world) > former
    run(world, "a", "r4", 1_007, made={SUBJECT: made_at(world)})
    assert told(world)[0] == [[SUBJECT, 1_007]]


def test_subject_is_made_behind_its_removal_also_in_the_same_moment(world: World) -> None:
    former = made_at(world)
    make_again(world)

    removal = world.first.meta.registry.get(Removal, SUBJECT)
    assert removal is not None
    assert former < made_at(world)
    assert removal.number < made_at(world)


# -- runs of which nobody hears any more ---------------------------------------------------------------------------

EVERY_MS = 30_000


def begin(world: World, number: str, **said: Any) -> None:
    run(world, "a", number, 0, state="Running", watermarks={}, subjects=[SUBJECT], **said)


def beat(world: World, number: str) -> None:
    body = {"every_ms": EVERY_MS}
    world.first.change(lambda draft, now_ms: beat_run(draft, "a", number, Asked(body), now_ms))


def runs(world: World, listening_since_ms: int = 0) -> list[dict[str, Any]]:
    found = world.first.meta.registry.get(Archive, "a")
    assert found is not None
    shown: list[dict[str, Any]] = archive_row(found, world.now_ms, listening_since_ms)["runs"]
    return shown


def test_run_whose_driver_is_silent_for_ten_beats_is_lost_since_it_was_heard_last(world: World) -> None:
    begin(world, "r1")
    world.pass_ms(5_000)
    beat(world, "r1")
    heard_ms = world.now_ms
    world.pass_ms(10 * EVERY_MS)
    assert runs(world) == [{"run": "r1", "state": "Running", "heard_at": heard_ms}]
    world.pass_ms(1_000)
    assert runs(world) == [{"run": "r1", "state": "Lost", "heard_at": heard_ms}]


def test_run_that_takes_long_is_not_lost_while_its_driver_speaks_and_neither_is_one_that_never_did(
    world: World,
) -> None:
    """Jobs of an earlier version tell that they begin, and nothing more until they end."""
    begin(world, "old")
    begin(world, "slow")
    for _ in range(25):
        beat(world, "slow")
        world.pass_ms(9 * EVERY_MS)
    assert [one["state"] for one in runs(world)] == ["Running", "Running"]


def test_lost_run_that_is_heard_again_runs_and_ends_as_it_says(world: World) -> None:
    begin(world, "r1")
    beat(world, "r1")
    world.pass_ms(11 * EVERY_MS)
    assert runs(world)[0]["state"] == "Lost"
    begin(world, "r1", counts={"messages": 3})
    assert runs(world)[0]["state"] == "Running"
    world.pass_ms(11 * EVERY_MS)
    assert runs(world)[0]["state"] == "Lost", "what it says in between is no end of its beats"
    run(world, "a", "r1", 7)
    assert runs(world) == [{"run": "r1", "state": "Succeeded"}]
    beat(world, "r1")
    world.pass_ms(11 * EVERY_MS)
    assert runs(world) == [{"run": "r1", "state": "Succeeded"}]


def test_replica_that_did_not_listen_calls_nobody_lost_before_it_has_for_long_enough(world: World) -> None:
    begin(world, "r1")
    beat(world, "r1")
    world.pass_ms(20 * EVERY_MS)
    assert runs(world, world.now_ms - 9 * EVERY_MS)[0]["state"] == "Running"
    assert runs(world, world.now_ms - 11 * EVERY_MS)[0]["state"] == "Lost"
    assert 0 <= world.now_ms - world.first.meta.senses.listening_since_ms <= world.now_ms


def test_brokers_hear_nothing_of_how_runs_go(world: World) -> None:
    """What they are told when archives change is all of their subjects."""
    begin(world, "r1")
    before = world.beat("g1", "g1-0")["declared"]
    beat(world, "r1")
    begin(world, "r1", counts={"messages": 3})
    assert world.beat("g1", "g1-0")["declared"] == before
    run(world, "a", "r1", 7)
    assert world.beat("g1", "g1-0")["declared"] > before


def test_replay_is_lost_alike_and_a_beat_of_what_nobody_told_of_is_refused(world: World) -> None:
    def say(state: str) -> None:
        world.first.change(lambda draft, now_ms: put_replay(draft, "b", Asked({"state": state}), now_ms))

    body = Asked({"every_ms": EVERY_MS})
    say("Running")
    world.first.change(lambda draft, now_ms: beat_replay(draft, "b", body, now_ms))
    world.pass_ms(11 * EVERY_MS)
    replay = world.first.meta.registry.get(ReplayRecord, "b")
    assert replay is not None
    assert replay_row(replay, world.now_ms, 0)["state"] == "Lost"
    begin(world, "r1")
    for beaten in (
        lambda draft, now_ms: beat_run(draft, "a", "r2", body, now_ms),
        lambda draft, now_ms: beat_run(draft, "c", "r1", body, now_ms),
        lambda draft, now_ms: beat_replay(draft, "c", body, now_ms),
    ):
        with pytest.raises(Denied, match=r"has no run|there is no"):
            world.first.change(beaten)
