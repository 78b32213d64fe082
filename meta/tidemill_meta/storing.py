"""What meta wants of a store: entries with versions, one revision for all, and a board for the replicas.

An entry is a kind, a name, a version and a body. Every commit writes any number of them and raises the revision by
one. It is a *turn*: whoever has it is told what it has not seen yet, decides on that, and writes, while all others
wait. So no decision rests on what is not so any more, none is half there, and none has to be made again.

A store may *go back*: a standby that lacks the last commits takes over, or an older copy is put back. So that nobody
takes one history for the other, each life of a store begins with a revision of its own, by the clock, and the revisions
between, its *gaps*, have never been. Whoever knows one of these, or a later one than there is, knows of commits that
are lost; ``anew.py`` says what is done then.

The board has one bulletin a replica, each put over the one before. It is how replicas tell each other whom they have
heard; it is no part of the revision and need not survive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Gaps: TypeAlias = tuple[tuple[int, int], ...]
"""Between each two revisions none has ever been. Below the last beginning anew nobody needs to know."""
KNOWN_MAX = 1 << 52
"""Nobody knows a later revision, also by a clock that is wrong by ages: there is room above for all that may come."""
STEP = 1_000_000
"""So far, about, what begins is above what is known, where no clock says more. What is lost has fewer commits."""
GAPS_MAX = 1_000
"""As many are remembered: a database that is started anew each hour has them for weeks."""


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
    gaps: Gaps = ()
    began: int = 0
    """The revision at which all was stored anew last, because the store had gone back."""


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


@dataclass(frozen=True, slots=True)
class Anew:
    """All that there is, at a revision above all that anybody knows, which becomes the version of each entry: whoever
    knows an earlier one is told all. ``entries`` are those that become something else with it.
    """

    revision: int
    entries: tuple[Entry, ...]


Decide: TypeAlias = Callable[[Changes], Sequence[Entry] | Anew]
"""What is done in a turn: quickly, for others wait."""


def is_lost(known: int, revision: int, gaps: Gaps) -> bool:
    """Whether somebody knows a revision that a store at another one does not have."""
    return known > revision or any(after < known < before for after, before in gaps)


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
        was written, and writes nothing, and the revision stays, when there is nothing to write. Who knows a revision
        that is lost is told all that there is. Of what began anew nothing is answered: it is read, and may be long.
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
