"""The columns that messages have in Arrow, in Spark and in an archive.

``partition`` and ``broker_group`` say where a message lies, with ``sequence`` they name it; ``id`` is the message's id
as clients print it. ``partition`` is the name on the broker: that of the subject, of a further partition of it
(``order.paid#3``), or of a lane (``%lane%5%order.paid``). ``date`` and ``hour`` are those of ``stored_at`` in UTC,
which never falls within a partition as long as the brokers' clocks do not; folders of an archive are named by them.

What a message does not have is null; the others are never, though nothing is declared so, for Spark calls all that it
reads nullable. Properties are the bytes that the wire has, a msgpack map, for nobody looked into
them on the way: ``properties_of`` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgpack

from tidemill_spark.arrow import pa

TIME = pa.timestamp("us", "UTC")

_FIELDS: tuple[tuple[str, Any], ...] = (
    ("id", pa.string()),
    ("subject", pa.string()),
    ("broker_group", pa.string()),
    ("partition", pa.string()),
    ("sequence", pa.int64()),
    ("key", pa.string()),
    ("order_key", pa.string()),
    ("timer_key", pa.string()),
    ("tags", pa.list_(pa.field("element", pa.string()))),
    ("properties", pa.binary()),
    ("body", pa.binary()),
    ("priority", pa.int8()),
    ("attempts", pa.int32()),
    ("created_at", TIME),
    ("stored_at", TIME),
    ("deliver_at", TIME),
    ("producer", pa.string()),
    ("producer_sequence", pa.int64()),
    ("dedup_key", pa.binary()),
    ("replayed", pa.bool_()),
    ("ordered", pa.bool_()),
    ("origin", pa.string()),
    ("epoch", pa.int32()),
    ("position", pa.int64()),
    ("date", pa.date32()),
    ("hour", pa.int8()),
)

SCHEMA: Any = pa.schema([pa.field(name, kind) for name, kind in _FIELDS])
COLUMNS: tuple[str, ...] = tuple(name for name, _ in _FIELDS)

_IN_SPARK: Mapping[Any, str] = {
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.int8(): "TINYINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    TIME: "TIMESTAMP",
}


def schema_of(columns: Sequence[str]) -> Any:
    """The Arrow schema of some of the columns, in the order in which they are asked for."""
    return pa.schema([SCHEMA.field(name) for name in columns])


def spark_schema(columns: Sequence[str] = COLUMNS) -> str:
    """The same as Spark declares it."""
    return ", ".join(f"`{name}` {_in_spark(SCHEMA.field(name).type)}" for name in columns)


def _in_spark(kind: Any) -> str:
    return f"ARRAY<{_IN_SPARK[kind.value_type]}>" if pa.types.is_list(kind) else _IN_SPARK[kind]


def properties_of(packed: bytes | None) -> dict[str, Any]:
    """The properties of one message; none for bytes that are no map, which nobody has looked at before."""
    try:
        found: object = cast("object", msgpack.unpackb(packed)) if packed else None
    except (ValueError, msgpack.UnpackException, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
