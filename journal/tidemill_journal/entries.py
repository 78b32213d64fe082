"""Fixed-width entries: the consume log's rows, in memory while their segment is open, in a run file when it is sealed.

A row is 40 bytes: first sequence u64, position u64, length u32 | count << 32 | flags << 56 (u64), stored at i64, and
the batch's tag bloom word u64, by which a filter passes over batches that it need not read.
A run file holds the rows of one sealed segment, partition after partition:

    magic "TMRN", version u32, partitions u32, rows u32
    a 48-byte entry a partition: id u32, rows u32, first row u32, zero u32, first sequence u64, end sequence u64,
                                 bytes u64, last stored at i64
    the first sequence of every 1,024th row, partition after partition, u64
    the rows of each partition in windows of 1,024, the last one shorter; behind each window its crc32c u32, zero u32
    crc32c u32 of all before the rows, zero u32, at the very end

So opening a run reads its directory only, and finding a row of it reads one window and proves it.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from tidemill_journal.errors import CorruptRecord

ROW_BYTES = 40
WINDOW_ROWS = 1024
RUN_MAGIC = b"TMRN"
RUN_VERSION = 3
_LENGTH, _COUNT = 0xFFFF_FFFF, 0xFF_FFFF
_HEAD = struct.Struct("<4sIII")
_ENTRY = struct.Struct("<IIIIQQQq")
_SUM = struct.Struct("<II")
_WINDOW_BYTES = WINDOW_ROWS * ROW_BYTES + _SUM.size


class Rows:
    """Consecutive rows of one partition, as five columns: appending one is five C calls, bisecting is one."""

    __slots__ = ("blooms", "firsts", "positions", "sizes", "stamps")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.positions = array("Q")
        self.sizes = array("Q")
        self.stamps = array("q")
        self.blooms = array("Q")

    def __len__(self) -> int:
        return len(self.firsts)

    def append(self, first: int, position: int, size: int, stored_at_ms: int, bloom: int = 0) -> None:
        self.firsts.append(first)
        self.positions.append(position)
        self.sizes.append(size)
        self.stamps.append(stored_at_ms)
        self.blooms.append(bloom)

    def find(self, sequence: int) -> int:
        """The index of the row that holds a sequence, or of the first row after it."""
        index = bisect_right(self.firsts, sequence) - 1
        if index < 0:
            return 0
        return index if sequence < self.firsts[index] + row_count(self.sizes[index]) else index + 1

    @property
    def end_sequence(self) -> int:
        return self.firsts[-1] + row_count(self.sizes[-1])

    def lengths(self) -> npt.NDArray[np.int64]:
        """The bytes of each row's batch. A copy, as ``ends`` is: rows that somebody looks at cannot grow."""
        return (np.frombuffer(self.sizes, "<u8") & _LENGTH).astype(np.int64)

    def ends(self) -> npt.NDArray[np.int64]:
        """The sequence behind each row."""
        counts = np.frombuffer(self.sizes, "<u8") >> 32 & _COUNT
        return np.frombuffer(self.firsts, "<u8").astype(np.int64) + counts.astype(np.int64)

    def to_bytes(self) -> bytes:
        """The rows as they lie in a run."""
        stamps = np.frombuffer(self.stamps, "<i8").view("<u8")
        columns = (self.firsts, self.positions, self.sizes, stamps, self.blooms)
        return np.stack([np.frombuffer(column, "<u8") for column in columns], axis=1).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Rows:
        """Rows read out of a run."""
        table = np.frombuffer(data, "<u8").reshape(-1, 5)
        rows = cls()
        rows.firsts = array("Q", np.ascontiguousarray(table[:, 0]).tobytes())
        rows.positions = array("Q", np.ascontiguousarray(table[:, 1]).tobytes())
        rows.sizes = array("Q", np.ascontiguousarray(table[:, 2]).tobytes())
        rows.stamps = array("q", np.ascontiguousarray(table[:, 3]).tobytes())
        rows.blooms = array("Q", np.ascontiguousarray(table[:, 4]).tobytes())
        return rows


def pack_size(length: int, count: int, flags: int = 0) -> int:
    """A row's third column."""
    return length | count << 32 | flags << 56


def row_length(size: int) -> int:
    return size & _LENGTH


def row_count(size: int) -> int:
    return size >> 32 & _COUNT


@dataclass(slots=True)
class Run:
    """What a directory says of one partition in one sealed segment. ``sparse`` finds the window of a sequence."""

    base: int
    rows: int
    place: int
    first_sequence: int
    end_sequence: int
    size: int
    last_stored_at_ms: int
    sparse: array[int]

    def window(self, sequence: int) -> int:
        """The number of the window that holds a sequence (or the rows after it)."""
        return max(0, bisect_right(self.sparse, sequence) - 1)

    def window_place(self, window: int, windows: int = 1) -> tuple[int, int]:
        """Position and size of one window, or of several, in the run's file; ``read_windows`` takes the bytes."""
        rows = min(self.rows - window * WINDOW_ROWS, windows * WINDOW_ROWS)
        return self.place + window * _WINDOW_BYTES, _windows_size(rows)


