"""What dead letters are made of: the messages that died, with all that they came with, and what is known of their death.

Pure: a batch goes in, the content of the batch of their copies comes out.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import msgpack

from tidemill_broker.actions import FailureDetail
from tidemill_broker.failures import Failure
from tidemill_host.machine import Buffer, Unread
from tidemill_ledger.gathering import ids_of
from tidemill_wire import limits
from tidemill_wire.batch import Flags
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, Content
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.fields import DEAD_PREFIX, DEAD_PROPERTY
from tidemill_wire.lanes import priority_of


class Copy(NamedTuple):
    """A dead letter to be written."""

    content: Content
    created_at_ms: int
    codec: Codec
    flags: Flags
    priority: int


def copy_of(data: Buffer | Unread, failure: Failure, count: int, known: dict[str, Any]) -> Copy:
    """As many of the failed messages as are small enough together, with all that they came with."""
    if isinstance(data, Unread):
        raise CorruptBatch(str(data))
    batch = Batch(data)
    batch.check()
    header = batch.header
    index = failure.first - header.first_sequence
    if not 0 <= index <= header.messages - count:
        raise CorruptBatch(f"sequence {failure.first} is not in the batch that lies there")
    bodies = batch.bodies(index, index + count - 1)
    properties = (batch.properties() or [b""] * header.messages)[index : index + count]
    overhead = len(cast("bytes", msgpack.packb(known)))
    count = _fitting([len(a) + len(b) + overhead for a, b in zip(bodies, properties, strict=True)])
    chosen = slice(index, index + count)
    keys, tags, order_keys = batch.keys(), batch.tags(), batch.order_keys()
    origins = batch.origins() if known["subject"].startswith(DEAD_PREFIX) else None  # of one that dies again
    deltas = batch.numbers(Column.CREATED_DELTAS, "i", header.messages)
    content = Content(
        bodies[:count],
        keys[chosen] if keys else None,
        tags[chosen] if tags else None,
        order_keys[chosen] if order_keys else None,
        [
            _with(properties[at], known | {"sequence": failure.first + at}, len(bodies[at]))
            for at in range(count)
        ],
        created_deltas=deltas[chosen] if deltas else None,
        attempts=[failure.attempts] * count,
        origins=origins[chosen] if origins else ids_of(batch, index, count),
    )
    flags = Flags.REDELIVERED | batch.flags & Flags.ORDERED
    return Copy(content, header.created_at_ms, Codec(header.codec), flags, header.priority)


def adopted_copy(batch: Batch, failure: Failure, names: tuple[str, str], detail: FailureDetail) -> Copy:
    """Messages of another broker, as a dead letter of the subject and group of those ``names`` says them: with their
    ids, and with their numbers where they came from.
    """
    header = batch.header
    known: dict[str, Any] = {
        "subject": names[0], "group": names[1], "attempts": failure.attempts, "since": failure.since_ms,
        "failed_at": failure.due_ms, **detail._asdict(), "adopted": True,
    }  # fmt: skip
    properties = batch.properties() or [b""] * header.messages
    content = Content(
        batch.bodies(),
        batch.keys() or None,
        batch.tags() or None,
        batch.order_keys() or None,
        [_with(packed, known | {"sequence": failure.first + at}, 0) for at, packed in enumerate(properties)],
        attempts=[failure.attempts] * header.messages,
        origins=batch.origins() or ids_of(batch, 0, header.messages),
    )
    flags = Flags.REDELIVERED | batch.flags & Flags.ORDERED
    return Copy(content, header.created_at_ms, Codec(header.codec), flags, header.priority)


def remains(failure: Failure, count: int, known: dict[str, Any], now_ms: int) -> Copy:
    """Dead letters without a body, for messages that nobody can read any more."""
    count = _fitting([len(cast("bytes", msgpack.packb(known)))] * count)
    said = [_with(b"", known | {"sequence": failure.first + at}, 0) for at in range(count)]
    content = Content([b""] * count, properties=said, attempts=[failure.attempts] * count)
    return Copy(content, now_ms, Codec.NONE, Flags.REDELIVERED, priority_of(failure.first))


def _fitting(sizes: list[int]) -> int:
    """How many, from the first on, are small enough together; one at least."""
    total = 0
    for index, size in enumerate(sizes):
        total += size
        if index and total > limits.DEAD_LETTER_BYTES:
            return index
    return len(sizes)


def _with(packed: bytes, known: dict[str, Any], body_size: int) -> bytes:
    """A message's properties and what is known of its death; its own give way when the batch would be too large."""
    own: object = cast("object", msgpack.unpackb(packed, strict_map_key=False)) if packed else {}
    properties = cast("dict[str, Any]", own) if isinstance(own, dict) else {}
    if (
        body_size + len(packed) + limits.PROPERTIES_BYTES_MAX
        > limits.BATCH_BYTES_MAX - limits.PROPERTIES_BYTES_MAX
    ):
        properties = {}
    before = cast("object", properties.get(DEAD_PROPERTY))
    original = cast("dict[str, Any]", before).get("original") if isinstance(before, dict) else None
    known = known | {"original": known["sequence"] if original is None else original}
    return cast("bytes", msgpack.packb({**properties, DEAD_PROPERTY: known}))
