"""The index of a sealed segment: two sorted tables of (hash, place) pairs in one file, read a page or two at a time.

    head   magic "TMIX", version u32, base u64, end u64, ids u64, keys u64          the segment, entries of each table
           fences: hash u64, place u64 of the first entry of every 64th page and of the last entry, table after table
           crc32c u32 of all before it, zero u32, zeros up to a multiple of 4,096
    pages  4,096 bytes each, the ids', then the keys': 255 hashes u64, 255 places u64, then number of the page in the
           file u32, entries u32, zero u32, crc32c u32 of the 4,092 bytes before it

Hashes are spread evenly, more or less. The fences, which are in memory, tell the 64 pages in which an entry must be;
where among them is guessed by proportion, and two pages are read around the guess. A guess that misses narrows the
bounds and is made again; the third miss halves them instead, so a table whose hashes are not even at all costs six
reads. Entries are sorted by hash and place, so all places of one hash lie in a row, however many there are, and a
search can begin in the middle of them.

What a page says is believed only with its sum, so a damaged index is named (``CorruptIndex``) and never wrong.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from tidemill_journal.errors import CorruptIndex, CorruptRecord

FOLDER = "index"
SUFFIX = ".index"
MAGIC = b"TMIX"
VERSION = 1
PAGE_BYTES = 4096
PAGE_ENTRIES = 255
FENCE_PAGES = 64
WINDOW_PAGES = 2
GUESSES_MAX = 3
ENTRIES_MAX = 1 << 32
PLACE_END = 1 << 64
_HEAD = struct.Struct("<4sIQQQQ")
_FENCE_BYTES = 16
_HEAD_TAIL = struct.Struct("<II")
_PAGE_TAIL = struct.Struct("<IIII")
_CRC_AT = PAGE_BYTES - 4
_PLACES_AT = 8 * PAGE_ENTRIES
_TAIL_AT = 16 * PAGE_ENTRIES

Numbers = npt.NDArray[np.uint64]
ReadAt = Callable[[int, int], bytes]
Target = tuple[int, int]
"""A hash and a place: what entries are sorted by."""

assert _TAIL_AT + _PAGE_TAIL.size == PAGE_BYTES


def index_file(base: int) -> str:
    """The index of the message segment that begins at ``base``."""
    return f"{FOLDER}/{base:020}{SUFFIX}"


# -- writing -----------------------------------------------------------------------------------------------------


def encode_index(
    base: int, end: int, ids: tuple[Numbers, Numbers], keys: tuple[Numbers, Numbers]
) -> bytearray:
    """A file's bytes from the hashes and places of each table, in any order; pairs that are equal become one."""
    tables = [_sorted(*ids), _sorted(*keys)]
    counts = [len(hashes) for hashes, _ in tables]
    size, pages_at = _sizes(*counts)
    data = bytearray(size)
    _HEAD.pack_into(data, 0, MAGIC, VERSION, base, end, *counts)
    fences = np.concatenate([_fences_of(*table) for table in tables])
    place = _HEAD.size + len(fences) * _FENCE_BYTES
    data[_HEAD.size : place] = fences.astype("<u8").tobytes()
    with memoryview(data) as view:
        _HEAD_TAIL.pack_into(data, place, crc32c(view[:place]), 0)
        number = pages_at // PAGE_BYTES
        for hashes, places in tables:
            number = _put_pages(view, number, hashes, places)
    return data


def _sorted(hashes: Numbers, places: Numbers) -> tuple[Numbers, Numbers]:
    order = np.lexsort((places, hashes)) if _falls(places) else np.argsort(hashes, kind="stable")
    hashes, places = hashes[order], places[order]
    fresh = np.ones(len(hashes), bool)
    fresh[1:] = (hashes[1:] != hashes[:-1]) | (places[1:] != places[:-1])
    return (hashes, places) if fresh.all() else (hashes[fresh], places[fresh])


def _fences_of(hashes: Numbers, places: Numbers) -> Numbers:
    step = PAGE_ENTRIES * FENCE_PAGES
    return np.stack([np.concatenate((column[::step], column[-1:])) for column in (hashes, places)], axis=1)


