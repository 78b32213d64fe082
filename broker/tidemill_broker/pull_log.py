"""The pull log of a consumer: what it was given, and holds until it is settled or its lease ends.

Deliveries are runs of pull sequences over runs of message sequences. Acks come in any order; a run that is acked in its
middle is split. All changes are made by ``state.apply``, from an action.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from tidemill_broker.holds import Hold
from tidemill_broker.ranges import merge_ranges
from tidemill_wire.ranges import pairs

if TYPE_CHECKING:
    from tidemill_broker.groups import Group

_PULL = attrgetter("pull")
SWEEP_FROM = 16


@dataclass(slots=True)
class Delivery:
    """``count`` messages from ``first`` on, delivered as ``pull`` …; ``count`` 0 is settled."""

    pull: int
    first: int
    count: int
    attempts: int
    deadline_ms: int
    since_ms: int = 0
    """When these failed first, 0 if never; ``fingerprint`` is what they failed of last."""
    fingerprint: str = ""
    limit_ms: int = 0
    """The deadline is never later, however often the lease is renewed; 0: there is no limit."""
    hold: Hold | None = None
    """Of whom it was given to, if that is bounded."""

    @property
    def held_to_the_limit(self) -> bool:
        """Its lease was renewed for as long as it could be."""
        return 0 < self.limit_ms <= self.deadline_ms


class Consumer:
    """One consumer of one group in one partition, and its pull log."""

    __slots__ = (
        "_claimed",
        "_settled",
        "deliveries",
        "gone_at_ms",
        "group",
        "identity",
        "keyed",
        "name",
        "peer",
        "resumed_by",
    )

    def __init__(self, identity: int, group: Group, name: str) -> None:
        self.identity = identity
        self.group = group
        self.name = name
        self.deliveries: list[Delivery] = []  # settled ones stay until a sweep is worth it
        self._settled = 0
        self.peer = 0
        self.resumed_by = 0  # the connection that said last what the consumer holds; older ones are over
        self.gone_at_ms = 0
        self.keyed = False
        """It handles order keys side by side, and keeps each in order itself."""
        self._claimed: Hold | None = None

    def claim(self, hold: Hold) -> None:
        """Whoever pulls for it has what it holds, as far as nobody else is known to."""
        if self._claimed is hold:
            return
        self._claimed = hold
        for delivery in self.held():
            if delivery.hold is None:
                _give(delivery, hold)

    def given(self, runs: int, hold: Hold) -> None:
        """Its last deliveries, so many, were given to somebody."""
        for delivery in self.deliveries[-runs:]:
            _give(delivery, hold)

    def overlapping(self, first: int, last: int) -> list[int]:
        """Indexes of the deliveries, settled ones left out, with a pull sequence in the range."""
        deliveries = self.deliveries
        index = max(0, bisect_right(deliveries, first, key=_PULL) - 1)
        found: list[int] = []
        while index < len(deliveries) and deliveries[index].pull <= last:
            if deliveries[index].count and deliveries[index].pull + deliveries[index].count > first:
                found.append(index)
            index += 1
        return found

    def take(self, first: int, last: int) -> tuple[list[Delivery], list[Delivery]]:
        """Settle a range: what was taken, and the new deliveries left where a run was split."""
        taken: list[Delivery] = []
        left: list[Delivery] = []
        for index in reversed(self.overlapping(first, last)):
            delivery = self.deliveries[index]
            pull, end = delivery.pull, delivery.pull + delivery.count
            start, stop = max(first, pull), min(last + 1, end)
            taken.append(_part(delivery, start, stop))
            if stop < end:
                left.append(_part(delivery, stop, end))
                self.deliveries.insert(index + 1, left[-1])
            delivery.count = start - pull
            self._settled += not delivery.count
        for delivery in taken:
            if delivery.hold is not None:
                delivery.hold.count -= delivery.count
        self.group.hold(-sum(delivery.count for delivery in taken))
        if self._settled > SWEEP_FROM and self._settled > len(self.deliveries) // 2:
            self.deliveries = [delivery for delivery in self.deliveries if delivery.count]
            self._settled = 0
        return taken, left

    def extend(
        self, first: int, last: int, deadline_ms: int, limit_ms: int = 0
    ) -> tuple[int, list[Delivery]]:
        """A later deadline for a range, and for no other message of its runs: a handler that hangs is not kept alive
        by others. How many messages that concerned, and the deliveries that need to be watched from now on.
        ``limit_ms`` is the new limit of those that have one; 0: each keeps its own.
        """
        count = 0
        watched: list[Delivery] = []
        for index in reversed(self.overlapping(first, last)):
            delivery = self.deliveries[index]
            pull, end = delivery.pull, delivery.pull + delivery.count
            start, stop = max(first, pull), min(last + 1, end)
            count += stop - start
            limited_ms = limit_ms if limit_ms and delivery.limit_ms else delivery.limit_ms
            until_ms = min(deadline_ms, limited_ms) if limited_ms else deadline_ms
            if until_ms <= delivery.deadline_ms and limited_ms == delivery.limit_ms:
                continue
            parts = [_part(delivery, *span) for span in ((start, stop), (stop, end)) if span[0] < span[1]]
            if start == pull:
                parts[0] = delivery
            delivery.count = (stop if start == pull else start) - pull
            parts[0].deadline_ms, parts[0].limit_ms = max(until_ms, parts[0].deadline_ms), limited_ms
            self.deliveries[index : index + 1] = parts if start == pull else [delivery, *parts]
            watched += parts
        return count, watched

    def missing(self, first: int, last: int) -> list[int]:
        """The parts of a range that the consumer does not hold, as pairs of first and last."""
        gaps: list[int] = []
        following = first
        for index in self.overlapping(first, last):
            delivery = self.deliveries[index]
            if delivery.pull > following:
                gaps += (following, delivery.pull - 1)
            following = delivery.pull + delivery.count
        if following <= last:
            gaps += (following, last)
        return gaps

    def shortened(self, ranges: Sequence[int], deadline_ms: int) -> list[int]:
        """The parts of ranges whose limit comes before a deadline, as pairs of first and last."""
        found: list[tuple[int, int]] = []
        for first, last in pairs(ranges):
            for index in self.overlapping(first, last):
                one = self.deliveries[index]
                if 0 < one.limit_ms < deadline_ms:
                    start = max(first, one.pull)
                    found.append((start, min(last + 1, one.pull + one.count) - start))
        return merge_ranges(found)

    def void(self) -> None:
        """Nothing is held any more, and the leases of before count for nothing."""
        for delivery in self.deliveries:
            if delivery.hold is not None:
                delivery.hold.count -= delivery.count
            delivery.count = 0
        self.deliveries = []
        self._settled = 0

    def held(self) -> Iterator[Delivery]:
        """Deliveries that are not settled."""
        return (delivery for delivery in self.deliveries if delivery.count)


def _give(delivery: Delivery, hold: Hold) -> None:
    delivery.hold = hold
    hold.count += delivery.count


def _part(delivery: Delivery, start: int, stop: int) -> Delivery:
    """The deliveries ``start`` to ``stop`` (pull sequences, the last one not included) of a run."""
    first = delivery.first + start - delivery.pull
    return Delivery(
        start, first, stop - start, delivery.attempts, delivery.deadline_ms, delivery.since_ms, delivery.fingerprint,
        delivery.limit_ms, delivery.hold,
    )  # fmt: skip
