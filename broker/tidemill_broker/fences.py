"""Fences: which order keys a partition takes no more, and what lay in it when it began to refuse them.

    open    --FENCE with a later number-->  fenced   a batch with an order key of another range is refused, whole, with
                                                     ``route_outdated``; what lay here then is remembered
    fenced  --FENCE with a later number-->  fenced   the same with other ranges, which may be wider again
    fenced  --REMOVE of its subject-->      open     as when it was new, for fences with later numbers only

Whoever was put in front of the fence stays there: no message of a range that moved away has a sequence beyond its end.
So a group that has settled everything below the end has handled all of that range that was ever here, and may begin
with it where it went. The check is per message, the one place where a broker's is: only in partitions that lost order
keys once, and only of batches that have some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill_broker.actions import FencePut
from tidemill_wire.columns import Batch
from tidemill_wire.errors import Unavailable
from tidemill_wire.ordering import logical_partition
from tidemill_wire.ranges import pairs
from tidemill_wire.routes import LOGICAL_PARTITIONS, Ranges

if TYPE_CHECKING:
    from tidemill_broker.groups import Group
    from tidemill_broker.partitions import Partition
    from tidemill_broker.state import State

ENDS_MAX = 64
"""Fences of one partition whose ends are remembered. Whoever has done with what lay before a later one has done with
what lay before an earlier one, so the oldest are forgotten, and nothing is let through for it."""
EVERYTHING: Ranges = ((0, LOGICAL_PARTITIONS),)


@dataclass(slots=True)
class Standing:
    """The fence of a partition."""

    number: int
    ranges: Ranges
    ends: list[tuple[int, Sequence[int]]]
    """Of each fence its number and what lay there: pairs of partition or lane, and the next sequence."""


class Fences:
    """By the number of the partition."""

    def __init__(self) -> None:
        self._standing: dict[int, Standing] = {}

    def __bool__(self) -> bool:
        return bool(self._standing)

    def number(self, partition: Partition) -> int:
        """Of the last fence; 0: it has none."""
        standing = self._standing.get(partition.identity)
        return 0 if standing is None else standing.number

    def put(self, action: FencePut) -> None:
        """From now on."""
        ranges = tuple(pairs(action.ranges))
        known = self._standing.get(action.partition)
        ends = [*(known.ends if known is not None else ()), (action.number, tuple(action.ends))]
        self._standing[action.partition] = Standing(action.number, ranges, ends[-ENDS_MAX:])

    def removed(self, identity: int) -> None:
        """The subject was removed. The number stays: who says that fence once more has not heard of it. What lay before
        is gone, and the groups that were to settle it are.
        """
        standing = self._standing.get(identity)
        if standing is not None:
            self._standing[identity] = Standing(standing.number, EVERYTHING, [])

    def check(self, partition: Partition, data: memoryview) -> None:
        """``Unavailable`` when a batch has an order key that is not taken here any more."""
        standing = self._standing.get(partition.identity)
        if standing is None or standing.ranges == EVERYTHING:
            return
        for order_key in dict.fromkeys(Batch(data).order_keys() or ()):
            if order_key and not _has(standing.ranges, logical_partition(order_key)):
                raise Unavailable(
                    "route_outdated",
                    f"partition {partition.name!r} takes no messages of order key {order_key[:40]!r} since fence"
                    f" {standing.number}",
                )

    def passed(self, state: State, partition: Partition, group: Group) -> int:
        """The last fence of which a group has settled all that lay before it; 0: it has not, of any."""
        standing = self._standing.get(partition.identity)
        for number, ends in reversed(standing.ends if standing is not None else ()):
            if all(_settled(state, group, identity, end) for identity, end in pairs(ends)):
                return number
        return 0

    def to_list(self) -> list[list[Any]]:
        """For the checkpoint."""
        return [
            [identity, one.number, [edge for pair in one.ranges for edge in pair], one.ends]
            for identity, one in self._standing.items()
        ]

    def restore(self, row: Sequence[Any]) -> None:
        """From the checkpoint."""
        identity, number, edges, ends = row
        told: list[tuple[int, Sequence[int]]] = [(one, tuple(lain)) for one, lain in ends]
        self._standing[identity] = Standing(number, tuple(pairs(edges)), told)


def _has(ranges: Ranges, logical: int) -> bool:
    return any(first <= logical < end for first, end in ranges)


def _settled(state: State, head: Group, identity: int, end: int) -> bool:
    """Whether nothing below an end is to be given out, is held or is to come again, for a group in one lane. What a
    power cut took is not waited for.
    """
    partition = state.partitions[identity]
    group = state.groups[partition.groups[head.name]]
    end = min(end, partition.next_sequence)
    return (
        max(group.cursor, partition.first_kept) >= end
        and all(first >= end for first in group.failed)
        and all(one.first >= end for consumer in group.consumers.values() for one in consumer.held())
    )
