"""Rows and runs: a sequence finds its batch, in memory, in a run's directory, and in a window of its rows."""

from __future__ import annotations

import pytest

from tidemill_journal.entries import (
    ROW_BYTES,
    WINDOW_ROWS,
    Rows,
    decode_directory,
    directory_size,
    encode_run,
    layout_runs,
    pack_size,
    read_windows,
    row_count,
    row_length,
    run_file,
)
from tidemill_journal.errors import CorruptRecord

AT_MS = 1_780_000_000_000
Parts = list[tuple[int, Rows]]


def rows_of(*spans: tuple[int, int], base: int = 0) -> Rows:
    """A row for each (first sequence, count), back to back in the log."""
    rows = Rows()
    for index, (first, count) in enumerate(spans):
        rows.append(first, base + 128 * index, pack_size(128, count, 5), AT_MS + index)
    return rows


def singles(count: int, first: int = 0) -> Rows:
    return rows_of(*((first + index, 1) for index in range(count)))


def read_directory(data: bytes, base: int = 4096):
    return decode_directory(data[: directory_size(data[:16])], data[-8:], len(data), base)


def test_size_column_holds_length_count_and_flags() -> None:
    size = pack_size(2**32 - 1, 2**24 - 1, 255)

    assert size == 2**64 - 1
    assert (row_length(size), row_count(size)) == (2**32 - 1, 2**24 - 1)
    assert (row_length(pack_size(128, 7, 255)), row_count(pack_size(128, 7, 255))) == (128, 7)


@pytest.mark.parametrize(
    "sequence, index", [(0, 0), (4, 0), (5, 0), (9, 0), (10, 1), (11, 2), (19, 2), (20, 2), (29, 2), (30, 3)]
)
def test_row_of_a_sequence_is_found_or_the_one_after_a_gap(sequence: int, index: int) -> None:
    """The rows hold 5 to 9, 10, and 20 to 29."""
    assert rows_of((5, 5), (10, 1), (20, 10)).find(sequence) == index


def test_no_rows_hold_no_sequence() -> None:
    assert Rows().find(17) == 0
    assert len(Rows.from_bytes(b"")) == 0


def test_rows_are_read_as_they_were_written() -> None:
    rows = rows_of((5, 5), (10, 1), (2**63, 10))
    rows.stamps[1] = -1
    again = Rows.from_bytes(rows.to_bytes())

    assert len(rows.to_bytes()) == 3 * ROW_BYTES
    assert (again.firsts, again.positions, again.sizes, again.stamps) == (
        rows.firsts,
        rows.positions,
        rows.sizes,
        rows.stamps,
    )
    assert again.end_sequence == 2**63 + 10


PARTS: Parts = [(3, rows_of((5, 5), (10, 1))), (1, singles(2500)), (70_000, singles(1, 9))]


def test_directory_says_what_layout_said_before_the_file_was_there() -> None:
    data = encode_run(PARTS)

    assert read_directory(data) == layout_runs(PARTS, 4096)
    run = read_directory(data)[3]
    assert (run.base, run.rows, run.first_sequence, run.end_sequence) == (4096, 2, 5, 11)
    assert (run.size, run.last_stored_at_ms) == (256, AT_MS + 1)


def test_windows_of_a_run_hold_all_its_rows() -> None:
    data = encode_run(PARTS)
    for identity, rows in PARTS:
        run = read_directory(data)[identity]
        windows = [run.window_place(window) for window in range(len(run.sparse))]
        read = [read_windows(data[place : place + size]) for place, size in windows]
        assert b"".join(window.to_bytes() for window in read) == rows.to_bytes()
        place, size = run.window_place(0, len(windows))
        assert read_windows(data[place : place + size]).to_bytes() == rows.to_bytes()


def test_rows_with_any_bit_wrong_are_refused() -> None:
    data = bytearray(encode_run([(1, singles(3)), (2, singles(1030))]))
    for identity, window, bits in ((1, 0, range(8 * 128)), (2, 0, (0, 99_999)), (2, 1, range(320, 2000, 99))):
        place, size = read_directory(bytes(data))[identity].window_place(window)
        whole = data[place : place + size]
        assert len(read_windows(whole)) in (3, 1024, 6)
        for bit in bits:
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(CorruptRecord):
                read_windows(damaged)
        for cut in (whole[:-1], whole[8:], whole + b"x"):
            with pytest.raises(CorruptRecord):
                read_windows(cut)


@pytest.mark.parametrize("sequence", [0, 1, 1023, 1024, 2047, 2048, 2499])
def test_window_of_a_sequence_has_its_row(sequence: int) -> None:
    data = encode_run(PARTS)
    run = read_directory(data)[1]
    place, size = run.window_place(run.window(sequence))
    rows = read_windows(data[place : place + size])

    assert rows.firsts[rows.find(sequence)] == sequence
    assert rows.firsts[0] == sequence // WINDOW_ROWS * WINDOW_ROWS


def test_sequence_before_the_run_is_looked_for_in_its_first_window() -> None:
    assert read_directory(encode_run([(1, singles(3, 100))]))[1].window(5) == 0


@pytest.mark.parametrize("count", [1, WINDOW_ROWS - 1, WINDOW_ROWS, WINDOW_ROWS + 1, 2 * WINDOW_ROWS])
def test_directory_is_read_whole_by_its_size(count: int) -> None:
    parts: Parts = [(index, singles(count)) for index in range(1, 4)]

    assert read_directory(encode_run(parts)) == layout_runs(parts, 4096)


def test_run_without_partitions_can_be_read() -> None:
    assert read_directory(encode_run([])) == {}


def test_directory_with_any_bit_wrong_is_refused() -> None:
    data = encode_run([(1, singles(2))])
    directory = 16 + 48 + 8
    for bit in (*range(8 * directory), *range(8 * (len(data) - 8), 8 * (len(data) - 4))):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecord):
            read_directory(bytes(damaged))


def test_run_that_is_cut_or_longer_than_it_says_is_refused() -> None:
    data = encode_run([(1, singles(2))])
    for other in (*(data[:size] for size in range(len(data))), data + bytes(8)):
        with pytest.raises(CorruptRecord):
            read_directory(other)


def test_run_has_the_name_of_its_segment() -> None:
    assert run_file(4096) == "consume/00000000000000004096.run"
