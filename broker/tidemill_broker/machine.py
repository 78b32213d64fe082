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
from collections.abc import Iterable, Sequence

from tidemill_broker.adoption import Adoption
from tidemill_broker.archiving import Archiving
from tidemill_broker.checking import Checking
from tidemill_broker.consume_log import ConsumeLog
from tidemill_broker.dead_letters import DeadLetters
from tidemill_broker.desk import Desk
from tidemill_broker.fencing import Fencing
from tidemill_broker.intake import Intake
from tidemill_broker.keeping import Keeping
from tidemill_broker.locks import Locks
from tidemill_broker.logs import Logs
from tidemill_broker.members import Members
from tidemill_broker.partitions import SubjectSettings
from tidemill_broker.pulls import ParkedPull
from tidemill_broker.removal import Removing
from tidemill_broker.serving import Serving
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.settling import Settling
from tidemill_broker.state import State
from tidemill_broker.steering import Steering, WaitingSeek
from tidemill_broker.transactions import Transactions
from tidemill_host.machine import Buffer, Durability, Mark, Peer, Read, Ready, Slice, Unread
from tidemill_wire import commands, limits
from tidemill_wire.commands import Ack, Command, Extend, Nack, Pull, Purge, Redrive, Release, SendBatches
from tidemill_wire.connection import Event, Rejected
from tidemill_wire.deduplication import ROW as DUPLICATE
from tidemill_wire.errors import KIND_BY_NUMBER, Refused, Unavailable, WireError
from tidemill_wire.fencing import Fence
from tidemill_wire.replication import EpochStart
from tidemill_wire.steering import Seek, Suspend
from tidemill_wire.transacting import Check, Decide, Half

NOTHING = Ready()
"""What most calls of ``ready`` answer: there is one, and nobody adds to it."""


