"""A subject that is removed if it is empty: every row of the table in emptying.py, and what counts for nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from multidict import MultiDict

from samples.metas import World
from tidemill_meta.asked import Asked
from tidemill_meta.beats import Consumes
from tidemill_meta.brokers import hand_over
from tidemill_meta.doors import api
from tidemill_meta.doors.replica import Replica
from tidemill_meta.doors.watch import Watch
from tidemill_meta.emptying import ASKED_MS, note, parse_report, remove_if_empty, silent
from tidemill_meta.errors import Denied
from tidemill_meta.registry import Draft
from tidemill_meta.subjects import declare, told_to
from tidemill_meta.values import Removal, Route, SubjectRecord
from tidemill_wire.declarations import parse_manifests

MASTERED = {name: f"{name} (its master is {name}-0)" for name in ("g1", "g2")}
SUBJECT = {
    "apiVersion": "tidemill.dev/v1alpha1", "kind": "Subject", "metadata": {"name": "s"},
    "spec": {"placement": {"brokerGroups": ["g1", "g2"]}},
}  # fmt: skip


def world_with(*groups: str) -> World:
    """A subject on two broker groups, of which the first has a slave; and consumer groups of it."""
    world = World()
    for name in ("g1-0", "g1-1", "g2-0"):
        world.register(name.partition("-")[0], name)
    speak(world)
    world.in_sync("g1", "g1-0", "g1-1")
    senses = world.first.meta.senses
    declared = parse_manifests([SUBJECT])
    world.first.change(lambda draft, now_ms: declare(draft, senses, declared, now_ms))
    for group in groups:
        world.client("q", Consumes("s", group, "c"))
    world.first.meta.client_left("q", world.first.now_ms)
    return world


def speak(world: World) -> None:
    for name in ("g1-0", "g1-1", "g2-0"):
        world.beat(name.partition("-")[0], name, messages=100)


def ask(world: World, *, force: bool = False) -> str | None:
    senses = world.first.meta.senses
    return world.first.change(lambda draft, now_ms: remove_if_empty(draft, senses, "s", now_ms, force=force))


def say(world: World, group: str, **other: Any) -> None:
    """What a master says of the subject, when it has obeyed all that it was told."""
    row = {"subject": "s", "left": 0, "kept": 0, "groups": []}
    row |= {name: other.pop(name) for name in list(other) if name in row}
    known = world.group(group)
    body = {"group": group, "epoch": known.epoch, "known": world.first.meta.registry.revision, "rows": [row]}
    report = parse_report(body | other)
    world.first.change(lambda draft, _: note(draft, report))


def told(world: World, group: str = "g1") -> tuple[list[str], list[str]]:
    said = told_to(world.first.meta.registry, group, 0)
    return said["read_only"], said["emptying"]


def is_there(world: World) -> bool:
    return world.first.meta.registry.get(SubjectRecord, "s") is not None


def test_subject_takes_nothing_while_it_is_asked_for_and_goes_when_all_have_said_that_nothing_is_left() -> (
    None
):
    world = world_with("g")
    assert told(world) == ([], [])
    before = world.beat("g1", "g1-0")["declared"]

    assert ask(world) == ""
    assert told(world) == told(world, "g2") == (["s"], ["s"])
    assert world.beat("g1", "g1-0")["declared"] > before
    assert silent(world.first.meta.registry, "s") == [MASTERED["g1"], MASTERED["g2"]]

    say(world, "g1", kept=7, groups=["g", "other"])
    assert (ask(world), silent(world.first.meta.registry, "s")) == ("", [MASTERED["g2"]])

    say(world, "g2")
    assert ask(world) is None
    assert not is_there(world)
    assert world.first.meta.registry.get(Route, "s") is None
    assert world.first.meta.registry.get(Removal, "s") is not None
    assert told(world) == ([], [])


@pytest.mark.parametrize(
    ("groups", "row", "left"),
    [
        (("g",), {"left": 3, "kept": 9, "groups": ["g"]}, "g1 has 3 messages that a group has not done with"),
        (
            ("g", "late"),
            {"kept": 9, "groups": ["g"]},
            "g1 has 9 messages that the group 'late' has not begun with",
        ),
        ((), {"kept": 1, "groups": []}, "g1 has 1 message that no group has got"),
    ],
)
def test_subject_of_which_something_is_left_takes_messages_again(
    groups: tuple[str, ...], row: dict[str, Any], left: str
) -> None:
    world = world_with(*groups)
    ask(world)
    say(world, "g2")
    say(world, "g1", **row)

    assert ask(world) == left
    assert is_there(world)
    assert told(world) == ([], [])


def test_groups_that_only_brokers_know_count_when_they_have_got_all() -> None:
    """Who asks a broker for messages himself, as over HTTP, is none of meta's clients."""
    world = world_with()
    ask(world)
    say(world, "g1", kept=1, groups=["who"])
    say(world, "g2")

    assert ask(world) is None


