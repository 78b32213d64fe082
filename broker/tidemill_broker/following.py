"""A slave: it has its master's logs, byte for byte, and what follows from them; and a fenced broker, without a master.

    alone     --WELCOME of the master-->  asking     FOLLOW: the epochs in its log, and the ends of both
    asking    --FOLLOWED---------------->  fed        from there on; or it begins anew, with a cut log or with none
    asking    --FOLLOWED with a snapshot>  copying    nothing is applied until the logs reach where the snapshot holds
    fed, copying, asking --the connection ends, or is silent-->  alone

What it takes it writes in the order in which it came, and answers (REACHED) when that is in the page cache, and again
when it is on the disk. Clients are told who the master is; what is committed may be looked at.
"""

from __future__ import annotations

from collections import Counter, deque

from tidemill_broker.action_records import decode_action
from tidemill_broker.actions import Buried
from tidemill_broker.machine import Broker
from tidemill_broker.membership import Part, judge
from tidemill_broker.partitions import Partition
from tidemill_broker.receiving import (
    Gap,
    Receiving,
    Whole,
    batch_length,
    batches_in,
    record_length,
    records_in,
)
from tidemill_host.machine import HOST, Buffer, Durability, Mark, Peer, Ready, Replace, Send, Unread
from tidemill_journal.checkpoint import checkpoint_file, wrap
from tidemill_journal.entries import pack_size
from tidemill_journal.errors import CorruptRecord
from tidemill_journal.segments import Place, Segments
from tidemill_ledger.columns import place_of_key_hashes
from tidemill_wire import limits
from tidemill_wire.batch import DEDUPLICATED, Header
from tidemill_wire.commands import Command, Done, Failed, Goodbye, Ping, Welcome, encode_command
from tidemill_wire.connection import Event, Received, Rejected
from tidemill_wire.errors import CorruptBatch, Unavailable, WireError
from tidemill_wire.lanes import lane_name, priority_of
from tidemill_wire.replication import (
    Appoint,
    Begin,
    Chunk,
    Ends,
    Follow,
    Followed,
    Log,
    Marks,
    Reached,
    Stand,
    Stood,
)


