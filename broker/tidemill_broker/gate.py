"""What people said at meta of this broker's subjects: declarations, and what takes no messages for now.

    waits --meta tells it for the first time-->  open, or shut                  sends are refused with ``not_told``
    open  --a person makes the broker group, or a subject, read-only-->  shut   sends are refused with ``read_only``
    shut  --and lets it take messages again-->  open                            clients have tried again, or gone on

A master under meta begins by waiting: the one before it may have obeyed what it has not heard of. Any other broker is
open. Only what clients send is refused. What the broker stores itself, as dead letters and retries, is what reading
needs; of a subject that meta is about to remove if it is empty, only what is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, NamedTuple

from tidemill_wire.declarations import Declaration, parse_manifest
from tidemill_wire.errors import Unavailable, WireError
from tidemill_wire.fencing import FenceRow, parse_fence_row
from tidemill_wire.fields import living_subject, malformed
from tidemill_wire.routes import STATES, State, writable


class Removal(NamedTuple):
    """A subject that people removed, or a ``group`` of it. A later removal of the same has a larger number."""

    subject: str
    group: str
    number: int


@dataclass(frozen=True, slots=True)
class Told:
    """What a master was told. ``declared`` is what is new; the rest is how it is."""

    revision: int = 0
    state: State = "RW"
    read_only: frozenset[str] = frozenset()
    declared: tuple[Declaration, ...] = ()
    removed: tuple[Removal, ...] = ()
    """What is new, to be obeyed before ``declared``."""
    fences: tuple[FenceRow, ...] = ()
    """Of partitions whose order keys have moved, or are about to; those that are new."""
    emptying: tuple[str, ...] = ()
    """Subjects that are to be removed if they are empty: read-only, and nothing else comes to them, either."""
    vanished: tuple[str, ...] = ()
    """Pods that are gone; those that are new."""
    archived: tuple[tuple[str, int], ...] = ()
    """Of partitions that are kept until archives have them: the sequence below which they do."""
    released: frozenset[str] = frozenset()
    """Subjects whose archives have ended: they hold nothing any more."""
    shares: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Of subjects with a quota: how many of their partitions lie here, and how many there are."""


@dataclass(frozen=True, slots=True)
class Unmade:
    """What was declared and cannot be made now, and why the first of it cannot."""

    declared: tuple[Declaration, ...]
    problem: WireError

    def __str__(self) -> str:
        first = self.declared[0]
        return f"{first.KIND} {first.name!r}, tried again with each beat, is not yet as it is declared: {self.problem}"


@dataclass(frozen=True, slots=True)
class Unfenced:
    """Why a fence could not be put up, of several the first; nothing when all are."""

    why: str

    def __str__(self) -> str:
        return (
            f"a fence that meta wants, tried again with each beat, is not up: {self.why}" if self.why else ""
        )


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is left of these subjects is to be said to meta."""

    subjects: tuple[str, ...]


def read_told(answer: Mapping[str, Any], state: State) -> Told:
    """From what meta answered, ``state`` from its heartbeat."""
    match answer:
        case {"revision": int(revision), "declarations": [*declarations], "read_only": [*names]} if (
            state in STATES
        ):
            removed = tuple(starmap(read_removal, answer.get("removed", ())))  # an earlier meta says nothing
            declared = tuple(map(parse_manifest, declarations))
            fences = tuple(map(parse_fence_row, answer.get("fences", ())))
            emptying = tuple(map(str, answer.get("emptying", ())))
            read_only, vanished = frozenset(map(str, names)), tuple(map(str, answer.get("vanished", ())))
            archived = tuple((str(name), int(number)) for name, number in answer.get("archived", ()))
            released = frozenset(map(str, answer.get("released", ())))
            shares = {str(name): (int(here), int(all_)) for name, here, all_ in answer.get("shares", ())}
            return Told(
                revision, state, read_only, declared, removed, fences, emptying, vanished, archived, released,
                shares,
            )  # fmt: skip
        case _:
            raise malformed("an answer of meta does not say what was declared")


def read_removal(key: str, number: int) -> Removal:
    """From what meta calls it."""
    subject, _, group = key.partition("/")
    return Removal(subject, group, number)


class Gate:
    """Whom a broker takes messages of."""

    __slots__ = ("_told", "_waits", "shut")

    def __init__(self) -> None:
        self._told = Told()
        self._waits = False
        """Nothing was told yet, and somebody will."""
        self.shut = False
        """Something is refused: the fast way looks no further when nothing is."""

    def wait(self) -> None:
        """Until something is told."""
        self._waits = self.shut = True

    def obey(self, told: Told) -> None:
        """From now on."""
        self._told, self._waits = told, False
        self.shut = not writable(told.state) or bool(told.read_only)

    def check(self, name: str) -> None:
        """``Unavailable`` when nothing is taken for a partition now."""
        self._check_told()
        told = self._told
        if not writable(told.state):
            raise Unavailable("read_only", "this broker group takes no messages now")
        if told.read_only and living_subject(name) in told.read_only:
            raise Unavailable("read_only", f"subject {living_subject(name)!r} takes no messages now")

    def check_adopted(self, name: str) -> None:
        """``Unavailable`` when a partition takes not even failures of another broker's messages."""
        self._check_told()
        if living_subject(name) in self._told.emptying:
            detail = f"subject {living_subject(name)!r} is to be removed if it is empty"
            raise Unavailable("read_only", detail)

    def _check_told(self) -> None:
        if self._waits:
            raise Unavailable(
                "not_told", "this broker leads from now on, and meta has not told it what it may take"
            )
