"""Which batches producers have sent before: the last five of each, and single batches of producers that send one.

So a batch that is sent again, because an answer got lost, is recognised. It is part of what a restart has again.

The last five are those with the highest numbers, so a number between them that is not among them is of a batch that was
never stored: it was refused, and one behind it on the same connection was taken, before its producer heard of either.
"""

from __future__ import annotations

from bisect import insort
from itertools import chain

from tidemill_wire import limits
from tidemill_wire.batch import SINGLES_FROM, Flags

FORGOTTEN_TOGETHER = limits.PRODUCERS_REMEMBERED_MAX // 8


class Remembering:
    """What has a log, or a part of one, and remembers who wrote to it."""

    __slots__ = ("producers", "singles")

    def __init__(self) -> None:
        self.producers: dict[int, list[int]] = {}
        """Of each producer sequence, first, sequence, first … the highest last."""
        self.singles: dict[tuple[int, int], int] = {}
        """Producer and sequence -> first, the oldest first."""

    def repeated(self, producer: int, sequence: int, flags: int = 0) -> int | None:
        """Where a batch that this producer has sent before begins, ``None`` for a new one.

        -1 is for a batch older than those remembered: it was stored, nobody knows where any more. So is one with order
        keys that later ones have passed: nobody sends one of these before the one before it was answered or given up,
        and what was given up comes too late.
        """
        if producer >= SINGLES_FROM:
            return self.singles.get((producer, sequence))
        seen = self.producers.get(producer)
        if seen is None or sequence > seen[-2]:
            return None
        for index in range(len(seen) - 2, -1, -2):
            if seen[index] == sequence:
                return seen[index + 1]
        is_older = len(seen) == 2 * limits.PRODUCER_BATCHES_REMEMBERED and sequence < seen[0]
        return -1 if is_older or flags & Flags.ORDERED else None

    def remember(self, producer: int, sequence: int, first: int) -> None:
        """The producer's batch ``sequence`` begins at ``first``.

        Producers of a single batch are many and come once: they push out each other, and never one that counts.
        """
        if producer >= SINGLES_FROM:
            self.singles[producer, sequence] = first
            if len(self.singles) > limits.SINGLES_REMEMBERED_MAX:
                del self.singles[next(iter(self.singles))]
            return
        seen = self.producers.get(producer)
        if seen is None:
            if len(self.producers) >= limits.PRODUCERS_REMEMBERED_MAX + FORGOTTEN_TOGETHER:
                self._forget()
            self.producers[producer] = [sequence, first]
            return
        if sequence > seen[-2]:
            seen += (sequence, first)
        else:
            rows = list(zip(seen[::2], seen[1::2], strict=True))
            insort(rows, (sequence, first))
            seen[:] = chain.from_iterable(rows)
        if len(seen) > 2 * limits.PRODUCER_BATCHES_REMEMBERED:
            del seen[:2]

    def _forget(self) -> None:
        """Those that were silent for longest, so that there is room for one more: several at once, so that it costs
        nothing where each comes once.
        """
        silent_first = sorted(self.producers, key=lambda producer: self.producers[producer][-1])
        for producer in silent_first[: 1 - limits.PRODUCERS_REMEMBERED_MAX]:
            del self.producers[producer]
