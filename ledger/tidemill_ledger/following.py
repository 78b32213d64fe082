"""A slave: it has its master's logs, byte for byte, and what follows from them; and a fenced broker, without a master.

    alone     --WELCOME of the master-->  asking     FOLLOW: the epochs in its log, and the ends of both
    asking    --FOLLOWED---------------->  fed        from there on; or it begins anew, with a cut log or with none
    asking    --FOLLOWED with a snapshot>  copying    nothing is applied until the logs reach where the snapshot holds
    fed, copying, asking --the connection ends, or is silent-->  alone

What it takes it writes in the order in which it came, and answers (REACHED) when that is in the page cache, and again
when it is on the disk. Clients are told who the master is; what is committed may be looked at.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

from tidemill_host.machine import HOST, Buffer, Durability, Mark, Peer, Ready, Replace, Send, Unread
from tidemill_journal.checkpoint import checkpoint_file, wrap
from tidemill_journal.errors import CorruptRecord
from tidemill_ledger.membership import Part, judge
from tidemill_ledger.receiving import Gap, Receiving, Whole, batch_length, record_length
from tidemill_ledger.replicated import Applier, Replicated
from tidemill_ledger.truncation import COPYING
from tidemill_wire import limits
from tidemill_wire.commands import Command, Done, Failed, Goodbye, Ping, Welcome, encode_command
from tidemill_wire.connection import Event, Received, Rejected
from tidemill_wire.errors import CorruptBatch, Unavailable, WireError
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

Inner = TypeVar("Inner", bound=Replicated)


class Follower(Generic[Inner]):
    """See the module. The machine inside never decides: it holds the state, the logs, and what keeps them."""

    def __init__(self, inner: Inner, applier: Applier, name: str, part: Part, now_ms: int) -> None:
        self.inner = inner
        self._applier = applier
        self.name = name
        self.part = part
        self._master: Peer | None = None
        self._streams: dict[Log, Receiving] = {}
        self._copying: Copying | None = None
        inner.keeping.level = False
        self.committed = Ends(0, 0)
        self._out: list[Send] = []
        self._drops: list[Peer] = []
        self._over = False
        self._wake_at_ms = self._heard_at_ms = self._beat_at_ms = now_ms
        self.refused_chunks = 0
        self.fetched_bytes: Counter[Log] = Counter()

    @property
    def ends(self) -> Ends:
        logs = self.inner.logs
        return Ends(logs.messages.end, logs.actions.end)

    @property
    def begun(self) -> int:
        """The newest epoch in the log."""
        epochs = self.inner.epochs
        return epochs[-1].epoch if epochs else 0

    @property
    def is_fed(self) -> bool:
        """Whether its master sends it what comes."""
        return self._master is not None and bool(self._streams)

    # The contract.

    def connected(self, peer: Peer, now_ms: int) -> None:
        """Whoever it is."""

    def disconnected(self, peer: Peer, now_ms: int, silent_ms: int = 0) -> None:
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
        wake_at_ms = self._applier.ticked(now_ms, keep=self._copying is None)
        if self._copying is not None and not self.inner.logs.all_synced:
            self.inner.keeping.sync_now = True
        if self._master is not None and now_ms - self._heard_at_ms > limits.SLAVE_SILENT_MS:
            self._leave()
        if now_ms >= self._beat_at_ms:
            self._beat_at_ms = now_ms + limits.HEARTBEAT_MS
            self._reach()
        self._wake_at_ms = min(self._beat_at_ms, max(wake_at_ms, now_ms + 1))

    def persisted(self, mark: Mark, now_ms: int) -> None:
        logs = self.inner.logs
        before = logs.synced_message_position, logs.synced_action_position
        logs.persisted(mark)
        if self._copying is None:
            self.inner.keeping.persisted(now_ms)
        else:
            self._copied(self._copying)
        if (logs.synced_message_position, logs.synced_action_position) != before:
            self._reach()

    def loaded(self, token: int, data: Buffer | Unread, now_ms: int) -> None:
        self._applier.loaded(token, data)

    def ready(self) -> Ready:
        logs, keeping = self.inner.logs, self.inner.keeping
        if logs.has_writes:
            self._reach()
        reads, sync = self._applier.take_reads(), keeping.wants_sync()
        ready = Ready(sends=self._out, drops=self._drops, reads=reads, sync=sync)
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
        follow = Follow(self.name, self.part.epoch, self.inner.epochs, self.ends)
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
                self.inner.logs.replace(Replace(COPYING, b""))
                self.inner.keeping.level = False
            self._reach()
        else:
            self._begin(Begin(self.part.appoint, followed.start))

    def _reach(self) -> None:
        """Say how far both logs are: in the page cache when this leaves, and on the disk now."""
        if self._master is not None and self._streams:
            logs = self.inner.logs
            synced = Ends(logs.synced_message_position, logs.synced_action_position)
            copied = 0 if self._copying is None else self._copying.copied
            send = encode_command(Reached(self.part.epoch, self.ends, synced, copied), 0)
            self._out.append(Send(self._master, send, (), Durability.WRITTEN))

    # The stream.

    def _take(self, chunk: Chunk, now_ms: int) -> None:
        if chunk.epoch != self.part.epoch:
            raise Gap(f"a piece of epoch {chunk.epoch}, this is a slave of epoch {self.part.epoch}")
        if chunk.log in (Log.SNAPSHOT, Log.FILES):
            if self._copying is not None:
                self._copy(self._copying, chunk)
            return
        keeping = self.inner.keeping
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
        logs = self.inner.logs
        segments = logs.messages if log is Log.MESSAGES else logs.actions
        if whole.base != segments.open_base and segments.bases and whole.base != segments.end:
            raise Gap(f"a segment that begins at {whole.base}, where one ends at {segments.end}")
        take = self._applier.messages if log is Log.MESSAGES else self._applier.actions
        entries = take(whole, apply=self._copying is None)
        self.fetched_bytes[log] += len(whole.data)
        self.inner.keeping.note(entries, now_ms)

    def _show(self, committed: Ends) -> None:
        """What may be looked at."""
        self.committed = Ends(*map(max, self.committed, committed))
        self._applier.show(committed)

    # From nothing.

    def _copy(self, copying: Copying, chunk: Chunk) -> None:
        """Of the snapshot, or of a file that it names."""
        if chunk.log is Log.SNAPSHOT:
            copying.state += chunk.data
            if len(copying.state) == copying.size:
                copying.files = [one for one in self._applier.files(bytes(copying.state)) if one[1]]
            return
        logs = self.inner.logs
        logs.append(copying.take(chunk), chunk.data, len(chunk.data))
        copying.last = logs.number + 1

    def _copied(self, copying: Copying) -> None:
        """The snapshot becomes a checkpoint when the disk has the logs up to it; then the broker begins with that."""
        logs = self.inner.logs
        synced = Ends(logs.synced_message_position, logs.synced_action_position)
        there = all(have >= need for have, need in zip(synced, copying.level, strict=True))
        if copying.number is None:
            if there and copying.whole and logs.mark.synced >= copying.last:
                file = checkpoint_file(self.inner.keeping.checkpoint_number + 1)
                logs.replace(Replace(file, wrap(bytes(copying.state))))
                logs.remove(COPYING)
                copying.number = logs.number + 1
        elif logs.mark.written >= copying.number and not self._over:
            assert self.part.appoint is not None
            self._begin(Begin(self.part.appoint))

    def _say(self, peer: Peer, correlation: int, command: Command) -> None:
        self._out.append(Send(peer, encode_command(command, correlation), (), Durability.WRITTEN))

    def check(self) -> None:
        """Invariants, after every step in the simulator."""
        self._applier.check()


class Copying:
    """A slave that began with nothing, and gets a snapshot because one of its master's logs has lost its beginning."""

    def __init__(self, size: int, level: Ends) -> None:
        self.size = size
        self.level = level
        self.state = bytearray()
        self.files: list[tuple[str, int]] | None = None
        """Those that it names, and that are not here yet; ``None`` as long as nobody knows."""
        self.copied = 0
        """Bytes of files."""
        self.last = 0
        """The ``Ready`` that writes the last of them."""
        self._file = self._at = 0
        self.number: int | None = None
        """The ``Ready`` that writes it as a checkpoint."""

    @property
    def whole(self) -> bool:
        """All of it has come."""
        return self.files is not None and self._file == len(self.files)

    def take(self, chunk: Chunk) -> str:
        """The file that a piece is the next one of."""
        if self.files is None or self._file >= len(self.files):
            raise Gap("a piece of a file that no snapshot names")
        file, size = self.files[self._file]
        if (chunk.base, chunk.position) != (self._file, self._at) or self._at + len(chunk.data) > size:
            raise Gap(f"a piece at {chunk.position} of file {chunk.base}, where {self._at} was to come")
        self._at += len(chunk.data)
        self.copied += len(chunk.data)
        if self._at == size:
            self._file, self._at = self._file + 1, 0
        return file
