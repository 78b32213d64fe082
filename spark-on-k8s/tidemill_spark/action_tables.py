"""What was done with messages, as files of Parquet beside theirs, and back. Pure but for what it is given to write to.

A file has the actions of one hour of a subject, sorted by the messages that they are about: who looks for one reads
what may be of it. ``consumer_group`` is a group's name, for ``group`` is a word of SQL. What an action does not say is
null: sequences where nobody knows them (``actions.py``), consumers of what was done to a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from tidemill_spark.actions import Row
from tidemill_spark.arrow import pa, pc
from tidemill_spark.commits import File, Span
from tidemill_spark.errors import WrongRequest
from tidemill_spark.layout import MS_A_HOUR, Hour, data_name
from tidemill_spark.schema import TIME
from tidemill_spark.stores import Store
from tidemill_spark.tables import COMPRESSIONS, IN_THE_NAME, pq, read_from

FORMAT = "Actions"
LOG = "%actions"
"""A name in the place of a partition's, for a lake counts positions of the action log as others count sequences."""

_FIELDS: tuple[tuple[str, Any], ...] = (
    ("at", TIME),
    ("subject", pa.string()),
    ("broker_group", pa.string()),
    ("partition", pa.string()),
    ("consumer_group", pa.string()),
    ("consumer", pa.string()),
    ("action", pa.string()),
    ("attempts", pa.int32()),
    ("first_sequence", pa.int64()),
    ("last_sequence", pa.int64()),
    ("messages", pa.int64()),
    ("until", TIME),
    ("reason", pa.string()),
    ("error", pa.string()),
    ("place", pa.string()),
    ("letter", pa.int64()),
    ("pull", pa.int64()),
    ("position", pa.int64()),
    ("row", pa.int32()),
    ("date", pa.date32()),
    ("hour", pa.int8()),
)
SCHEMA: Any = pa.schema([pa.field(name, kind) for name, kind in _FIELDS])
COLUMNS: tuple[str, ...] = tuple(name for name, _ in _FIELDS)
STORED: tuple[str, ...] = tuple(name for name in COLUMNS if name not in IN_THE_NAME)
REPEATED = ("broker_group", "partition", "consumer_group", "consumer", "action", "reason", "error", "place")
SORTED_BY = ("partition", "first_sequence", "position", "row")
ROW_GROUP_ROWS = 1 << 16


def hours_of(rows: Sequence[Row], subject: str, broker_group: str) -> Iterator[tuple[Hour, Any]]:
    """Rows of a subject as tables, one for each hour."""
    hours: dict[int, list[Row]] = {}
    for row in rows:
        hours.setdefault(row["at"] // MS_A_HOUR, []).append(row)
    for number, own in sorted(hours.items()):
        at = datetime.fromtimestamp(number * MS_A_HOUR / 1000, UTC)
        yield Hour(subject, at.date().isoformat(), at.hour), table_of(own, broker_group)


def table_of(rows: Sequence[Row], broker_group: str) -> Any:
    """What a file has of them, sorted."""
    columns: list[Any] = []
    for name in STORED:
        kind = SCHEMA.field(name).type
        if name == "broker_group":
            columns.append(pa.repeat(pa.scalar(broker_group), len(rows)))
        elif kind == TIME:
            moments = (row.get(name) for row in rows)
            columns.append(pa.array([None if at is None else at * 1000 for at in moments], TIME))
        else:
            columns.append(pa.array([row.get(name) for row in rows], kind))
    return sorted_rows(pa.Table.from_arrays(columns, STORED))


def sorted_rows(table: Any) -> Any:
    """As files have them."""
    return table.take(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in SORTED_BY]))


def write_actions(store: Store, table: Any, hour: Hour, stem: str, compression: str) -> File:
    """Write a table of one hour of one subject; and what a lake says of it."""
    if compression not in COMPRESSIONS:
        raise WrongRequest(f"compression {compression!r}: write one of {', '.join(COMPRESSIONS)}")
    codec, level = COMPRESSIONS[compression]
    name = data_name(hour, stem)
    size = store.make(
        name,
        lambda sink: pq.write_table(
            table, sink, row_group_size=ROW_GROUP_ROWS, compression=codec, compression_level=level,
            use_dictionary=list(REPEATED), write_page_index=True, write_page_checksum=True,
            store_schema=False,
            sorting_columns=[pq.SortingColumn(STORED.index(one)) for one in SORTED_BY],
        ),
    )  # fmt: skip
    at = pc.min_max(table["at"].cast(pa.int64())).as_py()
    return File(
        name, hour.subject, hour.date, hour.hour, table.num_rows, size, _spans(table),
        (at["min"] // 1000, at["max"] // 1000), ("", ""),
    )  # fmt: skip


def _spans(table: Any) -> tuple[Span, ...]:
    """Which positions of which broker groups' logs a table has."""
    counts = [("position", "min"), ("position", "max"), ("position", "count")]
    found = table.group_by(["broker_group"]).aggregate(counts).to_pylist()
    spans = (
        Span(row["broker_group"], LOG, row["position_min"], row["position_max"] + 1, row["position_count"])
        for row in found
    )
    return tuple(sorted(spans))


def read_actions(store: Store, file: File, columns: Sequence[str] = COLUMNS) -> Any:
    """Columns of a file."""
    return read_from(store, file, columns, SCHEMA)
