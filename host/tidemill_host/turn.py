"""One turn: collect -> decide -> persist -> reply. Group commit falls out by itself.

Events of all connections that came in one iteration of the loop are decided in one pass. What the machine answers
leaves in the order of its ``Ready``s: a send waits until the writes of its own and all earlier ones have reached the
level that it asks for. So an answer that repeats an earlier one (a producer that sent twice) cannot overtake the write
it speaks of.

Everything that a machine is told, it is told in ``_guarded``. A mistake in it may leave half of a decision behind, and
nobody can say which half: so it ends the service as a failed write does, and recovery decides what is true.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from tidemill_host.clock import Clock
from tidemill_host.files import Files
from tidemill_host.machine import Buffer, Durability, Machine, Peer, Read, Ready, Send, Slice, Unread
from tidemill_host.persist import Lanes, Persister
from tidemill_journal.errors import CorruptRun
from tidemill_wire.metrics.powers import Powers
from tidemill_wire.vigil import Vigil

TICK_MS = 1000
TURN_BYTES = 256 * 1024
UNREAD_MAX = 64
"""A disk that refuses as many places in one life fails: what is judged to be lost then may all be there."""

Event = TypeVar("Event")


class Gone(NamedTuple):
    """A connection ended; its peer had not been heard of for so long."""

    silent_ms: int


class Turn(Generic[Event]):
    """Runs one machine on the current loop. ``deliver`` puts a send on its connection; ``drop`` closes one."""

    def __init__(
        self,
        machine: Machine[Event],
        files: Files,
        lanes: Lanes,
        clock: Clock,
        failed: Callable[[Exception], None],
    ) -> None:
        self.machine = machine
        self.deliver: Callable[[Send], None] = _nowhere
        self.drop: Callable[[Peer], None] = _nowhere
        self.eased: Callable[[], None] = lambda: None
        self.unread: Callable[[Unread], None] = _nowhere
        """Hears of each place that the disk refuses, once."""
        self._unread: set[Slice] = set()
        self._files = files
        self._lanes = lanes
        self._clock = clock
        self._failed = failed
        self._persister = Persister(files, lanes, clock, self._progressed, self._broke)
        self._loop = asyncio.get_running_loop()
        self._inbox: list[tuple[Peer, Event | Gone]] = []
        self._scheduled = False
        self._collected_bytes = 0
        self._held_written: deque[tuple[int, Send]] = deque()
        self._held_synced: deque[tuple[int, Send]] = deque()
        self._told = self._persister.mark
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at_ms = 0
        self._stopped = False
        self.vigil = Vigil(enabled=False)
        """Whether the loop stays awake for a moment after it has answered."""
        self._looking = False

    def start(self) -> None:
        """Decide what the machine has prepared while it was recovered."""
        self._schedule()

    def connected(self, peer: Peer) -> None:
        self._guarded(lambda: self.machine.connected(peer, self._clock.now_ms()))
        self._schedule()

    def disconnected(self, peer: Peer, silent_ms: int = 0) -> None:
        """In order with what the peer sent before."""
        self._inbox.append((peer, Gone(silent_ms)))
        self._schedule()

    @property
    def backlog_bytes(self) -> int:
        """What waits to be written. ``eased`` is called when it may have become less."""
        return self._persister.backlog_bytes

    @property
    def appends(self) -> Powers:
        """Seconds that writes to the page cache took."""
        return self._persister.appends

    @property
    def syncs(self) -> Powers:
        """Seconds that syncs to the disk took."""
        return self._persister.syncs

    @property
    def answers_waiting(self) -> int:
        """Sends that wait for the disk."""
        return len(self._held_written) + len(self._held_synced)

    def post(self, peer: Peer, event: Event) -> None:
        self._inbox.append((peer, event))
        if not self._scheduled:
            self._schedule()

    def collected(self, size: int) -> None:
        """So many bytes came since the last call. Much is decided at once: it is still in the core's cache, and the
        copy into the page cache then takes half the time that it takes after five more frames have come.
        """
        self._collected_bytes += size
        if self._collected_bytes >= TURN_BYTES and self._inbox:
            self._run()

    @property
    def idle(self) -> bool:
        """Nothing is undecided, unwritten or unsent."""
        return not (self._inbox or self._held_written or self._held_synced) and self._persister.idle

    @property
    def settled(self) -> bool:
        """Nothing is on its way to the disk."""
        return self._persister.idle

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _guarded(self, step: Callable[[], None]) -> None:
        """The host's outermost loop: all that a machine is asked, it is asked in here."""
        if self._stopped:
            return
        try:
            step()
        except Exception as error:
            self._broke(error)

    def _broke(self, error: Exception) -> None:
        """Nothing goes on after this. What nobody has foreseen is reported whole: only its lines say where it was."""
        self.stop()
        if not isinstance(error, OSError | CorruptRun):
            self._loop.call_exception_handler({"message": "the service broke down", "exception": error})
        self._failed(error)

    def _run(self) -> None:
        self._guarded(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._collected_bytes = 0
        now_ms = self._clock.now_ms()
        inbox, self._inbox = self._inbox, []
        if inbox:
            self.vigil.ended(self._clock.seconds())
        for peer, event in inbox:
            if isinstance(event, Gone):
                self.machine.disconnected(peer, now_ms, event.silent_ms)
            else:
                self.machine.received(peer, event, now_ms)
        if now_ms >= self._wake_at_ms:
            self.machine.ticked(now_ms)
        self._pump(now_ms)

    def _pump(self, now_ms: int) -> None:
        """Let the machine say all it has to say; persist, then reply."""
        while not self._stopped:  # the disk may refuse in between
            ready = self.machine.ready()
            self._wake_at_ms = ready.wake_at_ms if ready.wake_at_ms is not None else now_ms + TICK_MS
            if not ready:
                break
            self._carry_out(ready)
            self._tell(now_ms)
        self._release()
        self._set_timer(now_ms)

    def _carry_out(self, ready: Ready) -> None:
        wants_sync = ready.sync
        if ready.sends:
            number = self._persister.submitted + (1 if ready.writes else 0)
            for send in ready.sends:
                if send.after is Durability.SYNCED:
                    self._held_synced.append((number, send))
                    wants_sync = True
                else:
                    self._held_written.append((number, send))
        if ready.writes or wants_sync:
            self._persister.submit(ready.writes, wants_sync)
        for read in ready.reads:
            self._start_read(read)
        for peer in ready.drops:
            self.drop(peer)

    def _tell(self, now_ms: int) -> None:
        persister, told = self._persister, self._told
        if persister.written != told.written or persister.synced != told.synced:
            self._told = persister.mark
            self.machine.persisted(self._told, now_ms)

    def _release(self) -> None:
        """Let go what has waited for the disk. Who was answered may ask again at once: stay awake for it."""
        answered = False
        for held, reached in (
            (self._held_written, self._persister.written),
            (self._held_synced, self._persister.synced),
        ):
            while held and held[0][0] <= reached:
                self.deliver(held.popleft()[1])
                answered = True
        if answered and self.vigil.began(self._clock.seconds()) and not self._looking:
            self._look()

    def _look(self) -> None:
        """Come back instead of falling asleep: the loop asks the kernel for news in between."""
        self._looking = not self._stopped and self.vigil.look(self._clock.seconds())
        if self._looking:
            self._loop.call_soon(self._look)

    def _progressed(self) -> None:
        self._guarded(self._go_on)

    def _go_on(self) -> None:
        now_ms = self._clock.now_ms()
        self._tell(now_ms)
        self._pump(now_ms)
        self.eased()

    def _start_read(self, read: Read) -> None:
        data = None if callable(read.slice) else self._files.read_now(read.slice)
        if data is not None:
            self._loop.call_soon(self._loaded, read.token, bytes(data))
            return
        future = self._loop.run_in_executor(self._lanes.read, self._files.answer, read)
        future.add_done_callback(lambda done: self._read_done(read, done))

    def _read_done(self, read: Read, done: asyncio.Future[Buffer | Unread]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, FileNotFoundError):
            self._loaded(read.token, b"")  # the machine has let it be removed since it asked
        elif isinstance(error, Exception):
            if isinstance(error, OSError) and isinstance(read.slice, Slice):
                error.filename = read.slice.file  # a read by number does not say whose it was
            self._broke(error)
        elif error is not None:
            raise error
        else:
            self._loaded(read.token, done.result())

    def _loaded(self, token: int, data: Buffer | Unread) -> None:
        self._guarded(lambda: self._take(token, data))

    def _take(self, token: int, data: Buffer | Unread) -> None:
        if isinstance(data, Unread) and data.slice not in self._unread:
            self._unread.add(data.slice)
            self.unread(data)
            if len(self._unread) > UNREAD_MAX:
                raise OSError(errno.EIO, data.problem, data.slice.file)
        now_ms = self._clock.now_ms()
        self.machine.loaded(token, data, now_ms)
        self._pump(now_ms)

    def unsent(self, send: Send, unread: Unread) -> bool:
        """The disk refuses a part of a frame: whether there was somebody to tell. The slice may hold much besides what
        cannot be read, so it is not counted; who is told reads closer.
        """
        told = send.unread
        if told is not None:
            self._guarded(lambda: self._say_unsent(told, unread))
        return told is not None

    def _say_unsent(self, told: Callable[[Unread, int], None], unread: Unread) -> None:
        now_ms = self._clock.now_ms()
        told(unread, now_ms)
        self._pump(now_ms)

    def _set_timer(self, now_ms: int) -> None:
        if self._stopped:
            return
        if self._timer is not None:
            if self._timer_at_ms <= self._wake_at_ms:
                return  # it fires too early, finds nothing due and is set anew: cheaper than to set it each turn
            self._timer.cancel()
        self._timer_at_ms = self._wake_at_ms
        delay = max(0, self._wake_at_ms - now_ms) / 1000
        self._timer = self._loop.call_later(delay, self._timer_fired)

    _timer_at_ms = 0

    def _timer_fired(self) -> None:
        self._timer = None
        self._schedule()

    def stop(self) -> None:
        """Nothing more is decided."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _nowhere(_what: object) -> None:
    """Before a server is there, nobody is connected."""
