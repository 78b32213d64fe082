"""What meta wants of a store: entries with versions, one revision for all, and a board for the replicas.

An entry is a kind, a name, a version and a body. Every commit writes any number of them and raises the revision by
one, if and only if the revision is still the one that the writer had seen: a compare-and-set over everything that a
decision may have looked at. So no decision rests on what is not so any more, and none is half there.

The board has one bulletin a replica, each put over the one before. It is how replicas tell each other whom they have
heard; it is no part of the revision and need not survive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


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
    """The store does not answer. Whether a commit under way was done is not known; the revision will tell."""


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

    async def commit(self, seen: int, entries: Sequence[Entry]) -> bool:
        """Write all of them as revision ``seen + 1``; False, and nothing is written, when ``seen`` is not the last."""
        ...

    async def exchange(self, mine: Bulletin) -> Board:
        """Put up this replica's bulletin, and read those of all."""
        ...
