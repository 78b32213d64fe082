"""One direction of a TCP connection: bytes on their way from one kernel to another.

- Data travels in segments of up to 16 KiB, in order, each with the latency of its link; what is written in one step
  leaves as one segment.
- Window: bytes in flight and bytes the reader has not taken are at most 64 KiB; the rest waits at the writer.
- A lost segment is a late one. When the path is blocked, or the other host has no power, ONE timer a direction
  retransmits, doubling; after ``give_up_s`` the sender sees ETIMEDOUT. The window opens when the way back is free.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.network import Network
    from sim.transport import SimTransport

SEGMENT_SIZE_MAX = 16 * 1024
WINDOW_SIZE = 64 * 1024
RETRANSMIT_FIRST_S = 0.2
AIRBORNE_POLL_S = 0.01
FIN = b""
"""An empty segment is the end of the stream."""


class Pipe:
    """One direction: bytes on their way from the kernel of ``source`` to that of ``target``."""

    __slots__ = (
        "_airborne", "_last_arrival", "_open", "_open_at", "_retransmit_s", "_stalled", "_stalled_at", "_window_used",
        "network", "pending", "pending_size", "source", "target", "unacknowledged",
    )  # fmt: skip

    def __init__(self, network: Network, source: SimTransport, target: SimTransport) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.pending: deque[bytes] = deque()
        self.pending_size = 0
        self.unacknowledged = 0
        self._window_used = 0
        self._airborne = 0
        self._last_arrival = 0.0
        self._stalled: deque[bytes] = deque()
        self._stalled_at = 0.0
        self._retransmit_s = RETRANSMIT_FIRST_S
        self._open: bytearray | None = None
        self._open_at = -1.0

    def write(self, data: bytes) -> None:
        self.pending.append(data)
        self.pending_size += len(data)
        self.pump()

    def pump(self) -> None:
        """Put on the wire what the window allows."""
        pending = self.pending
        while pending:
            data = pending[0]
            room = WINDOW_SIZE - self._window_used
            if data and room <= 0:
                return
            size = min(len(data), room, SEGMENT_SIZE_MAX)
            if size < len(data):
                pending[0] = data[size:]
                data = data[:size]
            else:
                pending.popleft()
            self.pending_size -= size
            self._window_used += size
            self._launch(data)

    def _launch(self, data: bytes) -> None:
        if self._stalled:
            self._stalled.append(data)
            return
        loop = self.network.loop
        if (
            data
            and self._open is not None
            and self._open_at == loop.now
            and len(self._open) + len(data) <= SEGMENT_SIZE_MAX
        ):
            self._open += data  # Written in one step: one segment.
            return
        if self.network.segment_left(self):
            return
        arrival = max(self._last_arrival, loop.now + self.network.delay(self))
        self._last_arrival = arrival
        self._airborne += 1
        segment = bytearray(data)
        self._open = segment if data else None
        self._open_at = loop.now
        loop.at(arrival, self._arrive, segment)

    def _arrive(self, segment: bytearray) -> None:
        self._airborne -= 1
        if segment is self._open:
            self._open = None
        if self._stalled:
            self._stalled.append(bytes(segment))
        elif self.network.unreachable(self.source.host, self.target.host):
            self._stall(bytes(segment))
        elif self.target.gone or (self.target.closed and segment):
            # Nobody has this connection (any more): RST, if the way back is open.
            if self.network.unreachable(self.target.host, self.source.host):
                self._stall(bytes(segment))
            else:
                self.network.loop.at(self.network.arrival_back(self), self.source.reset)
        else:
            self.target.receive(bytes(segment))

    def _stall(self, data: bytes) -> None:
        self._stalled.append(data)
        self._stalled_at = self.network.loop.now
        self._retransmit_s = RETRANSMIT_FIRST_S
        self._retransmit_later()

    def _retransmit_later(self) -> None:
        self.network.loop.at(self.network.loop.now + self._retransmit_s, self._retransmit)

    def _retransmit(self) -> None:
        network = self.network
        if not self._stalled or self.source.gone:
            self._stalled.clear()
        elif network.unreachable(self.source.host, self.target.host):
            if network.loop.now - self._stalled_at > network.weather.give_up_s:
                self._stalled.clear()
                self.source.fail(TimeoutError(errno.ETIMEDOUT, "connection timed out"))
                return
            self._retransmit_s = min(self._retransmit_s * 2, network.weather.retransmit_max_s)
            self._retransmit_later()
        elif self._airborne:
            network.loop.at(network.loop.now + AIRBORNE_POLL_S, self._retransmit)
        else:
            network.probes["retransmitted"] += 1
            stalled, self._stalled = self._stalled, deque()
            for data in stalled:
                self._launch(data)

    def taken(self, size: int) -> None:
        """The reader took ``size`` bytes; the window opens once the acknowledgement finds its way back."""
        self.unacknowledged += size
        self._acknowledge()

    def _acknowledge(self) -> None:
        loop = self.network.loop
        if self.network.unreachable(self.target.host, self.source.host):
            loop.at(loop.now + RETRANSMIT_FIRST_S, self._acknowledge)
            return
        self._window_used -= self.unacknowledged
        self.unacknowledged = 0
        if self.pending:
            loop.at(self.network.arrival_back(self), self._opened)

    def _opened(self) -> None:
        if not self.source.closed:
            self.pump()
            self.source.drained()

    def drop(self) -> None:
        self.pending.clear()
        self.pending_size = 0
