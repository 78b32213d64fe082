"""What is due next. A spoke is a page of one hour, sorted by due time; what comes late makes spokes of its own.

``take`` gives out everything that is due, tick by tick: numpy finds the end of it in each spoke, and no message is a
Python object here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidemill_delay.hours import Numbers
from tidemill_delay.rows import Pieces, Times

SPOKES_MAX = 8
"""Of one hour; then they become one."""


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
        spokes.append(_sorted(entries))
        self.size += len(entries.due)
        if len(spokes) > SPOKES_MAX:
            columns = (np.concatenate(column) for column in list(zip(*spokes, strict=True))[1:])
            self._spokes[entries.hour] = [_sorted(Entries(entries.hour, *columns))]

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
                    left.append(spoke.take(end, len(spoke.due)))
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
            due = np.sort(np.concatenate([spoke.due for spoke in self._spokes[hour]]))
            keep = max(0, len(due) - count)
            high_ms = -(-int(due[keep]) // self._tick_ms) * self._tick_ms - self._tick_ms
            if hour == min(self._spokes):
                high_ms = max(high_ms, -(-int(due[0]) // self._tick_ms) * self._tick_ms)
            ends = [int(np.searchsorted(spoke.due, high_ms, "right")) for spoke in self._spokes[hour]]
            self.size -= len(due) - sum(ends)
            kept = [spoke.copy(end) for spoke, end in zip(self._spokes[hour], ends, strict=True) if end]
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


def _sorted(entries: Entries) -> Entries:
    due = entries.due
    if (due[1:] >= due[:-1]).all():
        return entries
    order = np.argsort(due, kind="stable")
    return Entries(entries.hour, due[order], entries.pieces[order], entries.numbers[order])
