"""What was sealed and has not ended: batches in flight, and refused ones that are tried again. Pure.

Invariants: a refused batch leaves only when nothing of its partition is in flight, so what ``Parcel.retried`` knows
about later numbers is all there is to know; the refused of a partition leave in the order of their numbers, before
anything newer.
"""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.backoff import Backoff
from tidemill.parcel import Parcel, Partition
from tidemill_wire.limits import PRODUCER_BATCHES_REMEMBERED

NEVER = -1.0
WAIT_SPREAD = 0.25
"""Of a wait that was asked for: so much longer at most."""


@dataclass(slots=True, eq=False)
class Flight:
    """A frame that waits for its answer."""

    batches: list[Parcel]
    size: int
    number: int
    asked_at: float = NEVER
    """When it was written last. Never: certainly nobody has stored it."""
    doubtful: bool = False
    """A connection ended before its answer: only who looks for its batches knows whether they are stored."""


class Flights:
    """See the module."""

    def __init__(self, backoff: Backoff, chance: random.Random) -> None:
        self._flights: list[Flight] = []
        self._departed = 0
        self._backoff = backoff
        self._chance = chance
        self._refused: dict[Partition, float] = {}
        """When the first batch of each is tried again."""
        self._again_at = 0.0
        self._woken_at = NEVER
        """When what was refused last is tried again."""

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(list(self._flights))

    def __contains__(self, flight: Flight) -> bool:
        return flight in self._flights

    @property
    def full(self) -> bool:
        """One more, and the broker might not know any more whether it has the oldest. Those that were answered since
        that left count, too, and those that had passed it before.
        """
        oldest = min((flight.number for flight in self._flights), default=self._departed)
        return self._departed - oldest >= PRODUCER_BATCHES_REMEMBERED

    @property
    def refused(self) -> bool:
        """Something is to be tried again."""
        return bool(self._refused)

    def depart(self, batches: list[Parcel], passed: int = 0) -> Flight:
        """They leave together; of one that keeps its number so many later ones may be stored."""
        flight = Flight(batches, sum(len(batch.data) for batch in batches), self._departed - passed)
        self._departed += 1
        self._flights.append(flight)
        for batch in batches:
            batch.partition.in_flight += 1
        return flight

    def land(self, flight: Flight) -> None:
        """It was answered."""
        self._flights.remove(flight)
        for batch in flight.batches:
            batch.partition.in_flight -= 1

    def again(self, now: float) -> Parcel | None:
        """The next refused batch whose turn it is. One a frame: they are rare, and must not hold up each other."""
        for partition, again_at in self._refused.items():
            if again_at <= now and not partition.in_flight and not partition.held:
                batch = partition.refused.pop(0).retried()
                if not partition.refused:
                    del self._refused[partition]
                return batch
        return None

    def next_try(self, now: float) -> float:
        """When what is refused now is tried again: with what was refused just before it, which is one failure. A broker
        that hands over refuses all that is in flight, and may be another one a tenth of a second later.
        """
        if self._refused and self._again_at > now:
            return self._again_at
        self._again_at = now + self._backoff.next()
        return self._again_at

    def after(self, now: float, wait_s: float) -> float:
        """When what is to wait for so long is tried again. All that were told so together do not come together."""
        return now + wait_s * (1 + WAIT_SPREAD * self._chance.random())

    def taken(self) -> None:
        """The broker takes things: the next refusal is the first one."""
        self._backoff.reset()

    def refuse(self, batch: Parcel, again_at: float) -> bool:
        """Try it again then; whether what was refused just before is not."""
        insort(batch.partition.refused, batch, key=_number)
        self._refused[batch.partition] = max(again_at, self._refused.get(batch.partition, again_at))
        is_other, self._woken_at = self._woken_at != again_at, again_at
        return is_other

    def give_up(self, partition: Partition) -> list[Parcel]:
        """The refused batches of a partition, taken out: no broker has them, and they go somewhere else."""
        self._refused.pop(partition, None)
        given, partition.refused = partition.refused, []
        return given

    @property
    def held(self) -> list[Partition]:
        """Those with refused batches."""
        return list(self._refused)

    def oldest_asked(self) -> float | None:
        """Since when a frame waits for its answer; ``None``: none does."""
        return min((flight.asked_at for flight in self._flights if flight.asked_at != NEVER), default=None)

    def ground(self, now: float) -> None:
        """The connection is gone: frames that were never written are as good as refused, and others are in doubt."""
        for flight in self._flights:
            flight.doubtful = flight.asked_at != NEVER
        for flight in [one for one in self._flights if not one.doubtful]:
            self.land(flight)
            for batch in flight.batches:
                if batch.waiter is not None:
                    self.refuse(batch, now)

    def forget_abandoned(self) -> None:
        """The connection is gone: what nobody waits for any more need not be sent again."""
        for flight in self._flights:
            wanted = [batch for batch in flight.batches if batch.waiter is not None]
            for batch in flight.batches:
                batch.partition.in_flight -= batch.waiter is None
            flight.batches, flight.size = wanted, sum(len(batch.data) for batch in wanted)
        self._flights = [flight for flight in self._flights if flight.batches]

    def unanswered(self, now: float) -> list[Parcel]:
        """Batches in flight whose deadline is over."""
        return [
            one
            for flight in self._flights
            for one in flight.batches
            if one.waiter is not None and one.deadline <= now
        ]

    def expired(self, now: float) -> list[Parcel]:
        """Refused batches whose deadline is over, taken out."""
        gone: list[Parcel] = []
        for partition in list(self._refused):
            gone += [batch for batch in partition.refused if batch.deadline <= now]
            partition.refused = [batch for batch in partition.refused if batch.deadline > now]
            if not partition.refused:
                del self._refused[partition]
        return gone

    @property
    def written(self) -> frozenset[Parcel]:
        """Batches that nobody has answered for, and that may be stored."""
        return frozenset(
            one for flight in self._flights if flight.asked_at != NEVER for one in flight.batches
        )

    def hand_over(self) -> list[Parcel]:
        """All of it, in the order of the numbers. What is in flight may be stored."""
        batches: list[Parcel] = []
        for flight in list(self._flights):
            self.land(flight)
            for batch in flight.batches:
                batch.partition.reached = max(batch.partition.reached, batch.number)
                if batch.waiter is not None:
                    batches.append(batch)
        for partition in self._refused:
            batches += [batch.retried() for batch in partition.refused]
            partition.refused = []
        self._refused.clear()
        return sorted(batches, key=_number)

    def clear(self) -> None:
        """Nothing will be answered any more."""
        self._flights.clear()
        self._refused.clear()


def _number(batch: Parcel) -> int:
    return batch.number
