"""Reads logs as they lie on a disk: batch after batch, record after record, until the bytes stop being good.

Pure: bytes come from a function. Whether bad bytes are a torn tail or damage is not decided here; the scanner only says
where they begin (``position``) and why (the exception).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tidemill_journal.errors import CorruptRecord
from tidemill_journal.records import HEADER_BYTES as RECORD_HEADER_BYTES
from tidemill_journal.records import RECORD_BYTES_MAX, Record, decode_record
from tidemill_ledger.columns import place_of_column
from tidemill_wire.batch import HEADER_BYTES, Header, check_said, check_stamp, read_header
from tidemill_wire.columns import ENTRY, Column
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.limits import COLUMNS_MAX, PARTITION_NAME_BYTES_MAX

WINDOW_BYTES = 64 * 1024
SEARCH_BYTES = 1024 * 1024
HEAD_BYTES = HEADER_BYTES + PARTITION_NAME_BYTES_MAX + 1
DIRECTORY_BYTES_MAX = ENTRY.size * COLUMNS_MAX
ReadAt = Callable[[int, int], bytes]


class Window:
    """A piece of a file that moves forward."""

    def __init__(self, read: ReadAt) -> None:
        self._read = read
        self._data = b""
        self._start = 0

    def view(self, place: int, size: int) -> memoryview:
        """Up to ``size`` bytes from ``place`` on, fewer at the file's end."""
        offset = place - self._start
        if not 0 <= offset <= len(self._data) - size:
            self._start = place
            self._data = self._read(place, max(size, WINDOW_BYTES))
            offset = 0
        return memoryview(self._data)[offset : offset + size]


class BatchScanner:
    """The batches of one message segment. Below ``checked_from`` only headers are read and checked."""

    def __init__(self, read: ReadAt, base: int, end: int, checked_from: int) -> None:
        self._window = Window(read)
        self._base = base
        self._end = end
        self._checked_from = checked_from
        self.position = base

    def __iter__(self) -> Iterator[tuple[Header, bytes]]:
        """Header and partition name of each batch; raises ``CorruptBatch`` at the first bad one."""
        while self.position < self._end:
            place = self.position - self._base
            head = self._window.view(place, min(HEAD_BYTES, self._end - self.position))
            header = read_header(head)
            check_stamp(head, 0, header)
            if header.position != self.position:
                raise CorruptBatch(f"the batch says it stands at {header.position}")
            if self.position + header.length > self._end:
                raise CorruptBatch(
                    f"a batch of {header.length} bytes of which {self._end - self.position} are there"
                )
            name = bytes(head[HEADER_BYTES : HEADER_BYTES + header.name_length])
            if self.position >= self._checked_from:
                check_said(self._window.view(place, header.length), 0, header)
            yield header, name
            self.position += header.length

    def key_hashes(self, header: Header) -> memoryview | None:
        """Those of the batch that was yielded last. They lie behind the bodies, which are not read for them."""
        return self.column(header, Column.KEY_HASHES, 8) if header.column_count > 2 else None

    def column(self, header: Header, column: Column, width: int) -> memoryview | None:
        """A column of that batch, of so many bytes for each message."""
        place = self.position - self._base
        head = self._window.view(place, min(HEAD_BYTES + DIRECTORY_BYTES_MAX, header.length))
        found = place_of_column(head, 0, header, column, width)
        return None if found is None else self._window.view(place + found[0], found[1])


class RecordScanner:
    """The records of one action segment."""

    def __init__(self, read: ReadAt, base: int, end: int, start: int) -> None:
        self._window = Window(read)
        self._base = base
        self._end = end
        self.position = start

    def __iter__(self) -> Iterator[Record]:
        """Each record; raises ``CorruptRecord`` at the first bad one."""
        while self.position < self._end:
            rest = self._end - self.position
            place = self.position - self._base
            head = self._window.view(place, min(RECORD_HEADER_BYTES, rest))
            length = int.from_bytes(head[:4], "little")
            size = min(rest, max(RECORD_HEADER_BYTES, min(length, RECORD_BYTES_MAX)))
            record = decode_record(self._window.view(place, size), 0, self.position)
            yield record
            self.position += record.length


def records_behind(read: ReadAt, base: int, end: int, start: int) -> Iterator[Record]:
    """Whole records of a segment at or behind ``start``, wherever they lie: bad bytes are passed over.

    A record holds its own position, so those that can be one are found by a comparison of the whole window at once.
    """
    position = start & ~7
    while position + RECORD_HEADER_BYTES <= end:
        data = read(position - base, SEARCH_BYTES)
        words = np.frombuffer(data, "<u8", len(data) // 8)
        own = np.arange(len(words), dtype=np.uint64) * np.uint64(8) + np.uint64(position)
        for index in np.flatnonzero(words[1:] == own[:-1]).tolist():
            place = position + 8 * index
            length = min(int(words[index]) & 0xFFFF_FFFF, RECORD_BYTES_MAX, end - place)
            known = data[8 * index : 8 * index + length]
            try:
                yield decode_record(known if len(known) == length else read(place - base, length), 0, place)
            except CorruptRecord:
                continue
        if len(data) < SEARCH_BYTES:
            return
        position += SEARCH_BYTES - 8
