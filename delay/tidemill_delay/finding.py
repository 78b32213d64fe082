"""A look through the names of hours: who asks says which rows he wants, and is shown the pieces that they lead to.

    names of an hour, step by step ──► rows that are wanted ──► their pieces, some at a time ──► ``met``

Nothing of it stays in memory: whoever waits for much waits for a file to be read, and all who wait then are answered by
one look. It is a generator: it yields what is to be read, and is sent what was read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tidemill_delay.hours import Hour, file_of, names_of
from tidemill_delay.names import NAME_BYTES, Names, decode_names
from tidemill_delay.pieces import Addressed
from tidemill_delay.rows import length_of, place_of
from tidemill_delay.state import State
from tidemill_host.machine import Buffer, Slice, Unread
from tidemill_wire.errors import CorruptBatch, Unavailable

STEP_ROWS = 32 * 1024
PIECES_MAX = 32
"""Read at a time."""
PIECES_BYTES = 8 * 1024 * 1024

Look: TypeAlias = Generator[Sequence[Slice], tuple[int, Sequence[Buffer | Unread]], "Stretch | None"]
"""What is to be read; the time, and what was read; where it ended before its end."""


class Stretch(NamedTuple):
    """Rows of the names of one hour."""

    hour: int
    first: int
    end: int


class Asker(Protocol):
    """On whose behalf it is looked."""

    @property
    def full(self) -> bool:
        """Nothing more is wanted now."""
        ...

    def spent(self, size: int) -> None:
        """So much was read."""

    def wanted(self, names: Names) -> npt.NDArray[np.bool_]:
        """Of each row, whether its piece may matter."""
        ...

    def met(self, hour: Hour, piece: Addressed, names: Names, now_ms: int) -> int:
        """A piece, and the rows that led to it; how many of these were looked at before it was full."""
        ...

    def missed(self, names: Names, error: Exception) -> None:
        """A piece that cannot be read."""


class Group(NamedTuple):
    """Rows of one piece."""

    piece: int
    rows: npt.NDArray[np.int64]

    @property
    def length(self) -> int:
        return length_of(self.piece)


def look(state: State, asker: Asker, stretches: Iterable[Stretch]) -> Look:
    """All of the stretches; an hour that is closed meanwhile is passed over, for nothing of it waits."""
    for hour, first, end in stretches:
        at = first
        while at < end:
            place = Slice(names_of(hour), NAME_BYTES * at, NAME_BYTES * min(STEP_ROWS, end - at))
            _, [data] = yield [place]
            if hour not in state.hours:
                break
            if isinstance(data, Unread) or len(data) != place.size:
                raise Unavailable("read_failed", f"names of messages that wait cannot be read: {_why(data)}")
            asker.spent(place.size)
            names = decode_names(data)
            for groups in _portions(names, np.flatnonzero(asker.wanted(names))):
                row = yield from _meet(state, asker, hour, (names, groups))
                if row is not None:
                    return Stretch(hour, at + row, end)
                if hour not in state.hours:
                    break
            at += len(names)
            if asker.full:
                return Stretch(hour, at, end)
    return None


def _why(data: Buffer | Unread) -> str:
    return str(data) if isinstance(data, Unread) else f"{len(data)} bytes are there"


def _meet(
    state: State, asker: Asker, hour: int, found: tuple[Names, Sequence[Group]]
) -> Generator[Sequence[Slice], tuple[int, Sequence[Buffer | Unread]], int | None]:
    """Read pieces and show them; the first row that nobody looked at, when all are full."""
    names, groups = found
    now_ms, read = yield [Slice(file_of(hour), place_of(one.piece), one.length) for one in groups]
    if hour not in state.hours:
        return None
    for group, data in zip(groups, read, strict=True):
        asker.spent(group.length)
        rows = names[group.rows]
        try:
            if isinstance(data, Unread) or len(data) != group.length:
                raise CorruptBatch(f"a piece cannot be read: {_why(data)}")
            piece = Addressed(data, place_of(group.piece))
        except CorruptBatch as error:
            asker.missed(rows, error)
            continue
        seen = asker.met(state.hours[hour], piece, rows, now_ms)
        if seen < len(rows):
            return int(group.rows[seen])
        if asker.full:
            return int(group.rows[-1]) + 1
    return None


def _portions(names: Names, places: npt.NDArray[np.int64]) -> Iterator[Sequence[Group]]:
    """Rows piece by piece, which are neighbours; as many at a time as are read together."""
    if not len(places):
        return
    pieces = names["piece"][places]
    cuts = np.flatnonzero(pieces[1:] != pieces[:-1]) + 1
    edges = [0, *cuts.tolist(), len(places)]
    portion: list[Group] = []
    size = 0
    for start, end in pairwise(edges):
        group = Group(int(pieces[start]), places[start:end])
        if portion and (len(portion) == PIECES_MAX or size + group.length > PIECES_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(group)
        size += group.length
    yield portion
