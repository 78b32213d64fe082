"""What is due next. A spoke is a part of one hour, sorted by due time: of a page, or of what came late.

``take`` gives out everything that is due, tick by tick: numpy finds the end of it in each spoke, and no message is a
Python object here. Small spokes are merged, so that of an hour each is more than twice as long as the next one, or two
together are longer than ``SPOKE_ROWS``: to sort more at a time would keep everybody else waiting. So a message is
sorted some twenty times at most, however many come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tidemill_delay.hours import Numbers
from tidemill_delay.rows import Pieces, Times

SPOKE_ROWS = 128 * 1024
Number = TypeVar("Number", np.int64, np.uint64)


class Entries(NamedTuple):
    """Messages of one hour: three columns of one length."""

    hour: int
    due: Times
    pieces: Pieces
    numbers: Numbers

    def take(self, start: int, end: int) -> Entries:
        """Those from one place to another."""
        return Entries(self.hour, self.due[start:end], self.pieces[start:end], self.numbers[start:end])

    def copy(self, end: int) -> Entries:
        """The first ones, without the memory of the others."""
        return Entries(self.hour, self.due[:end].copy(), self.pieces[:end].copy(), self.numbers[:end].copy())

    def where(self, keep: npt.NDArray[np.bool_]) -> Entries:
        """Those that are to be kept."""
        if keep.all():
            return self
        return Entries(self.hour, self.due[keep], self.pieces[keep], self.numbers[keep])


class Wheel:
    """See the module."""

    def __init__(self, tick_ms: int) -> None:
        self._tick_ms = tick_ms
        self._spokes: dict[int, list[Entries]] = {}
        self.size = 0
        """Messages that are held."""

    def add(self, entries: Entries) -> None:
        """Messages of one hour, in any order."""
        if not len(entries.due):
            return
        spokes = self._spokes.setdefault(entries.hour, [])
        self.size += len(entries.due)
        spokes.append(merged([entries]))
        while len(spokes) > 1 and _belong(len(spokes[-2].due), len(spokes[-1].due)):
            pair, spokes[-2:] = spokes[-2:], []
            spokes.append(merged(pair))

    def take(self, now_ms: int) -> list[Entries]:
        """What is due, in whole ticks, of each hour apart; the earliest hour first."""
        until_ms = now_ms // self._tick_ms * self._tick_ms
        found: list[Entries] = []
        for hour in sorted(self._spokes):
            left: list[Entries] = []
            for spoke in self._spokes[hour]:
                end = int(np.searchsorted(spoke.due, until_ms, "right"))
                if end:
                    found.append(spoke.take(0, end))
                    self.size -= end
                if end < len(spoke.due):
                    left.append(_without_waste(spoke.take(end, len(spoke.due))))
            if left:
                self._spokes[hour] = left
            else:
                del self._spokes[hour]
        return found

    def relieve(self, most: int) -> Iterator[tuple[int, int]]:
        """Let go of what is due last, until not more is held; of each hour up to when it is kept. What is due in one
        tick stays together, and the next one of all is kept, however much that is.
        """
        for hour in sorted(self._spokes, reverse=True):
            count = self.size - most
            if count <= 0:
                return
            due = np.concatenate([spoke.due for spoke in self._spokes[hour]])
            keep = max(0, len(due) - count)
            due.partition(keep)
            high_ms = -(-int(due[keep]) // self._tick_ms) * self._tick_ms - self._tick_ms
            if hour == min(self._spokes):
                high_ms = max(high_ms, -(-int(due.min()) // self._tick_ms) * self._tick_ms)
            ends = [int(np.searchsorted(spoke.due, high_ms, "right")) for spoke in self._spokes[hour]]
            self.size -= len(due) - sum(ends)
            kept = [
                _without_waste(spoke.take(0, end))
                for spoke, end in zip(self._spokes[hour], ends, strict=True)
                if end
            ]
            if kept:
                self._spokes[hour] = kept
            else:
                del self._spokes[hour]
            yield hour, high_ms

    def next_ms(self) -> int | None:
        """The tick at which something is due."""
        due = min((int(spoke.due[0]) for spokes in self._spokes.values() for spoke in spokes), default=None)
        return None if due is None else -(-due // self._tick_ms) * self._tick_ms

    def check(self) -> None:
        """Each spoke is sorted, none is empty."""
        total = 0
        for spokes in self._spokes.values():
            for spoke in spokes:
                assert len(spoke.due)
                assert (spoke.due[1:] >= spoke.due[:-1]).all()
                total += len(spoke.due)
        assert total == self.size


def _belong(longer: int, shorter: int) -> bool:
    return longer <= 2 * shorter and longer + shorter <= SPOKE_ROWS


def merged(parts: list[Entries]) -> Entries:
    """All of them as one that is sorted. The list is emptied, and a column of the parts goes when there is a new one:
    not more than one of the three is there twice.
    """
    hour = parts[0].hour
    dues = [part.due for part in parts]
    pieces = [part.pieces for part in parts]
    numbers = [part.numbers for part in parts]
    parts.clear()
    due = _one(dues)
    order = None if (due[1:] >= due[:-1]).all() else np.argsort(due, kind="stable")
    if order is None:
        return Entries(hour, due, _one(pieces), _one(numbers))
    due = due[order]
    return Entries(hour, due, _one(pieces)[order], _one(numbers)[order])


def _one(columns: list[npt.NDArray[Number]]) -> npt.NDArray[Number]:
    """One after the other; the list is emptied."""
    whole = columns[0] if len(columns) == 1 else np.concatenate(columns)
    columns.clear()
    return whole


def _without_waste(left: Entries) -> Entries:
    """What is left of a spoke keeps all of its memory: when that is more than half for nothing, it is copied."""
    base = left.due.base
    whole = len(base) if isinstance(base, np.ndarray) else 0
    return left.copy(len(left.due)) if whole > 2 * len(left.due) else left
