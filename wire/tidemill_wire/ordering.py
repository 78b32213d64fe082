"""Which partition an order key's messages go to: the same for every producer, in every version, for ever.

    order key --crc32c of its UTF-8, modulo 1,024--> logical partition --ranges of the route--> partition

A message without an order key goes to any logical partition. The vectors in ``tests/golden/ordering`` hold this still:
another function would send later messages of a key beside the earlier ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from crc32c import crc32c

from tidemill_wire.routes import LOGICAL_PARTITIONS, Partition, PartitionSet, Ranges

NOWHERE = 0xFFFF
"""In a chart: no partition has it."""


def logical_partition(order_key: str) -> int:
    """The logical partition of an order key."""
    return crc32c(order_key.encode()) % LOGICAL_PARTITIONS


class Chart:
    """One version of a route, to look partitions up in one step a message."""

    __slots__ = ("_places", "partitions", "version")

    def __init__(self, route: PartitionSet) -> None:
        self.version = route.version
        self.partitions = route.partitions
        self._places = array("H", [NOWHERE]) * LOGICAL_PARTITIONS
        for place, partition in enumerate(route.partitions):
            for first, end in partition.ranges:
                self._places[first:end] = array("H", [place]) * (end - first)
        assert NOWHERE not in self._places

    def place(self, logical: int) -> int:
        """The index of the partition that has a logical one."""
        return self._places[logical]

    def of(self, order_key: str) -> Partition:
        """The partition of an order key's messages."""
        return self.partitions[self._places[crc32c(order_key.encode()) % LOGICAL_PARTITIONS]]


def moved(before: PartitionSet, after: PartitionSet) -> dict[str, dict[str, Ranges]]:
    """Which logical partitions lie elsewhere since: key of the partition they are in -> key of the one they were in ->
    ranges of them.
    """
    old, new = Chart(before), Chart(after)
    found: dict[str, dict[str, list[int]]] = {}
    for logical in range(LOGICAL_PARTITIONS):
        was, now = old.partitions[old.place(logical)].key, new.partitions[new.place(logical)].key
        if was != now:
            found.setdefault(now, {}).setdefault(was, []).append(logical)
    return {now: {was: ranges_of(rows) for was, rows in parts.items()} for now, parts in found.items()}


def ranges_of(logical: Iterable[int]) -> Ranges:
    """Logical partitions, growing, as ranges."""
    ranges: list[tuple[int, int]] = []
    for one in logical:
        if ranges and ranges[-1][1] == one:
            ranges[-1] = ranges[-1][0], one + 1
        else:
            ranges.append((one, one + 1))
    return tuple(ranges)
