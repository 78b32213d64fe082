"""The broker's state as a fold: ``apply`` takes every action, whoever says it.

A master applies an action in the moment it writes it, a recovery when it reads it, later a slave when it receives it:
always here, so the three cannot disagree. Nothing in this module asks for the time or refuses anything; what is legal
was decided before the action was written.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import assert_never

from tidemill_broker.actions import (
    Acked,
    Action,
    ConsumerForgotten,
    ConsumerNamed,
    Extended,
    FailedDeliveries,
    GroupNamed,
    Pulled,
    Released,
    Skipped,
    Started,
    SubjectNamed,
    Synced,
    Voided,
)
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.groups import NOTHING_PASSED, Consumer, Delivery, Failure, Group
from tidemill_broker.partitions import Partition, SubjectSettings

BOOT_SHIFT = 40


class State:
    """Partitions, groups, consumers, and the leases that are running."""

    def __init__(self) -> None:
        self.boot = 0
        self.next_pull = 0
        self.partitions: dict[int, Partition] = {}
        self.by_name: dict[bytes, Partition] = {}
        self.groups: dict[int, Group] = {}
        self.consumers: dict[int, Consumer] = {}
        self.next_consumer = 1
        self.leases: list[tuple[int, int, int, Delivery]] = []  # heap of (deadline, pull, consumer, delivery)

    def group_of(self, subject: str, name: str) -> Group | None:
        """The group of that name in the subject's partition."""
        partition = self.by_name.get(subject.encode())
        if partition is None:
            return None
        identity = partition.groups.get(name)
        return None if identity is None else self.groups[identity]

    def apply(self, action: Action) -> int:
        """Change the state. Returns how many messages the action really concerned."""
        match action:
            case Pulled():
                return self._pulled(action)
            case Acked():
                taken = self._settle(action.consumer, action.ranges)
                count = sum(delivery.count for delivery in taken)
                if count:
                    self.consumers[action.consumer].group.acked += count
                return count
            case FailedDeliveries():
                return self._fail(action.consumer, action.ranges, action.due_ms, 1)
            case Released():
                return self._fail(action.consumer, action.ranges, 0, 0)
            case Extended():
                return self._extend(action)
            case SubjectNamed():
                self._name_subject(action)
            case GroupNamed():
                self._name_group(action)
            case ConsumerNamed(identity, group, name):
                consumer = Consumer(identity, self.groups[group], name)
                self.consumers[identity] = consumer
                self.groups[group].consumers[name] = consumer
                self.next_consumer = max(self.next_consumer, identity + 1)
            case ConsumerForgotten(identity):
                gone = self.consumers.pop(identity)
                assert not any(gone.held())
                del gone.group.consumers[gone.name]
            case Voided(group, first, messages):
                self.groups[group].take_failed(first, messages)
            case Skipped(group, _, to):
                self.groups[group].cursor = max(self.groups[group].cursor, to)
            case Started(boot):
                self.boot = boot
                self.next_pull = max(self.next_pull, boot << BOOT_SHIFT)
            case Synced():
                pass  # for whoever reads the log
            case _:
                assert_never(action)
        return 0

    def _name_subject(self, action: SubjectNamed) -> None:
        settings = SubjectSettings.from_map(action.settings)
        known = self.partitions.get(action.partition)
        if known is not None:
            known.configure(settings)
            return
        partition = Partition(action.partition, action.name, settings)
        self.partitions[action.partition] = partition
        self.by_name[partition.raw_name] = partition

    def _name_group(self, action: GroupNamed) -> None:
        settings = GroupSettings.from_map(action.settings)
        known = self.groups.get(action.group)
        if known is not None:
            known.settings = settings
            known.passed = NOTHING_PASSED
            return
        group = Group(action.group, action.partition, action.name, action.cursor, action.start_ms, settings)
        self.groups[action.group] = group
        self.partitions[action.partition].groups[action.name] = action.group

    def _pulled(self, action: Pulled) -> int:
        consumer = self.consumers[action.consumer]
        group = consumer.group
        total = 0
        for run in action.runs:
            if run.first >= group.cursor:
                group.cursor = run.first + run.messages
            else:
                group.take_failed(run.first, run.messages)
            delivery = Delivery(run.pull, run.first, run.messages, run.attempts, action.deadline_ms)
            consumer.deliveries.append(delivery)
            self.watch(consumer, delivery)
            self.next_pull = max(self.next_pull, run.pull + run.messages)
            total += run.messages
        group.in_flight += total
        return total

    def _settle(self, identity: int, ranges: Sequence[int]) -> list[Delivery]:
        consumer = self.consumers.get(identity)
        if consumer is None:
            return []
        settled: list[Delivery] = []
        for index in range(0, len(ranges), 2):
            taken, left = consumer.take(ranges[index], ranges[index + 1])
            settled += taken
            for delivery in left:
                self.watch(consumer, delivery)
        return settled

    def _fail(self, identity: int, ranges: Sequence[int], due_ms: int, attempts: int) -> int:
        settled = self._settle(identity, ranges)
        if not settled:
            return 0
        group = self.consumers[identity].group
        for delivery in settled:
            group.fail(Failure(delivery.first, delivery.count, delivery.attempts + attempts, due_ms))
        return sum(delivery.count for delivery in settled)

    def _extend(self, action: Extended) -> int:
        consumer = self.consumers.get(action.consumer)
        if consumer is None:
            return 0
        total = 0
        for index in range(0, len(action.ranges), 2):
            first, last = action.ranges[index], action.ranges[index + 1]
            count, watched = consumer.extend(first, last, action.deadline_ms)
            total += count
            for delivery in watched:
                self.watch(consumer, delivery)
        return total

    def watch(self, consumer: Consumer, delivery: Delivery) -> None:
        """A lease runs from now on."""
        heapq.heappush(self.leases, (delivery.deadline_ms, delivery.pull, consumer.identity, delivery))

    def next_lease_end(self) -> tuple[int, Consumer, Delivery] | None:
        """The running lease that ends first."""
        while self.leases:
            deadline_ms, _, identity, delivery = self.leases[0]
            if delivery.count and delivery.deadline_ms == deadline_ms:
                return deadline_ms, self.consumers[identity], delivery
            heapq.heappop(self.leases)
        return None

    def check(self) -> None:
        """Invariants of all that is held."""
        for partition in self.partitions.values():
            partition.check()
        for group in self.groups.values():
            group.check()
            assert group.cursor <= self.partitions[group.partition].next_sequence
