"""Messages from batches to JSON. Pure: values in, values out. The other way is ``gateway_messages.py``.

Each is as it was sent, with what the broker knows, and a receipt. What was redriven looks as it did before it died.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, cast

import msgpack

from tidemill_broker.doors.gateway_receipts import Receipts
from tidemill_host.clock import timestamp
from tidemill_ledger.gathering import ids_of
from tidemill_wire import limits
from tidemill_wire.batch import GATHERED, message_id
from tidemill_wire.columns import Batch, Column
from tidemill_wire.commands import Grant, Pulled, Sent
from tidemill_wire.deduplication import Duplicate, read_rows
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.fields import DEAD_PREFIX, DEAD_PROPERTY, living_subject
from tidemill_wire.grants import set_bits


@dataclass(slots=True)
class Given:
    """What an answer gives: messages as JSON has them; of those that nobody can read, and of those that do not fit,
    partition and pull sequence.
    """

    rows: list[dict[str, Any]]
    undecodable: list[tuple[str, int]]
    left: list[tuple[str, int]]


def render(pulled: Pulled, group: str, consumer: str) -> Given:
    """The granted messages, each with a receipt of its own subject; as many as are unpacked in a moment, those of one
    batch at least. A megabyte of packed batches may hold a thousand.
    """
    given = Given([], [], [])
    at, room = 0, limits.HTTP_UNPACKED_BYTES
    for grant in pulled.grants:
        receipts = Receipts(living_subject(grant.subject), group)
        for _ in range(grant.batches):
            length = int.from_bytes(pulled.batches[at + 4 : at + 8], "little")
            data = pulled.batches[at : at + length]
            at += length
            first, last = _granted(data, grant)
            pull, count = grant.pull_sequence + first - grant.first_sequence, last - first + 1
            sifted = grant.mask or int.from_bytes(data[46:48], "little") & GATHERED
            if sifted:
                pull, count = grant.pull_sequence, grant.count
            numbers = [(grant.subject, number) for number in range(pull, pull + count)]
            try:
                batch = Batch(data)
                room -= batch.unpacked_bytes
                if given.left or (room < 0 and given.rows):
                    given.left += numbers
                    continue
                batch.check()
                rows = _sifted_rows(batch, grant) if sifted else _rows(batch, first, last, grant)
            except CorruptBatch:
                given.undecodable += numbers
                continue
            for offset, row in enumerate(rows):
                row["receipt"] = receipts.write(consumer, pull + offset)
            given.rows += rows
    return given


def sent_rows(batch_id: bytes, count: int, sent: Sent) -> list[dict[str, Any]]:
    """Where the messages of a batch are that was stored; of those that were stored before, where they are."""
    known: dict[int, Duplicate] = {}
    for _, data in sent.duplicates:
        known |= {one.row: one for one in read_rows(data)}
    rows: list[dict[str, Any]] = []
    sequence = sent.first_sequences[0]
    for at in range(count):
        one = known.get(at)
        if one is None:
            rows.append({"id": message_id(batch_id, at), "sequence": sequence})
            sequence += sequence >= 0
            continue
        row: dict[str, Any] = {"id": message_id(one.batch_id, one.number), "sequence": one.sequence}
        if (one.batch_id, one.number) != (batch_id, at):
            row["duplicate"] = True
        rows.append(row)
    return rows


def _granted(data: memoryview, grant: Grant) -> tuple[int, int]:
    """The first and last sequence of a batch that are granted; from its bytes, for the rest may be damaged."""
    first = int.from_bytes(data[8:16], "little")
    count = int.from_bytes(data[48:52], "little")
    return max(first, grant.first_sequence), min(first + count, grant.first_sequence + grant.count) - 1


def _sifted_rows(batch: Batch, grant: Grant) -> list[dict[str, Any]]:
    """Those of a batch that was gathered for a group with a filter, or comes with a mask."""
    begin, count = batch.header.first_sequence, batch.header.messages
    indexes = batch.numbers(Column.INDEXES, "i", count)
    if indexes is None:
        sequences = [grant.first_sequence + bit for bit in set_bits(grant.mask)]
        if sequences[-1] >= begin + count:
            raise CorruptBatch("a mask that goes beyond its batch")
        return [row for sequence in sequences for row in _rows(batch, sequence, sequence, grant)]
    rows = _rows(batch, begin, begin + count - 1, grant)
    if not grant.subject.startswith(DEAD_PREFIX):
        cut = batch.column(Column.SOURCES) is not None  # then the ids are of what was sent, and are there
        for row, index in zip(rows, indexes, strict=True):
            row["sequence"] = begin + index
            row["id"] = row["id"] if cut else batch.message_id(index)
    return rows


def _rows(batch: Batch, first: int, last: int, grant: Grant) -> list[dict[str, Any]]:
    header = batch.header
    start, stop = first - header.first_sequence, last - header.first_sequence + 1
    bodies = _part(batch, (Column.BODY_OFFSETS, Column.BODIES), start, stop)
    keys = _part(batch, (Column.KEY_OFFSETS, Column.KEYS), start, stop)
    order_keys = _part(batch, (Column.ORDER_KEY_OFFSETS, Column.ORDER_KEYS), start, stop)
    properties = _part(batch, (Column.PROPERTY_OFFSETS, Column.PROPERTIES), start, stop)
    tags, ids = _tags_of(batch, start, stop), ids_of(batch, start, stop - start)
    stored_at = timestamp(header.stored_at_ms)
    rows: list[dict[str, Any]] = []
    for at in range(stop - start):
        body = bodies[at] if bodies else b""
        row: dict[str, Any] = {
            "id": ids[at],
            "subject": living_subject(grant.subject),
            "sequence": first + at,
            "body": base64.b64encode(body).decode(),
        }
        try:
            row["text"] = body.decode()
        except UnicodeDecodeError:
            pass  # then there is no text
        row["key"] = (keys[at].decode(errors="replace") or None) if keys else None
        row["order_key"] = (order_keys[at].decode(errors="replace") or None) if order_keys else None
        row["tags"] = tags[at] if tags else []
        row["properties"] = _unpack(properties[at]) if properties and properties[at] else {}
        row["priority"] = header.priority
        row["attempts"] = grant.attempts
        row["stored_at"] = stored_at
        rows.append(row)
    if grant.subject.startswith(DEAD_PREFIX):
        _as_it_was(batch, rows, start)
    return rows


def _as_it_was(batch: Batch, rows: list[dict[str, Any]], start: int) -> None:
    """Dead letters that were redriven have the id and the sequence of what they are copies of."""
    origins = batch.origins()
    for at, row in enumerate(rows):
        if origins:
            row["id"] = str(origins[start + at])
        known = row["properties"].get(DEAD_PROPERTY)
        if isinstance(known, dict):
            row["sequence"] = cast("dict[str, Any]", known).get("original", row["sequence"])


def _part(batch: Batch, kinds: tuple[Column, Column], start: int, stop: int) -> list[bytes]:
    """Values ``start`` to ``stop`` of a column; of a batch of a million only those that are asked for are looked at."""
    offsets, data = batch.column(kinds[0]), batch.column(kinds[1])
    if offsets is None or data is None:
        return []
    places = _numbers(offsets, start, stop)
    if places[-1] > len(data):
        raise CorruptBatch(f"the offsets of column {kinds[0].name} leave it")
    return [bytes(data[places[at] : places[at + 1]]) for at in range(len(places) - 1)]


def _tags_of(batch: Batch, start: int, stop: int) -> list[list[str]]:
    counts = batch.column(Column.TAG_COUNTS)
    if counts is None:
        return []
    ends = _numbers(counts, start, stop)
    raw = _part(batch, (Column.TAG_OFFSETS, Column.TAGS), ends[0], ends[-1]) if ends[0] < ends[-1] else []
    texts = [text.decode(errors="replace") for text in raw]
    return [texts[a - ends[0] : b - ends[0]] for a, b in pairwise(ends)]


def _numbers(column: memoryview, start: int, stop: int) -> list[int]:
    """Numbers ``start`` to ``stop``, both included, of a column in which they grow."""
    part = column[4 * start : 4 * stop + 4]
    numbers: list[int] = [] if len(part) % 4 else part.cast("i").tolist()
    if len(numbers) != stop - start + 1 or numbers != sorted(numbers) or numbers[0] < 0:
        raise CorruptBatch("the numbers of a column are too few, or do not grow")
    return numbers


def _unpack(packed: bytes) -> dict[str, Any]:
    try:
        found: object = cast("object", msgpack.unpackb(packed, strict_map_key=False, timestamp=3))
        plain = _plain(found)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise CorruptBatch(f"properties that are no msgpack: {error}") from None
    if not isinstance(plain, dict):
        raise CorruptBatch("properties that are no map")
    return cast("dict[str, Any]", plain)


def _plain(value: object) -> object:
    """What JSON can say: bytes become base64, times ISO 8601, and numbers that are none become null."""
    match value:
        case None | str() | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [_plain(item) for item in cast("list[object]", value)]
        case dict():
            return {str(key): _plain(item) for key, item in cast("dict[object, object]", value).items()}
        case datetime():
            return value.isoformat()
        case msgpack.ExtType(data=bytes(data)):
            return base64.b64encode(data).decode()
        case _:
            raise CorruptBatch(f"properties that hold a {type(value).__name__}")
