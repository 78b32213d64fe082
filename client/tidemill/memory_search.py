"""Answers the questions of ``search`` from a broker in memory, by looking at everything it has."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

import msgpack

from tidemill.errors import BrokerUnreachable, Refused
from tidemill.memory import MemoryBroker
from tidemill.memory_graves import Letter
from tidemill.routes import ROUTES_TIMEOUT_S
from tidemill_wire.columns import Batch, Column
from tidemill_wire.fields import DEAD_PROPERTY
from tidemill_wire.lanes import lane_name, priority_of
from tidemill_wire.limits import QUERY_MESSAGES_DEFAULT

Row = dict[str, Any]


def look(broker: MemoryBroker, path: str, parameters: Mapping[str, str]) -> Any:
    """The JSON that a broker answers. Places to go on from are counted, not positions."""
    parts = path.removeprefix("/v1/").split("/")
    match parts:
        case ["messages", identity]:
            return _row(broker, identity)
        case ["messages", identity, "why"]:
            return _why(broker, _row(broker, identity))
        case ["transactions"]:
            rows = broker.transactions.rows()
            return {"pending": len(rows), "transactions": rows}
        case ["messages"]:
            return _page([row for row in _rows(broker) if _wanted(row, parameters)], parameters)
        case ["subjects", written, "groups", group, "dead"]:
            subject = unquote(written)
            if (subject, unquote(group)) not in broker.groups:
                raise Refused("not_found", f"there is no group {unquote(group)!r} of {subject!r}")
            return broker.graves.status(subject, unquote(group))
        case ["subjects", written, "messages"]:
            subject = unquote(written)
            grave = broker.graves.named(subject)
            if grave is not None:
                rows = [
                    {**_dead_row(broker, letter), "subject": subject, "sequence": number}
                    for number, letter in enumerate(grave.letters)
                ]
                return _page([row for row in rows if _wanted(row, parameters)], parameters)
            if subject not in broker.subjects:
                raise Refused("not_found", f"there is no subject {subject!r}")
            rows = [row for row in _rows(broker) if row["subject"] == subject and _wanted(row, parameters)]
            return _page(sorted(rows, key=lambda row: int(row["sequence"])), parameters)
        case _:
            raise Refused("not_found", f"there is no path {path}")


class MemoryPort:
    """The HTTP port of a broker in memory, as far as it has one: what is asked with GET."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def get(self, path: str, timeout_s: float = ROUTES_TIMEOUT_S) -> Any:
        """As ``look`` finds it."""
        del timeout_s
        place, _, query = path.partition("?")
        return look(self._broker, place, dict(parse_qsl(query, keep_blank_values=True)))

    async def post(self, path: str, body: object, timeout_s: float = ROUTES_TIMEOUT_S) -> Any:
        """Nothing is told to it."""
        del body, timeout_s
        raise Refused("not_found", f"there is no path {path}")

    async def lines(self, path: str, body: object, silence_s: float) -> AsyncGenerator[Any]:
        """Nothing changes where it is."""
        del body, silence_s
        if path:
            raise BrokerUnreachable(f"a broker in memory streams nothing at {path}")
        yield {}


def _row(broker: MemoryBroker, identity: str) -> Row:
    for row in _rows(broker):
        if row["id"] == identity.lower():
            return row
    raise Refused("not_found", f"there is no message {identity}")


def _why(broker: MemoryBroker, row: Row) -> Row:
    """What became of a message, in each group of its subject."""
    sequence = row["sequence"]
    lane = lane_name(row["subject"], priority_of(sequence))
    groups = [
        broker.diary.standing((name, group), found, sequence, row["tags"])
        for (name, group), found in broker.groups.items()
        if name == lane
    ]
    told = {name: row[name] for name in ("id", "subject", "sequence", "stored_at")}
    return {**told, "history_from": row["stored_at"], "groups": groups}


def _wanted(row: Row, parameters: Mapping[str, str]) -> bool:
    if "key" in parameters and row["key"] != parameters["key"]:
        return False
    low, dash, high = parameters.get("sequence", "0").partition("-")
    if row["sequence"] < int(low) or (dash and row["sequence"] > int(high)):
        return False
    at_ms = datetime.fromisoformat(row["stored_at"]).timestamp() * 1000
    return int(parameters.get("from", "0")) <= at_ms < int(parameters.get("to", str(1 << 62)))


def _page(rows: list[Row], parameters: Mapping[str, str]) -> Row:
    if parameters.get("order") == "newest":
        rows.reverse()
    first = int(parameters.get("after", "0"))
    end = first + int(parameters.get("limit", str(QUERY_MESSAGES_DEFAULT)))
    return {"messages": rows[first:end], "after": str(end) if end < len(rows) else None}


def _rows(broker: MemoryBroker) -> Iterator[Row]:
    for subject in broker.subjects.values():
        for data in subject.batches:
            yield from _rows_of(Batch(data))


def _rows_of(batch: Batch) -> Iterator[Row]:
    header = batch.header
    keys, tags, packed = batch.keys(), batch.tags(), batch.properties()
    created = batch.numbers(Column.CREATED_DELTAS, "i", header.messages)
    sources = batch.numbers(Column.SOURCES, "i", header.messages)
    for index, body in enumerate(batch.bodies()):
        created_ms = header.created_at_ms + (created[index] if created else 0)
        yield {
            "id": batch.message_id(sources[index] if sources else index),
            "subject": batch.partition,
            "sequence": header.first_sequence + index,
            "stored_at": _timestamp(header.stored_at_ms),
            "created_at": _timestamp(created_ms),
            "key": (keys[index] or None) if keys else None,
            "tags": sorted(tags[index]) if tags else [],
            "properties": cast("Row", msgpack.unpackb(packed[index])) if packed and packed[index] else {},
            "attempts": 0,
            "origin": None,
            "priority": header.priority,
            "body": base64.b64encode(body).decode(),
        }


def _dead_row(broker: MemoryBroker, letter: Letter) -> Row:
    """What a copy of it would be."""
    stored = broker.subjects[letter.lane]
    batch = Batch(stored.batches[stored.holding(letter.sequence)])
    row = next(row for row in _rows_of(batch) if row["sequence"] == letter.sequence)
    properties = {**row["properties"], DEAD_PROPERTY: letter.known}
    return {
        **row, "origin": row["id"], "attempts": letter.attempts, "properties": properties,
        "stored_at": _timestamp(letter.failed_at_ms),
    }  # fmt: skip


def _timestamp(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
