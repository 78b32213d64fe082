"""What is due and was not read yet: rows, of which the next few are units.

However much is due at once, it is 24 bytes a message, and is sorted and taken apart a little at a time: a unit is what
lies in one piece and is due at one tick, so a thousand messages that were sent one by one are a thousand of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tidemill_delay.parcels import Unit
from tidemill_delay.wheel import Entries

CUT_ROWS = 1024
"""So many become units at a time, or as many as lie in one piece."""


class Tick(NamedTuple):
    """Messages of one hour that are due at one tick, in the order of their numbers, and so of the file."""

    due_ms: int
    entries: Entries


class Due:
    """See the module. The earliest first."""

    def __init__(self, tick_ms: int, begun_ms: int = 0) -> None:
        self._tick_ms = tick_ms
        self._begun_ms = begun_ms
        """The last tick of which a former life may have sent something."""
        self._queue: deque[Unit | Tick | Entries] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, entries: Entries) -> None:
        """Messages of one hour, sorted by their times."""
        self._queue.append(entries)

    def append(self, unit: Unit) -> None:
        """One that comes once more."""
        self._queue.append(unit)

    def extend(self, units: Iterable[Unit]) -> None:
        """Some that come once more."""
        self._queue.extend(units)

    def put_first(self, units: Iterable[Unit]) -> None:
        """Before all that is here."""
        self._queue.extendleft(reversed([*units]))

    def head(self) -> Unit | None:
        """The next one, which stays."""
        while self._queue:
            first = self._queue[0]
            if isinstance(first, Unit):
                return first
            self._queue.popleft()
            if isinstance(first, Tick):
                self._cut(first)
            else:
                self._sort(first)
        return None

    def pop(self) -> Unit | None:
        """The next one."""
        unit = self.head()
        if unit is not None:
            self._queue.popleft()
        return unit

    def _sort(self, entries: Entries) -> None:
        """What is due at the first tick, and the rest."""
        due_ms = tick_of(int(entries.due[0]), self._tick_ms)
        end = int(np.searchsorted(entries.due, due_ms, "right"))
        if end < len(entries.due):
            self._queue.appendleft(entries.take(end, len(entries.due)))
        self._queue.appendleft(Tick(due_ms, by_number(entries.take(0, end))))

    def _cut(self, tick: Tick) -> None:
        """Units of the first rows, but for what is left of a piece no place is in between."""
        due_ms, entries = tick
        end = len(entries.due)
        if end > CUT_ROWS:
            others = np.flatnonzero(entries.pieces[CUT_ROWS:] != entries.pieces[CUT_ROWS - 1])
            if len(others):
                end = CUT_ROWS + int(others[0])
                self._queue.appendleft(Tick(due_ms, entries.take(end, len(entries.due))))
        version = 0 if due_ms <= self._begun_ms else None
        self.put_first(units_of_tick(entries.take(0, end), due_ms, version))

    def messages(self) -> int:
        """Counted."""
        return sum(len(one.numbers if isinstance(one, Unit) else rows_of(one).due) for one in self._queue)


def rows_of(one: Tick | Entries) -> Entries:
    """Whichever it is."""
    return one.entries if isinstance(one, Tick) else one


def tick_of(due_ms: int, tick_ms: int) -> int:
    """When it leaves."""
    return -(-due_ms // tick_ms) * tick_ms


def by_number(entries: Entries) -> Entries:
    """In the order of their numbers."""
    if (entries.numbers[1:] > entries.numbers[:-1]).all():
        return entries
    order = np.argsort(entries.numbers, kind="stable")  # quickest of what is sorted in parts, as this is
    return Entries(entries.hour, entries.due[order], entries.pieces[order], entries.numbers[order])


def units_of_tick(entries: Entries, due_ms: int, version: int | None = None) -> Iterator[Unit]:
    """Of rows in the order of their numbers."""
    pieces = entries.pieces
    edges = [0, *(np.flatnonzero(pieces[1:] != pieces[:-1]) + 1).tolist(), len(pieces)]
    for piece, start, end in zip(pieces[edges[:-1]].tolist(), edges, edges[1:], strict=False):
        yield Unit(entries.hour, piece, entries.numbers[start:end], due_ms, version)


def units_of(entries: Entries, tick_ms: int) -> Iterator[Unit]:
    """Messages as they are sent, tick by tick."""
    ticks = -(-entries.due // tick_ms)
    for tick in np.unique(ticks).tolist():
        yield from units_of_tick(by_number(entries.where(ticks == tick)), tick * tick_ms)


def entries_of(units: list[Unit]) -> Entries:
    """Units of one hour as rows: 24 bytes a message, and no object."""
    counts = [len(unit.numbers) for unit in units]
    due = np.repeat(np.array([unit.due_ms for unit in units], np.int64), counts)
    pieces = np.repeat(np.array([unit.piece for unit in units], np.uint64), counts)
    return Entries(units[0].hour, due, pieces, np.concatenate([unit.numbers for unit in units]))
