"""Moments at which something ends, the next one first. What was moved or has ended is passed over when its turn comes.

Who moves often leaves much behind that is never reached while something earlier stays. So what is left behind is thrown
away when there may be as much of it as of what still counts: a moment costs the same, and memory follows what counts.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")

LEAST = 1024
"""So many are kept without a look at them."""


class Alarms(Generic[T]):
    """Of things of one kind. ``counts`` says whether a thing still ends at that moment."""

    def __init__(self, counts: Callable[[int, T], bool]) -> None:
        self._counts = counts
        self._heap: list[tuple[int, int, T]] = []
        self._numbers = 0  # of two that end at once the first one set comes first
        self._full = LEAST

    def __len__(self) -> int:
        """With what is left behind."""
        return len(self._heap)

    def set(self, at_ms: int, thing: T) -> None:
        self._numbers += 1
        heappush(self._heap, (at_ms, self._numbers, thing))
        if len(self._heap) > self._full:
            self._heap = [entry for entry in self._heap if self._counts(entry[0], entry[2])]
            heapify(self._heap)
            self._full = max(LEAST, 2 * len(self._heap))

    def first(self) -> tuple[int, T] | None:
        """What ends first."""
        while self._heap:
            at_ms, _, thing = self._heap[0]
            if self._counts(at_ms, thing):
                return at_ms, thing
            heappop(self._heap)
        return None

    def clear(self) -> None:
        self._heap.clear()
