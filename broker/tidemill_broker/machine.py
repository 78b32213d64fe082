"""The broker as a machine: commands and ``now`` in, a ``Ready`` out.

What a command does, it does in one of two ways: it places a batch in the message log (``intake``), or it writes an
action and applies it (``state``). Answers leave when the host has brought those writes to the durability that the
subject asks for; messages become visible to consumers at the same moment, not before.

    received  ->  SEND       intake                    answered when written or synced
                  PULL       pulls, or waits           answered with slices
                  ACK ..     an action                 answered when written or synced
    ticked    ->  leases that ended, consumers that are gone, pulls whose time is over, syncs, checkpoints, retention
    persisted ->  what is visible moves on; who waited for it is served
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tidemill_broker.actions import (
    Acked,
    Action,
    ConsumerForgotten,
    Extended,
    FailedDeliveries,
    Pulled,
    Reason,
    Released,
    Voided,
)
from tidemill_broker.consume_log import ConsumeLog, Loading
from tidemill_broker.groups import Consumer, merge_ranges
from tidemill_broker.intake import Intake
from tidemill_broker.keeping import Keeping
from tidemill_broker.logs import Logs
from tidemill_broker.members import Members, replaced
from tidemill_broker.partitions import Partition, SubjectSettings
from tidemill_broker.pulls import Given, ParkedPull, Pulls
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.state import State
from tidemill_broker.statistics import Counters
from tidemill_host.machine import Durability, Mark, Peer, Read, Ready, Send
from tidemill_wire import commands, limits
from tidemill_wire.commands import Ack, Command, Extend, Failed, Nack, Pull, Release, SendBatches
from tidemill_wire.connection import Event, Rejected
from tidemill_wire.errors import KIND_BY_NUMBER, Refused, Unavailable, WireError

NOTHING = Ready()
"""What most calls of ``ready`` answer: there is one, and nobody adds to it."""


class Broker:
    """One broker of one broker group, which it is the master of."""

    def __init__(self, state: State, logs: Logs, settings: BrokerSettings, now_ms: int) -> None:
        self.state = state
        self.logs = logs
        self.settings = settings
        self.counters = Counters()
        self.consume_log = ConsumeLog(state, logs)
        defaults = SubjectSettings(
            settings.durability, settings.retention_seconds, 0, limits.MESSAGE_BYTES_DEFAULT
        )
        self.intake = Intake(state, logs, defaults, settings.subjects_max, self.consume_log)
        self.intake.create_subjects = settings.create_subjects
        self.pulls = Pulls(state, logs, self.consume_log)
        self.keeping = Keeping(state, logs, settings, self.consume_log, now_ms)
        self._sends: list[Send] = []
        # partition -> what becomes visible with the next Ready, when that is as durable as the subject asks for
        self._fresh: dict[Durability, dict[int, int]] = {Durability.WRITTEN: {}, Durability.SYNCED: {}}
        self._unseen: dict[Durability, deque[tuple[int, dict[int, int]]]] = {
            Durability.WRITTEN: deque(), Durability.SYNCED: deque(),
        }  # fmt: skip
        self.members = Members(state, self._act, settings, now_ms)
        self._parked: dict[Peer, dict[int, ParkedPull]] = {}
        self._wake_at_ms = now_ms
        self._draining = False
        self._rotation = 0  # subjects of one pull take turns

    # The contract.

    def connected(self, peer: Peer, now_ms: int) -> None:
        self.members.joined(peer)
        self._parked[peer] = {}

    def disconnected(self, peer: Peer, now_ms: int) -> None:
        for parked in list(self._parked.pop(peer, {}).values()):
            self.pulls.unpark(parked)
        self.members.left(peer, now_ms)
        self._wake(now_ms + self.settings.consumer_gone_ms)

    def received(self, peer: Peer, command: Event, now_ms: int) -> None:
        if peer not in self._parked:
            return
        if isinstance(command, Rejected):
            self._refuse(peer, command.correlation, command.error)
            return
        try:
            self._decide(peer, command.correlation, command.command, now_ms)
        except WireError as error:
            self._refuse(peer, command.correlation, error)

    def ticked(self, now_ms: int) -> None:
        self._end_leases(now_ms)
        self._end_consumers(now_ms)
        for parked_of_peer in list(self._parked.values()):
            for parked in list(parked_of_peer.values()):
                if parked.deadline_ms <= now_ms:
                    self._answer(parked, [], now_ms)
        for identity in list(self.pulls.waiting):
            failure = self.state.groups[identity].next_failure()
            if failure is not None and failure.due_ms <= now_ms:
                self._serve_group(identity, now_ms)
        self.keeping.ticked(now_ms)
        self._wake_at_ms = self._next_wake(now_ms)

    def persisted(self, mark: Mark, now_ms: int) -> None:
        self.logs.persisted(mark)
        for level, reached in ((Durability.WRITTEN, mark.written), (Durability.SYNCED, mark.synced)):
            unseen = self._unseen[level]
            while unseen and unseen[0][0] <= reached:
                for identity, end in unseen.popleft()[1].items():
                    self._show(self.state.partitions[identity], end, now_ms)
        self.keeping.persisted(now_ms)

    def loaded(self, token: int, data: bytes, now_ms: int) -> None:
        for waiter in self.consume_log.loaded(token, data):
            assert isinstance(waiter, ParkedPull)
            if not waiter.answered:
                self._serve(waiter, now_ms)

    def ready(self) -> Ready:
        if not (self._sends or self.logs.has_writes or self.consume_log.reads or self.keeping.sync_now):
            NOTHING.wake_at_ms = min(self._wake_at_ms, self.keeping.wake_at_ms)
            return NOTHING
        ready = Ready(sends=self._sends, reads=self._take_reads(), sync=self.keeping.wants_sync())
        self._sends = []
        if self.logs.has_writes:
            self.logs.take(ready)
            self._note_fresh()
        ready.wake_at_ms = min(self._wake_at_ms, self.keeping.wake_at_ms)
        return ready

    # Decisions.

    def _decide(self, peer: Peer, correlation: int, command: Command, now_ms: int) -> None:
        match command:
            case SendBatches(batches):
                self._take(peer, correlation, batches, now_ms)
            case Pull():
                self._pull(peer, correlation, command, now_ms)
            case Ack():
                consumer = self.members.holder(command)
                self._settle(peer, correlation, command, Acked(consumer.identity, command.ranges), now_ms)
            case Nack():
                self._nack(peer, correlation, command, now_ms)
            case Extend():
                consumer = self.members.holder(command)
                deadline_ms = now_ms + consumer.group.lease_ms
                extended = Extended(consumer.identity, deadline_ms, command.ranges)
                self._settle(peer, correlation, command, extended, now_ms)
            case Release():
                consumer = self.members.holder(command)
                self._settle(peer, correlation, command, Released(consumer.identity, command.ranges), now_ms)
                self._serve_group(consumer.group.identity, now_ms)
            case commands.Ping():
                self._say(peer, correlation, commands.Done())
            case commands.Goodbye():
                self._goodbye(peer, now_ms)
            case _:
                raise Refused("malformed_command", f"a broker does not take {command.kind.name}")

    def _take(self, peer: Peer, correlation: int, batches: bytearray, now_ms: int) -> None:
        if self._draining:
            raise Unavailable("shutting_down", "the broker is about to stop")
        taken = self.intake.take(batches, now_ms)
        self.counters.batches += len(taken.first_sequences)
        self.counters.messages_in += taken.messages
        for _, number, _ in taken.refused:
            self.counters.refused[KIND_BY_NUMBER[number].name] += 1
        for identity, partition in taken.touched.items():
            level = Durability.SYNCED if partition.synced else Durability.WRITTEN
            self._fresh[level][identity] = partition.next_sequence
        self.keeping.note(len(taken.first_sequences), now_ms)
        answer = commands.Sent(taken.first_sequences, taken.refused)
        self._say(peer, correlation, answer, Durability.SYNCED if taken.synced else Durability.WRITTEN)

    def _pull(self, peer: Peer, correlation: int, pull: Pull, now_ms: int) -> None:
        if self._draining:
            raise Unavailable("shutting_down", "the broker is about to stop")
        parked_here = self._parked[peer]
        if len(parked_here) >= limits.CORRELATIONS_MAX:
            raise Unavailable("too_many_requests", f"{len(parked_here)} pulls of this connection wait")
        partitions = [
            self.state.by_name.get(subject.encode()) or self.intake.create(subject.encode(), now_ms)
            for subject in pull.subjects
        ]
        consumers = [self.members.enrol(peer, pull, partition, now_ms) for partition in partitions]
        parked = ParkedPull(peer, correlation, pull, consumers, now_ms + pull.wait_ms)
        back = self._resume(parked, now_ms) if pull.held is not None else []
        parked_here[id(parked)] = parked
        self.pulls.park(parked)
        self._serve(parked, now_ms)
        for group in back:
            self._serve_group(group, now_ms)
        if not parked.answered:
            self._wake(parked.deadline_ms)

    def _resume(self, parked: ParkedPull, now_ms: int) -> list[int]:
        """A consumer is here over a new connection: the groups that got back what it does not hold."""
        for stale in self.pulls.stale(parked):
            self.pulls.unpark(stale)
            self._parked[stale.peer].pop(id(stale), None)
            self._refuse(stale.peer, stale.correlation, replaced(stale.pull))
        groups: list[int] = []
        for consumer in parked.consumers:
            count = self.members.take_back(parked.peer, parked.pull, consumer, now_ms)
            self.counters.messages_taken_back += count
            if count:
                groups.append(consumer.group.identity)
        return groups

    def _settle(
        self, peer: Peer, correlation: int, command: commands.Settle, action: Action, now_ms: int
    ) -> None:
        """Write what became of deliveries; tell how many of them were not the consumer's any more."""
        consumer = self.members.holder(command)
        lost = [bound for first, last in _pairs(command.ranges) for bound in consumer.missing(first, last)]
        concerned = self._act(action, now_ms)
        partition = self.state.partitions[consumer.group.partition]
        if isinstance(action, Acked):
            self.counters.messages_acked += concerned
        level = Durability.SYNCED if partition.synced and isinstance(action, Acked) else Durability.WRITTEN
        self._say(peer, correlation, commands.Done(lost), level)

    def _nack(self, peer: Peer, correlation: int, nack: Nack, now_ms: int) -> None:
        consumer = self.members.holder(nack)
        due_ms = now_ms + max(0, nack.delay_ms)
        action = FailedDeliveries(consumer.identity, due_ms, Reason.NACK, nack.ranges)
        self._settle(peer, correlation, nack, action, now_ms)
        self.counters.messages_nacked += 1
        self._serve_group(consumer.group.identity, now_ms)
        self._wake(due_ms)

    def _goodbye(self, peer: Peer, now_ms: int) -> None:
        """A consumer that says so is gone at once, and its pulls are over: it is not given what it hands back."""
        for parked in list(self._parked[peer].values()):
            self._answer(parked, [], now_ms)
        for consumer in self.members.of(peer):
            self._fail_all(consumer, Reason.CONSUMER_GONE, now_ms)

    # Serving.

    def _serve_group(self, identity: int, now_ms: int) -> None:
        """Something may have come for a group: serve those who wait, in the order of their coming."""
        for parked in list(self.pulls.waiting.get(identity, {}).values()):
            if not parked.answered and not self._serve(parked, now_ms):
                return

    def _serve(self, parked: ParkedPull, now_ms: int) -> bool:
        """Answer a pull if its groups have something for it."""
        start = self._rotation % len(parked.consumers)
        self._rotation += 1
        for consumer in (*parked.consumers[start:], *parked.consumers[:start]):
            try:
                given = self.pulls.collect(parked, consumer, now_ms)
            except Loading:
                return False
            for first, messages in given.missing:
                self.counters.messages_voided += messages
                self._act(Voided(consumer.group.identity, first, messages), now_ms)
            if given.runs:
                self._answer(parked, [given], now_ms)
                return True
        if parked.deadline_ms <= now_ms:
            self._answer(parked, [], now_ms)
            return True
        return False

    def _answer(self, parked: ParkedPull, given: Sequence[Given], now_ms: int) -> None:
        self.pulls.unpark(parked)
        self._parked[parked.peer].pop(id(parked), None)
        grants: list[commands.Grant] = []
        lease_ms = 0
        for part in given:
            group = part.consumer.group
            lease_ms = group.lease_ms
            self._grant(part, now_ms)
            grants += part.grants(self.state.partitions[group.partition].name)
            self.counters.messages_out += part.messages
            self.counters.bytes_out += part.size
        slices = [piece for part in given for piece in part.slices]
        trailing = sum(piece.size for piece in slices)
        head = commands.encode_command(commands.Pulled(grants, lease_ms), parked.correlation, trailing)
        self._sends.append(Send(parked.peer, head, slices))

    def _grant(self, given: Given, now_ms: int) -> None:
        """Number the deliveries and write the PULL."""
        pull = self.state.next_pull
        for index, run in enumerate(given.runs):
            given.runs[index] = run._replace(pull=pull)
            pull += run.messages
        deadline_ms = now_ms + given.consumer.group.lease_ms
        self._act(Pulled(given.consumer.identity, deadline_ms, given.runs), now_ms)
        self._wake(deadline_ms)

    def _show(self, partition: Partition, end: int, now_ms: int) -> None:
        partition.visible = max(partition.visible, end)
        for identity in partition.groups.values():
            if identity in self.pulls.waiting:
                self._serve_group(identity, now_ms)

    # What time does to consumers.

    def _fail_all(self, consumer: Consumer, reason: Reason, now_ms: int) -> None:
        ranges = merge_ranges([(delivery.pull, delivery.count) for delivery in consumer.held()])
        for start in range(0, len(ranges), 2 * limits.RANGES_MAX):  # a million of them fit no record
            part = ranges[start : start + 2 * limits.RANGES_MAX]
            self._act(FailedDeliveries(consumer.identity, now_ms, reason, part), now_ms)
        if ranges:
            self._serve_group(consumer.group.identity, now_ms)

    def _end_leases(self, now_ms: int) -> None:
        while (ended := self.state.next_lease_end()) is not None and ended[0] <= now_ms:
            _, consumer, delivery = ended
            ranges = [delivery.pull, delivery.pull + delivery.count - 1]
            self.counters.leases_ended += 1
            self._act(FailedDeliveries(consumer.identity, now_ms, Reason.LEASE_ENDED, ranges), now_ms)
            self._serve_group(consumer.group.identity, now_ms)

    def _end_consumers(self, now_ms: int) -> None:
        for consumer in self.members.take_gone(now_ms):
            self._fail_all(consumer, Reason.CONSUMER_GONE, now_ms)
            self._act(ConsumerForgotten(consumer.identity), now_ms)

    # Plumbing.

    def drain(self) -> None:
        """Take no more work; what waits is told so."""
        self._draining = True
        error = Unavailable("shutting_down", "the broker is about to stop")
        for peer, parked_here in self._parked.items():
            for parked in list(parked_here.values()):
                self.pulls.unpark(parked)
                self._refuse(peer, parked.correlation, error)
            parked_here.clear()

    def _act(self, action: Action, now_ms: int) -> int:
        self.logs.act(action, now_ms)
        self.keeping.note(1, now_ms)
        return self.state.apply(action)

    def _say(
        self, peer: Peer, correlation: int, command: Command, after: Durability = Durability.WRITTEN
    ) -> None:
        self._sends.append(Send(peer, commands.encode_command(command, correlation), after=after))

    def _refuse(self, peer: Peer, correlation: int, error: WireError) -> None:
        self.counters.refused[error.kind.name] += 1
        self._say(peer, correlation, Failed(error.kind.number, error.detail))

    def _take_reads(self) -> list[Read]:
        reads, self.consume_log.reads = self.consume_log.reads, []
        return reads

    def _note_fresh(self) -> None:
        """Remember what becomes visible when the ``Ready`` that was just numbered has been persisted."""
        for level, fresh in self._fresh.items():
            if fresh:
                self._unseen[level].append((self.logs.number, fresh))
                self._fresh[level] = {}

    def _wake(self, at_ms: int) -> None:
        self._wake_at_ms = min(self._wake_at_ms, at_ms)

    def _next_wake(self, now_ms: int) -> int:
        """When something is due that no command announces."""
        wake = self.keeping.wake_at_ms
        ended = self.state.next_lease_end()
        if ended is not None:
            wake = min(wake, ended[0])
        wake = self.members.wake_at_ms(wake)
        for parked_of_peer in self._parked.values():
            for parked in parked_of_peer.values():
                wake = min(wake, parked.deadline_ms)
        for identity in self.pulls.waiting:
            failure = self.state.groups[identity].next_failure()
            if failure is not None:
                wake = min(wake, failure.due_ms)
        return max(wake, now_ms + 1)

    def check(self) -> None:
        """The invariants of everything, after every step in the simulator."""
        self.state.check()


def _pairs(ranges: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(ranges[::2], ranges[1::2], strict=True))
