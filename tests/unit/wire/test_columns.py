"""Columns: what is read is what was built, and a directory or column that lies is corrupt."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from samples.batches import BATCHES, PACKED, TEXT, full, origin
from tidemill_wire import columns
from tidemill_wire.batch import HEADER_BYTES, aligned, encode_batch, read_header
from tidemill_wire.codec import Codec, compress
from tidemill_wire.columns import (
    COMPRESSED,
    ENTRY,
    Batch,
    Column,
    Content,
    bloom_of,
    build_batch,
    hash_text,
    read_directory,
    split_batches,
)
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.limits import BATCH_BYTES_MAX, TAGS_MAX

Entries = Sequence[tuple[int, int, int, int, int]]


def batch_of(count: int, entries: Entries, data: bytes, codec: Codec = Codec.NONE) -> bytearray:
    directory = b"".join(ENTRY.pack(*entry) for entry in entries)
    return encode_batch(
        origin(codec), count, len(entries), (directory, data.ljust(aligned(len(data)), b"\0"))
    )


def ints(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def pair(offsets: bytes, data: bytes, count: int = 1) -> bytearray:
    """A batch of only these offsets and bodies."""
    place = aligned(len(offsets))
    entries = [(1, 0, 0, len(offsets), len(offsets)), (2, 0, place, len(data), len(data))]
    return batch_of(count, entries, offsets.ljust(place, b"\0") + data)


def test_all_columns_are_read_as_they_were_built() -> None:
    batch = Batch(BATCHES["full"])
    batch.check()

    assert batch.bodies() == [b"first", b"", b"third"]
    assert batch.keys() == ["o-1", "", "\u00f6-3"]
    assert batch.tags() == [["vip", "eu"], [], ["vip"]]
    assert batch.order_keys() == ["customer-1", "customer-2", ""]
    assert batch.properties() == full().properties
    assert batch.numbers(Column.DELIVER_DELTAS, "q", 3) == [0, 30_000, 63_072_000_000]
    assert batch.numbers(Column.KEY_HASHES, "Q", 3) == [hash_text(b"o-1"), 0, hash_text("\u00f6-3".encode())]
    assert batch.origins() == full().origins
    assert batch.message_id(2).endswith("0f-2")


def test_columns_that_no_message_needs_are_absent() -> None:
    batch = Batch(BATCHES["several"])

    assert (batch.keys(), batch.tags(), batch.order_keys(), batch.properties(), batch.origins()) == (
        None,
    ) * 5
    assert batch.numbers(Column.ATTEMPTS, "i", 3) is None
    assert batch.header.column_count == 2


def test_single_message_is_built_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = [build_batch(origin(), Content([body])) for body in (b"", b"12345678", b"hello")]
    monkeypatch.setattr(columns, "_build_single", no_batch)

    assert quick == [build_batch(origin(), NeverPlain([body])) for body in (b"", b"12345678", b"hello")]


class NeverPlain(Content):
    """A content that says it is more than bodies."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False


def no_batch(*_said: object) -> bytearray:
    raise AssertionError("the quick way was taken")


@pytest.mark.parametrize("first, last, expected", [(0, 0, 1), (1, 2, 2), (0, None, 3), (3, 2, 0)])
def test_part_of_a_batch_is_read(first: int, last: int | None, expected: int) -> None:
    assert len(Batch(BATCHES["several"]).bodies(first, last)) == expected


@pytest.mark.parametrize("first, last", [(-1, 1), (0, 3), (2, 0), (4, 4)])
def test_part_that_is_not_there_is_a_mistake_of_the_caller(first: int, last: int) -> None:
    with pytest.raises(IndexError):
        Batch(BATCHES["several"]).bodies(first, last)


@pytest.mark.parametrize("name", PACKED)
def test_compressed_columns_are_smaller_and_read_the_same(name: str) -> None:
    batch = Batch(PACKED[name])

    assert len(PACKED[name]) < len(TEXT)
    assert batch.bodies() == [TEXT, b"short", TEXT]
    assert batch.keys() == ["a", "b", "c"]


def test_tags_have_their_bits_in_the_bloom_word() -> None:
    header = Batch(BATCHES["full"]).header

    assert header.bloom == bloom_of([hash_text(b"vip"), hash_text(b"eu")])
    assert header.bloom & bloom_of([hash_text(b"vip")]) == bloom_of([hash_text(b"vip")])


def test_batches_lie_back_to_back() -> None:
    assert [len(batch.bodies()) for batch in split_batches(BATCHES["several"] + BATCHES["single"])] == [3, 1]
    assert split_batches(b"") == []


@pytest.mark.parametrize("size", [1, HEADER_BYTES, len(BATCHES["single"]) - 8])
def test_last_batch_that_is_cut_off_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        split_batches(BATCHES["several"] + BATCHES["single"][:size])


def test_bytes_behind_a_batch_are_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        Batch(BATCHES["single"] + bytes(8))


def test_directory_of_a_batch_that_is_not_all_there_is_corrupt() -> None:
    """A broker reads directories in place, out of a buffer that may end anywhere."""
    batch = BATCHES["several"]
    header = read_header(batch)
    for size in range(HEADER_BYTES, len(batch)):
        with pytest.raises(CorruptBatch, match="are there"):
            read_directory(batch[:size], 0, header)


