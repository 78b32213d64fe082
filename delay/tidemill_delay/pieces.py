"""A piece of an hour's file as a broker takes it: the same batch, said by another producer.

Who sends it is derived from the batch, and so is the sequence: whenever it is sent again, after whatever restart, a
broker that has it recognises it. The batch keeps its id, so a message keeps the id that its sender was told.
"""

from __future__ import annotations

import struct

import numpy as np
from crc32c import crc32c

from tidemill_ledger.excerpts import Excerpt
from tidemill_ledger.gathering import Rows, part, source_of
from tidemill_wire.batch import (
    CHECKED_FROM,
    SINGLES_FROM,
    STAMP_BYTES,
    STAMP_CRC,
    Flags,
    Header,
    Origin,
    check_said,
    check_stamp,
    partition_name,
    read_header,
)
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, hash_text, read_entries
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.fields import parse_again

_FLAGS_AT, _PRODUCER_AT = 46, 56
_FLAGS = struct.Struct("<H")
_PRODUCER = struct.Struct("<QQ")


class Addressed:
    """A piece that was read, and whose bytes are good."""

    def __init__(self, data: bytes | memoryview, place: int) -> None:
        self._data = memoryview(data)
        self.header: Header = read_header(self._data)
        check_stamp(self._data, 0, self.header)
        check_said(self._data, 0, self.header)
        if self.header.position != place:
            raise CorruptBatch(f"the piece says it stands at {self.header.position}")

    @property
    def subject(self) -> str:
        """By whose route it goes."""
        name = partition_name(self._data, 0, self.header).decode()
        found = parse_again(name)
        return name if found is None else found[0]

    def send(self, numbers: Rows) -> bytearray:
        """The batch of these numbers of the hour, which are in the piece."""
        rows = np.asarray(numbers, np.int64) - self.header.first_sequence
        if len(rows) == self.header.messages:
            return self._whole()
        excerpt = self._excerpt()
        first = source_of(excerpt, int(rows[0]))
        header = self.header
        origin = Origin(
            partition_name(self._data, 0, header), *producer_of(header.batch_id, first), header.batch_id,
            header.created_at_ms, Codec.NONE, Batch(self._data).flags & ~Flags.DELAYED, header.priority,
            header.bloom,
        )  # fmt: skip
        return part(excerpt, rows, origin)

    def _whole(self) -> bytearray:
        header = self.header
        entry = read_entries(self._data, 0, header).get(Column.SOURCES)
        first = int.from_bytes(self._data[entry[1] : entry[1] + 4], "little") if entry is not None else 0
        batch = bytearray(self._data)
        batch[8:STAMP_BYTES] = bytes(STAMP_BYTES - 8)
        _FLAGS.pack_into(batch, _FLAGS_AT, header.flags & ~Flags.DELAYED)
        _PRODUCER.pack_into(batch, _PRODUCER_AT, *producer_of(header.batch_id, first))
        with memoryview(batch) as view:
            STAMP_CRC.pack_into(batch, STAMP_BYTES, crc32c(view[CHECKED_FROM:]))
        return batch

    def _excerpt(self) -> Excerpt:
        excerpt = Excerpt(self.header.position, len(self._data))
        excerpt.arrived(0, bytes(self._data))
        excerpt.open()
        return excerpt


def producer_of(batch_id: bytes, first: int) -> tuple[int, int]:
    """Who sends a part of a batch that begins with this index, and as which of its batches."""
    return hash_text(batch_id) | SINGLES_FROM, first
