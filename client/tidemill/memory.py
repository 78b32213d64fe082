"""A broker in memory: the least that keeps the protocol's promises, for tests of programs and of this client.

It keeps batches as lists, groups as cursors, and forgets all of it with the process. Leases do not end by themselves.
What is nacked comes again after its delay, 0 unless one was given, until it has failed ``attempts_max`` times: then it
is a dead letter, and at once when it was rejected. Messages for later come when they are due by its clock, which
``clock.advance`` moves. A consumer that says GOODBYE or loses its connection gives back what it held. A group is in
order when its first pull asks for that; then one consumer has it until it is gone. Higher priorities come first, and
lower ones have no share meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidemill.delivery import add_range
from tidemill.memory_clock import MemoryClock
from tidemill.memory_dedup import KnownKeys
from tidemill.memory_graves import Graves
from tidemill.memory_peer import Peer, Waiting, others
from tidemill.memory_stores import (
    Lease,
    Member,
    StoredGroup,
    StoredSubject,
    first_since,
    lane_for,
    lanes_of,
    moved,
    named_by,
    next_wanted,
    sum_of,
    wrong_priority,
)
from tidemill.memory_timers import MemoryTimers
from tidemill.memory_transactions import MemoryTransactions
from tidemill.memory_transport import MemoryTransport
from tidemill.memory_why import Diary, Place
from tidemill.settings import ProtocolFactory, wall_clock_ms
from tidemill_wire.batch import Flags, Header, partition_name, read_header
from tidemill_wire.burying import Purge, Redrive
from tidemill_wire.commands import (
    Ack,
    Command,
    Done,
    Extend,
    Goodbye,
    Grant,
    Nack,
    Ping,
    Pull,
    Pulled,
    Release,
    SendBatches,
    Sent,
    Settle,
    Start,
)
from tidemill_wire.errors import WireError
from tidemill_wire.kinds import Mode
from tidemill_wire.kinds import Place as Goal
from tidemill_wire.lanes import lane_name, priority_of
from tidemill_wire.ranges import pairs
from tidemill_wire.steering import Seek, Suspend
from tidemill_wire.timing import Cancel, ListTimers, Reschedule, Show
from tidemill_wire.transacting import Check, Decide, Half

LEASE_MS = 60_000
ATTEMPTS_MAX = 32
"""Of a group that no manifest says anything of, at a broker; who also waits for a day before it gives up."""


class MemoryBroker:
    """See the module. ``protocol`` is for a server, ``connect`` for ``ClientSettings.connect``."""

    def __init__(
        self, attempts_max: int = ATTEMPTS_MAX, *, now_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self.attempts_max = attempts_max
        self.clock = MemoryClock(now_ms)
        self.later = MemoryTimers(self.clock, self._due_now, self._again)
        self.dedup_keys: dict[str, KnownKeys] = {}
        """By subject; ``window_s`` of one may be set."""
        self.graves = Graves(self.clock.now_ms)
        self.diary = Diary(self.clock.now_ms)
        self.transactions = MemoryTransactions(self.store, self.clock.now_ms)
        self.subjects: dict[str, StoredSubject] = {}
        self.groups: dict[tuple[str, str], StoredGroup] = {}
        self.peers: dict[Peer, None] = {}
        self.refuse_batch: Callable[[str], WireError | None] = lambda _subject: None
        """Asked for each batch: an error refuses it."""
        self.answers = True
        """``False``: nothing is answered, though all of it is done; not even pings are."""
        self._waiting: dict[Waiting, None] = {}
        self._known: dict[tuple[str, str], frozenset[str]] = {}
        """The subjects there were when a group named a pattern first."""

    def protocol(self) -> Peer:
        """One connection's end."""
        return Peer(self)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> object:
        """A connection without a network."""
        del host, port
        self.clock.watch()
        client = factory()
        mine, other = MemoryTransport(client), MemoryTransport(self.protocol())
        mine.other, other.other = other, mine
        other.protocol.connection_made(other)
        client.connection_made(mine)
        return mine

    # -- what peers say ----------------------------------------------------------------------------------------

    def handle(self, peer: Peer, correlation: int, command: Command) -> None:
        """Do it and answer."""
        match command:
            case Ping():
                peer.say(Done(), correlation)
            case SendBatches():
                peer.say(self.store(command.batches), correlation)
                self.serve()
            case Pull():
                self.pull(peer, correlation, command)
            case Ack() | Nack() | Extend() | Release():
                peer.say(Done(self.settle(command)), correlation)
                self.serve()
            case Goodbye():
                self.gone(peer)
            case Redrive() | Purge():
                self.rebury(peer, correlation, command)
            case Seek() | Suspend():
                self.steer(peer, correlation, command)
            case Half() | Decide() | Check():
                self.transactions.handle(peer, correlation, command)
                self.serve()
            case Cancel() | Reschedule() | Show() | ListTimers():
                self.later.handle(peer, correlation, command)
            case _:
                peer.fail(correlation, "malformed_command", f"a broker does not take {command.kind.name}")

    def store(self, buffer: bytearray) -> Sent:
        """Keep batches. One that comes twice is answered as the first time."""
        firsts, waits, at = list[int](), list[int](), 0
        refused: list[tuple[int, int, str]] = []
        duplicates: list[tuple[int, bytes]] = []
        while at < len(buffer):
            header = read_header(buffer, at)
            name = partition_name(buffer, at, header).decode()
            error = self.refuse_batch(name) or wrong_priority(header.priority)
            if error is not None:
                refused.append((len(firsts), error.kind.number, error.detail))
                waits += (len(firsts), error.wait_ms) if error.wait_ms else ()
                firsts.append(-1)
            else:
                data = buffer[at : at + header.length]
                if header.flags & Flags.DELAYED:
                    firsts.append(self.later.take(bytes(data)))
                else:
                    first, told = self._keep(header, data)
                    duplicates += [(len(firsts), told)] if told else []
                    firsts.append(first)
            at += header.length
        return Sent(firsts, refused, duplicates, waits)

    def _keep(self, header: Header, data: bytearray) -> tuple[int, bytes]:
        """The first sequence of a batch, and what is told of messages in it that are there already."""
        name = partition_name(data, 0, header).decode()
        subject = lane_for(self.subjects, self.groups, name, header.priority)
        keys = self.dedup_keys.setdefault(name, KnownKeys())
        first = subject.known(header)
        if first is not None:
            return first, keys.told(header)
        now_ms = self.clock.now_ms()
        kept, told = keys.sift(data, subject.next_sequence, now_ms)
        return -1 if kept is None else subject.store(kept, now_ms), told

    def _due_now(self, data: bytearray) -> None:
        self._keep(read_header(data), data)
        self.serve()

    def settle(self, command: Settle) -> list[int]:
        """What became of deliveries; the ranges that nobody held."""
        place, who = (command.subject, command.group), command.consumer
        group = self.groups.get(place)
        member = group.members.get(who) if group is not None else None
        lost: list[int] = []
        for first, last in pairs(command.ranges):
            for number in range(first, last + 1):
                leased = member.leases.get(number) if member is not None else None
                if leased is None or group is None or member is None:
                    add_range(lost, number, number)
                    continue
                failed = leased[0], leased[1] + 1
                match command:
                    case Ack():
                        group.acked += 1
                        self.diary.acked(place, leased, command)
                    case Nack():
                        self._failed(group, command, failed)
                    case Release():
                        self.diary.note(place, [leased], "released", who)
                        group.due.append(leased)
                    case _:
                        continue
                del member.leases[number]
        if group is not None:
            self._keep_order(place, group)
        return lost

    def _failed(self, group: StoredGroup, why: Nack, failed: Lease) -> None:
        place, who = (why.subject, why.group), why.consumer
        if why.reject or failed[1] >= self.attempts_max:
            group.rejected += why.reject
            self.diary.note(place, [failed], "failed", who, said=why)
            self.diary.note(place, [failed], "dead")
            self.graves.bury(why, *failed)
        else:
            delay_ms = max(0, why.delay_ms)
            self.diary.note(place, [failed], "failed", who, said=why, delay_ms=delay_ms)
            self._due(group, failed, delay_ms)

    def _again(self, why: Nack, failed: list[Lease]) -> None:
        for one in failed:
            self._failed(self.groups[why.subject, why.group], why, one)
        self.serve()

    def steer(self, peer: Peer, correlation: int, command: Seek | Suspend) -> None:
        """A group goes on elsewhere, stands still, or goes on."""
        group = self.groups.get((command.subject, command.group))
        if group is None:
            peer.fail(correlation, "not_found", f"there is no group {command.group!r} of {command.subject!r}")
        elif isinstance(command, Suspend):
            group.suspended = command.suspended
            peer.say(Done(), correlation)
        else:
            names = lanes_of(self.subjects, command.subject)
            if command.place is Goal.SEQUENCE:
                names = [lane_name(command.subject, priority_of(command.value))]
                names = [name if name in self.subjects else command.subject for name in names]
            for name in names if not command.rehearsal else ():
                self.diary.moved((name, command.group))
            found = [(self.subjects[name], self.groups[name, command.group]) for name in names]
            peer.say(sum_of([moved(subject, one, command) for subject, one in found]), correlation)
        self.serve()

    def rebury(self, peer: Peer, correlation: int, command: Redrive | Purge) -> None:
        """Dead letters come again, or nobody wants them any more."""
        grave = self.graves.of(command.subject, command.group)
        if grave is None:
            detail = f"group {command.group!r} has no dead letters of {command.subject!r}"
            peer.fail(correlation, "not_found", detail)
            return
        taken, redrives = list(grave.handle(command.ranges)), isinstance(command, Redrive)
        for letter in taken:
            place = letter.lane, command.group
            self.diary.note(place, [(letter.sequence, 0)], "redriven" if redrives else "purged")
            if redrives:
                self.groups[place].due.append((letter.sequence, 0))
                self._keep_order(place, self.groups[place])
        peer.say(Done(count=len(taken)), correlation)
        self.serve()

    def pull(self, peer: Peer, correlation: int, command: Pull) -> None:
        """Answer at once, or wait."""
        if self._give(peer, correlation, command):
            return
        loop = asyncio.get_running_loop()
        waiting = Waiting(peer, correlation, command)
        waiting.timer = loop.call_later(command.wait_ms / 1000, self._give_up, waiting)
        self._waiting[waiting] = None

    def serve(self) -> None:
        """Something came: who waits for it?"""
        for waiting in list(self._waiting):
            if waiting in self._waiting and self._give(waiting.peer, waiting.correlation, waiting.pull):
                waiting.timer.cancel()
                self._waiting.pop(waiting, None)

    def gone(self, peer: Peer) -> None:
        """What it held is due again."""
        self.transactions.gone(peer)
        for waiting in [one for one in self._waiting if one.peer is peer]:
            waiting.timer.cancel()
            del self._waiting[waiting]
        for subject, group, name in list(peer.members):
            found = self.groups[subject, group]
            others = [one for one in self.peers if one is not peer and (subject, group, name) in one.members]
            if not others and name in found.members:
                found.due.extend(found.members[name].leases.values())
                self.diary.note((subject, group), found.members[name].leases.values(), "released", name)
                found.members[name].leases.clear()
                self._keep_order((subject, group), found)
                found.owner = "" if found.owner == name else found.owner
        peer.members.clear()
        self.peers.pop(peer, None)
        self.serve()

    def _keep_order(self, place: Place, group: StoredGroup) -> None:
        for consumer, lease in group.keep_order():
            self.diary.note(place, [lease], "released", consumer)

    # -- giving out --------------------------------------------------------------------------------------------

    def _due(self, group: StoredGroup, lease: Lease, delay_ms: int) -> None:
        if delay_ms == 0 or group.mode is not Mode.AS_DECLARED:  # in order all the others would have to wait
            group.due.append(lease)
            return

        def come() -> None:
            group.due.append(lease)
            self.serve()

        self.clock.call_at(self.clock.now_ms() + delay_ms, come)

    def _give_up(self, waiting: Waiting) -> None:
        if waiting in self._waiting:
            del self._waiting[waiting]
            waiting.peer.say(Pulled((), LEASE_MS), waiting.correlation)

    def _give(self, peer: Peer, correlation: int, pull: Pull) -> bool:
        for name, begins_here in named_by(self.subjects, self._known, pull):
            self.subjects.setdefault(name, StoredSubject())
            group = self.groups.get((name, pull.group))
            if group is None:
                latest = pull.start == Start.LATEST and not begins_here
                for lane in lanes_of(self.subjects, name):  # the subject itself is the last one
                    stored = self.subjects[lane]
                    start = stored.next_sequence if latest else first_since(stored, pull.start)
                    group = self.groups[lane, pull.group] = StoredGroup(start, pull.filter, mode=pull.mode)
                assert group is not None
            if group.wanted != pull.filter and others(self.peers, peer, name, pull):
                detail = (
                    f"group {pull.group!r} has other consumers, which want {group.wanted}, not {pull.filter}"
                )
                peer.fail(correlation, "filter_conflict", detail)
                return True
            group.wanted = pull.filter
            if group.mode is not Mode.AS_DECLARED:
                group.owner = group.owner or pull.consumer
            peer.members[name, pull.group, pull.consumer] = None
            group.members.setdefault(pull.consumer, Member())
            if group.suspended or group.owner not in ("", pull.consumer):
                continue
            lanes = lanes_of(self.subjects, name)
            if any(self._give_lane(peer, correlation, pull, (lane, group)) for lane in lanes):
                return True
        return False

    def _give_lane(self, peer: Peer, correlation: int, pull: Pull, place: tuple[str, StoredGroup]) -> bool:
        """From one lane, the subject itself being one."""
        name, head = place
        subject = self.subjects[name]
        group = self.groups[name, pull.group]
        group.wanted = head.wanted
        peer.members[name, pull.group, pull.consumer] = None
        member = group.members.setdefault(pull.consumer, Member())
        grants, data = self._grant(name, (subject, group, member), pull)
        if grants:
            given = [lease for number, lease in member.leases.items() if number >= grants[0].pull_sequence]
            self.diary.note((name, pull.group), given, "pulled", pull.consumer)
            if pull.once:
                group.acked += len(member.leases)
                self.diary.note((name, pull.group), given, "acked", pull.consumer)
                member.leases.clear()
            ordered = group.mode is not Mode.AS_DECLARED
            peer.say(Pulled(grants, LEASE_MS, memoryview(data), ordered, pull.filter), correlation)
        return bool(grants)

    def _grant(
        self, name: str, parts: tuple[StoredSubject, StoredGroup, Member], pull: Pull
    ) -> tuple[list[Grant], bytes]:
        subject, group, member = parts
        grants: list[Grant] = []
        data: list[bytes] = []
        room, size = pull.messages_max, 0
        while group.due and room and size < pull.bytes_max:
            sequence, attempts = group.due.popleft()
            batch = subject.batches[subject.holding(sequence)]
            grants.append(Grant(name, member.pulled, sequence, 1, attempts, 1))
            member.leases[member.pulled] = sequence, attempts
            member.pulled += 1
            data.append(batch)
            room, size = room - 1, size + len(batch)
        while group.cursor < subject.next_sequence and room and size < pull.bytes_max:
            batch = subject.batches[subject.holding(group.cursor)]
            header = read_header(batch)
            end = header.first_sequence + header.messages
            first, count = next_wanted(batch, header.first_sequence, (group.cursor, end), group.wanted)
            count = min(count, room)
            group.cursor = first + count
            if not count:
                continue
            grants.append(Grant(name, member.pulled, first, count, 0, 1))
            for offset in range(count):
                member.leases[member.pulled + offset] = first + offset, 0
            member.pulled += count
            data.append(batch)
            room, size = room - count, size + len(batch)
        return grants, b"".join(data)
