"""Which of the groups that a pull asks has its turn first: subjects take turns, and lanes as their kin says."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill_broker.groups import Group
from tidemill_broker.order import in_place
from tidemill_broker.pull_log import Consumer
from tidemill_broker.pulls import ParkedPull
from tidemill_broker.state import State


class Turns:
    """Of all pulls."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._rotation = 0

    def of(self, parked: ParkedPull, only: Consumer | None, now_ms: int) -> Sequence[Consumer]:
        """The consumers of a pull, in the order in which they are given something; ``only`` one of them can have, when
        that is known.
        """
        consumers: Sequence[Consumer] = (only,) if only is not None else self._in_turn(parked)
        return self._by_lane(parked, consumers, now_ms) if self._state.kin else consumers

    def _in_turn(self, parked: ParkedPull) -> Sequence[Consumer]:
        consumers = parked.consumers
        if self._state.kin:  # a subject has one turn, however many lanes
            consumers = [one for one in consumers if one is self.head(parked, one)]
        start = self._rotation % max(1, len(consumers))
        self._rotation += 1
        return (*consumers[start:], *consumers[:start]) if start else consumers

    def head(self, parked: ParkedPull, consumer: Consumer) -> Consumer:
        """The same consumer in the subject itself, for one in a lane of it."""
        kin = self._state.kin.get(consumer.group.identity)
        return consumer if kin is None else parked.by_group[kin.head.identity]

    def _by_lane(self, parked: ParkedPull, consumers: Sequence[Consumer], now_ms: int) -> list[Consumer]:
        """Instead of a consumer in one lane, the same in all that have something, in the order of their turns."""
        found: list[Consumer] = []
        for consumer in consumers:
            kin = self._state.kin.get(consumer.group.identity)
            if kin is None:
                found.append(consumer)
                continue
            waiting = [one for one in kin.groups if self._has_something(one, now_ms)]
            found += [
                parked.by_group[one.identity] for one in kin.turns(waiting) if one.identity in parked.by_group
            ]
        return found

    def _has_something(self, group: Group, now_ms: int) -> bool:
        if group.reached < self._state.partitions[group.partition].visible:
            return True
        failure = group.first_due() if in_place(self._state, group) else group.next_failure()
        return failure is not None and failure.due_ms <= now_ms