def _falls(places: Numbers) -> bool:
    """Places come as they were appended, growing; then a stable sort by hash alone is enough, and takes half."""
    return bool((places[1:] < places[:-1]).any())


def _put_pages(view: memoryview, number: int, hashes: Numbers, places: Numbers) -> int:
    """Pages from ``number`` on; the number behind the last of them."""
    count = len(hashes)
    pages = _pages(count)
    table = np.frombuffer(view, "<u8", pages * PAGE_BYTES // 8, number * PAGE_BYTES)
    table = table.reshape(pages, PAGE_BYTES // 8)
    whole = count // PAGE_ENTRIES
    for column, at in ((hashes, 0), (places, PAGE_ENTRIES)):
        table[:whole, at : at + PAGE_ENTRIES] = column[: whole * PAGE_ENTRIES].reshape(whole, PAGE_ENTRIES)
        if whole < pages:
            table[whole, at : at + count - whole * PAGE_ENTRIES] = column[whole * PAGE_ENTRIES :]
    for page in range(pages):
        start = (number + page) * PAGE_BYTES
        entries = min(PAGE_ENTRIES, count - page * PAGE_ENTRIES)
        _PAGE_TAIL.pack_into(view, start + _TAIL_AT, number + page, entries, 0, 0)
        struct.pack_into("<I", view, start + _CRC_AT, crc32c(view[start : start + _CRC_AT]))
    return number + pages


def _pages(entries: int) -> int:
    return -(-entries // PAGE_ENTRIES)


def _fences(entries: int) -> int:
    return -(-entries // (PAGE_ENTRIES * FENCE_PAGES)) + (entries > 0)


def _sizes(ids: int, keys: int) -> tuple[int, int]:
    """A file's size, and where its pages begin."""
    head = _HEAD.size + _FENCE_BYTES * (_fences(ids) + _fences(keys)) + _HEAD_TAIL.size
    pages_at = -(-head // PAGE_BYTES) * PAGE_BYTES
    return pages_at + PAGE_BYTES * (_pages(ids) + _pages(keys)), pages_at


# -- reading -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SealedIndex:
    """What of an index is in memory: where its tables are, and their fences."""

    base: int
    end: int
    ids: Table
    keys: Table


def decode_head(read: ReadAt, size: int, base: int, end: int) -> SealedIndex:
    """The index of the segment from ``base`` to ``end``, ``CorruptRecord`` when the file's head is not whole."""
    fixed = read(0, _HEAD.size)
    if len(fixed) < _HEAD.size:
        raise CorruptRecord("an index that is too short")
    magic, version, own_base, own_end, ids, keys = _HEAD.unpack(fixed)
    if magic != MAGIC or version != VERSION or (own_base, own_end) != (base, end):
        raise CorruptRecord("an index of another segment or version, or no index")
    # The sizes first: a damaged head may announce terabytes.
    if max(ids, keys) >= ENTRIES_MAX or _sizes(ids, keys)[0] != size:
        raise CorruptRecord("an index of another size than its entries have")
    fenced = _HEAD.size + _FENCE_BYTES * (_fences(ids) + _fences(keys))
    data = read(0, fenced + _HEAD_TAIL.size)
    if (
        len(data) < fenced + _HEAD_TAIL.size
        or crc32c(data[:fenced]) != _HEAD_TAIL.unpack_from(data, fenced)[0]
    ):
        raise CorruptRecord("the head of an index is damaged")
    pairs = np.frombuffer(data, "<u8", (fenced - _HEAD.size) // 8, _HEAD.size).reshape(-1, 2).tolist()
    fences = [(int(pair[0]), int(pair[1])) for pair in pairs]
    first = _sizes(ids, keys)[1] // PAGE_BYTES
    file, middle = index_file(base), _fences(ids)
    return SealedIndex(
        base,
        end,
        Table(file, first, _pages(ids), fences[:middle]),
        Table(file, first + _pages(ids), _pages(keys), fences[middle:]),
    )


@dataclass(frozen=True, slots=True)
class Page:
    """A page's entries."""

    number: int
    hashes: memoryview
    places: memoryview

    def lower_bound(self, target: Target) -> int:
        """How many entries are below the target."""
        left = bisect_left(self.hashes, target[0])
        return bisect_left(self.places, target[1], left, bisect_right(self.hashes, target[0], left))

    @property
    def first(self) -> Target:
        return self.hashes[0], self.places[0]

    @property
    def last(self) -> Target:
        return self.hashes[-1], self.places[-1]


class Table:
    """Sorted entries on pages. ``upward`` and ``downward`` give the places of a hash."""

    __slots__ = ("_fences", "_file", "_first", "pages")

    def __init__(self, file: str, first: int, pages: int, fences: list[Target]) -> None:
        self._file = file
        self._first = first
        self._fences = fences
        self.pages = pages

    def upward(self, read: ReadAt, value: int, place: int = 0) -> Iterator[int]:
        """The places of a hash from ``place`` on, in their order."""
        found = self._page_of(read, (value, place))
        while found is not None:
            for index in range(found.lower_bound((value, place)), len(found.hashes)):
                if found.hashes[index] != value:
                    return
                yield found.places[index]
            found = self.page(read, found.number + 1)

    def downward(self, read: ReadAt, value: int, place: int = PLACE_END) -> Iterator[int]:
        """The places of a hash below ``place``, the last one first."""
        found = self._page_of(read, (value, place))
        while found is not None:
            for index in range(found.lower_bound((value, place)) - 1, -1, -1):
                if found.hashes[index] != value:
                    return
                yield found.places[index]
            found = self.page(read, found.number - 1)

    def may_hold(self, value: int) -> bool:
        """Whether the hash is between the first entry and the last. Costs no read."""
        return bool(self._fences) and self._fences[0][0] <= value <= self._fences[-1][0]

    def page(self, read: ReadAt, number: int) -> Page | None:
        """A page by its number within the table; ``None`` before the first and behind the last."""
        return self._window(read, number, 1)[0] if 0 <= number < self.pages else None

    def _page_of(self, read: ReadAt, target: Target) -> Page | None:
        """The page in which the target is, or would be; ``None`` in an empty table."""
        if not self.pages:
            return None
        fence = min(max(0, bisect_right(self._fences, target) - 1), len(self._fences) - 2)
        low, high = fence * FENCE_PAGES, min(self.pages, (fence + 1) * FENCE_PAGES)
        below, above = self._fences[fence][0], self._fences[fence + 1][0]
        for attempt in range(FENCE_PAGES):
            share = (target[0] - below) / (above - below) if attempt < GUESSES_MAX and above > below else 0.5
            guess = low + int(min(1.0, max(0.0, share)) * (high - low)) - WINDOW_PAGES // 2
            start = max(low, min(guess, high - WINDOW_PAGES))
            window = self._window(read, start, min(WINDOW_PAGES, high - start))
            if target < window[0].first and start > low:
                high, above = start, window[0].hashes[0]
            elif target > window[-1].last and start + len(window) < high:
                low, below = start + len(window), window[-1].hashes[-1]
            else:
                return next((page for page in window if target <= page.last), window[-1])
        raise CorruptIndex(self._file, "its entries are not in their order")

    def _window(self, read: ReadAt, start: int, count: int) -> list[Page]:
        data = memoryview(read((self._first + start) * PAGE_BYTES, count * PAGE_BYTES))
        if len(data) < count * PAGE_BYTES:
            raise CorruptIndex(self._file, "it ends too early")
        return [self._parse(data[at * PAGE_BYTES :][:PAGE_BYTES], start + at) for at in range(count)]

    def _parse(self, data: memoryview, number: int) -> Page:
        own, entries, _, crc = _PAGE_TAIL.unpack_from(data, _TAIL_AT)
        if crc32c(data[:_CRC_AT]) != crc or own != self._first + number or not 0 < entries <= PAGE_ENTRIES:
            raise CorruptIndex(self._file, f"page {self._first + number} of it is damaged")
        hashes, places = data[: 8 * entries], data[_PLACES_AT : _PLACES_AT + 8 * entries]
        return Page(number, hashes.cast("Q"), places.cast("Q"))
