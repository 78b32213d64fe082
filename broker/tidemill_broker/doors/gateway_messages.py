"""Messages from JSON to batches. Pure: values in, values out. The other way is ``gateway_rows.py``.

``{"text": ...}`` or ``{"body": base64}``, with keys, tags and properties; unknown fields are refused by their place.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, cast

import msgpack

from tidemill_host.refusals import HttpRefused, refusal_of
from tidemill_wire import limits
from tidemill_wire.columns import Content
from tidemill_wire.deduplication import NO_KEY, digest_of
from tidemill_wire.errors import Refused
from tidemill_wire.lanes import parse_priority

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
NONE: Mapping[str, str] = {}
ADVICE = "see /openapi.json for what a request may hold"


def malformed(detail: str) -> HttpRefused:
    return HttpRefused(400, "malformed_request", detail, ADVICE)


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
    """Keys, tags, priority and context from the head of a request, for messages that have none of their own."""

    key: str | None = None
    tags: tuple[str, ...] = ()
    priority: int = 0
    order_key: str | None = None
    dedup_key: str | None = None
    timer_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    """The context of a trace, for messages whose properties have none."""


TIMES = ("delay", "at")
"""Read in ``gateway_times.py``."""
MESSAGE_FIELDS = frozenset(
    {"text", "body", "key", "order_key", "dedup_key", "timer_key", "tags", "properties", *TIMES}
)


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
    check_fields(value, frozenset({"messages", *TIMES}))
    rows = value["messages"]
    if not isinstance(rows, list) or not 0 < len(cast("list[object]", rows)) <= limits.HTTP_MESSAGES_MAX:
        raise malformed(f"messages is no list of 1 to {limits.HTTP_MESSAGES_MAX}")
    return _content(
        [
            _parse_message(row, f"messages[{at}].", defaults)
            for at, row in enumerate(cast("list[object]", rows))
        ]
    )


class Row(NamedTuple):
    """One message, proven."""

    body: bytes
    key: str | None
    tags: tuple[str, ...]
    properties: bytes
    order_key: str | None
    dedup_key: str | None
    timer_key: str | None


def plain_message(body: bytes, defaults: Defaults) -> Content:
    """A body that came as it is."""
    named = defaults.order_key, defaults.dedup_key, defaults.timer_key
    properties = _properties(defaults.properties, "header traceparent")
    return _content([Row(body, defaults.key, defaults.tags, properties, *named)])


def _content(rows: Sequence[Row]) -> Content:
    """Columns that no message needs are left out. A dedup key is the order key, too, when there is no other."""
    keys = [row.key for row in rows]
    tags = [row.tags for row in rows]
    properties = [row.properties for row in rows]
    order_keys = [row.order_key or row.dedup_key for row in rows]
    dedup_keys = [NO_KEY if row.dedup_key is None else digest_of(row.dedup_key) for row in rows]
    timer_keys = [row.timer_key for row in rows]
    return Content(
        [row.body for row in rows],
        keys if any(keys) else None,
        tags if any(tags) else None,
        order_keys if any(order_keys) else None,
        properties if any(properties) else None,
        timer_keys=timer_keys if any(timer_keys) else None,
        dedup_keys=dedup_keys if any(row.dedup_key for row in rows) else None,
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
    order_key = defaults.order_key
    if "order_key" in value:
        order_key = some_key(value["order_key"], f"{place}order_key")
    dedup_key = defaults.dedup_key
    if "dedup_key" in value:
        dedup_key = some_key(value["dedup_key"], f"{place}dedup_key")
    timer_key = defaults.timer_key
    if "timer_key" in value:
        timer_key = some_key(value["timer_key"], f"{place}timer_key")
    tags = defaults.tags
    if "tags" in value:
        tags = parse_tags(value["tags"], f"{place}tags")
    properties = _properties(value.get("properties", NONE), f"{place}properties", defaults.properties)
    return Row(_body(value, place), key or None, tags, properties, order_key, dedup_key, timer_key)


def some_key(value: object, place: str) -> str:
    """Never an empty one: who gives such a key wants what it is for, and would not have it."""
    key = _text(value, place)
    if not 0 < len(key.encode()) <= limits.KEY_BYTES_MAX:
        raise malformed(f"{place} is no text of 1 to {limits.KEY_BYTES_MAX} bytes")
    return key


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


def _properties(value: object, place: str, context: Mapping[str, str] = NONE) -> bytes:
    if not isinstance(value, dict):
        raise malformed(f"{place} is no JSON object")
    found = cast("dict[str, Any]", value)
    if context and TRACEPARENT not in found:
        found = {**context, **found}
    try:
        return cast("bytes", msgpack.packb(found)) if found else b""
    except (ValueError, OverflowError, UnicodeEncodeError) as error:
        raise malformed(f"{place} cannot be kept: {error}") from None
