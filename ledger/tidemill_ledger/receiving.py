"""The bytes of a log as they come in pieces: whole batches, or whole records, as soon as they are whole.

However the stream is cut, what comes out is the same. A piece that begins with something whole is not copied; what is
left of it waits for its rest, 16 MiB at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidemill_journal.errors import CorruptRecord
from tidemill_journal.records import HEADER as RECORD
from tidemill_journal.records import RECORD_BYTES_MAX, Record, decode_record
from tidemill_wire.batch import HEADER_BYTES, Header, check_said, check_stamp, partition_name, read_header
from tidemill_wire.errors import CorruptBatch

LengthAt = Callable[[memoryview, int], int]
"""The length of what begins at a place, 0 when too little is there to say."""


class Whole(NamedTuple):
    """Batches or records back to back, of the segment ``base``, from ``position`` on."""

    base: int
    position: int
    data: memoryview


class Gap(Exception):
    """A piece that does not go on where the one before it ended."""


class Receiving:
    """One log's stream."""

    def __init__(self, length_at: LengthAt, position: int) -> None:
        self._length_at = length_at
        self.position = position
        """Where the next piece must begin."""
        self._base = -1
        self._rest = bytearray()

    @property
    def whole(self) -> bool:
        """Nothing waits for its rest."""
        return not self._rest

    def take(self, base: int, position: int, data: memoryview) -> Whole | None:
        """A piece came; what is whole by now."""
        if position != self.position or (self._rest and base != self._base):
            raise Gap(f"a piece at {position} of segment {base}, where {self.position} was to come")
        self.position += len(data)
        self._base = base
        if self._rest:
            self._rest += data
            data = memoryview(self._rest)
        size = 0
        while (length := self._length_at(data, size)) and size + length <= len(data):
            size += length
        start = self.position - len(data)
        if not size:
            self._rest = self._rest or bytearray(data)
            return None
        if size < len(data):
            self._rest = bytearray(data[size:])
        elif self._rest:
            self._rest = bytearray()
        return Whole(base, start, data[:size])


def batch_length(data: memoryview, at: int) -> int:
    """The length of the batch at a place."""
    return read_header(data, at).length if len(data) - at >= HEADER_BYTES else 0


def record_length(data: memoryview, at: int) -> int:
    """The length of the record at a place."""
    if len(data) - at < RECORD.size:
        return 0
    length: int = RECORD.unpack_from(data, at)[0]
    if not RECORD.size <= length <= RECORD_BYTES_MAX or length % 8:
        raise CorruptRecord(f"a record of {length} bytes")
    return length


def batches_in(whole: Whole) -> Iterator[tuple[Header, bytes, int]]:
    """Header, partition name and place of each batch; ``CorruptBatch`` for one that is not as its master has it."""
    at = 0
    while at < len(whole.data):
        header = read_header(whole.data, at)
        check_stamp(whole.data, at, header)
        if header.position != whole.position + at:
            raise CorruptBatch(f"the batch says it stands at {header.position}")
        check_said(whole.data, at, header)
        yield header, partition_name(whole.data, at, header), at
        at += header.length


def records_in(whole: Whole) -> Iterator[Record]:
    """Each record; ``CorruptRecord`` for one that is not as its master has it."""
    at = 0
    while at < len(whole.data):
        record = decode_record(whole.data, at, whole.position + at)
        yield record
        at += record.length
