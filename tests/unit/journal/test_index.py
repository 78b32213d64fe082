"""Index files: every place of a hash is found, in few reads; what is not whole is named and never believed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tidemill_journal.errors import CorruptIndex, CorruptRecord
from tidemill_journal.index import (
    PAGE_BYTES,
    PAGE_ENTRIES,
    ReadAt,
    SealedIndex,
    decode_head,
    encode_index,
    index_file,
)

BASE, END = 1024, 1 << 40
Pairs = list[tuple[int, int]]


def check_pages(read: ReadAt, index: SealedIndex) -> None:
    """Every page of an index, or ``CorruptIndex`` names the first bad one."""
    for table in (index.ids, index.keys):
        for number in range(table.pages):
            table.page(read, number)


def encoded(keys: Pairs, ids: Pairs | None = None) -> bytes:
    tables = []
    for pairs in (ids or [], keys):
        columns = np.array(pairs, np.uint64).reshape(-1, 2)
        tables.append((columns[:, 0].copy(), columns[:, 1].copy()))
    return bytes(encode_index(BASE, END, tables[0], tables[1]))


class Counting:
    """Reads bytes, and counts how often."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    def __call__(self, position: int, size: int) -> bytes:
        self.reads += 1
        return self.data[position : position + size]


def opened(data: bytes) -> tuple[SealedIndex, Counting]:
    read = Counting(data)
    index = decode_head(read, len(data), BASE, END)
    read.reads = 0
    return index, read


def test_an_index_is_named_as_its_segment() -> None:
    assert index_file(4096) == "index/00000000000000004096.index"


def test_an_empty_index_finds_nothing_and_reads_nothing() -> None:
    index, read = opened(encoded([]))
    assert list(index.keys.upward(read, 7)) == list(index.keys.downward(read, 7)) == []
    assert not index.keys.may_hold(7)
    assert read.reads == 0


def test_one_entry_is_found_and_its_neighbours_are_not() -> None:
    index, read = opened(encoded([(7, 2000)]))
    assert list(index.keys.upward(read, 7)) == list(index.keys.downward(read, 7)) == [2000]
    for other in (0, 6, 8, (1 << 64) - 1):
        assert list(index.keys.upward(read, other)) == list(index.keys.downward(read, other)) == []
    assert [index.keys.may_hold(value) for value in (6, 7, 8)] == [False, True, False]


def test_pairs_come_in_any_order_and_equal_ones_become_one() -> None:
    index, read = opened(encoded([(9, 8), (5, 40), (5, 16), (9, 8), (5, 40)]))
    assert list(index.keys.upward(read, 5)) == [16, 40]
    assert list(index.keys.downward(read, 5)) == [40, 16]
    assert list(index.keys.upward(read, 9)) == [8]


@pytest.mark.parametrize("count", [1, PAGE_ENTRIES - 1, PAGE_ENTRIES, PAGE_ENTRIES + 1, 70 * PAGE_ENTRIES])
def test_all_places_of_one_hash_are_found_over_pages(count: int) -> None:
    """A row of equal hashes that begins and ends anywhere, longer than what is between two fences."""
    places = [8 * number for number in range(count)]
    pairs = [(3, 0)] * 1 + [(2, 8 * number) for number in range(100)] + [(5, place) for place in places]
    index, read = opened(encoded([*pairs, *((6 + number, 0) for number in range(300))]))
    assert list(index.keys.upward(read, 5)) == places
    assert list(index.keys.downward(read, 5)) == places[::-1]


def test_a_search_begins_in_the_middle_of_a_row() -> None:
    places = [8 * number for number in range(3 * PAGE_ENTRIES)]
    index, read = opened(encoded([(5, place) for place in places]))
    for at in (0, 1, 254, 255, 256, 700):
        assert list(index.keys.upward(read, 5, places[at])) == places[at:]
        assert list(index.keys.downward(read, 5, places[at])) == places[:at][::-1]
    assert list(index.keys.upward(read, 5, places[-1] + 1)) == []
    assert next(index.keys.downward(read, 5)) == places[-1]


