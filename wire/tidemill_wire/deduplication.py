"""Dedup keys: by them a broker knows a message that was sent before, whoever sends it again.

A batch does not hold the key but 128 bits of its blake2b, its *digest*: two keys with one digest do not happen, not by
chance (3 million keys: one in 10^25) and not by anybody's effort (2^64 tries), so nobody compares texts. A message
without a key has ``NO_KEY``. The batch has the flag DEDUPLICATED, so that a broker which does not know what that is
refuses it, and one that does finds it without a look at its columns.

A SEND is answered with *duplicates*: which messages of a batch are stored already, and where.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from tidemill_wire.batch import Flags, Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, Content, build_batch
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.fields import check_named

T = TypeVar("T")
DIGEST_BYTES = 16
NO_KEY = bytes(DIGEST_BYTES)
ROW = struct.Struct("<IIq16s")


class Duplicate(NamedTuple):
    """A message of a batch that is stored already: its row in the batch; of what is stored number, sequence, batch."""

    row: int
    number: int
    sequence: int
    batch_id: bytes


def check_dedup_key(dedup_key: str) -> str:
    """A dedup key within its limits. An empty one could not be told from none."""
    return check_named(dedup_key, "a dedup key")


def digest_of(dedup_key: str) -> bytes:
    """What a batch holds of a dedup key."""
    return blake2b(dedup_key.encode(), digest_size=DIGEST_BYTES).digest()


def digests_of(batch: Batch) -> list[bytes] | None:
    """Of each message; ``None``: none has a dedup key."""
    data = batch.column(Column.DEDUP_KEYS)
    if data is None:
        return None
    if len(data) != DIGEST_BYTES * batch.header.messages:
        raise CorruptBatch(f"{len(data)} bytes of dedup keys for {batch.header.messages} messages")
    return [bytes(data[at : at + DIGEST_BYTES]) for at in range(0, len(data), DIGEST_BYTES)]


def packed_rows(duplicates: Sequence[Duplicate]) -> bytes:
    """As an answer has them."""
    return b"".join(ROW.pack(*one) for one in duplicates)


def read_rows(data: bytes) -> list[Duplicate]:
    """From an answer."""
    return [Duplicate._make(row) for row in ROW.iter_unpack(data)]


def picked(batch: Batch, rows: Sequence[int]) -> Content:
    """Some messages of a batch, with all that their sender gives a message for now."""
    return Content(
        _some(batch.bodies(), rows) or [],
        _some(batch.keys(), rows),
        _some(batch.tags(), rows),
        _some(batch.order_keys(), rows),
        _some(batch.properties(), rows),
        dedup_keys=_some(digests_of(batch), rows),
    )


def some_of(batch: Batch, rows: Sequence[int]) -> bytearray:
    """The batch of some messages of a batch, from the same producer with the same number. Each keeps its id."""
    header = batch.header
    sources = batch.numbers(Column.SOURCES, "i", header.messages)
    content = picked(batch, rows)
    content.created_deltas = _some(batch.numbers(Column.CREATED_DELTAS, "i", header.messages), rows)
    content.deliver_deltas = _some(batch.numbers(Column.DELIVER_DELTAS, "q", header.messages), rows)
    content.attempts = _some(batch.numbers(Column.ATTEMPTS, "i", header.messages), rows)
    content.origins = _some(batch.origins(), rows)
    content.timer_keys = _some(batch.timer_keys(), rows)
    content.sources = list(rows) if sources is None else _some(sources, rows)
    origin = Origin(
        batch.partition.encode(), header.producer_id, header.producer_sequence, header.batch_id,
        header.created_at_ms, Codec(header.codec), Flags(header.flags), header.priority,
    )  # fmt: skip
    return build_batch(origin, content)


def _some(values: Sequence[T] | None, rows: Sequence[int]) -> list[T] | None:
    return None if values is None else [values[row] for row in rows]