def test_groups_of_broadcast_consumers_count_as_the_group_that_they_are_of() -> None:
    world = world_with("all")
    ask(world)
    say(world, "g1", kept=5, groups=["all.screen-1", "all.screen-2"])
    say(world, "g2")

    assert ask(world) is None


def test_what_was_said_before_the_subject_took_nothing_and_by_a_former_master_counts_for_nothing() -> None:
    world = world_with()
    ask(world)
    say(world, "g2")
    say(world, "g1", known=world.first.meta.registry.revision - 2)
    assert ask(world) == ""
    say(world, "g1", epoch=7)
    assert ask(world) == ""

    say(world, "g1")
    senses = world.first.meta.senses
    world.first.change(lambda draft, now_ms: hand_over(draft, senses, "g1", Asked({"to": "g1-1"}), now_ms))
    assert (ask(world), silent(world.first.meta.registry, "s")) == ("", ["g1 (its master is g1-1)"])
    say(world, "g1")
    assert ask(world) is None


def test_group_whose_master_is_gone_is_named_though_it_said_that_nothing_is_left() -> None:
    world = world_with()
    ask(world)
    say(world, "g1")
    say(world, "g2")
    world.register("g2", "g2-0", boot=2)

    assert (ask(world), silent(world.first.meta.registry, "s")) == ("", ["g2 (it has no master now)"])


class InTurn:
    """A replica as the paths know it."""

    def __init__(self, world: World) -> None:
        self._one = world.first
        self.meta = self._one.meta
        self.clock = SimpleNamespace(now_ms=lambda: world.now_ms)

    async def change(self, decide: Callable[[Draft, int], Any]) -> Any:
        return self._one.change(decide)


async def test_who_has_not_said_it_is_named_as_of_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came a moment after it left nobody to be named."""
    world = world_with()
    ask(world)
    say(world, "g2")

    async def sleep(_seconds: float) -> None:
        say(world, "g1")

    monkeypatch.setattr(api, "LOOKS", 1)
    monkeypatch.setattr(api.asyncio, "sleep", sleep)
    paths = api.Api(cast("Replica", InTurn(world)), cast("Watch", None)).read()
    with pytest.raises(Denied, match=r"is not known of g1 \(its master is g1-0\): ") as denied:
        await paths["DELETE", "/v1/subjects/{subject}"](MultiDict({"if_empty": "1"}), {"subject": "s"})

    assert denied.value.kind.code == "not_known"


def test_subject_whose_broker_groups_are_all_gone_goes_at_once() -> None:
    """Nobody could say what is left, and nobody could be named."""
    world = world_with()
    for group in ("g1", "g2"):
        record = replace(world.group(group), retired=True)
        world.first.change(lambda draft, _, record=record: draft.put(record))

    assert ask(world) is None


def test_subject_that_nobody_removes_in_time_takes_messages_again() -> None:
    world = world_with()
    ask(world)
    world.pass_ms(ASKED_MS, lambda: speak(world))
    assert told(world)[0] == ["s"]

    world.pass_ms(500, lambda: speak(world))

    assert told(world) == ([], [])
    say(world, "g1")
    say(world, "g2")
    assert told(world) == ([], []), "what is said too late changes nothing"
    assert is_there(world)


def test_what_programs_use_is_not_removed_and_what_is_not_there_is_said() -> None:
    world = world_with("g")
    world.client("p", produces=("s",))
    with pytest.raises(Denied, match="subject 's' has 1 producer"):
        ask(world)
    assert told(world) == ([], [])
    assert ask(world, force=True) == ""

    senses = world.first.meta.senses
    with pytest.raises(Denied, match="there is no subject 't'"):
        world.first.change(lambda draft, now_ms: remove_if_empty(draft, senses, "t", now_ms))


def test_it_is_known_to_a_replica_that_starts_meanwhile() -> None:
    world = world_with()
    ask(world)
    say(world, "g1", left=2)
    world.restart()

    assert told(world) == (["s"], ["s"])
    assert ask(world) == "g1 has 2 messages that a group has not done with"