@pytest.mark.parametrize(
    "entries",
    [
        [(1, 0, 0, 8, 8), (2, 0, 4, 4, 4)],
        [(1, 0, 0, 8, 8), (2, 0, 0, 8, 8)],
        [(1, 0, 8, 8, 8), (2, 0, 0, 8, 8)],
        [(1, 0, 0, 16, 16), (2, 0, 8, 8, 8)],
        [(1, 0, 0, 8, 8), (2, 0, 8, 9, 9)],
        [(1, 0, 0, 8, 8), (2, 0, 24, 0, 0)],
        [(1, 0, 0, 8, 8), (2, 0, 2**32 - 8, 8, 8)],
        [(1, 0, 0, 8, 8), (2, 0, 8, 2**32 - 8, 2**32 - 8)],
        [(1, 0, 0, 8, 8), (1, 0, 8, 8, 8)],
        [(1, 0, 0, 8, 8), (2, 0, 8, 8, 9)],
        [(1, COMPRESSED, 0, 8, BATCH_BYTES_MAX), (2, COMPRESSED, 8, 8, 8)],
        [(1, COMPRESSED, 0, 8, 2**32 - 1), (2, 0, 8, 8, 8)],
    ],
    ids=[
        *("unaligned", "same place", "backwards", "overlap", "beyond the end", "begins beyond the end"),
        *(
            "place overflows",
            "size overflows",
            "twice",
            "two sizes",
            "unpacks to too much",
            "unpacks to 4 GiB",
        ),
    ],
)
def test_directory_that_lies_is_corrupt(entries: Entries) -> None:
    with pytest.raises(CorruptBatch):
        Batch(batch_of(1, entries, bytes(16)))


def test_column_of_a_newer_producer_is_passed_over() -> None:
    entries = [(1, 0, 0, 8, 8), (2, 0, 8, 2, 2), (999, 6, 16, 3, 3)]

    assert Batch(batch_of(1, entries, ints(0, 2) + b"hi".ljust(8, b"\0") + b"new")).bodies() == [b"hi"]


def test_known_column_with_unknown_flags_is_corrupt() -> None:
    entries = [(1, 0, 0, 8, 8), (2, 2, 8, 2, 2)]

    with pytest.raises(CorruptBatch, match="flags"):
        Batch(batch_of(1, entries, ints(0, 2) + b"hi")).bodies()


@pytest.mark.parametrize(
    "offsets, data, count",
    [
        (ints(0), b"", 1),
        (ints(0, 2, 2), b"hi", 1),
        (ints(0, 1), b"hi", 1),
        (ints(0, 3), b"hi", 1),
        (ints(1, 2), b"hi", 1),
        (ints(-1, 2), b"hi", 1),
        (ints(0, -2), b"hi", 1),
        (ints(0, 2, 1, 2), b"hi", 3),
        (ints(0, -1, 2), b"hi", 2),
        (ints(0, 2**31 - 1, 2), b"hi", 2),
        (ints(0, 2), b"hi", 1 << 20),
        (ints(0, 2)[:7], b"hi", 1),
    ],
)
def test_offsets_that_do_not_span_their_bytes_are_corrupt(offsets: bytes, data: bytes, count: int) -> None:
    with pytest.raises(CorruptBatch):
        Batch(pair(offsets, data, count)).bodies()


@pytest.mark.parametrize("entries", [[], [(1, 0, 0, 8, 8)], [(2, 0, 0, 8, 8)]])
def test_batch_without_bodies_is_corrupt(entries: Entries) -> None:
    with pytest.raises(CorruptBatch, match="no bytes or no offsets"):
        Batch(batch_of(1, entries, ints(0, 0))).bodies()


READERS: dict[str, Callable[[Batch], Any]] = {
    "keys": Batch.keys,
    "origins": Batch.origins,
    "tags": Batch.tags,
}


@pytest.mark.parametrize(
    "text", [b"\xff", b"\xed\xa0\x80", b"\xc0\x80"], ids=["byte", "surrogate", "overlong"]
)
@pytest.mark.parametrize("name, kind", [("keys", 4), ("origins", 17), ("tags", 8)])
def test_text_that_is_not_utf8_is_corrupt(name: str, kind: int, text: bytes) -> None:
    size = len(text)
    entries = [(kind, 0, 0, 8, 8), (kind + 1, 0, 8, size, size), (6, 0, 16, 8, 8)]

    with pytest.raises(CorruptBatch, match="UTF-8"):
        READERS[name](Batch(batch_of(1, entries, ints(0, size) + text.ljust(8, b"\0") + ints(0, 1))))


@pytest.mark.parametrize(
    "counts",
    [ints(0), ints(0, 2), ints(1, 1), ints(0, -1), ints(-1, 1), ints(0, 2**31 - 1), ints(0, TAGS_MAX + 1)],
)
def test_tag_counts_that_lie_are_corrupt(counts: bytes) -> None:
    entries = [(6, 0, 0, len(counts), len(counts)), (8, 0, 8, 8, 8), (9, 0, 16, 1, 1)]

    with pytest.raises(CorruptBatch):
        Batch(batch_of(1, entries, counts.ljust(8, b"\0") + ints(0, 1) + b"t")).tags()


def test_tags_that_are_counted_and_not_there_are_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="does not hold"):
        Batch(batch_of(1, [(6, 0, 0, 8, 8)], ints(0, 1))).tags()


@pytest.mark.parametrize("codec", Codec)
def test_column_that_unpacks_to_another_size_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, bytes(1000))
    entries = [(1, 0, 0, 8, 8), (2, COMPRESSED, 8, len(packed), 1001)]

    with pytest.raises(CorruptBatch):
        Batch(batch_of(1, entries, ints(0, 1001) + packed, codec)).bodies()


def test_key_that_utf8_cannot_say_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(UnicodeEncodeError):
        build_batch(origin(), Content([b""], keys=["\ud800"]))
