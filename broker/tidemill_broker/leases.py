"""The leases that run: which one ends first. Derived from the deliveries, and not in the log."""

from __future__ import annotations

from tidemill_broker.alarms import Alarms
from tidemill_broker.pull_log import Consumer, Delivery


class Leases:
    """Of all consumers."""

    def __init__(self, consumers: dict[int, Consumer]) -> None:
        self._consumers = consumers
        self._ends = Alarms[tuple[int, Delivery]](
            lambda at_ms, held: held[1].count > 0 and held[1].deadline_ms == at_ms
        )

    def watch(self, consumer: Consumer, delivery: Delivery) -> None:
        """A lease runs from now on."""
        self._ends.set(delivery.deadline_ms, (consumer.identity, delivery))

    def next_end(self) -> tuple[int, Consumer, Delivery] | None:
        """The running lease that ends first."""
        first = self._ends.first()
        if first is None:
            return None
        deadline_ms, (identity, delivery) = first
        return deadline_ms, self._consumers[identity], delivery

    def go_back(self, back_ms: int) -> None:
        """The clock was set back by so much: leases move with it, and since when their messages have failed."""
        self._ends.clear()
        for consumer in self._consumers.values():
            for delivery in consumer.held():
                delivery.deadline_ms = max(0, delivery.deadline_ms - back_ms)
                if delivery.limit_ms:
                    delivery.limit_ms = max(1, delivery.limit_ms - back_ms)
                if delivery.since_ms:
                    delivery.since_ms = max(1, delivery.since_ms - back_ms)
                self.watch(consumer, delivery)
