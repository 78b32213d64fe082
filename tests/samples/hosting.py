"""A host of a few lines: what a machine asks for is carried out at once, or when a test says so.

What it does not model: lanes, sockets, the loop. A test says with ``holds_syncs`` and ``holds_reads`` that it will call
``sync`` and ``load`` itself.
"""

from __future__ import annotations

from typing import Protocol

from sim.disk import SimDisk
from tidemill_host.files import Files
from tidemill_host.machine import Append, Durability, Machine, Mark, Peer, Read, Ready, Send, Unread
from tidemill_wire.commands import Command, parse_command
from tidemill_wire.connection import Event
from tidemill_wire.frame import FrameDecoder


class Hosted(Machine[Event], Protocol):
    """A machine that knows its invariants."""

    def check(self) -> None: ...


class Hosting:
    """One machine after the other on one disk."""

    machine: Hosted
    wake_at_ms: int

    def __init__(self, disk: SimDisk, now_ms: int) -> None:
        self.disk = disk
        self.now_ms = now_ms
        self.holds_syncs = self.holds_reads = False

    def begin_life(self, machine: Hosted) -> None:
        """What the one before it held in memory is gone."""
        self.machine = machine
        self.files = Files(self.disk.mount())
        self.written = self.synced = 0
        self.wants_sync = False
        self.reads: list[Read] = []
        self.dropped: list[Peer] = []
        self.answers: dict[int, Command] = {}
        self._dirty: dict[str, None] = {}
        self._held: list[tuple[int, Send]] = []

    def wait(self, milliseconds: int) -> None:
        """Time passes; the machine is woken when it asked for it."""
        end = self.now_ms + milliseconds
        while self.wake_at_ms <= end:
            self.now_ms = max(self.now_ms, self.wake_at_ms)
            self.machine.ticked(self.now_ms)
            self.pump()
            assert self.wake_at_ms > self.now_ms, "it asks for time that has passed"
        self.now_ms = end

    def pump(self) -> None:
        """Carry out all that the machine asks for."""
        while True:
            ready = self.machine.ready()
            self.wake_at_ms = ready.wake_at_ms if ready.wake_at_ms is not None else self.now_ms + 1000
            if not ready:
                break
            self.carry_out(ready)
        self.machine.check()

    def carry_out(self, ready: Ready) -> None:
        """One ``Ready``: writes, then what waits for them, then reads."""
        for write in ready.writes:
            self.files.write(write)
            if isinstance(write, Append) and not write.apart:
                self._dirty[write.file] = None
        self.written += bool(ready.writes)
        self._held += [(self.written, send) for send in ready.sends]
        self.wants_sync |= ready.sync or any(send.after is Durability.SYNCED for send in ready.sends)
        self.reads += ready.reads
        self.dropped += ready.drops
        if self.wants_sync and not self.holds_syncs:
            self.sync()
        else:
            self._persisted()
        if not self.holds_reads:
            self.load()

    def sync(self) -> None:
        """The fsync that was asked for."""
        self.wants_sync = False
        self.files.sync([file for file in self._dirty if file in self.disk.names.cached])
        self._dirty = {}
        self.synced = self.written
        self._persisted()

    def load(self) -> None:
        """The reads that were asked for."""
        reads, self.reads = self.reads, []
        for read in reads:
            self.machine.loaded(read.token, self.files.answer(read), self.now_ms)

    def left(self, peer: Peer, correlation: int, command: Command) -> None:
        """A frame has left."""
        self.answers[correlation] = command

    def _deliver(self, send: Send) -> None:
        found = self.files.gather(send.slices)
        if isinstance(found, Unread):
            assert send.unread is not None, f"nobody is told: {found}"
            send.unread(found, self.now_ms)
            return
        [frame] = FrameDecoder().feed(send.head + b"".join(found))
        self.left(send.peer, frame.correlation, parse_command(frame))

    def _persisted(self) -> None:
        self.machine.persisted(Mark(self.written, self.synced), self.now_ms)
        held, self._held = self._held, []
        for number, send in held:
            if send.after is Durability.SYNCED and number > self.synced:
                self._held.append((number, send))
            else:
                self._deliver(send)
