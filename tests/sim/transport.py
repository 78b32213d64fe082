"""One end of a TCP connection: what the process does with it, and what its kernel does. The ways between: ``pipe``.

A reader gets all that has arrived, or (seeded) any prefix of it, down to one byte. Above the high-water mark of what
waits to leave, the protocol is told ``pause_writing``, as by asyncio's own transports. FIN, RST and half-close are
there. Kill of a process: its kernel says FIN (RST when data lay unread) and answers later data by RST. Power cut:
silence; the peer is half-open for ever if it has nothing to say, and when the host is back, what it says is answered
by RST.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sim.life import Life
from sim.pipe import FIN, Pipe

if TYPE_CHECKING:
    from sim.network import Host, Network

HIGH_WATER = 64 * 1024


class SimTransport(asyncio.Transport):
    """One end of a connection. The kernel's side (receive, reset, gone) and the process's side (write, close)."""

    def __init__(self, network: Network, host: Host, life: Life, extra: dict[str, Any]) -> None:
        super().__init__(extra)
        self.network = network
        self.host = host
        self.life = life
        self.serial = network.loop.next_serial()
        self.outgoing: Pipe
        self.incoming: Pipe
        self.closed = False
        """The process has no such descriptor any more."""
        self.gone = False
        """Not even the kernel knows this connection: its host lost power."""
        self.gone_at = 0.0
        self.heard_at = network.loop.now
        """When something came of the other kernel, but for answers to what this one asks."""
        extra["socket"].silence_s = lambda: network.silence(self)
        self._context = life.context
        self._protocol: Any = None
        self._buffered = False
        self._inbox: deque[bytes] = deque()
        self._inbox_size = 0
        self._reading = False
        self._read_due = False
        self._eof_arrived = False
        self._eof_sent = False
        self._closing = False
        self._writing_paused = False
        self._low, self._high = HIGH_WATER // 4, HIGH_WATER
        host.transports[self.serial] = self

    def __hash__(self) -> int:
        return self.serial

    # -- the process's side ------------------------------------------------------------------------------------

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to ``protocol``: called inside of its life, or for it by the kernel on accept."""
        self._context = self.life.context.copy()
        self.set_protocol(protocol)
        self._soon(self._begin)

    def _begin(self) -> None:
        self._protocol.connection_made(self)
        self.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_closing(self) -> bool:
        return self._closing or self.closed

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._schedule_read()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._eof_sent and not self._closing:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not data or not self.life.alive:
            return
        self.outgoing.write(bytes(data))
        if not self._writing_paused and self.outgoing.pending_size > self._high:
            self._writing_paused = True
            self.network.probes["paused_writers"] += 1
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._eof_sent and not self._closing:
            self._eof_sent = True
            self.outgoing.write(FIN)

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self.outgoing.pending_size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER if low is None else 4 * low
        self._high = high
        self._low = high // 4 if low is None else low

    def close(self) -> None:
        if self._closing or not self.life.alive:
            return
        self._closing = True
        self._reading = False
        if not self._eof_sent:
            self._eof_sent = True
            self.outgoing.write(FIN)
        self.drained()

    def abort(self) -> None:
        if not self.closed and self.life.alive:
            self._send_reset()
            self._lose(None)

    # -- the kernel's side -------------------------------------------------------------------------------------

    def drained(self) -> None:
        """Some of what waited has left."""
        if self._closing and not self.outgoing.pending and not self.closed:
            if self._inbox:
                self._send_reset()
            self._lose(None)
        elif self._writing_paused and self.outgoing.pending_size <= self._low:
            self._writing_paused = False
            self._soon(self._protocol.resume_writing)

    def receive(self, data: bytes) -> None:
        if self.closed:
            return
        self.heard_at = self.network.loop.now
        if data:
            self._inbox.append(data)
            self._inbox_size += len(data)
        else:
            self._eof_arrived = True
        self._schedule_read()

    def reset(self) -> None:
        """An RST has come."""
        self.fail(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    def fail(self, error: OSError) -> None:
        if not self.closed:
            if self.network.flip():
                self._inbox.clear()
            self._lose(error)

    def process_died(self) -> None:
        """Kill: the kernel closes the descriptor."""
        if self.closed:
            return
        if self._inbox:
            self._send_reset()
        elif self.outgoing.pending or not self._eof_sent:
            self.outgoing.drop()
            self.outgoing.write(FIN)
        self._forget()

    def power_lost(self) -> None:
        self.gone = True
        self.gone_at = self.network.loop.now
        self.outgoing.drop()
        self._forget()

    def _send_reset(self) -> None:
        self.outgoing.drop()
        peer = self.outgoing.target
        if not self.network.unreachable(self.host, peer.host):
            self.network.loop.at(self.network.arrival_back(self.incoming), peer.reset)

    def _schedule_read(self) -> None:
        if self._reading and not self._read_due and (self._inbox or self._eof_arrived) and not self.closed:
            self._read_due = True
            self._soon(self._read)

    def _read(self) -> None:
        self._read_due = False
        if self.closed or not self._reading:
            return
        if self._inbox:
            data = self._take()
            if self._buffered:
                self._fill(data)
            else:
                self._protocol.data_received(data)
            self.incoming.taken(len(data))
            self._schedule_read()
        elif self._eof_arrived:
            self._reading = False
            if not self._protocol.eof_received():
                self.close()

    def _take(self) -> bytes:
        size = self.network.chunk(self._inbox_size)
        if size == self._inbox_size:
            data = self._inbox[0] if len(self._inbox) == 1 else b"".join(self._inbox)
            self._inbox.clear()
        else:
            everything = b"".join(self._inbox)
            data = everything[:size]
            self._inbox.clear()
            self._inbox.append(everything[size:])
        self._inbox_size -= size
        return data

    def _fill(self, data: bytes) -> None:
        position = 0
        while position < len(data) and not self.closed:
            buffer = memoryview(self._protocol.get_buffer(-1)).cast("B")
            size = min(len(buffer), len(data) - position)
            if not size:
                raise RuntimeError("get_buffer() returned an empty buffer")
            buffer[:size] = data[position : position + size]
            position += size
            self._protocol.buffer_updated(size)

    def _lose(self, error: OSError | None) -> None:
        self._closing = True
        self._forget()
        if self._protocol is not None:
            self._soon(self._protocol.connection_lost, error)

    def _forget(self) -> None:
        self.closed = True
        self._reading = False
        self.host.transports.pop(self.serial, None)

    def _soon(self, function: Any, *args: Any) -> None:
        context: contextvars.Context = self._context
        self.network.loop.call_soon(function, *args, context=context)
