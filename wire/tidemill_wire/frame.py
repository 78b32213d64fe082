"""Frames: how a stream of bytes is cut into messages of the protocol.

     0        4      6       8               16
    +--------+------+-------+---------------+------------------
    | length | type | flags | correlation   | body: length bytes
    +--------+------+-------+---------------+------------------
      u32      u16    u16     u64, little-endian

The decoder owns the receive buffer, so that bytes are read from the socket to where they stay: ``buffer()`` says where
the next bytes go, ``advance(count)`` takes note and returns the frames that are now whole. Small frames are copied out
of a shared buffer; a large one gets a buffer of its own which grows as its bytes arrive, so a length that was only
announced costs nothing (a client believes its broker and takes the room at once: ``growth``). Whatever the split of
the stream, the frames are the same.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidemill_wire.errors import RemoteProtocolError
from tidemill_wire.limits import FRAME_BYTES_MAX, FRAME_GROWTH_BYTES

FRAME_HEADER = struct.Struct("<IHHQ")
FRAME_HEADER_BYTES = FRAME_HEADER.size
IDLE_BYTES = (
    2 * 1024
)  # what a connection costs that says little; the first read that fills it makes it SHARED_BYTES
SHARED_BYTES = 64 * 1024
LARGE_BYTES = 32 * 1024

assert FRAME_HEADER_BYTES == 16
assert FRAME_HEADER_BYTES < IDLE_BYTES
assert LARGE_BYTES < SHARED_BYTES <= FRAME_GROWTH_BYTES


class Frame(NamedTuple):
    """A whole frame. The body is the receiver's own: nobody else writes to it."""

    type: int
    flags: int
    correlation: int
    body: bytearray


def encode_frame(type_: int, correlation: int, *parts: bytes, trailing: int = 0, flags: int = 0) -> bytes:
    """A frame's bytes; ``trailing`` more bytes of its body follow from elsewhere (slices of a file)."""
    size = sum(map(len, parts)) + trailing
    assert size <= FRAME_BYTES_MAX  # the other side would close the connection
    return FRAME_HEADER.pack(size, type_, flags, correlation) + b"".join(parts)


class FrameDecoder:
    """Bytes in, frames out. ``limit`` bounds a body, ``first_limit`` that of the first frame."""

    def __init__(
        self, limit: int = FRAME_BYTES_MAX, first_limit: int | None = None, growth: int = FRAME_GROWTH_BYTES
    ) -> None:
        assert first_limit is None or first_limit <= LARGE_BYTES
        self.limit = limit
        self._growth = growth
        self.violation: RemoteProtocolError | None = None
        """What is wrong with the frame behind those that ``advance`` returned last; with none before it, it raises."""
        self._first_limit = first_limit
        self._shared = bytearray(IDLE_BYTES)
        self._filled = 0  # bytes of the shared buffer that wait for the rest of their frame
        self._large: bytearray | None = None  # the body of a large frame on its way
        self._large_header = (0, 0, 0, 0)
        self._large_filled = 0

    @property
    def pending(self) -> int:
        """Bytes held for a frame that is not whole yet."""
        return self._filled + (len(self._large) if self._large is not None else 0)

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._large is None:
            return memoryview(self._shared)[self._filled :]
        size = self._large_header[0]
        if self._large_filled == len(self._large):
            grown = min(size, max(self._growth, 2 * self._large_filled))
            try:
                self._large.extend(bytes(grown - self._large_filled))
            except BufferError:  # the caller still holds the last view: growing in place is only faster
                self._large = self._large + bytes(grown - self._large_filled)
        return memoryview(self._large)[self._large_filled :]

    def advance(self, count: int) -> list[Frame]:
        """``count`` bytes were put into ``buffer()``; the frames that they complete."""
        if self._large is not None:
            self._large_filled += count
            if self._large_filled < self._large_header[0]:
                return []
            _, type_, flags, correlation = self._large_header
            frame = Frame(type_, flags, correlation, self._large)
            self._large = None
            return [frame]
        self._filled += count
        return self._cut()

    def feed(self, data: bytes) -> list[Frame]:
        """The same for bytes that are already somewhere else: tests, and clients without a buffered reader."""
        frames: list[Frame] = []
        rest = memoryview(data)
        while rest:
            room = self.buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            room.release()
            rest = rest[count:]
            frames += self.advance(count)
        return frames

    def _cut(self) -> list[Frame]:
        frames: list[Frame] = []
        shared, start, filled = self._shared, 0, self._filled
        limit = self.limit if self._first_limit is None else self._first_limit
        while filled - start >= FRAME_HEADER_BYTES:
            header = FRAME_HEADER.unpack_from(shared, start)
            size, type_, flags, correlation = header
            if size > limit:
                detail = f"a frame of {size} bytes, {limit} are allowed"
                self.violation = RemoteProtocolError("frame_too_large", detail)
                if frames:
                    break
                raise self.violation
            body = start + FRAME_HEADER_BYTES
            if body + size <= filled:
                frames.append(Frame(type_, flags, correlation, shared[body : body + size]))
                start = body + size
                limit = self.limit
                continue
            if size > LARGE_BYTES:
                self._large_header = header
                self._large_filled = filled - body
                self._large = bytearray(min(size, max(self._growth, 2 * self._large_filled)))
                self._large[: self._large_filled] = shared[body:filled]
                start = filled
            break
        if filled == len(shared) < SHARED_BYTES:
            self._shared = bytearray(SHARED_BYTES)
        if start or self._shared is not shared:
            self._shared[: filled - start] = shared[start:filled]
        self._filled = filled - start
        if frames:
            self._first_limit = None
        return frames
