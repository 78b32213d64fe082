"""What leaves over the connections of a port, and how much of it is held for peers that do not read.

    state     event                                        next
    open      a send                                       on the wire, or in the transport's own memory
    open      the transport holds more than it wants       paused
    open      a slice is cold                              reading: the read lane has it
    open      a slice, and the port holds too much         crowded: it stays on the disk
    paused, reading, crowded    a send                     waits behind the others, slices as descriptions

A port holds ``limits.UNREAD_BYTES_MAX`` for all its peers. What is beyond it is not read from the disk until others
have read theirs; and once a second, who has read nothing since the last time is cut off for those that wait, the one
for whom most is held first. Who has ever read all of an answer waits before nobody who has not. Who reads, however
slowly, has the patience of ``limits.SLOW_FRAME_MS``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from tidemill_host.files import Files
from tidemill_host.machine import Send, Unread
from tidemill_host.peers import Statistics
from tidemill_host.persist import Lanes
from tidemill_wire import limits

HIGH_WATER_BYTES = 4 * limits.MIB


class Outlet:
    """What all connections of a port share. ``unsent`` tells the machine of what the disk refuses."""

    def __init__(
        self, files: Files, lanes: Lanes, statistics: Statistics, unsent: Callable[[Send, Unread], bool]
    ) -> None:
        self.files = files
        self.lanes = lanes
        self.statistics = statistics
        self.unsent = unsent
        self._open: set[Outgoing] = set()
        self._crowded: dict[Outgoing, None] = {}
        self._room = limits.UNREAD_BYTES_MAX
        """What may be written before somebody must look again how much is held."""
        self._looking = False

    def opened(self, one: Outgoing) -> None:
        self._open.add(one)

    def lost(self, one: Outgoing) -> None:
        self._open.discard(one)
        self._crowded.pop(one, None)
        self.eased()

    def wrote(self, size: int) -> None:
        self.statistics.bytes_sent += size
        self._room -= size

    def has_room(self) -> bool:
        """For bytes of the disk. How much is held is counted again only when so much was written since the last time
        that it could be too much.
        """
        if self._room <= 0 and not self._crowded:
            self._count()
        return self._room > 0

    def wait(self, one: Outgoing) -> None:
        """Until there is room."""
        self._crowded[one] = None

    def eased(self) -> None:
        """Somebody has read."""
        if self._crowded and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._serve)

    def check(self, now: float) -> None:
        """Once a second."""
        idle = [one for one in list(self._open) if not one.has_read(now)]
        self._count()
        if self._room <= 0:
            for one in sorted(idle, key=lambda one: -one.held):
                if self._room > 0:
                    break
                self._room += one.held
                one.cut_off()
        self._serve()

    def _count(self) -> None:
        self._room = limits.UNREAD_BYTES_MAX - sum(one.held for one in self._open)

    def _serve(self) -> None:
        self._looking = False
        if not self._crowded:
            return
        self._count()
        while self._crowded and self._room > 0:
            one = next((one for one in self._crowded if one.reads), next(iter(self._crowded)))
            del self._crowded[one]
            one.go_on()


class Outgoing:
    """What leaves over one connection."""

    def __init__(self, outlet: Outlet, transport: asyncio.Transport, now: float) -> None:
        self.paused = False
        self._outlet = outlet
        self._transport = transport
        self._waiting: deque[Send] = deque()
        self._waiting_bytes = 0
        self._reading = self._crowded = self._closed = self._given = False
        self._paused_since = self._read_at = now
        self._written = self._read = 0
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        outlet.opened(self)

    @property
    def reads(self) -> bool:
        """It was given something of the disk, and has read all of it."""
        return self._given and not self._transport.get_write_buffer_size()

    @property
    def held(self) -> int:
        """Bytes in memory that the peer has not read."""
        return self._transport.get_write_buffer_size() + self._waiting_bytes

    def close(self) -> None:
        """The connection is lost."""
        self._closed = True
        self._waiting.clear()
        self._waiting_bytes = 0
        self._outlet.lost(self)

    def pause(self, now: float) -> None:
        self.paused = True
        self._paused_since = now

    def resume(self) -> None:
        self.paused = False
        self._flush()
        self._outlet.eased()

    def has_read(self, now: float) -> bool:
        """Since it was asked last; and who reads nothing for too long, or too little to be written to, is cut off."""
        left = self._transport.get_write_buffer_size()
        reads = self._written - left > self._read or not left
        self._read = self._written - left
        if reads:
            self._read_at = now
        patience = limits.SLOW_FRAME_MS / 1000
        if now - self._read_at > patience or (self.paused and now - self._paused_since > patience):
            self.cut_off()
        return reads

    def cut_off(self) -> None:
        if not self._closed and not self._transport.is_closing():
            self._outlet.statistics.refused["too_slow"] += 1
            self._transport.abort()

    def put(self, send: Send) -> None:
        """On the wire, after those before it."""
        if self._waiting or self.paused or self._reading or self._crowded:
            self._waiting.append(send)
            self._waiting_bytes += len(send.head)
        else:
            self._put(send)

    def go_on(self) -> None:
        """There is room."""
        self._crowded = False
        self._flush()

    def _flush(self) -> None:
        while self._waiting and not (self.paused or self._reading or self._crowded):
            send = self._waiting.popleft()
            self._waiting_bytes -= len(send.head)
            self._put(send)

    def _put(self, send: Send) -> None:
        if self._closed:
            return
        if not send.slices:
            self._transport.write(send.head)
            self._wrote(len(send.head))
            return
        if not self._outlet.has_room():
            self._waiting.appendleft(send)
            self._waiting_bytes += len(send.head)
            self._crowded = True
            self._outlet.wait(self)
            return
        found = self._outlet.files.gather_now(send.slices)
        if found is None:
            self._read_cold(send)
            return
        self._write([send.head, *found])

    def _write(self, parts: Sequence[bytes | bytearray]) -> None:
        self._given = True
        self._wrote(sum(map(len, parts)))
        if len(parts) > 2 or len(parts[1]) < HIGH_WATER_BYTES // 64:
            self._transport.write(b"".join(parts))
        else:
            self._transport.write(parts[0])
            self._transport.write(parts[1])

    def _wrote(self, size: int) -> None:
        self._written += size
        self._outlet.wrote(size)

    def _read_cold(self, send: Send) -> None:
        """Let the read lane do it; what comes behind waits, other connections do not."""
        self._outlet.statistics.cold_reads += 1
        self._reading = True
        files = self._outlet.files
        job = asyncio.get_running_loop().run_in_executor(self._outlet.lanes.read, files.gather, send.slices)
        job.add_done_callback(lambda done: self._read_done(send, done))

    def _read_done(self, send: Send, done: asyncio.Future[list[bytes] | Unread]) -> None:
        self._reading = False
        if done.cancelled() or self._closed:
            return
        error = done.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        found = [] if error is not None else done.result()
        if isinstance(found, Unread):
            if self._outlet.unsent(send, found):
                self._flush()
                return
            found = []
        if [len(data) for data in found] != [piece.size for piece in send.slices]:
            # The peer cannot tell a short answer from a good one: end the connection, it will ask again.
            self._outlet.statistics.refused["read_failed"] += 1
            self._transport.abort()
            return
        self._write([send.head, *found])
        self._flush()
