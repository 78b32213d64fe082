"""What becomes of deliveries: acked, failed, extended, handed back; by their consumer, or by time."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill_broker.actions import (
    Acked,
    ConsumerForgotten,
    Extended,
    FailedDeliveries,
    Reason,
    Released,
)
from tidemill_broker.desk import Desk
from tidemill_broker.groups import Consumer, Group, merge_ranges
from tidemill_broker.locks import Locks
from tidemill_broker.members import Members
from tidemill_broker.serving import Serving
from tidemill_host.machine import Durability, Peer
from tidemill_wire import commands, limits
from tidemill_wire.commands import Ack, Extend, Nack, Release


class Settling:
    """Ends deliveries."""

    def __init__(self, desk: Desk, members: Members, serving: Serving, locks: Locks) -> None:
        self._desk = desk
        self._state = desk.state
        self._members = members
        self._serving = serving
        self._locks = locks

    def settle(self, peer: Peer, correlation: int, command: commands.Settle, now_ms: int) -> None:
        """A consumer says what became of deliveries; it is told how many of them were not its own any more."""
        consumer = self._members.holder(command)
        match command:
            case Nack():
                self._nack(peer, correlation, consumer, command, now_ms)
            case Extend():
                deadline_ms = now_ms + self._locks.lease_ms(consumer.group)
                action = Extended(consumer.identity, deadline_ms, command.ranges)
                self._write(peer, correlation, consumer, action, now_ms)
            case Release():
                self._write(peer, correlation, consumer, Released(consumer.identity, command.ranges), now_ms)
                self._keep_order(consumer.group, now_ms)
                self._serving.serve_group(consumer.group.identity, now_ms)
            case Ack():
                was_full = consumer.group.room <= 0
                self._write(peer, correlation, consumer, Acked(consumer.identity, command.ranges), now_ms)
                if was_full or consumer.group.ordered:
                    self._serving.serve_group(consumer.group.identity, now_ms)
            case _:
                raise AssertionError(command)

    def goodbye(self, peer: Peer, now_ms: int) -> None:
        """A consumer that says so is gone at once, and its pulls are over: it is not given what it hands back."""
        self._serving.end_pulls(peer, now_ms)
        for consumer in self._members.of(peer):
            self._locks.free(consumer, now_ms)
            self._fail_all(consumer, Reason.CONSUMER_GONE, now_ms)

    def ticked(self, now_ms: int) -> None:
        """Leases that ended, consumers that did not come back."""
        while (ended := self._state.next_lease_end()) is not None and ended[0] <= now_ms:
            _, consumer, delivery = ended
            ranges = [delivery.pull, delivery.pull + delivery.count - 1]
            self._desk.counters.leases_ended += 1
            self._desk.act(FailedDeliveries(consumer.identity, now_ms, Reason.LEASE_ENDED, ranges), now_ms)
            self._keep_order(consumer.group, now_ms)
            self._serving.serve_group(consumer.group.identity, now_ms)
        for consumer in self._members.take_gone(now_ms):
            self._locks.free(consumer, now_ms)
            self._fail_all(consumer, Reason.CONSUMER_GONE, now_ms)
            self._desk.act(ConsumerForgotten(consumer.identity), now_ms)

    def next_wake(self, at_most: int) -> int:
        """When ``ticked`` has something to do, or ``at_most``."""
        ended = self._state.next_lease_end()
        if ended is not None:
            at_most = min(at_most, ended[0])
        return self._members.wake_at_ms(at_most)

    def _nack(self, peer: Peer, correlation: int, consumer: Consumer, nack: Nack, now_ms: int) -> None:
        due_ms = now_ms + max(0, nack.delay_ms)
        action = FailedDeliveries(consumer.identity, due_ms, Reason.NACK, nack.ranges)
        self._write(peer, correlation, consumer, action, now_ms)
        self._desk.counters.messages_nacked += 1
        self._keep_order(consumer.group, now_ms)
        self._serving.serve_group(consumer.group.identity, now_ms)
        self._desk.wake(due_ms)

    def _write(
        self,
        peer: Peer,
        correlation: int,
        consumer: Consumer,
        action: Acked | FailedDeliveries | Extended | Released,
        now_ms: int,
    ) -> None:
        lost = [bound for first, last in _pairs(action.ranges) for bound in consumer.missing(first, last)]
        concerned = self._desk.act(action, now_ms)
        level = Durability.WRITTEN
        if isinstance(action, Acked):
            self._desk.counters.messages_acked += concerned
            if self._state.partitions[consumer.group.partition].synced:
                level = Durability.SYNCED
        self._desk.say(peer, correlation, commands.Done(lost), level)

    def _fail_all(self, consumer: Consumer, reason: Reason, now_ms: int) -> None:
        ranges = merge_ranges([(delivery.pull, delivery.count) for delivery in consumer.held()])
        for start in range(0, len(ranges), 2 * limits.RANGES_MAX):  # a million of them fit no record
            part = ranges[start : start + 2 * limits.RANGES_MAX]
            self._desk.act(FailedDeliveries(consumer.identity, now_ms, reason, part), now_ms)
        if ranges or consumer.group.ordered:
            self._serving.serve_group(consumer.group.identity, now_ms)

    def _keep_order(self, group: Group, now_ms: int) -> None:
        """In a group in order a failed message comes again before anything newer: what lies behind it and is given out
        is taken back, as if it had never been given.
        """
        if not group.ordered or not group.failed:
            return
        for consumer, ranges in group.held_behind(min(group.failed)):
            for start in range(0, len(ranges), 2 * limits.RANGES_MAX):
                part = ranges[start : start + 2 * limits.RANGES_MAX]
                self._desk.act(Released(consumer.identity, part), now_ms)


def _pairs(ranges: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(ranges[::2], ranges[1::2], strict=True))