class Follower:
    """See the module. The broker inside never decides: it holds the state, the logs, and what keeps them."""

    def __init__(self, broker: Broker, name: str, part: Part, now_ms: int) -> None:
        self.broker = broker
        self.name = name
        self.part = part
        self._master: Peer | None = None
        self._streams: dict[Log, Receiving] = {}
        self._copying: Copying | None = None
        self._unseen: deque[tuple[int, Partition, int]] = deque()
        """Ends of batches, and what may be seen when that much is committed."""
        self._at_start = {p.identity: p.next_sequence for p in broker.state.partitions.values()}
        self._end_at_start = broker.logs.messages.end
        broker.keeping.level = False
        self.committed = Ends(0, 0)
        self._out: list[Send] = []
        self._drops: list[Peer] = []
        self._over = False
        self._wake_at_ms = self._heard_at_ms = self._beat_at_ms = now_ms
        self.refused_chunks = 0
        self.fetched_bytes: Counter[Log] = Counter()

    @property
    def ends(self) -> Ends:
        logs = self.broker.logs
        return Ends(logs.messages.end, logs.actions.end)

    @property
    def begun(self) -> int:
        """The newest epoch in the log."""
        epochs = self.broker.state.epochs
        return epochs[-1].epoch if epochs else 0

    # The contract.

    def connected(self, peer: Peer, now_ms: int) -> None:
        """Whoever it is."""

    def disconnected(self, peer: Peer, now_ms: int) -> None:
        if peer == self._master:
            self._forget_master()

    def received(self, peer: Peer, command: Event, now_ms: int) -> None:
        if self._over:
            return
        if isinstance(command, Rejected):
            self._say(peer, command.correlation, Failed(command.error.kind.number, command.error.detail))
            return
        try:
            self._decide(peer, command, now_ms)
        except WireError as error:
            self._say(peer, command.correlation, Failed(error.kind.number, error.detail))
        except (Gap, CorruptBatch, CorruptRecord):  # it comes again over another connection
            self.refused_chunks += 1
            self._leave()

    def ticked(self, now_ms: int) -> None:
        if self._over:
            return
        keeping = self.broker.keeping
        if self._copying is None:
            keeping.ticked(now_ms)
        elif not self.broker.logs.all_synced:
            keeping.sync_now = True
        self.broker.state.leases.next_end()  # leases that are over go from its heap
        if self._master is not None and now_ms - self._heard_at_ms > limits.SLAVE_SILENT_MS:
            self._leave()
        if now_ms >= self._beat_at_ms:
            self._beat_at_ms = now_ms + limits.HEARTBEAT_MS
            self._reach()
        self._wake_at_ms = min(self._beat_at_ms, max(keeping.wake_at_ms, now_ms + 1))

    def persisted(self, mark: Mark, now_ms: int) -> None:
        logs = self.broker.logs
        before = logs.synced_message_position, logs.synced_action_position
        logs.persisted(mark)
        if self._copying is None:
            self.broker.keeping.persisted(now_ms)
        else:
            self._copied(self._copying)
        if (logs.synced_message_position, logs.synced_action_position) != before:
            self._reach()

    def loaded(self, token: int, data: Buffer | Unread, now_ms: int) -> None:
        self.broker.consume_log.loaded(token, data)

    def ready(self) -> Ready:
        logs, consume_log, keeping = self.broker.logs, self.broker.consume_log, self.broker.keeping
        if logs.has_writes:
            self._reach()
        ready = Ready(sends=self._out, drops=self._drops, sync=keeping.wants_sync())
        ready.reads, consume_log.reads = consume_log.reads, []
        self._out, self._drops = [], []
        logs.take(ready)
        # Who is over does nothing at any time: a moment that has passed would wake the host again and again.
        ready.wake_at_ms = None if self._over else min(self._wake_at_ms, self._beat_at_ms)
        return ready

    # Decisions.

    def _decide(self, peer: Peer, event: Received, now_ms: int) -> None:
        command = event.command
        match command:
            case Chunk() if peer == self._master and self._streams:
                self._heard_at_ms = now_ms
                self._take(command, now_ms)
            case Welcome():
                self._ask(peer, now_ms)
            case Followed() if peer == self._master:
                self._heard_at_ms = now_ms
                self._follow(command)
            case Appoint():
                self._appoint(command)
                self._say(peer, event.correlation, Done())
            case Stand():
                self._say(peer, event.correlation, self.stand(now_ms))
            case Ping():
                self._say(peer, event.correlation, Done())
            case Goodbye() | Failed():
                if peer == self._master:
                    self._leave()
            case Chunk() | Followed():
                self._drops.append(peer)
            case _:
                raise Unavailable("not_master", self._who())

    def _who(self) -> str:
        appoint = self.part.appoint
        if appoint is None or appoint.appointment.master == self.name:
            return f"{self.name} waits to be told what it is in its broker group"
        return f"{self.name} is a slave, {appoint.appointment.master} is the master of its broker group"

    def _appoint(self, appoint: Appoint) -> None:
        verdict = judge(self.name, self.part, self.begun, appoint)
        if isinstance(verdict, Begin):
            self._begin(verdict)
        else:
            self.part = verdict

    def _begin(self, begin: Begin) -> None:
        self._over = True
        self._say(HOST, 0, begin)

    def stand(self, now_ms: int = 0) -> Stood:
        """How it stands, and when; 0 for whoever does not ask when."""
        part, appoint = self.part, self.part.appoint
        version = appoint.appointment.version if appoint is not None else 0
        epoch = appoint.appointment.epoch if appoint is not None else 0
        master = appoint.appointment.master if appoint is not None else ""
        return Stood(
            self.name, part.role.value, epoch, version, self.begun, self.ends, self.committed, master,
            at_ms=now_ms,
        )  # fmt: skip

    # The master.

    def _ask(self, peer: Peer, now_ms: int) -> None:
        self._forget_master()
        self._master = peer
        self._heard_at_ms = now_ms
        follow = Follow(self.name, self.part.epoch, self.broker.state.epochs, self.ends)
        self._say(peer, 0, follow)

    def _leave(self) -> None:
        if self._master is not None:
            self._drops.append(self._master)
        self._forget_master()

    def _forget_master(self) -> None:
        """What came in part comes again. What is copied begins anew, or the snapshot would not fit."""
        self._master = None
        self._streams = {}
        if self._copying is not None and self.part.appoint is not None:
            self._begin(Begin(self.part.appoint, anew=True))

    def _follow(self, followed: Followed) -> None:
        assert self.part.appoint is not None
        empty = self.ends.message == 0 and self.ends.action in (0, followed.start.action)
        if followed.epoch != self.part.epoch:
            self._leave()
        elif followed.anew:
            nothing_common = followed.start == Ends(0, 0)
            cut = Ends(0, 0) if nothing_common else None
            self._begin(Begin(self.part.appoint, cut, anew=not nothing_common))
        elif followed.start == self.ends or empty:
            self._streams = {
                Log.MESSAGES: Receiving(batch_length, followed.start.message),
                Log.ACTIONS: Receiving(record_length, followed.start.action),
            }
            if followed.snapshot:
                self._copying = Copying(followed.snapshot, followed.level)
                self.broker.keeping.level = False
            self._reach()
        else:
            self._begin(Begin(self.part.appoint, followed.start))

    def _reach(self) -> None:
        """Say how far both logs are: in the page cache when this leaves, and on the disk now."""
        if self._master is not None and self._streams:
            logs = self.broker.logs
            synced = Ends(logs.synced_message_position, logs.synced_action_position)
            send = encode_command(Reached(self.part.epoch, self.ends, synced), 0)
            self._out.append(Send(self._master, send, (), Durability.WRITTEN))

    # The stream.

    def _take(self, chunk: Chunk, now_ms: int) -> None:
        if chunk.epoch != self.part.epoch:
            raise Gap(f"a piece of epoch {chunk.epoch}, this is a slave of epoch {self.part.epoch}")
        if chunk.log is Log.SNAPSHOT:
            if self._copying is not None:
                self._copying.state += chunk.data
            return
        keeping = self.broker.keeping
        if chunk.data:
            whole = self._streams[chunk.log].take(chunk.base, chunk.position, chunk.data)
            if whole is not None:
                self._write(chunk.log, whole, now_ms)
            level = Marks.LEVEL in chunk.marks and all(stream.whole for stream in self._streams.values())
            keeping.level = level and self._copying is None
        if Marks.SYNC in chunk.marks:
            keeping.sync_now = True
        self._show(chunk.committed)

    def _write(self, log: Log, whole: Whole, now_ms: int) -> None:
        """Into the log, and into the state."""
        logs = self.broker.logs
        segments = logs.messages if log is Log.MESSAGES else logs.actions
        if whole.base != segments.open_base and segments.bases and whole.base != segments.end:
            raise Gap(f"a segment that begins at {whole.base}, where one ends at {segments.end}")
        entries = self._messages(whole) if log is Log.MESSAGES else self._actions(whole)
        self.fetched_bytes[log] += len(whole.data)
        self.broker.keeping.note(entries, now_ms)

    def _place(self, segments: Segments, whole: Whole, records: int) -> None:
        sealed = segments.open_base if segments.bases else None
        place: Place = segments.follow(whole.base, len(whole.data), records)
        logs = self.broker.logs
        if place.opened and sealed is not None and segments is logs.messages and self._copying is None:
            self.broker.consume_log.seal(sealed)
        logs.append(place.file, whole.data, len(whole.data))

    def _actions(self, whole: Whole) -> int:
        records = list(records_in(whole))
        actions = [decode_action(record) for record in records]
        self._place(self.broker.logs.actions, whole, len(records))
        self.broker.keeping.acted_at_ms = records[-1].at_ms
        if self._copying is None:
            state = self.broker.state
            for action in actions:
                # A burial that an earlier recovery of a lone broker undid without a word stands here twice.
                if not isinstance(action, Buried) or action.first in state.groups[action.group].failed:
                    state.apply(action)
        return len(records)

    def _messages(self, whole: Whole) -> int:
        state = self.broker.state
        batches = [(header, _lane_of(header, name), at) for header, name, at in batches_in(whole)]
        named, tombs = (
            {**state.tombs.by_name, **state.by_name} if state.tombs.by_name else state.by_name,
            state.tombs,
        )
        unnamed = next((name for _, name, _ in batches if name not in named), None)
        if unnamed is not None and self._copying is None:
            raise Gap(f"a batch of {unnamed!r}, which no action has named")
        self._place(self.broker.logs.messages, whole, len(batches))
        if self._copying is None:
            for header, name, at in batches:
                partition = named[name]
                size = pack_size(header.length, header.messages, header.flags & 0xFF)
                end = header.first_sequence + header.messages
                if header.first_sequence >= tombs.floor(partition):
                    partition.recent.append(
                        header.first_sequence, header.position, size, header.stored_at_ms, header.bloom
                    )
                    if header.flags & DEDUPLICATED:
                        state.deduplication.note_in(partition, header, whole.data, at)
                partition.next_sequence = max(partition.next_sequence, end)
                partition.remember(header.producer_id, header.producer_sequence, header.first_sequence)
                index = state.index.open
                index.note(header.batch_id, header.position)
                found = place_of_key_hashes(whole.data, at, header) if header.column_count > 2 else None
                if found is not None:
                    index.note_keys(whole.data[at + found[0] : at + found[0] + found[1]], header.position)
                self._unseen.append((header.position + header.length, partition, end))
        return len(batches)

    def _show(self, committed: Ends) -> None:
        """What may be looked at."""
        self.committed = Ends(*map(max, self.committed, committed))
        if self._at_start and committed.message >= self._end_at_start:
            for identity, end in self._at_start.items():
                self.broker.state.partitions[identity].visible = end
            self._at_start = {}
        while self._unseen and self._unseen[0][0] <= committed.message:
            _, partition, end = self._unseen.popleft()
            partition.visible = max(partition.visible, end)

    # From nothing.

    def _copied(self, copying: Copying) -> None:
        """The snapshot becomes a checkpoint when the disk has the logs up to it; then the broker begins with that."""
        logs = self.broker.logs
        synced = Ends(logs.synced_message_position, logs.synced_action_position)
        there = all(have >= need for have, need in zip(synced, copying.level, strict=True))
        if copying.number is None:
            if there and len(copying.state) == copying.size:
                file = checkpoint_file(self.broker.keeping.checkpoint_number + 1)
                logs.replace(Replace(file, wrap(bytes(copying.state))))
                copying.number = logs.number + 1
        elif logs.mark.written >= copying.number and not self._over:
            assert self.part.appoint is not None
            self._begin(Begin(self.part.appoint))

    def _say(self, peer: Peer, correlation: int, command: Command) -> None:
        self._out.append(Send(peer, encode_command(command, correlation), (), Durability.WRITTEN))

    def check(self) -> None:
        """Invariants, after every step in the simulator."""
        for partition in self.broker.state.partitions.values():
            partition.check()
        for group in self.broker.state.groups.values():
            group.check()
        self.broker.keeping.check()


def _lane_of(header: Header, name: bytes) -> bytes:
    """The name of the partition that a batch is in."""
    priority = priority_of(header.first_sequence)
    return lane_name(name.decode(), priority).encode() if priority else name


class Copying:
    """A slave that began with nothing, and gets a snapshot because its master's action log has lost its beginning."""

    def __init__(self, size: int, level: Ends) -> None:
        self.size = size
        self.level = level
        self.state = bytearray()
        self.number: int | None = None
        """The ``Ready`` that writes it as a checkpoint."""
