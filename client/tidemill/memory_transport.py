"""A connection without a network, between two protocols of one event loop."""

from __future__ import annotations

import asyncio


class MemoryTransport(asyncio.Transport):
    """One end of a pipe within a loop."""

    other: MemoryTransport

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closed:
            self._loop.call_soon(self.other.arrive, bytes(data))

    def arrive(self, data: bytes) -> None:
        """Bytes from the other end."""
        if self._closed:
            return
        if isinstance(self.protocol, asyncio.BufferedProtocol):
            rest = memoryview(data)
            while rest and not self._closed:
                room = memoryview(self.protocol.get_buffer(-1))
                count = min(len(room), len(rest))
                room[:count] = rest[:count]
                room.release()
                self.protocol.buffer_updated(count)
                rest = rest[count:]
        elif isinstance(self.protocol, asyncio.Protocol):
            self.protocol.data_received(data)

    def close(self) -> None:
        self._loop.call_soon(self._end)
        self._loop.call_soon(self.other._end)

    abort = close

    def is_closing(self) -> bool:
        return self._closed

    def _end(self) -> None:
        if not self._closed:
            self._closed = True
            self.protocol.connection_lost(None)
