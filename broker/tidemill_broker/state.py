"""The broker's state as a fold: ``apply`` takes every action, whoever says it.

A master applies an action in the moment it writes it, a recovery when it reads it, later a slave when it receives it:
always here, so the three cannot disagree. Nothing in this module asks for the time or refuses anything; what is legal
was decided before the action was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from tidemill_broker.actions import (
    Acked,
    Action,
    Allocated,
    Buried,
    ConsumerForgotten,
    ConsumerNamed,
    EpochBegun,
    Exhumed,
    Extended,
    FailedDeliveries,
    FencePut,
    GroupForgotten,
    GroupNamed,
    GroupPaused,
    GroupResumed,
    Locked,
    Parked,
    Pulled,
    Purged,
    Redriven,
    Released,
    Removed,
    Skipped,
    Sought,
    Started,
    SubjectNamed,
    Synced,
    Unlocked,
    Voided,
)
from tidemill_broker.deduplication import Deduplication
from tidemill_broker.epochs import go_on
from tidemill_broker.failures import SILENT, Failure
from tidemill_broker.fences import Fences
from tidemill_broker.group_settings import BROADCAST, GroupSettings
from tidemill_broker.groups import NOTHING_PASSED, Group
from tidemill_broker.holds import Holds
from tidemill_broker.indexes import Index
from tidemill_broker.lanes import Kin, Lane, group_in
from tidemill_broker.leases import Leases
from tidemill_broker.partitions import Partition, SubjectSettings, make_partition
from tidemill_broker.pending import Transactions
from tidemill_broker.pull_log import Consumer, Delivery
from tidemill_broker.tombs import Tombs
from tidemill_broker.touched import touched_by
from tidemill_broker.transaction_actions import OfTransaction
from tidemill_wire.fields import dead_letters_of, dead_subject
from tidemill_wire.lanes import first_of_lane, split_lane
from tidemill_wire.limits import DOOMED_MS
from tidemill_wire.ranges import pairs
from tidemill_wire.replication import EpochStart


class State:
    """Partitions, groups, consumers, and the leases that are running."""

    def __init__(self) -> None:
        self.boot = 0
        self.boots_alone = 0
        """Lives of the log before its first epoch."""
        self.epochs: list[EpochStart] = []
        """Where epochs began, of a broker group; a lone broker's log has none."""
        self.next_pull = 0
        self.partitions: dict[int, Partition] = {}
        self.by_name: dict[bytes, Partition] = {}
        self.tombs = Tombs()
        self.groups: dict[int, Group] = {}
        self.consumers: dict[int, Consumer] = {}
        self.next_consumer = 1
        self.next_group = 1
        self.silent: dict[int, int] = {}
        """Broadcast groups whose consumer is away, and since when."""
        self.doomed: set[int] = set()
        """Groups with failures to be buried; it may name some that have none left."""
        self.dead: dict[int, int] = {}
        """Group -> the group of the same name in its dead-letter subject."""
        self.touched: set[int] = set()
        """Groups that were changed since somebody looked, and took them out."""
        self.lanes: dict[int, dict[int, Lane]] = {}
        """Partition -> priority -> lane, of those that have some."""
        self.kin: dict[int, Kin] = {}
        """Group -> its kin, of the groups of such partitions and of their lanes."""
        self.fences = Fences()
        self.transactions = Transactions()
        self.deduplication = Deduplication()
        self.index = Index()
        self.leases = Leases(self.consumers)
        self.holds = Holds()

    def group_of(self, subject: str, name: str) -> Group | None:
        """The group of that name in the subject's partition."""
        partition = self.by_name.get(subject.encode())
        if partition is None:
            return None
        identity = partition.groups.get(name)
        return None if identity is None else self.groups[identity]

    def family(self, group: Group) -> Sequence[Group]:
        """A group and its namesakes in lanes, the highest priority first."""
        kin = self.kin.get(group.identity)
        return (group,) if kin is None else kin.groups

    def everywhere(self, group: Group) -> Sequence[Group]:
        """A group in all places: its lanes, and its dead letters with theirs."""
        head = self.family(group)[-1]
        living = (one for one, twin in self.dead.items() if twin == head.identity)
        other = self.dead.get(head.identity) or next(living, None)
        return (*self.family(group), *(() if other is None else self.family(self.groups[other])))

    def room(self, group: Group) -> int:
        """How many messages more a group may give out now."""
        kin = self.kin.get(group.identity)
        return group.room if kin is None else kin.room_of(group)

    def apply(self, action: Action) -> int:
        """Change the state. Returns how many messages the action really concerned."""
        self.touched.update(touched_by(self, action))
        match action:
            case Pulled():
                return self._pulled(action)
            case Acked():
                return self._ack(action)
            case FailedDeliveries():
                return self._fail(action)
            case Released():
                return self._release(action)
            case Buried(identity, first, messages, _):
                group = self.groups[identity]
                group.take_failed(first, messages)
                group.buried += messages
                return messages
            case GroupPaused(identity, at_ms, fingerprint):
                self._pause(identity, (at_ms, fingerprint))
            case GroupResumed(identity):
                self._pause(identity, None)
            case Redriven():
                return self._redrive(action)
            case Purged(identity, ranges):
                return sum(count for _, count in self.groups[identity].handle(ranges))
            case Extended() | Parked():
                return self._extend(action)
            case SubjectNamed():
                self._name_subject(action)
            case GroupNamed():
                self._name_group(action)
            case ConsumerNamed(identity, group, name):
                consumer = Consumer(identity, self.groups[group], name)
                self.consumers[identity] = consumer
                self.groups[group].consumers[name] = consumer
                self.rest(self.groups[group], 0)
                self.next_consumer = max(self.next_consumer, identity + 1)
            case ConsumerForgotten(identity, _, _):
                gone = self.consumers.pop(identity)
                assert not any(gone.held())
                del gone.group.consumers[gone.name]
            case Sought() | Locked() | Unlocked() | GroupForgotten() | Allocated():
                self._steer(action)
            case Voided(group, first, messages):
                self.groups[group].take_failed(first, messages)
            case Skipped(group, _, to):
                self.groups[group].cursor = max(self.groups[group].cursor, to)
            case Started() | EpochBegun() | Exhumed() | Synced() | FencePut() | Removed() | OfTransaction():
                go_on(self, action)
            case _:
                assert_never(action)
        return 0

    def _steer(self, action: Sought | Locked | Unlocked | GroupForgotten | Allocated) -> None:
        group = self.groups[action.group]
        match action:
            case Sought(_, cursor, start_ms):
                self.partitions[group.partition].given(group.cursor)
                group.go_on_at(cursor, start_ms)
                self._pause(group.identity, None)
            case Locked(_, consumer, until_ms):
                group.owner, group.lock_ms = consumer, until_ms
                self.rest(group, 0)
            case Unlocked(_, at_ms):
                group.owner = group.lock_ms = 0
                self.rest(group, at_ms)
            case Allocated(_, version, consumer):
                group.allocation, group.allocated = version, consumer
            case GroupForgotten():
                for one in list(self.family(group)):
                    self._forget(one)

    def _pause(self, identity: int, paused: tuple[int, str] | None) -> None:
        for one in self.everywhere(self.groups[identity]):
            one.paused = paused

    def _forget(self, group: Group) -> None:
        assert not group.consumers
        self.partitions[group.partition].given(group.cursor)
        self.rest(group, 0)
        group.go_on_at(group.cursor, 0)  # nothing is doomed any more: a burial under way does nothing
        self.doomed.discard(group.identity)
        self.dead.pop(group.identity, None)
        self.kin.pop(group.identity, None)
        del self.groups[group.identity]
        del self.partitions[group.partition].groups[group.name]

    def rest(self, group: Group, silent_ms: int) -> None:
        """Nobody is there for a group from then on; 0: somebody is, or nobody cares any more."""
        group.silent_ms = silent_ms if group.settings.consumption == BROADCAST else 0
        if group.silent_ms:
            self.silent[group.identity] = group.silent_ms
        else:
            self.silent.pop(group.identity, None)

    def _name_subject(self, action: SubjectNamed) -> None:
        settings = SubjectSettings.from_map(action.settings)
        known = self.partitions.get(action.partition)
        if known is None or known.raw_name in self.tombs.by_name:
            self.add_partition(action.partition, action.name, settings)
            return
        known.configure(settings)
        self.holds.declare(known)
        for lane in self.lanes.get(known.identity, {}).values():
            lane.configure(settings)

    def add_partition(self, identity: int, name: str, settings: SubjectSettings) -> Partition:
        """A partition that is new, or comes from a checkpoint. The groups of a subject are in a lane from its first
        message on: they began before it came.
        """
        subject, priority = split_lane(name)
        if not priority:
            partition = self.tombs.again(name, settings) or make_partition(identity, name, settings)
            self._index_partition(partition)
            return partition
        base = self.by_name[subject.encode()]
        again = self.tombs.again(name, settings)
        lane = again if isinstance(again, Lane) else Lane(identity, base, priority, settings)
        start = max(first_of_lane(priority), self.tombs.floor(lane))
        self.lanes.setdefault(base.identity, {})[priority] = lane
        self._index_partition(lane)
        for head in [self.groups[number] for number in base.groups.values()]:
            self.add_group(group_in(lane, head, (start, head.start_ms)))
        return lane

    def _index_partition(self, partition: Partition) -> None:
        self.partitions[partition.identity] = partition
        self.by_name[partition.raw_name] = partition
        self.holds.declare(partition)

    def _name_group(self, action: GroupNamed) -> None:
        settings = GroupSettings.from_map(action.settings)
        known = self.groups.get(action.group)
        if known is not None:
            for one in self.family(known):
                one.settings = settings
                one.passed = NOTHING_PASSED
            return
        head = Group(action.group, action.partition, action.name, action.cursor, action.start_ms, settings)
        self.add_group(head)
        starts = {priority: (cursor, start_ms) for priority, cursor, start_ms in action.lanes}
        for priority, lane in self.lanes.get(action.partition, {}).items():
            self.add_group(
                group_in(lane, head, starts.get(priority, (first_of_lane(priority), head.start_ms)))
            )

    def add_group(self, group: Group) -> None:
        """A group that is new, or comes from a checkpoint."""
        partition = self.partitions[group.partition]
        self.groups[group.identity] = group
        group.subject_hold = self.holds.of_subject(partition)
        group.subject_hold.count += group.in_flight
        partition.groups[group.name] = group.identity
        if group.doomed:
            self.doomed.add(group.identity)
        if isinstance(partition, Lane):
            head = self.groups[partition.base.groups[group.name]]
            kin = self.kin.setdefault(head.identity, Kin(head))
            kin.join(group)
            self.kin[group.identity] = kin
            return
        self.next_group = max(self.next_group, group.identity + 1)
        subject = dead_letters_of(partition.name, group.name)
        living = self.group_of(subject, group.name) if subject is not None else None
        if living is not None:
            self.dead[living.identity] = group.identity
            group.share(living)
        twin = self.group_of(dead_subject(partition.name, group.name), group.name)
        if twin is not None and twin is not group:  # of a group that was forgotten and is there again
            self.dead[group.identity] = twin.identity
            for one in self.family(twin):
                one.share(group)

    def _pulled(self, action: Pulled) -> int:
        consumer = self.consumers[action.consumer]
        group = consumer.group
        total = 0
        for run in action.runs:
            delivery = Delivery(run.pull, run.first, run.messages, run.attempts, action.deadline_ms)
            delivery.limit_ms = action.limit_ms
            if run.first >= group.cursor:
                group.cursor = run.first + run.messages
                group.start_ms = 0  # begun: a clock that goes back must not make it pass over what comes
            else:
                failure = group.take_failed(run.first, run.messages)
                delivery.since_ms, delivery.fingerprint = failure.since_ms, failure.fingerprint
            consumer.deliveries.append(delivery)
            self.leases.watch(consumer, delivery)
            self.next_pull = max(self.next_pull, run.pull + run.messages)
            total += run.messages
        group.hold(total)
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
                self.leases.watch(consumer, delivery)
        return settled

    def _ack(self, action: Acked) -> int:
        count = sum(delivery.count for delivery in self._settle(action.consumer, action.ranges))
        if count:
            self.consumers[action.consumer].group.acked += count
        return count

    def _fail(self, action: FailedDeliveries) -> int:
        settled = self._settle(action.consumer, action.ranges)
        if not settled:
            return 0
        group = self.consumers[action.consumer].group
        total = sum(delivery.count for delivery in settled)
        detail = action.detail or SILENT.get(action.reason)
        if detail is not None:
            detail = group.errors.note(detail, total, action.at_ms)
        for one in settled:
            group.fail(
                Failure(
                    one.first, one.count, one.attempts + action.counted, action.due_ms,
                    one.since_ms or action.at_ms, detail.fingerprint if detail is not None else one.fingerprint,
                ),
                detail,
            )  # fmt: skip
        if action.due_ms == DOOMED_MS:
            self.doomed.add(group.identity)
        return total

    def _release(self, action: Released) -> int:
        settled = self._settle(action.consumer, action.ranges)
        for one in settled:
            group = self.consumers[action.consumer].group
            group.fail(Failure(one.first, one.count, one.attempts, 0, one.since_ms, one.fingerprint))
        return sum(delivery.count for delivery in settled)

    def _redrive(self, action: Redriven) -> int:
        group = self.groups[action.group]
        fresh = group.handle(action.ranges)
        for first, count in fresh:
            group.cursor = max(group.cursor, first + count)
            group.fail(Failure(first, count, action.attempts, action.at_ms))
        return sum(count for _, count in fresh)

    def _extend(self, action: Extended | Parked) -> int:
        consumer = self.consumers.get(action.consumer)
        if consumer is None:
            return 0
        limit_ms = consumer.group.settings.limit_ms(action.again_ms) if isinstance(action, Parked) else 0
        total = 0
        for first, last in pairs(action.ranges):
            count, watched = consumer.extend(first, last, action.deadline_ms, limit_ms)
            total += count
            for delivery in watched:
                self.leases.watch(consumer, delivery)
        return total

    def check(self) -> None:
        """Invariants of all that is held."""
        for partition in self.partitions.values():
            partition.check()
        for group in self.groups.values():
            group.check()
            assert group.identity in self.kin or not isinstance(self.partitions[group.partition], Lane)
            assert not group.owner or self.consumers[group.owner].group is group
            assert group.cursor <= self.partitions[group.partition].next_sequence
        self.holds.check(self.groups.values())
        self.transactions.check()
        for kin in self.kin.values():
            kin.check()