class Broker:
    """One broker of one broker group, which it is the master of."""

    folds_messages = False

    def __init__(self, state: State, logs: Logs, settings: BrokerSettings, now_ms: int) -> None:
        self.state = state
        self.logs = logs
        self.settings = settings
        self.consume_log = ConsumeLog(state, logs)
        defaults = SubjectSettings(
            settings.durability, settings.retention_seconds, 0, limits.MESSAGE_BYTES_DEFAULT
        )
        self.intake = Intake(state, logs, defaults, settings.subjects_max, self.consume_log)
        self.intake.create_subjects = settings.create_subjects
        self.keeping = Keeping(state, logs, settings, self.consume_log, now_ms)
        self._unseen: dict[Durability, deque[tuple[int, dict[int, int]]]] = {
            Durability.HERE: deque(), Durability.WRITTEN: deque(), Durability.SYNCED: deque(),
        }  # fmt: skip
        self._desk = Desk(state, logs, self.keeping, now_ms)
        self.counters = self._desk.counters
        self.members = Members(state, self._desk.act, settings, now_ms)
        self.dead_letters = DeadLetters(self._desk, self.intake, self.consume_log)
        self._locks = Locks(self._desk, settings.consumer_gone_ms, settings.broadcast_silence_ms, now_ms)
        self.serving = Serving(self._desk, self.intake, self.members, self.consume_log, self._locks)
        self._settling = Settling(self._desk, self.members, self.serving, self._locks, self.dead_letters)
        self._adoption = Adoption(self._desk, self.intake, self.dead_letters, self.serving)
        self.intake.again = self._adoption.again
        self._steering = Steering(self._desk, self.consume_log, self.serving, self.intake.further)
        self.archiving = Archiving(self._desk, self.intake.further)
        self.removing = Removing(self._desk, self.members, self.serving)
        self._fencing = Fencing(self._desk, self.intake)
        self.transactions = Transactions(self._desk, self.intake, settings, now_ms)
        self._checking = Checking(self._desk, self.transactions)
        self._draining = False

    # The contract.

    def connected(self, peer: Peer, now_ms: int) -> None:
        self.members.joined(peer)
        self.serving.joined(peer)

    def disconnected(self, peer: Peer, now_ms: int, silent_ms: int = 0) -> None:
        self.serving.left(peer)
        self._checking.left(peer)
        self.members.left(peer, now_ms - silent_ms)
        self._desk.wake(max(now_ms, now_ms - silent_ms + self.settings.consumer_gone_ms))

    def received(self, peer: Peer, command: Event, now_ms: int) -> None:
        if not self.serving.knows(peer):
            return
        if isinstance(command, Rejected):
            self._desk.refuse(peer, command.correlation, command.error)
            return
        try:
            self._decide(peer, command.correlation, command.command, now_ms)
        except WireError as error:
            self._desk.refuse(peer, command.correlation, error)
        self._serve_freed(now_ms)

    def vanished(self, pods: Iterable[str], now_ms: int) -> None:
        """Pods that are gone, as somebody says."""
        self._settling.vanished(pods, now_ms)
        self._serve_freed(now_ms)

    def ticked(self, now_ms: int) -> None:
        self._settling.ticked(now_ms)
        self._locks.ticked(now_ms)
        self.transactions.ticked(now_ms)
        self._checking.ticked(now_ms)
        self.serving.ticked(now_ms)
        self.dead_letters.bury(now_ms)
        self._serve_freed(now_ms)
        self.keeping.ticked(now_ms)
        wake = self._settling.next_wake(self.serving.next_wake(self.keeping.wake_at_ms, now_ms))
        wake = self.transactions.next_wake(self._checking.next_wake(self._locks.next_wake(wake)))
        self._desk.wake_at_ms = max(wake, now_ms + 1)

    def persisted(self, mark: Mark, now_ms: int) -> None:
        self.logs.persisted(mark)
        self.reveal(Durability.WRITTEN, mark.written, now_ms)
        self.reveal(Durability.SYNCED, mark.synced, now_ms)
        for identity in self._locks.persisted():
            self.serving.serve_group(identity, now_ms)
        self.keeping.persisted(now_ms)

    def reveal(self, level: Durability, reached: int, now_ms: int) -> None:
        """Show what asks for no more than that level, as far as it has come."""
        unseen = self._unseen[level]
        shown: dict[int, int] = {}
        while unseen and unseen[0][0] <= reached:
            shown |= unseen.popleft()[1]
        if shown:
            self.serving.show(shown, now_ms)

    def loaded(self, token: int, data: Buffer | Unread, now_ms: int) -> None:
        self.counters.unread += isinstance(data, Unread)
        if token < 0:
            self._desk.loaded(token, data, now_ms)
        elif not self.serving.sifted(token, data, now_ms):
            for waiter in self.consume_log.loaded(token, data):
                match waiter:
                    case ParkedPull():
                        self.serving.loaded(waiter, now_ms)
                    case WaitingSeek():
                        self._steering.again(waiter, now_ms)
                    case _:
                        assert callable(waiter)
                        waiter(now_ms)
        self._serve_freed(now_ms)

    def ready(self) -> Ready:
        desk, has_writes = self._desk, self.logs.has_writes
        wake_at_ms = min(desk.wake_at_ms, self.keeping.wake_at_ms)
        has_reads = self.consume_log.reads or desk.reads
        if not (desk.sends or has_writes or has_reads or self.keeping.sync_now):
            NOTHING.wake_at_ms = wake_at_ms
            return NOTHING
        ready = Ready(
            [], desk.take_sends(), self._take_reads() if has_reads else [], [], self.keeping.wants_sync()
        )
        if has_writes:
            self.logs.take(ready)
            self._note_fresh()
        ready.wake_at_ms = wake_at_ms
        return ready

    # Decisions.

    def _decide(self, peer: Peer, correlation: int, command: Command, now_ms: int) -> None:
        match command:
            case SendBatches():
                self._take(peer, correlation, command, now_ms)
            case Pull():
                self._refuse_work()
                parked = self.serving.enter(peer, correlation, command, now_ms)
                back = self._settling.take_back(parked, now_ms)
                self.serving.begin(parked, now_ms)
                for group in back:
                    self.serving.serve_group(group, now_ms)
            case Ack() | Nack() | Extend() | Release():
                self._settling.settle(peer, correlation, command, now_ms)
            case commands.Yield():
                self._settling.give_up(peer, correlation, command, now_ms)
            case Redrive():
                count = self._redrive(command, now_ms)
                self._desk.say(peer, correlation, commands.Done(count=count), Durability.SYNCED)
            case Purge():
                count = self._purge(command, now_ms)
                self._desk.say(peer, correlation, commands.Done(count=count), Durability.SYNCED)
            case commands.Adopt():
                self._refuse_work()
                grave, count = self._adoption.adopt(command, now_ms)
                self._desk.say(peer, correlation, commands.Done(count=count), self._desk.level(grave))
            case Half():
                self._refuse_work()
                self.transactions.keep(command, now_ms)
                self._desk.say(peer, correlation, commands.Done(), Durability.SYNCED)
            case Decide():
                self._refuse_work()
                self.transactions.decide(peer, correlation, command, now_ms)
            case Check():
                self._refuse_work()
                self._checking.wait(peer, correlation, command, now_ms)
            case Seek():
                self._steering.seek(WaitingSeek(peer, correlation, command), now_ms)
            case Suspend():
                self._steering.suspend(peer, correlation, command, now_ms)
            case Fence(rows):
                answer = self._fencing.put(rows, now_ms)
                self._desk.say(peer, correlation, answer, Durability.SYNCED)
            case commands.Ping():
                self._desk.say(peer, correlation, commands.Done(), Durability.HERE)
            case commands.Goodbye():
                self._settling.goodbye(peer, now_ms)
            case _:
                raise Refused("malformed_command", f"a broker does not take {command.kind.name}")

    def _refuse_work(self) -> None:
        if self._draining:
            raise Unavailable("shutting_down", "the broker is about to stop")

    def _take(self, peer: Peer, correlation: int, command: SendBatches, now_ms: int) -> None:
        self._refuse_work()
        taken = self.intake.take(command.batches, now_ms, command.refused, command.payer)
        batches = len(taken.first_sequences)
        self.counters.batches += batches
        self.counters.messages_in += taken.messages
        if taken.messages:
            self.counters.batch_messages.add(taken.messages / batches, batches)
        self.counters.duplicates += sum(len(rows) for _, rows in taken.duplicates) // DUPLICATE.size
        for _, number, _ in taken.refused:
            self.counters.refused[KIND_BY_NUMBER[number].name] += 1
        low = True
        for partition in taken.touched.values():
            self._desk.stored(partition)
            low &= partition.low
        self.keeping.note(len(taken.first_sequences), now_ms, low=low)
        answer = commands.Sent(taken.first_sequences, taken.refused, taken.duplicates, taken.waits)
        level = Durability.SYNCED if taken.synced else Durability.WRITTEN
        if taken.touched and not (taken.synced or taken.repeated):
            level = max(map(self._desk.level, taken.touched.values()))
        self._desk.say(peer, correlation, answer, level)

    def _redrive(self, command: Redrive, now_ms: int) -> int:
        ranges, total = list(command.ranges), 0
        for name in self._graves(command):
            twin, count = self.dead_letters.redrive(name, command.group, ranges, now_ms)
            self.serving.adopt(twin, now_ms)
            total += count
        return total

    def _purge(self, command: Purge, now_ms: int) -> int:
        ranges = list(command.ranges)
        return sum(
            self.dead_letters.purge(name, command.group, ranges, now_ms) for name in self._graves(command)
        )

    def _graves(self, command: Redrive | Purge) -> list[str]:
        """The partitions whose dead letters are meant: all of a subject, or the one where sequences are named."""
        if command.ranges:
            return [command.subject]
        names = [partition.name for partition in self.intake.further.whole(command.subject)]
        return [name for name in names if self.dead_letters.has_any(name, command.group)] or [command.subject]

    def _serve_freed(self, now_ms: int) -> None:
        """What groups in order waited for is buried, or there is room for what a quota kept back: they go on."""
        while self.dead_letters.freed:
            self.serving.serve_group(self.dead_letters.freed.pop(), now_ms)
        self.serving.serve_freed(now_ms)

    # Plumbing.

    def hide(self) -> None:
        """Show nothing before the first mark: nobody knows yet who else has what a master begins with."""
        self._desk.low = Durability.HERE
        partitions = self.state.partitions
        self._unseen[Durability.WRITTEN].append(
            (0, {p.identity: p.next_sequence for p in partitions.values()})
        )
        for partition in partitions.values():
            partition.visible = min(partition.visible, partition.first_kept)

    @property
    def epochs(self) -> Sequence[EpochStart]:
        """Those that its log has begun."""
        return self.state.epochs

    def files(self) -> Sequence[Slice]:
        """What a copy of the state needs besides: nothing, for messages come with their log."""
        return ()

    def hold(self, *, on: bool) -> None:
        """Segments that go while a slave is sent them are noticed by its feed."""

    def drain(self) -> None:
        """Take no more work; what waits is told so."""
        self._draining = True
        self.serving.drain()
        self._checking.drain()

    def _take_reads(self) -> list[Read]:
        reads, self.consume_log.reads = self.consume_log.reads, []
        more, self._desk.reads = self._desk.reads, []
        return reads + more

    def _note_fresh(self) -> None:
        """Remember what becomes visible when the ``Ready`` that was just numbered has been persisted."""
        for level, fresh in self._desk.fresh.items():
            if fresh:
                self._unseen[level].append((self.logs.number, fresh))
                self._desk.fresh[level] = {}

    def check(self) -> None:
        """The invariants of everything, after every step in the simulator."""
        self.state.check()
        self.keeping.check()
