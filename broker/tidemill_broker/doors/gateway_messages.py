"""Messages between JSON and batches. Pure: values in, values out.

In: ``{"text": ...}`` or ``{"body": base64}``, with key, tags and properties; unknown fields are refused by their place.
Out: the same, with what the broker knows, and a receipt. What was redriven looks as it did before it died.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NoReturn, cast

import msgpack

from tidemill_broker.doors.gateway_receipts import Receipts
from tidemill_host.refusals import HttpRefused, refusal_of
from tidemill_wire import limits
from tidemill_wire.batch import GATHERED
from tidemill_wire.columns import Batch, Column, Content
from tidemill_wire.commands import Grant, Pulled
from tidemill_wire.errors import CorruptBatch, Refused
from tidemill_wire.fields import DEAD_PREFIX, DEAD_PROPERTY, living_subject
from tidemill_wire.grants import set_bits
from tidemill_wire.lanes import parse_priority

ADVICE = "see /openapi.json for what a request may hold"


def malformed(detail: str) -> HttpRefused:
    return HttpRefused(400, "malformed_request", detail, ADVICE)


# In.


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


_decoder = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)


def parse_json(data: bytes) -> dict[str, Any]:
    """A body as a map, or where it is broken."""
    try:
        value: object = _decoder.decode(data.decode())
    except UnicodeDecodeError as error:
        raise malformed(f"the body is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise malformed(f"the body is no JSON: {error}") from None
    except ValueError as error:
        raise malformed(f"the body is no JSON: {str(error)[:200]}") from None
    except RecursionError:
        raise malformed("the body is nested too deeply") from None
    if not isinstance(value, dict):
        raise malformed("the body is no JSON object")
    return cast("dict[str, Any]", value)


def check_fields(value: Mapping[str, Any], known: frozenset[str], place: str = "") -> None:
    """Nothing unknown is passed over: a misspelt field would be lost in silence."""
    for name in value:
        if name.startswith(("delay", "deliver")) and known & {"text", "messages"}:
            raise HttpRefused(
                400, "not_supported", f"{place}{name[:100]}: delayed messages are not supported yet",
                "send it when it is due, or leave the field out",
            )  # fmt: skip
        if name not in known:
            raise malformed(f"{place}{name[:100]!r} is no field of it, {', '.join(sorted(known))} are")


def integer(value: Mapping[str, Any], name: str, bounds: tuple[int, int], default: int) -> int:
    """A number within its bounds. JSON has no other kind of numbers, so 5.0 is 5."""
    number = value.get(name, default)
    if type(number) is float and number.is_integer():
        number = int(number)
    if type(number) is not int or not bounds[0] <= number <= bounds[1]:
        raise malformed(f"{name} is no number of {bounds[0]} to {bounds[1]}")
    return number


@dataclass(frozen=True, slots=True)
class Defaults:
    """Key, tags and priority from the head of a request, for messages that have none of their own."""

    key: str | None = None
    tags: tuple[str, ...] = ()
    priority: int = 0


MESSAGE_FIELDS = frozenset({"text", "body", "key", "tags", "properties"})


def parse_sending(value: Mapping[str, Any], defaults: Defaults) -> tuple[Content, int]:
    """One message, or ``{"messages": [...]}``; and their priority, which is one for all of a request, because they are
    one batch.
    """
    given: Any = value.get("priority", defaults.priority)
    priority: Any = int(given) if type(given) is float and given.is_integer() else given
    rest = {name: part for name, part in value.items() if name != "priority"}
    try:
        return parse_messages(rest, defaults), parse_priority(priority)
    except Refused as error:
        raise refusal_of(error) from None


def parse_messages(value: Mapping[str, Any], defaults: Defaults) -> Content:
    """The messages alone."""
    if "messages" not in value:
        return _content([_parse_message(value, "", defaults)])
    check_fields(value, frozenset({"messages"}))
    rows = value["messages"]
    if not isinstance(rows, list) or not 0 < len(cast("list[object]", rows)) <= limits.HTTP_MESSAGES_MAX:
        raise malformed(f"messages is no list of 1 to {limits.HTTP_MESSAGES_MAX}")
    return _content(
        [
            _parse_message(row, f"messages[{at}].", defaults)
            for at, row in enumerate(cast("list[object]", rows))
        ]
    )


Row = tuple[bytes, str | None, tuple[str, ...], bytes]


def plain_message(body: bytes, defaults: Defaults) -> Content:
    """A body that came as it is."""
    return _content([(body, defaults.key, defaults.tags, b"")])


def _content(rows: Sequence[Row]) -> Content:
    """Columns that no message needs are left out."""
    keys = [row[1] for row in rows]
    tags = [row[2] for row in rows]
    properties = [row[3] for row in rows]
    return Content(
        [row[0] for row in rows],
        keys if any(keys) else None,
        tags if any(tags) else None,
        None,
        properties if any(properties) else None,
    )


def _parse_message(row: object, place: str, defaults: Defaults) -> Row:
    if not isinstance(row, dict):
        raise malformed(f"{place.rstrip('.')} is no JSON object")
    value = cast("dict[str, Any]", row)
    if not value.keys() <= MESSAGE_FIELDS:
        check_fields(value, MESSAGE_FIELDS, place)
    if ("text" in value) == ("body" in value):
        raise malformed(f"{place}text or {place}body must be there, and not both")
    key = defaults.key
    if "key" in value:
        key = _text(value["key"], f"{place}key")
    tags = defaults.tags
    if "tags" in value:
        tags = parse_tags(value["tags"], f"{place}tags")
    properties = b""
    if "properties" in value:
        properties = _properties(value["properties"], f"{place}properties")
    return _body(value, place), key or None, tags, properties


def _body(value: Mapping[str, Any], place: str) -> bytes:
    if "text" in value:
        return _text(value["text"], f"{place}text").encode()
    try:
        return base64.b64decode(_text(value["body"], f"{place}body"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise malformed(f"{place}body is no base64 ({error})") from None


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise malformed(f"{place} is no text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise malformed(f"{place} holds half of a character, which UTF-8 cannot say") from None
    return value


def parse_tags(value: object, place: str) -> tuple[str, ...]:
    """Each once, in their order."""
    if not isinstance(value, list) or len(cast("list[object]", value)) > limits.TAGS_MAX:
        raise malformed(f"{place} is no list of at most {limits.TAGS_MAX} texts")
    tags = {_text(tag, f"{place}[{at}]") for at, tag in enumerate(cast("list[object]", value))}
    if "" in tags:
        raise malformed(f"{place} holds an empty text")
    return tuple(sorted(tags))


def _properties(value: object, place: str) -> bytes:
    if not isinstance(value, dict):
        raise malformed(f"{place} is no JSON object")
    try:
        return cast("bytes", msgpack.packb(value)) if value else b""
    except (ValueError, OverflowError, UnicodeEncodeError) as error:
        raise malformed(f"{place} cannot be kept: {error}") from None


# Out.


@dataclass(slots=True)
class Given:
    """What an answer gives: messages as JSON has them, and pull sequences of those that nobody can read."""

    rows: list[dict[str, Any]]
    undecodable: list[int]


def render(pulled: Pulled, receipts: Receipts, consumer: str) -> Given:
    """The granted messages."""
    given = Given([], [])
    at = 0
    for grant in pulled.grants:
        for _ in range(grant.batches):
            length = int.from_bytes(pulled.batches[at + 4 : at + 8], "little")
            data = pulled.batches[at : at + length]
            at += length
            first, last = _granted(data, grant)
            pull, count = grant.pull_sequence + first - grant.first_sequence, last - first + 1
            sifted = grant.mask or int.from_bytes(data[46:48], "little") & GATHERED
            if sifted:
                pull, count = grant.pull_sequence, grant.count
            try:
                batch = Batch(data)
                batch.check()
                rows = _sifted_rows(batch, grant) if sifted else _rows(batch, first, last, grant)
            except CorruptBatch:
                given.undecodable += range(pull, pull + count)
                continue
            for offset, row in enumerate(rows):
                row["receipt"] = receipts.write(consumer, pull + offset)
            given.rows += rows
    return given


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
        for row, index in zip(rows, indexes, strict=True):
            row["id"], row["sequence"] = batch.message_id(index), begin + index
    return rows


def _rows(batch: Batch, first: int, last: int, grant: Grant) -> list[dict[str, Any]]:
    header = batch.header
    start, stop = first - header.first_sequence, last - header.first_sequence + 1
    bodies = _part(batch, (Column.BODY_OFFSETS, Column.BODIES), start, stop)
    keys = _part(batch, (Column.KEY_OFFSETS, Column.KEYS), start, stop)
    properties = _part(batch, (Column.PROPERTY_OFFSETS, Column.PROPERTIES), start, stop)
    tags = _tags_of(batch, start, stop)
    stored_at = datetime.fromtimestamp(header.stored_at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    rows: list[dict[str, Any]] = []
    for at in range(stop - start):
        body = bodies[at] if bodies else b""
        row: dict[str, Any] = {
            "id": batch.message_id(start + at),
            "subject": living_subject(grant.subject),
            "sequence": first + at,
            "body": base64.b64encode(body).decode(),
        }
        try:
            row["text"] = body.decode()
        except UnicodeDecodeError:
            pass  # then there is no text
        row["key"] = (keys[at].decode(errors="replace") or None) if keys else None
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
    numbers: list[int] = column[4 * start : 4 * stop + 4].cast("i").tolist()
    if len(numbers) != stop - start + 1 or numbers != sorted(numbers) or numbers[0] < 0:
        raise CorruptBatch("the numbers of a column are too few, or do not grow")
    return numbers


def _unpack(packed: bytes) -> dict[str, Any]:
    try:
        found: object = cast("object", msgpack.unpackb(packed, strict_map_key=False, timestamp=3))
        plain = _plain(found)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
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
