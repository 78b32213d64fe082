"""Which partition of a subject the next batch goes to. Pure.

A subject's partitions take turns by the batch. One whose broker is avoided, or away, is passed over as long as another
one can be reached. The producer looks a subject up in one dict and finds the partition whose turn it is: so a subject
with one partition costs what it did, and one with several a step for each batch and nothing for each message.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

from tidemill.parcel import Partition

Key: TypeAlias = str | tuple[str, int]
"""A subject; with a priority, both."""


class Standing(IntEnum):
    """How good it is to send to a broker now."""

    AWAY = 0
    AVOIDED = 1
    STEADY = 2


class Spread:
    """See the module."""

    __slots__ = ("_at", "_current", "key", "partitions")

    def __init__(
        self, key: Key, partitions: Sequence[Partition], current: dict[Key, Partition], start: int = 0
    ) -> None:
        self.key = key
        self._current = current
        self._at = start
        self.partitions: tuple[Partition, ...] = ()
        self.become(partitions)

    def become(self, partitions: Sequence[Partition]) -> None:
        """The route is another one."""
        self.partitions = tuple(partitions)
        for partition in partitions:
            partition.spread = self if len(partitions) > 1 else None
        self.turn()

    def turn(self) -> None:
        """The next one's turn: of the best there are, the one behind the last."""
        partitions = self.partitions
        count = len(partitions)
        if count == 1:
            self._current[self.key] = partitions[0]
            return
        best, best_standing = self._at % count, -1
        for step in range(1, count + 1):
            at = (self._at + step) % count
            standing = partitions[at].lane.standing
            if standing > best_standing:
                best, best_standing = at, standing
                if standing is Standing.STEADY:
                    break
        self._at = best
        self._current[self.key] = partitions[best]

    def better_than(self, partition: Partition) -> Partition | None:
        """Where to go with what waits for a partition, if that is better off there."""
        self.turn()
        found = self._current[self.key]
        return found if found.lane.standing > partition.lane.standing else None
