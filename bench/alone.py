"""A delay service on real files whose host is this program: no loop, no sockets, and a clock that is only a number.

What happens in one round is what a loop does before it looks at anybody else: one turn of the machine, or all reads
that a turn asked for, one after the other. ``longest_s`` is the longest of them, in seconds of the processor; what the
broker does is not counted.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from tidemill_delay.doors.service import recover
from tidemill_delay.settings import DelaySettings
from tidemill_host.disk import RealDisk
from tidemill_host.files import Files
from tidemill_host.machine import Mark, Peer, Read, Ready, Send, Slice
from tidemill_wire.batch import read_header
from tidemill_wire.commands import Command, SendBatches, Sent, Welcome, parse_command
from tidemill_wire.connection import Received
from tidemill_wire.frame import FrameDecoder

PROGRAM, BROKER = Peer(1), Peer(2)
HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000 // HOUR_MS * HOUR_MS + HOUR_MS // 2


class Alone:
    """See the module."""

    def __init__(self, folder: str, settings: DelaySettings | None = None) -> None:
        self.now_ms = NOW_MS
        self.delay, _ = recover(RealDisk(folder), settings or DelaySettings(durability="normal"), NOW_MS)
        self.files = Files(RealDisk(folder))
        self.longest_s = self.spent_s = 0.0
        self.read_bytes = 0
        self.came: Counter[str] = Counter()
        """At the broker: messages, batches, bytes."""
        self.latest_ms = 0
        """When the last of them came."""
        self._answers: dict[int, Command] = {}
        self._asked = self._written = self._wake_ms = 0
        self._reads: list[Read] = []
        self._sent: deque[tuple[int, SendBatches]] = deque()
        self.delay.everywhere(("g0",), NOW_MS)
        self._take(lambda: self.delay.ticked(self.now_ms))

    def meet(self) -> None:
        """There is a broker."""
        self._take(lambda: self.delay.received(BROKER, Received(0, Welcome(1, "g0-0", 1)), self.now_ms))

    def measure(self) -> None:
        """What was before does not count."""
        self.longest_s = self.spent_s = 0.0
        self.read_bytes = 0
        self.came.clear()

    def ask(self, *commands: Command) -> list[Command]:
        """Commands that came in one read of a socket, and what is answered when all is done that they bring about."""
        first = self._asked + 1
        self._asked += len(commands)

        def receive() -> None:
            for number, command in enumerate(commands, first):
                self.delay.received(PROGRAM, Received(number, command), self.now_ms)

        self._take(receive)
        return [self._answers.pop(number) for number in range(first, self._asked + 1)]

    def until(self, end_ms: int) -> None:
        """Time passes."""
        while self._wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, self._wake_ms)
            self._take(lambda: self.delay.ticked(self.now_ms))
        self.now_ms = end_ms

    def _take(self, first: Callable[[], None]) -> None:
        round_: Callable[[], None] | None = first
        while round_ is not None:
            began = time.process_time()
            round_()
            sends = self._carry_out()
            spent = time.process_time() - began
            self.spent_s += spent
            self.longest_s = max(self.longest_s, spent)
            for send in sends:
                self._deliver(send)
            round_ = self._next()

    def _carry_out(self) -> list[Send]:
        sends: list[Send] = []
        while ready := self._ready():
            for write in ready.writes:
                self.files.write(write)
            self._written += bool(ready.writes)
            self._reads += ready.reads
            sends += ready.sends
            self.delay.persisted(Mark(self._written, self._written), self.now_ms)
        return sends

    def _ready(self) -> Ready:
        ready = self.delay.ready()
        self._wake_ms = self.now_ms + 1000 if ready.wake_at_ms is None else ready.wake_at_ms
        return ready

    def _next(self) -> Callable[[], None] | None:
        if self._reads:
            reads, self._reads = self._reads, []
            return lambda: self._load(reads)
        if self._sent:
            correlation, command = self._sent.popleft()
            answer = Received(correlation, Sent([0] * self._count(command)))
            return lambda: self.delay.received(BROKER, answer, self.now_ms)
        return None

    def _load(self, reads: Sequence[Read]) -> None:
        for read in reads:
            self.read_bytes += read.slice.size if isinstance(read.slice, Slice) else 0
            self.delay.loaded(read.token, self.files.answer(read), self.now_ms)
            for send in self._carry_out():
                self._deliver(send)

    def _count(self, command: SendBatches) -> int:
        view, at, batches = memoryview(command.batches), 0, 0
        while at < len(view):
            header = read_header(view, at)
            self.came["messages"] += header.messages
            at += header.length
            batches += 1
        self.came["batches"] += batches
        self.came["bytes"] += len(view)
        self.latest_ms = self.now_ms
        return batches

    def _deliver(self, send: Send) -> None:
        [frame] = FrameDecoder().feed(send.head)
        command = parse_command(frame)
        if send.peer == PROGRAM:
            self._answers[frame.correlation] = command
        elif isinstance(command, SendBatches):
            self._sent.append((frame.correlation, command))
