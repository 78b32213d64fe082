"""The leases that run: which one ends first. Derived from the deliveries, and not in the log."""

from __future__ import annotations

import heapq

from tidemill_broker.pull_log import Consumer, Delivery


class Leases:
    """Of all consumers."""

    def __init__(self, consumers: dict[int, Consumer]) -> None:
        self._consumers = consumers
        self._heap: list[tuple[int, int, int, Delivery]] = []  # (deadline, pull, consumer, delivery)

    def watch(self, consumer: Consumer, delivery: Delivery) -> None:
        """A lease runs from now on."""
        heapq.heappush(self._heap, (delivery.deadline_ms, delivery.pull, consumer.identity, delivery))

    def next_end(self) -> tuple[int, Consumer, Delivery] | None:
        """The running lease that ends first."""
        while self._heap:
            deadline_ms, _, identity, delivery = self._heap[0]
            if delivery.count and delivery.deadline_ms == deadline_ms:
                return deadline_ms, self._consumers[identity], delivery
            heapq.heappop(self._heap)
        return None

    def go_back(self, back_ms: int) -> None:
        """The clock was set back by so much: leases move with it."""
        self._heap = []
        for consumer in self._consumers.values():
            for delivery in consumer.held():
                delivery.deadline_ms = max(0, delivery.deadline_ms - back_ms)
                if delivery.limit_ms:
                    delivery.limit_ms = max(1, delivery.limit_ms - back_ms)
                self.watch(consumer, delivery)
