"""Which partition an order key's messages go to: the same for every producer, in every version, for ever.

    order key --crc32c of its UTF-8, modulo 1,024--> logical partition --ranges of the route--> partition

A message without an order key goes to any logical partition. The vectors in ``tests/golden/ordering`` hold this still:
another function would send later messages of a key beside the earlier ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import pairwise

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
    partitions = (*before.partitions, *after.partitions)
    edges = sorted({edge for partition in partitions for span in partition.ranges for edge in span})
    found: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for first, end in pairwise(edges):  # all between two edges lies in one place, before and after
        was, now = old.partitions[old.place(first)].key, new.partitions[new.place(first)].key
        if was != now:
            found.setdefault(now, {}).setdefault(was, []).append((first, end))
    return {now: {was: joined(spans) for was, spans in parts.items()} for now, parts in found.items()}


def joined(spans: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges, growing, with those that touch as one."""
    ranges: list[tuple[int, int]] = []
    for first, end in spans:
        if ranges and ranges[-1][1] == first:
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((first, end))
    return tuple(ranges)
