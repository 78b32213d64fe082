"""For all values: rows are found as a linear search finds them, and runs and records are read as they were written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill_journal.entries import (
    Rows,
    decode_directory,
    directory_size,
    encode_run,
    layout_runs,
    pack_size,
    read_windows,
)
from tidemill_journal.errors import CorruptRecord
from tidemill_journal.records import decode_record, encode_record

SPANS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(0, 1 << 40)), max_size=40)


def rows_of(spans: list[tuple[int, int, int]]) -> Rows:
    """Rows of (gap before it, messages, stored at)."""
    rows, following = Rows(), 0
    for index, (gap, count, stored) in enumerate(spans):
        rows.append(following + gap, 64 * index, pack_size(64 + index, count, index & 255), stored)
        following += gap + count
    return rows


def searched(spans: list[tuple[int, int, int]], sequence: int) -> int:
    following = 0
    for index, (gap, count, _) in enumerate(spans):
        following += gap + count
        if sequence < following:
            return index
    return len(spans)


@given(SPANS, st.integers(0, 600))
def test_rows_are_found_as_a_linear_search_finds_them(
    spans: list[tuple[int, int, int]], sequence: int
) -> None:
    assert rows_of(spans).find(sequence) == searched(spans, sequence)


@given(st.dictionaries(st.integers(1, 1 << 32).map(lambda n: n - 1), SPANS.filter(bool), max_size=6))
def test_runs_are_read_as_they_were_written(parts: dict[int, list[tuple[int, int, int]]]) -> None:
    made = [(identity, rows_of(spans)) for identity, spans in parts.items()]
    data = encode_run(made)
    runs = decode_directory(data[: directory_size(data[:16])], data[-8:], len(data), 4096)

    assert runs == layout_runs(made, 4096)
    for identity, rows in made:
        place, size = runs[identity].window_place(0)
        again = read_windows(data[place : place + size])
        assert again.to_bytes() == rows.to_bytes()
        assert runs[identity].end_sequence == rows.end_sequence


@given(st.binary(max_size=300), st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1), st.data())
def test_records_are_read_as_they_were_written_or_refused(
    body: bytes, position: int, at_ms: int, data: st.DataObject
) -> None:
    record = encode_record(255, body, position, at_ms, 2**32 - 1)
    assert decode_record(record, 0, position)[1:] == (position, at_ms, 2**32 - 1, 255, body)

    damaged = bytearray(record)
    damaged[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode_record(bytes(damaged), 0, position)
    except CorruptRecord:
        return
    raise AssertionError("a damaged record was believed")
