"""A host without a loop: the broker, its files and one disk, a turn at a time, in one thread.

What the real host promises to the machine is kept here in the plainest way: writes in order, a sync when somebody waits
for one or the machine asks, answers after what they wait for, reads answered at once. Crash points are the disk's.
"""

from __future__ import annotations

from sim.disk import Mount
from tidemill_broker.doors import recover
from tidemill_broker.settings import BrokerSettings
from tidemill_host.files import Files
from tidemill_host.machine import Append, Durability, Mark, Peer, Remove, Send
from tidemill_wire.commands import Command
from tidemill_wire.connection import Connection, Received, Role

PEER = Peer(1)


class Straight:
    """One life of a broker with one peer."""

    def __init__(self, disk: Mount, settings: BrokerSettings, now_ms: int) -> None:
        self.now_ms = now_ms
        self.broker, self.report = recover(disk, settings, now_ms)
        self.answers: dict[int, Command] = {}
        self._files = Files(disk)
        self._mark = Mark(0, 0)
        self._dirty: dict[str, None] = {}
        self._held: list[tuple[int, Send]] = []
        self._correlation = 0
        self._peer = Connection(Role.CLIENT)
        self._peer.feed(Connection(Role.SERVER).welcome("straight", 1))
        self.broker.connected(PEER, now_ms)

    def ask(self, command: Command) -> Command | None:
        """Say it and take turns until nothing is left to do; the answer, if one came."""
        self._correlation += 1
        self.broker.received(PEER, Received(self._correlation, command), self.now_ms)
        self.turn()
        return self.answers.pop(self._correlation, None)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.broker.ticked(self.now_ms)
        self.turn()

    def turn(self) -> None:
        """Decide, persist, reply, until the broker has no more to say."""
        while ready := self.broker.ready():
            self.broker.check()
            sends, reads, wants_sync = list(ready.sends), list(ready.reads), ready.sync
            if ready.writes:
                self._write(list(ready.writes))
            wants_sync |= any(send.after is Durability.SYNCED for send in sends)
            self._held += [(self._mark.written, send) for send in sends]
            if wants_sync and self._mark.synced < self._mark.written:
                self._files.sync(self._dirty)
                self._dirty = {}
                self._mark = Mark(self._mark.written, self._mark.written)
                self.broker.persisted(self._mark, self.now_ms)
            self._deliver()
            for read in reads:
                self.broker.loaded(read.token, self._files.answer(read), self.now_ms)

    def _write(self, writes: list[object]) -> None:
        for write in writes:
            match write:
                case Append(file):
                    self._dirty[file] = None
                case Remove(file):
                    self._dirty.pop(file, None)
            self._files.write(write)  # type: ignore[arg-type]
        self._mark = Mark(self._mark.written + 1, self._mark.synced)
        self.broker.persisted(self._mark, self.now_ms)

    def _deliver(self) -> None:
        held, self._held = self._held, []
        for number, send in held:
            if send.after is Durability.SYNCED and number > self._mark.synced:
                self._held.append((number, send))
                continue
            data = b"".join([send.head, *(self._files.read(piece) for piece in send.slices)])
            for event in self._peer.feed(data):
                assert isinstance(event, Received)
                self.answers[event.correlation] = event.command
