"""What meta wants of a store: entries with versions, one revision for all, and a board for the replicas.

An entry is a kind, a name, a version and a body. Every commit writes any number of them and raises the revision by
one. It is a *turn*: whoever has it is told what it has not seen yet, decides on that, and writes, while all others
wait. So no decision rests on what is not so any more, none is half there, and none has to be made again.

The board has one bulletin a replica, each put over the one before. It is how replicas tell each other whom they have
heard; it is no part of the revision and need not survive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Entry:
    """A thing as it is stored. ``version`` counts its changes, from 1; a body of ``None`` says that it is gone."""

    kind: str
    name: str
    version: int
    body: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Changes:
    """The entries that changed after a revision, as they are at another one."""

    revision: int
    entries: tuple[Entry, ...]
    whole: bool = False
    """These are all that there are. Who knew others missed that they are gone, for the store has forgotten them."""
    floor: int = 0
    """The largest version of what was forgotten, when these are all."""


@dataclass(frozen=True, slots=True)
class Bulletin:
    """What a replica tells the others. ``number`` grows with each, so that a reader knows a new one."""

    replica: str
    number: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Board:
    """All bulletins, and the revision at the same time."""

    revision: int
    bulletins: tuple[Bulletin, ...]


class StoreAway(Exception):
    """The store does not answer. Whether a commit under way was done is not known; what is read later will tell."""


class StoreDamaged(StoreAway):
    """What the store says is no store's: it does not come back by itself."""


Decide: TypeAlias = Callable[[Changes], Sequence[Entry]]
"""What is done in a turn: quickly, for others wait."""


class Store(Protocol):
    """Every method may raise ``StoreAway``."""

    alone: bool
    """Whether there can be no other replica on it."""

    async def open(self) -> None:
        """Be ready: tables of this version are there."""
        ...

    async def close(self) -> None: ...

    async def changes(self, after: int) -> Changes:
        """What changed after a revision; everything after 0."""
        ...

    async def commit(self, after: int, decide: Decide) -> Changes:
        """A turn: tell ``decide`` what changed after a revision, write what it returns, all or nothing. It answers what
        was written, and writes nothing, and the revision stays, when there is nothing to write.
        """
        ...

    async def exchange(self, mine: Bulletin) -> Board:
        """Put up this replica's bulletin, and read those of all."""
        ...

    async def forget(self, until: int, silent: Mapping[str, int]) -> int:
        """Let go of the entries up to a revision that say that something is gone, and of bulletins that are still those
        with these numbers. Answers the largest version that was ever forgotten.
        """
        ...