def test_ids_and_keys_are_apart() -> None:
    index, read = opened(encoded([(5, 8)], [(5, 16), (6, 24)]))
    assert list(index.ids.upward(read, 5)) == [16]
    assert list(index.keys.upward(read, 5)) == [8]
    assert list(index.keys.upward(read, 6)) == []


def spread(count: int) -> Pairs:
    """Hashes without a pattern, the same in every run."""
    return [((number * 0x9E3779B97F4A7C15) & (1 << 64) - 1, 8 * number) for number in range(count)]


def test_evenly_spread_hashes_take_one_read_or_two() -> None:
    pairs = spread(200_000)
    index, read = opened(encoded(pairs))
    asked = pairs[::997]
    for value, place in asked:
        assert list(index.keys.upward(read, value)) == [place]
    assert read.reads < 1.3 * len(asked)


def test_the_worst_spread_takes_few_reads() -> None:
    """All hashes close together, but for two at the ends: every guess by proportion is wrong."""
    pairs = [
        (0, 0),
        *((1 << 40 | number, 8 * number) for number in range(60 * PAGE_ENTRIES)),
        ((1 << 64) - 1, 0),
    ]
    index, read = opened(encoded(pairs))
    for value, place in pairs[1:-1:499]:
        read.reads = 0
        assert list(index.keys.upward(read, value)) == [place]
        assert read.reads <= 10


def changed(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def found_in(data: bytes, pairs: Pairs) -> list[list[int]]:
    index, read = opened(data)
    return [list(index.keys.upward(read, value)) for value, _ in pairs]


def test_no_changed_byte_gives_another_answer() -> None:
    pairs = spread(600)
    data = encoded(pairs, [(1, 8)])
    good = found_in(data, pairs)
    for place in [*range(120), *range(4096, len(data), 131), len(data) - 1]:
        try:
            found = found_in(changed(data, place), pairs)
        except (CorruptRecord, CorruptIndex):
            continue
        assert found == good


@pytest.mark.parametrize("place", [PAGE_BYTES, PAGE_BYTES + 2040, 2 * PAGE_BYTES - 1])
def test_a_damaged_page_is_refused_with_the_name_of_its_file(place: int) -> None:
    index, read = opened(changed(encoded([(5, 8)]), place))
    with pytest.raises(CorruptIndex, match=index_file(BASE)):
        list(index.keys.upward(read, 5))
    with pytest.raises(CorruptIndex):
        check_pages(read, index)


def test_pages_that_changed_places_are_refused() -> None:
    data = encoded(spread(600))
    first, second = slice(PAGE_BYTES, 2 * PAGE_BYTES), slice(2 * PAGE_BYTES, 3 * PAGE_BYTES)
    index, read = opened(data[:PAGE_BYTES] + data[second] + data[first] + data[3 * PAGE_BYTES :])
    with pytest.raises(CorruptIndex):
        check_pages(read, index)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:30],
        lambda data: data[:-1],
        lambda data: data + bytes(PAGE_BYTES),
        lambda data: b"TMRN" + data[4:],
        lambda data: changed(data, 24),
        lambda data: changed(data, 30),  # terabytes of ids
        lambda data: changed(data, 41),
    ],
)
def test_a_head_that_is_not_whole_is_no_index(spoil: Callable[[bytes], bytes]) -> None:
    data = spoil(encoded(spread(600), [(1, 8)]))
    with pytest.raises(CorruptRecord):
        decode_head(Counting(data), len(data), BASE, END)


def test_an_index_of_another_segment_is_no_index() -> None:
    data = encoded([(5, 8)])
    for base, end in ((BASE + 8, END), (BASE, END - 8)):
        with pytest.raises(CorruptRecord):
            decode_head(Counting(data), len(data), base, end)
