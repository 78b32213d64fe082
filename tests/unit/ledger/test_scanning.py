"""Scanning: all that is good, up to the first byte that is not, and why; whatever the size of a read."""

from __future__ import annotations

import pytest

from samples.brokers import batch_of
from tidemill_journal.errors import CorruptRecord
from tidemill_journal.records import encode_record
from tidemill_ledger.scanning import WINDOW_BYTES, BatchScanner, RecordScanner
from tidemill_wire.batch import read_header, stamp
from tidemill_wire.errors import CorruptBatch

BASE = 4096


def segment(*sizes: int) -> bytes:
    """Stamped batches with bodies of these sizes."""
    data = bytearray()
    for index, size in enumerate(sizes):
        batch = batch_of(b"x" * size, sequence=index)
        stamp(batch, 0, len(batch), index, BASE + len(data), 7, 1)
        data += batch
    return bytes(data)


def records(*sizes: int) -> bytes:
    data = b""
    for size in sizes:
        data += encode_record(17, bytes(size), BASE + len(data), 7, 1)
    return data


def batches_of(data: bytes, checked_from: int = 0, end: int | None = None) -> tuple[list[int], int, str]:
    """Sequences of the batches, where the scanner stopped, and why."""
    stop = BASE + (len(data) if end is None else end)
    scanner = BatchScanner(lambda position, size: data[position : position + size], BASE, stop, checked_from)
    found: list[int] = []
    try:
        found.extend(header.first_sequence for header, name in scanner if name)
    except CorruptBatch as error:
        return found, scanner.position, str(error)
    return found, scanner.position, ""


def test_every_batch_of_a_segment_is_found() -> None:
    sizes = (0, 10, WINDOW_BYTES - 200, 3 * WINDOW_BYTES, 1, 1)
    data = segment(*sizes)

    assert batches_of(data) == ([0, 1, 2, 3, 4, 5], BASE + len(data), "")


def test_batches_are_found_up_to_a_cut_at_any_byte() -> None:
    data = segment(10, 20)
    first = read_header(data).length
    for cut in range(1, len(data)):
        found, position, reason = batches_of(data[:cut])
        assert found == ([0] if cut >= first else [])
        assert position == BASE + (first if cut >= first else 0)
        assert bool(reason) == (cut != first)


def test_file_that_is_shorter_than_its_listing_ends_in_a_bad_batch() -> None:
    data = segment(10, 20)

    assert batches_of(data[:-8], end=len(data))[0] == [0]


def test_batch_of_another_place_is_not_believed() -> None:
    data = segment(10, 10)
    half = len(data) // 2

    found, _, reason = batches_of(data[:half] * 2)
    assert (found, reason) == ([0], f"the batch says it stands at {BASE}")


def test_bodies_are_checked_from_a_position_on() -> None:
    data = bytearray(segment(10, 10))
    data[150] ^= 1

    assert batches_of(bytes(data), checked_from=BASE + 1)[0] == [0, 1]
    assert batches_of(bytes(data), checked_from=BASE)[0] == []


def test_every_record_is_found_from_any_of_them_on() -> None:
    data = records(0, 5, WINDOW_BYTES, 3 * WINDOW_BYTES, 8)
    read = lambda position, size: data[position : position + size]  # noqa: E731
    whole = list(RecordScanner(read, BASE, BASE + len(data), BASE))

    assert [len(record.body) for record in whole] == [0, 5, WINDOW_BYTES, 3 * WINDOW_BYTES, 8]
    assert list(RecordScanner(read, BASE, BASE + len(data), whole[2].position)) == whole[2:]


def test_records_are_found_up_to_a_cut_at_any_byte() -> None:
    data = records(3, 9)
    for cut in range(1, len(data)):
        scanner = RecordScanner(lambda at, size, cut=cut: data[:cut][at : at + size], BASE, BASE + cut, BASE)
        found: list[int] = []
        if cut == 40:
            assert len(list(scanner)) == 1
            continue
        with pytest.raises(CorruptRecord):
            found.extend(record.position for record in scanner)
        assert found == ([BASE] if cut > 40 else [])
        assert scanner.position == BASE + (40 if cut > 40 else 0)


def test_zeros_are_neither_batch_nor_record() -> None:
    data = bytes(8192)

    assert batches_of(data)[:2] == ([], BASE)
    with pytest.raises(CorruptRecord):
        list(RecordScanner(lambda at, size: data[at : at + size], BASE, BASE + 8192, BASE))
