"""Which batches producers have sent before: the last five of each, and single batches of producers that send one.

So a batch that is sent again, because an answer got lost, is recognised. It is part of what a restart has again.
"""

from __future__ import annotations

from tidemill_wire import limits
from tidemill_wire.batch import SINGLES_FROM

FORGOTTEN_TOGETHER = limits.PRODUCERS_REMEMBERED_MAX // 8


class Remembering:
    """What has a log, or a part of one, and remembers who wrote to it."""

    __slots__ = ("producers", "singles")

    def __init__(self) -> None:
        self.producers: dict[int, list[int]] = {}
        """Of each producer sequence, first, sequence, first … the newest last."""
        self.singles: dict[tuple[int, int], int] = {}
        """Producer and sequence -> first, the oldest first."""

    def repeated(self, producer: int, sequence: int) -> int | None:
        """Where a batch that this producer has sent before begins, ``None`` for a new one.

        -1 is for a batch older than those remembered: it was stored, nobody knows where any more.
        """
        if producer >= SINGLES_FROM:
            return self.singles.get((producer, sequence))
        seen = self.producers.get(producer)
        if seen is None or sequence > seen[-2]:
            return None
        for index in range(len(seen) - 2, -1, -2):
            if seen[index] == sequence:
                return seen[index + 1]
        return -1

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
        seen += (sequence, first)
        if len(seen) > 2 * limits.PRODUCER_BATCHES_REMEMBERED:
            del seen[:2]

    def _forget(self) -> None:
        """Those that were silent for longest, so that there is room for one more: several at once, so that it costs
        nothing where each comes once.
        """
        silent_first = sorted(self.producers, key=lambda producer: self.producers[producer][-1])
        for producer in silent_first[: 1 - limits.PRODUCERS_REMEMBERED_MAX]:
            del self.producers[producer]
