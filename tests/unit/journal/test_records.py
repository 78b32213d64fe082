"""Records: whole or refused, whatever bit is wrong, wherever they end, wherever they lie."""

from __future__ import annotations

import pytest

from tidemill_journal.errors import CorruptRecord
from tidemill_journal.records import (
    HEADER_BYTES,
    RECORD_BYTES_MAX,
    Record,
    decode_record,
    encode_record,
    record_size,
)

AT_MS = 1_780_000_000_000


def encoded(body: bytes = b"abc", position: int = 4096) -> bytes:
    return encode_record(17, body, position, AT_MS, 7)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 4000])
def test_record_is_read_as_it_was_written(size: int) -> None:
    body = bytes(range(256)) * 16
    data = encoded(body[:size])

    assert len(data) == record_size(size)
    assert len(data) % 8 == 0
    assert decode_record(data, 0, 4096) == Record(len(data), 4096, AT_MS, 7, 17, body[:size])


def test_record_is_read_from_the_middle_of_a_view() -> None:
    data = memoryview(b"x" * 5 + encoded() + encoded(b"next", 4096 + record_size(3)))

    first = decode_record(data, 5, 4096)
    assert decode_record(data, 5 + first.length, 4096 + first.length).body == b"next"


def test_record_at_another_place_than_it_says_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="stands at 4096"):
        decode_record(encoded(), 0, 0)


def test_record_that_is_cut_anywhere_is_refused() -> None:
    data = encoded()
    for size in range(len(data)):
        with pytest.raises(CorruptRecord):
            decode_record(data[:size], 0, 4096)


def test_record_with_any_bit_wrong_is_refused() -> None:
    data = encoded()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecord):
            decode_record(bytes(damaged), 0, 4096)


@pytest.mark.parametrize("fill", [b"\0", b"\xff"])
def test_zeros_and_ones_are_no_records(fill: bytes) -> None:
    for position in (0, 4096, 2**64 - 1):
        with pytest.raises(CorruptRecord):
            decode_record(fill * 4096, 0, position)


def test_record_that_would_be_too_large_is_a_mistake_of_the_caller() -> None:
    assert len(encoded(bytes(RECORD_BYTES_MAX - HEADER_BYTES))) == RECORD_BYTES_MAX
    with pytest.raises(AssertionError):
        encoded(bytes(RECORD_BYTES_MAX - HEADER_BYTES + 1))
