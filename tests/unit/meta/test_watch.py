"""What watch streams say: the same text for all that wake together, and never one of before."""

from __future__ import annotations

import json
from typing import Any

from samples.metas import World, speaking
from tidemill_host.clock import Clock
from tidemill_meta.asked import Asked
from tidemill_meta.brokers import set_group_state
from tidemill_meta.doors.watch import Interest, Watch, Watcher

NOTHING = Interest(frozenset(), (), frozenset(), frozenset())


class WorldClock(Clock):
    """The first replica's."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return self._world.first.now_ms


def states(line: bytes) -> dict[str, str]:
    said: dict[str, Any] = json.loads(line)
    return {row["group"]: row["state"] for row in said["brokers"]}


def watched() -> tuple[World, Watch, list[Watcher]]:
    world = World()
    for group in ("g1", "g2"):
        world.register(group, f"{group}-0")
    world.pass_ms(1_000, speaking(world, "g1-0"))
    watch = Watch(world.first.meta, WorldClock(world))
    watch.changed([])
    watchers = [Watcher(NOTHING) for _ in range(3)]
    for watcher in watchers:
        watch._add(watcher)
    return world, watch, watchers


def set_state(world: World, watch: Watch, state: str) -> None:
    asked = Asked({"state": state}, frozenset({"state", "draining"}))
    world.first.change(lambda draft, _: set_group_state(draft, "g1", asked))
    watch.changed([("broker_group", "g1")])


def test_all_streams_hear_of_a_broker_and_of_no_other() -> None:
    world, watch, watchers = watched()

    set_state(world, watch, "R")

    assert all(watcher.woken.is_set() for watcher in watchers)
    assert [states(watch._next(watcher)) for watcher in watchers] == [{"g1": "R"}] * 3


def test_stream_that_wakes_later_is_told_how_things_are_by_then() -> None:
    world, watch, (prompt, late, _) = watched()
    set_state(world, watch, "R")
    assert states(watch._next(prompt)) == {"g1": "R"}

    set_state(world, watch, "RW")

    assert states(watch._next(late)) == {"g1": "RW"}
    assert states(watch._next(prompt)) == {"g1": "RW"}


def test_new_stream_begins_with_all_brokers_as_they_are_now() -> None:
    world, watch, _ = watched()
    assert states(watch._first(NOTHING, 0)) == {"g1": "RW", "g2": "RW"}

    set_state(world, watch, "R")

    assert states(watch._first(NOTHING, 0)) == {"g1": "R", "g2": "RW"}


def test_streams_that_wait_for_nothing_are_not_woken() -> None:
    _, watch, watchers = watched()

    watch.changed([])
    watch.changed([("route", "somebody.elses"), ("allocation", "somebody.elses/team")])

    assert not any(watcher.woken.is_set() for watcher in watchers)
