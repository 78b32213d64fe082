"""Rows of Arrow -> the contents of batches: by where they go, by priority, and not too large. Pure.

Columns are those of ``schema.py``; all but ``body`` may be missing. ``body`` may be text, ``properties`` a map of
texts. The same rows in the same order make the same contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

import msgpack

from tidemill_wire.columns import Content
from tidemill_wire.errors import Refused
from tidemill_wire.limits import KEY_BYTES_MAX, MIB

CUT_MESSAGES = 8192
CUT_BYTES = 1 * MIB
TAKEN = frozenset(
    (
        "body",
        "key",
        "order_key",
        "tags",
        "properties",
        "priority",
        "created_at",
        "deliver_at",
        "origin",
        "timer_key",
    )
)
"""Columns that make messages; others are passed over, so that what was read can be written."""


class Cut(NamedTuple):
    """The messages of one batch."""

    place: int
    ordered: bool
    later: bool
    priority: int
    created_at_ms: int | None
    content: Content


class _Row(NamedTuple):
    place: int
    ordered: bool
    later: bool
    priority: int


def cut_rows(rows: Any, places: int, place_of: Callable[[str], int]) -> Iterator[Cut]:
    """The contents of batches. Rows that go to one place keep their order."""
    assert places > 0
    names = [name for name in rows.schema.names if name in TAKEN]
    if "body" not in names:
        raise Refused("malformed_command", "rows without a column body are no messages")
    columns = {name: cast("list[Any]", rows.column(name).to_pylist()) for name in names}
    count = rows.num_rows
    if not names[1:]:
        wanted = {_Row(0, False, False, 0): list(range(count))}
    else:
        wanted = _sorted_out(columns, count, place_of)
    sizes = _sizes(columns)
    for row, indexes in wanted.items():
        for part in _parts(indexes, sizes):
            yield _cut(row, {name: [column[at] for at in part] for name, column in columns.items()})


def _sizes(columns: Mapping[str, Sequence[Any]]) -> list[int]:
    """How long what a row says is, about: of texts the characters, of a map its entries."""
    sizes = [len(body or b"") for body in columns["body"]]
    for name in ("key", "order_key", "timer_key", "origin"):
        for at, text in enumerate(columns.get(name, ())):
            sizes[at] += len(text or "")
    for at, one in enumerate(columns.get("properties", ())):
        if isinstance(one, bytes):
            sizes[at] += len(one)
        else:
            pairs: Iterable[tuple[str, str | None]] = one or ()
            sizes[at] += sum(len(name) + len(text or "") for name, text in pairs)
    return sizes


def _sorted_out(
    columns: Mapping[str, Sequence[Any]], count: int, place_of: Callable[[str], int]
) -> dict[_Row, list[int]]:
    order_keys = columns.get("order_key") or [None] * count
    later = columns.get("deliver_at") or [None] * count
    priorities = columns.get("priority") or [0] * count
    found: dict[_Row, list[int]] = {}
    known: dict[str, int] = {}
    for at, (order_key, due, priority) in enumerate(zip(order_keys, later, priorities, strict=True)):
        place = 0
        if order_key:
            if order_key not in known:
                known[order_key] = place_of(order_key)
            place = known[order_key]
        row = _Row(place, bool(order_key), due is not None, int(priority or 0))
        found.setdefault(row, []).append(at)
    return found


def _parts(indexes: Sequence[int], sizes: Sequence[int]) -> Iterator[Sequence[int]]:
    begin = size = 0
    for number, at in enumerate(indexes):
        if number > begin and (size + sizes[at] > CUT_BYTES or number - begin >= CUT_MESSAGES):
            yield indexes[begin:number]
            begin, size = number, 0
        size += sizes[at]
    if begin < len(indexes):
        yield indexes[begin:]


def _cut(row: _Row, columns: Mapping[str, list[Any]]) -> Cut:
    bodies = [_body(one) for one in columns["body"]]
    created = columns.get("created_at")
    created_ms = None if created is None or None in created else [_ms(one) for one in created]
    base = None if created_ms is None else created_ms[0]
    deltas = None if created_ms is None or base is None else [one - base for one in created_ms]
    if deltas is not None and max(map(abs, deltas)) >= 1 << 31:
        base, deltas = None, None  # further apart than a batch can say
    due = [_ms(one) - (base or 0) for one in columns["deliver_at"]] if row.later else None
    if due is not None and base is None:
        base = 0
    content = Content(
        bodies,
        _texts(columns.get("key"), "a key"),
        [tuple(sorted(set(one or ()))) for one in columns["tags"]] if _any(columns.get("tags")) else None,
        _texts(columns.get("order_key"), "an order key"),
        [_packed(one) for one in columns["properties"]] if _any(columns.get("properties")) else None,
        created_deltas=deltas if deltas is not None and any(deltas) else None,
        deliver_deltas=due,
        origins=[one or "" for one in columns["origin"]] if _any(columns.get("origin")) else None,
        timer_keys=_texts(columns.get("timer_key"), "a timer key") if row.later else None,
    )
    return Cut(row.place, row.ordered, row.later, row.priority, base, content)


def _any(column: Sequence[Any] | None) -> bool:
    return column is not None and any(column)


def _texts(column: Sequence[str | None] | None, what: str) -> Sequence[str | None] | None:
    if column is None or not any(column):
        return None
    for text in column:
        if text and len(text) * 4 > KEY_BYTES_MAX and len(text.encode()) > KEY_BYTES_MAX:
            raise Refused("limit_exceeded", f"{what} has more than {KEY_BYTES_MAX} bytes")
    return column


def _body(one: object) -> bytes:
    if one is None:
        return b""
    return one.encode() if isinstance(one, str) else cast("bytes", one)


def _packed(one: object) -> bytes:
    """Properties: packed already, or a map as Arrow has it, a list of pairs."""
    if not one:
        return b""
    if isinstance(one, bytes):
        return one
    return cast("bytes", msgpack.packb(dict(cast("list[tuple[str, str]]", one))))


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
