"""Frames: any split gives the same ones, and nobody but their receiver holds their bytes."""

from __future__ import annotations

import struct

import pytest

from tidemill_wire.errors import RemoteProtocolError
from tidemill_wire.frame import (
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    LARGE_BYTES,
    SHARED_BYTES,
    Frame,
    FrameDecoder,
    encode_frame,
)
from tidemill_wire.limits import FRAME_BYTES_MAX, FRAME_GROWTH_BYTES

SIZES = (
    0,
    1,
    LARGE_BYTES - 1,
    LARGE_BYTES,
    LARGE_BYTES + 1,
    SHARED_BYTES - 16,
    SHARED_BYTES,
    SHARED_BYTES + 1,
)


def frames_of(decoder: FrameDecoder, stream: bytes, step: int) -> list[Frame]:
    frames: list[Frame] = []
    for at in range(0, len(stream), step):
        frames += decoder.feed(stream[at : at + step])
    return frames


def test_frame_begins_with_its_header() -> None:
    frame = encode_frame(16, 2**64 - 1, b"ab", b"c", trailing=5, flags=1)

    assert frame == struct.pack("<IHHQ", 8, 16, 1, 2**64 - 1) + b"abc"


@pytest.mark.parametrize("step", [1, 7, FRAME_HEADER_BYTES, 40_000, SHARED_BYTES, 10 * SHARED_BYTES])
def test_frames_of_all_sizes_come_out_at_any_step(step: int) -> None:
    bodies = [bytes([index]) * size for index, size in enumerate(SIZES)]
    stream = b"".join(encode_frame(index, index, body) for index, body in enumerate(bodies))

    decoder = FrameDecoder()
    frames = frames_of(decoder, stream, step)

    assert frames == [Frame(index, 0, index, bytearray(body)) for index, body in enumerate(bodies)]
    assert decoder.pending == 0


def test_largest_frame_comes_out_whole() -> None:
    body = bytes(range(256)) * (FRAME_BYTES_MAX // 256)

    [frame] = frames_of(FrameDecoder(), encode_frame(1, 1, body), 300_000)

    assert frame.body == body


def test_frame_beyond_the_limit_is_refused_by_its_header() -> None:
    for size in (101, 2**31, 2**32 - 1):
        with pytest.raises(RemoteProtocolError, match="100 are allowed") as caught:
            FrameDecoder(limit=100).feed(FRAME_HEADER.pack(size, 1, 0, 1))
        assert caught.value.reason == "frame_too_large"
    assert FrameDecoder(limit=100).feed(encode_frame(1, 1, bytes(100)))


def test_frames_before_one_that_is_too_large_come_out_first() -> None:
    decoder = FrameDecoder(limit=100)

    assert len(decoder.feed(encode_frame(1, 1) * 3 + FRAME_HEADER.pack(101, 1, 0, 1))) == 3
    assert decoder.violation is not None
    with pytest.raises(RemoteProtocolError):
        decoder.advance(0)


def test_first_frame_has_a_limit_of_its_own() -> None:
    small, large = encode_frame(1, 1, bytes(10)), encode_frame(2, 2, bytes(50_000))

    assert len(FrameDecoder(first_limit=10).feed(small + large + large)) == 3
    with pytest.raises(RemoteProtocolError):
        FrameDecoder(first_limit=9).feed(small)


def test_frame_too_large_to_send_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        encode_frame(1, 1, trailing=FRAME_BYTES_MAX + 1)


@pytest.mark.parametrize("size", [10, LARGE_BYTES + 1, 3 * FRAME_GROWTH_BYTES])
def test_bodies_belong_to_their_receiver(size: int) -> None:
    """They are changed and resized here, and neither the decoder nor the other body notices."""
    decoder = FrameDecoder()
    first, second = (decoder.feed(encode_frame(1, 1, bytes(size)))[0].body for _ in range(2))
    first[:] = b"\xff" * size
    first += b"more"

    assert second == bytes(size)
    assert decoder.feed(encode_frame(1, 1, bytes(size)))[0].body == bytes(size)


def test_views_that_a_caller_still_holds_do_no_harm() -> None:
    """An exported view of a bytearray that is to grow is a ``BufferError``."""
    body = bytes(range(256)) * (4 * FRAME_GROWTH_BYTES // 256)
    stream = memoryview(encode_frame(1, 1, body))
    decoder, held, frames = FrameDecoder(), [], list[Frame]()
    while stream:
        room = decoder.buffer()
        held.append(room)
        count = min(len(room), len(stream))
        room[:count] = stream[:count]
        frames += decoder.advance(count)
        stream = stream[count:]

    assert [frame.body for frame in frames] == [body]
    assert len(held) > 3


def test_there_is_always_room_for_the_next_bytes() -> None:
    decoder = FrameDecoder()
    stream = b"".join(
        encode_frame(1, 1, bytes(size)) for size in (LARGE_BYTES, 0, LARGE_BYTES + 1, 2_500_000)
    )
    for at in range(0, len(stream), 997):
        decoder.feed(stream[at : at + 997])
        assert len(decoder.buffer()) > 0


def test_pending_bytes_are_those_of_the_frame_on_its_way() -> None:
    decoder = FrameDecoder()
    decoder.feed(encode_frame(1, 1) + bytes(7))
    assert decoder.pending == 7

    decoder = FrameDecoder()
    decoder.feed(FRAME_HEADER.pack(FRAME_BYTES_MAX, 1, 0, 1))
    assert decoder.pending == FRAME_GROWTH_BYTES


def test_many_tiny_frames_move_few_bytes() -> None:
    """Each read leaves at most one unfinished frame behind, so what is moved is bounded by what was read."""
    stream = encode_frame(1, 1) * 100_000

    assert len(frames_of(FrameDecoder(), stream, SHARED_BYTES - 1)) == 100_000
