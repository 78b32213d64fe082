"""What stands behind ``.option(...)``: parsed once, on the driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, cast

from tidemill_spark.ranges import TARGET_BYTES, Key, Position, Prefers
from tidemill_spark.schema import COLUMNS
from tidemill_wire.errors import TidemillError


class BadOption(TidemillError):
    """An option that cannot be."""


@dataclass(frozen=True, slots=True)
class Options:
    """Of a read or a write."""

    server: str
    subjects: tuple[str, ...]
    start: Position
    end: Position
    max_bytes: int
    target_bytes: int
    prefers: Prefers
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    group: str
    replayed: bool
    rate: float
    push_filters: bool


def parse_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """Names are those of the documentation, in any case; Spark has some of its own, which are passed over."""
    said = {name.lower(): value for name, value in given.items()}
    server = said.get("meta") or said.get("server") or ""
    if not server:
        raise BadOption("say where the queue is: .option('meta', 'HOST:PORT')")
    subjects = tuple(filter(None, (one.strip() for one in said.get("subject", "").split(","))))
    if not subjects:
        raise BadOption("say what is read or written: .option('subject', 'order.*')")
    columns = tuple(filter(None, (one.strip() for one in said.get("columns", "").split(",")))) or COLUMNS
    if unknown := [name for name in columns if name not in COLUMNS]:
        raise BadOption(f"there is no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    return Options(
        server.removeprefix("http://").rstrip("/"),
        subjects,
        parse_position(said.get("startingposition", "latest" if streaming else "earliest")),
        parse_position(said.get("endingposition", "latest")),
        _number(said, "maxBytesPerTrigger", 0),
        _number(said, "targetBytes", TARGET_BYTES),
        cast("Prefers", _word(said, "readFrom", ("slave", "master"), "slave")),
        _word(said, "failOnDataLoss", ("true", "false"), "true") == "true",
        columns,
        said.get("group", ""),
        _word(said, "replayed", ("true", "false"), "false") == "true",
        float(_number(said, "messagesPerSecond", 0)),
        _word(said, "pushFilters", ("true", "false"), "false") == "true",
    )


def _number(said: Mapping[str, str], name: str, absent: int) -> int:
    written = said.get(name.lower())
    if written is None:
        return absent
    if not written.isascii() or not written.isdigit():
        raise BadOption(f"{name} {written!r} is no whole number")
    return int(written)


def _word(said: Mapping[str, str], name: str, known: tuple[str, ...], absent: str) -> str:
    written = said.get(name.lower(), absent).lower()
    if written not in known:
        raise BadOption(f"{name} {written!r} is none of {', '.join(known)}")
    return written


def parse_position(written: str) -> Position:
    """``earliest``, ``latest``, a time (2026-09-01T00:00:00Z, or milliseconds), or sequences as offsets have them."""
    if written in {"earliest", "latest"}:
        return cast("Literal['earliest', 'latest']", written)
    if written.isascii() and written.isdigit():
        return datetime.fromtimestamp(int(written) / 1000, UTC)
    if written.startswith("{"):
        try:
            return to_positions(cast("object", json.loads(written)))
        except ValueError:
            raise BadOption(f"{written[:80]!r} is no map of sequences") from None
    try:
        at = datetime.fromisoformat(written)
    except ValueError:
        raise BadOption(f"{written[:80]!r} is neither earliest, latest, a time nor a map") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def to_offset(positions: Mapping[Key, int]) -> dict[str, int]:
    """As Spark keeps it in checkpoints: ``{"g0/order.paid": 3}``."""
    return {"/".join(key): sequence for key, sequence in sorted(positions.items())}


def to_positions(offset: object) -> dict[Key, int]:
    """And back."""
    if not isinstance(offset, dict):
        raise ValueError("no map")  # noqa: TRY004 -- who calls catches one kind
    found: dict[Key, int] = {}
    for name, sequence in cast("dict[object, object]", offset).items():
        group, slash, partition = str(name).partition("/")
        if not slash or type(sequence) is not int:
            raise ValueError(f"{name!r} is no partition, or {sequence!r} no sequence")
        found[group, partition] = sequence
    return found