def _windows_size(rows: int) -> int:
    return rows * ROW_BYTES + -(-rows // WINDOW_ROWS) * _SUM.size


def _windows_of(rows: Rows) -> bytes:
    """Rows as they lie in a run, a sum behind each window."""
    data = rows.to_bytes()
    step = WINDOW_ROWS * ROW_BYTES
    windows = (data[at : at + step] for at in range(0, len(data), step))
    return b"".join(window + _SUM.pack(crc32c(window), 0) for window in windows)


def read_windows(data: bytes | bytearray | memoryview) -> Rows:
    """The rows of consecutive windows, or ``CorruptRecord`` when they are not as they were written."""
    windows: list[memoryview] = []
    for at in range(0, len(data), _WINDOW_BYTES):
        window = memoryview(data)[at : at + _WINDOW_BYTES]
        rows, said = window[: -_SUM.size], window[-_SUM.size :]
        if len(rows) % ROW_BYTES or not rows or bytes(said) != _SUM.pack(crc32c(rows), 0):
            raise CorruptRecord("the sum of a run's rows is wrong")
        windows.append(rows)
    return Rows.from_bytes(windows[0] if len(windows) == 1 else b"".join(windows))


def run_file(base: int) -> str:
    """The run of the message segment that begins at ``base``."""
    return f"consume/{base:020}.run"


def encode_run(parts: Sequence[tuple[int, Rows]]) -> bytes:
    """A run's bytes from the rows of each partition (id, rows), none of them empty."""
    total = sum(len(rows) for _, rows in parts)
    head = bytearray(_HEAD.pack(RUN_MAGIC, RUN_VERSION, len(parts), total))
    row = 0
    for identity, rows in parts:
        size = int(rows.lengths().sum())
        head += _ENTRY.pack(
            identity, len(rows), row, 0, rows.firsts[0], rows.end_sequence, size, max(rows.stamps)
        )
        row += len(rows)
    for _, rows in parts:
        head += rows.firsts[::WINDOW_ROWS].tobytes()
    body = b"".join(_windows_of(rows) for _, rows in parts)
    return bytes(head) + body + _SUM.pack(crc32c(head), 0)


def directory_size(head: bytes) -> int:
    """How many bytes of a run its directory takes at most, from its first 16: sparse columns are bounded by rows."""
    magic, version, partitions, rows = _unpack_head(head)
    assert magic == RUN_MAGIC
    assert version == RUN_VERSION
    return _HEAD.size + partitions * (_ENTRY.size + 8) + rows // WINDOW_ROWS * 8 + 8


def _unpack_head(head: bytes) -> tuple[bytes, int, int, int]:
    if len(head) < _HEAD.size:
        raise CorruptRecord("a run that is too short")
    magic, version, partitions, rows = _HEAD.unpack_from(head)
    if magic != RUN_MAGIC or version != RUN_VERSION:
        raise CorruptRecord("a run of another version, or no run")
    return magic, version, partitions, rows


def decode_directory(data: bytes, tail: bytes, file_size: int, base: int) -> dict[int, Run]:
    """The partitions of a run from the bytes at its front (``directory_size``) and its last 8."""
    _, _, partitions, rows = _unpack_head(data)
    sparse_at = _HEAD.size + partitions * _ENTRY.size
    if sparse_at > len(data):
        raise CorruptRecord("a run with fewer bytes than its directory has entries")
    entries = [_ENTRY.unpack_from(data, _HEAD.size + index * _ENTRY.size) for index in range(partitions)]
    windows = [-(-entry[1] // WINDOW_ROWS) for entry in entries]
    rows_at = sparse_at + 8 * sum(windows)
    size_said = rows_at + rows * ROW_BYTES + sum(windows) * _SUM.size + _SUM.size
    if crc32c(data[:rows_at]) != _SUM.unpack(tail)[0] or size_said != file_size:
        raise CorruptRecord("the directory of a run is damaged")
    runs: dict[int, Run] = {}
    place = rows_at
    for entry, count in zip(entries, windows, strict=True):
        identity, row_total, _, _, first, end, size, stored = entry
        sparse = array("Q", data[sparse_at : sparse_at + 8 * count])
        sparse_at += 8 * count
        runs[identity] = Run(base, row_total, place, first, end, size, stored, sparse)
        place += _windows_size(row_total)
    return runs


def layout_runs(parts: Sequence[tuple[int, Rows]], base: int) -> dict[int, Run]:
    """The directory that ``encode_run`` writes for the same parts, without reading it back."""
    windows = sum(-(-len(rows) // WINDOW_ROWS) for _, rows in parts)
    place = _HEAD.size + len(parts) * _ENTRY.size + 8 * windows
    runs: dict[int, Run] = {}
    for identity, rows in parts:
        size = int(rows.lengths().sum())
        runs[identity] = Run(
            base, len(rows), place, rows.firsts[0], rows.end_sequence, size, max(rows.stamps),
            rows.firsts[::WINDOW_ROWS],
        )  # fmt: skip
        place += _windows_size(len(rows))
    return runs
