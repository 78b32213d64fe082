"""The header of a batch: what is written, stamped, checked and refused."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from samples.batches import BATCHES, CREATED_MS, ID, origin
from tidemill_wire import limits
from tidemill_wire.batch import (
    HEADER_BYTES,
    STAMP_BYTES,
    BatchIds,
    Flags,
    aligned,
    check_said,
    check_stamp,
    encode_batch,
    message_id,
    parse_message_id,
    partition_name,
    read_header,
    stamp,
)
from tidemill_wire.columns import Batch, Content, build_batch
from tidemill_wire.errors import CorruptBatch


def changed(at: int, layout: str, value: int) -> bytearray:
    batch = bytearray(BATCHES["several"])
    struct.pack_into(f"<{layout}", batch, at, value)
    return batch


def test_header_holds_what_the_producer_said() -> None:
    header = read_header(build_batch(origin(flags=Flags.ORDERED, priority=3), Content([b"a", b"b"])))

    assert (header.messages, header.flags, header.priority) == (2, Flags.ORDERED, 3)
    assert (header.producer_id, header.producer_sequence, header.batch_id) == (77, 5, ID)
    assert (header.created_at_ms, header.column_count, header.bloom) == (CREATED_MS, 2, 0)


def test_batch_that_nobody_stamped_has_zeros_for_the_broker() -> None:
    batch = BATCHES["several"]

    assert bytes(batch[8:STAMP_BYTES]) == bytes(STAMP_BYTES - 8)


def test_stamp_changes_nothing_that_the_producer_said() -> None:
    batch = bytearray(b"other" + BATCHES["several"])
    before = bytes(batch)
    stamp(batch, 5, len(batch) - 5, 2**64 - 1, 2**63, -1, 2**32 - 1)
    header = read_header(batch, 5)

    check_said(batch, 5, header)
    check_stamp(batch, 5, header)
    assert batch[:5] == b"other"
    assert batch[5 + STAMP_BYTES :] == before[5 + STAMP_BYTES :]
    assert (header.first_sequence, header.position, header.stored_at_ms) == (2**64 - 1, 2**63, -1)
    assert header.epoch == 2**32 - 1


@pytest.mark.parametrize("at", range(8, STAMP_BYTES))
def test_each_byte_of_the_stamp_is_checked(at: int) -> None:
    batch = bytearray(BATCHES["stamped"])
    batch[at] ^= 1

    with pytest.raises(CorruptBatch, match="stamp"):
        check_stamp(batch, 0, read_header(batch))


def test_each_byte_of_the_producer_is_checked() -> None:
    for at in range(STAMP_BYTES, len(BATCHES["several"])):
        batch = bytearray(BATCHES["several"])
        batch[at] ^= 1
        with pytest.raises(CorruptBatch):
            check_said(batch, 0, read_header(batch))


@pytest.mark.parametrize(
    "at, layout, value",
    [
        (0, "I", 0x31424D55),
        (4, "I", 0),
        (4, "I", 7),
        (4, "I", 112),
        (4, "I", limits.BATCH_BYTES_MAX + 8),
        (4, "I", 2**32 - 8),
        (44, "B", 0),
        (44, "B", 2),
        (45, "B", 3),
        (48, "I", 0),
        (48, "I", limits.BATCH_MESSAGES_MAX + 1),
        (54, "H", limits.COLUMNS_MAX + 1),
        (54, "H", 2**16 - 1),
    ],
)
def test_header_out_of_range_is_refused(at: int, layout: str, value: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(changed(at, layout, value))


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1])
def test_header_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(CorruptBatch, match="too few"):
        read_header(BATCHES["single"][:size])


def test_batch_that_is_cut_off_is_refused_before_its_sum_is_taken() -> None:
    batch = BATCHES["single"]
    with pytest.raises(CorruptBatch, match="are there"):
        check_said(batch[:-8], 0, read_header(batch))


def test_partition_is_read_as_bytes_and_as_text() -> None:
    batch = BATCHES["single"]

    assert partition_name(batch, 0, read_header(batch)) == b"order.created"
    assert Batch(batch).partition == "order.created"


def test_partition_that_is_not_utf8_is_corrupt() -> None:
    batch = build_batch(replace(origin(), partition=b"\xed\xa0\x80"), Content([b""]))

    with pytest.raises(CorruptBatch, match="UTF-8"):
        _ = Batch(batch).partition


def test_flags_of_a_newer_producer_are_kept() -> None:
    assert Batch(changed(46, "H", 0x8001)).flags == Flags(0x8001)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_batch_id_of_another_length_is_a_mistake_of_the_caller(size: int) -> None:
    with pytest.raises(AssertionError):
        encode_batch(replace(origin(), batch_id=bytes(size)), 1, 0, ())


def test_batch_beyond_its_limit_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        build_batch(origin(), Content([bytes(limits.BATCH_BYTES_MAX)]))


def test_alignment_is_to_the_next_eight() -> None:
    assert [aligned(size) for size in (0, 1, 8, 9)] == [0, 8, 8, 16]


def test_message_id_is_text_that_can_be_parsed() -> None:
    last = limits.BATCH_MESSAGES_MAX - 1

    assert message_id(ID, 3) == "000102030405060708090a0b0c0d0e0f-3"
    assert parse_message_id(message_id(ID, last)) == (ID, last)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "00-1",
        "0" * 32,
        "0" * 32 + "-",
        "0" * 32 + "-x",
        "0" * 32 + "--1",
        "0" * 32 + "-1 ",
        "0" * 32 + "-\u0661",
        "g" * 32 + "-1",
        "00 " * 10 + "00-1",
        " " * 32 + "-1",
        "0" * 32 + f"-{limits.BATCH_MESSAGES_MAX}",
        "0" * 32 + "-" + "9" * 5000,
    ],
)
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no message id"):
        parse_message_id(text)


def test_batch_ids_grow_although_the_clock_goes_back() -> None:
    ids = BatchIds(2**64 - 1)
    made = [ids.next(now_ms) for now_ms in (1000, 1000, 999, -5, 1001)]

    assert made == sorted(set(made))
    assert {len(made_id) for made_id in made} == {16}
    assert made[0][:8] == (1000 << 16).to_bytes(8, "big")
