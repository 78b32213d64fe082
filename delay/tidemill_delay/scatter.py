"""A batch cut into pieces, one for each hour that its messages fall into.

Most batches fall into one hour as they are, and are not touched: their piece is the batch with another stamp, which
says the hour's numbers and places. What the producer compressed is unpacked before it is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tidemill_delay.rows import Times
from tidemill_ledger.excerpts import Excerpt
from tidemill_ledger.gathering import Rows, part
from tidemill_wire.batch import (
    STAMP_BYTES,
    Header,
    encode_batch,
    origin_of,
    partition_name,
    stamp_of,
)
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, lay_out, read_directory
from tidemill_wire.errors import CorruptBatch

AT_ONCE = 0
"""The due time of what was due when it was stored."""

KINDS = frozenset(map(int, Column))
PLAIN = len((Column.BODY_OFFSETS, Column.BODIES, Column.DELIVER_DELTAS))
"""What is for later has these columns; with no more than so many it has no others, and nobody looks for them."""


class Piece(NamedTuple):
    """Messages of one hour: their due times, the batch that they are, without its stamp, and their timer keys."""

    hour: int
    due: Times
    said: memoryview
    keys: Sequence[str] | None = None

    @property
    def length(self) -> int:
        """Of the whole batch."""
        return STAMP_BYTES + len(self.said)

    def stamp(self, first: int, place: int, stored_at_ms: int, epoch: int) -> bytes:
        """What comes before ``said``."""
        return stamp_of(self.length, first, place, stored_at_ms, epoch)


def due_of(view: memoryview, at: int, header: Header) -> Times:
    """When each message is due, as its producer says."""
    entry = read_directory(view, at, header).get(Column.DELIVER_DELTAS)
    if entry is None or entry[0] or entry[2] != 8 * header.messages:
        raise CorruptBatch("a batch for later that does not say when")
    deltas = np.frombuffer(view, "<i8", header.messages, entry[1])
    return np.asarray(header.created_at_ms + deltas, np.int64)


def scatter(batch: memoryview, header: Header, due: Times, hour_ms: int) -> Iterator[Piece]:
    """The pieces of a batch that is stamped, the earliest hour first.

    A stamp at the very beginning of an hour may be none of a clock: hours that were closed by one which ran ahead get
    nothing more, so what comes when it is set back goes into the first that is open, and has its own time there.
    """
    stored_at_ms = header.stored_at_ms
    hours = np.maximum(due, stored_at_ms) // hour_ms * hour_ms
    past_ms = AT_ONCE if stored_at_ms % hour_ms == 0 else stored_at_ms
    told = np.where(due <= past_ms, AT_ONCE, due)
    keys = timer_keys_of(batch, header)
    first = int(hours[0])
    if (hours == first).all():
        yield Piece(first, told, batch[STAMP_BYTES:], keys)
        return
    excerpt = opened(batch, header)
    origin = origin_of(header, partition_name(batch, 0, header))
    for hour in np.unique(hours).tolist():
        rows: Rows = np.flatnonzero(hours == hour)
        said = memoryview(part(excerpt, rows, origin))[STAMP_BYTES:]
        yield Piece(hour, told[rows], said, None if keys is None else [keys[row] for row in rows.tolist()])


def timer_keys_of(batch: memoryview, header: Header) -> list[str] | None:
    """What the messages of a batch are found by; ``None`` when there is no such column."""
    if header.column_count <= PLAIN or Column.TIMER_KEYS not in read_directory(batch, 0, header):
        return None
    return Batch(batch).timer_keys()


def check_packed(batch: memoryview, header: Header) -> None:
    """What is compressed can be unpacked, whenever it is to be parted; or ``CorruptBatch``."""
    if header.codec == Codec.NONE:
        return
    whole = Batch(batch)
    for kind in KINDS.intersection(read_directory(batch, 0, header)):
        whole.column(Column(kind))


def opened(batch: memoryview, header: Header) -> Excerpt:
    """All of a batch, with no column compressed."""
    whole = batch if header.codec == Codec.NONE else _unpacked(batch, header)
    excerpt = Excerpt(header.position, len(whole))
    excerpt.arrived(0, bytes(whole))
    excerpt.open()
    return excerpt


def _unpacked(data: memoryview, header: Header) -> bytearray:
    batch = Batch(data)
    kinds = [Column(kind) for kind in read_directory(data, 0, header) if kind in KINDS]
    columns = [(kind, [bytes(batch.column(kind) or b"")]) for kind in kinds]
    origin = origin_of(header, partition_name(data, 0, header))
    whole = encode_batch(origin, header.messages, len(columns), lay_out(columns, Codec.NONE))
    whole[:STAMP_BYTES] = stamp_of(
        len(whole), header.first_sequence, header.position, header.stored_at_ms, header.epoch
    )
    return whole
