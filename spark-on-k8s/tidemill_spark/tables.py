"""Messages as files of Parquet, and back. Pure but for what it is given to write to.

A file has the messages of one hour of a subject, sorted by key, and within equal keys by where they lie: who looks for
a key reads one row group. Bloom filters on id and key let Spark pass over the others. ``subject``, ``date`` and
``hour`` are in the folder's name and not in the file, as tables partitioned by Hive's rules have it. Arrow's own schema
is not in the file either, for a body that was a view is bytes like any other: Parquet's types say all there is to say.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

import numpy as np

from tidemill_spark.arrow import numbers_of, numpy_of, pa, pc
from tidemill_spark.commits import File, Span
from tidemill_spark.errors import LakeDamaged, WrongRequest
from tidemill_spark.ids import build_ids
from tidemill_spark.layout import MS_A_HOUR, Hour, data_name, ids_name
from tidemill_spark.schema import COLUMNS, SCHEMA
from tidemill_spark.stores import Store
from tidemill_spark.views import sizes_of, taken

pq: Any = importlib.import_module("pyarrow.parquet")

IN_THE_NAME = ("subject", "date", "hour")
STORED: tuple[str, ...] = tuple(name for name in COLUMNS if name not in IN_THE_NAME)
REPEATED = ("broker_group", "partition", "producer", "tags.list.element", "order_key", "timer_key")
"""Columns with few values: the others are written without looking for a dictionary."""
WITH_LIMITS = [
    *(name for name in STORED if name not in {"tags", "body", "properties", "dedup_key"}),
    "tags.list.element",
]
"""Columns whose least and greatest value of a row group are worth knowing."""
ROW_GROUP_BYTES = 64 << 20
ROWS_MIN, ROWS_MAX = 1 << 10, 1 << 20
FALSE_POSITIVES = 0.01
ZSTD_LEVEL = 1
PLACE = ("broker_group", "partition", "sequence")
COMPRESSIONS = {"Zstd": ("zstd", ZSTD_LEVEL), "Snappy": ("snappy", None), "None": ("none", None)}


def hours_of(table: Any, subject: str) -> Iterator[tuple[Hour, Any]]:
    """A table by the hours in which its messages were stored, in the order of time."""
    hours = numpy_of(table["stored_at"].cast(pa.int64())) // (MS_A_HOUR * 1000)
    for one in np.unique(hours).tolist():
        rows = np.flatnonzero(hours == one)
        whole = len(rows) == table.num_rows
        if whole:
            part = table
        elif rows[-1] - rows[0] + 1 == len(rows):
            part = table.slice(int(rows[0]), len(rows))
        else:
            part = taken(table, rows)  # a clock went back
        days, hour = divmod(one, 24)
        yield Hour(subject, str(np.datetime64(days, "D")), hour), part


def sorted_by_key(table: Any) -> Any:
    """As files have it. Where no message has a key they lie as they came."""
    keys = table["key"]
    if keys.null_count == len(keys):
        return table
    names = (
        ("key", "sequence") if same(table["partition"]) and same(table["broker_group"]) else ("key", *PLACE)
    )
    wanted = pc.sort_indices(table.select(list(names)), sort_keys=[(name, "ascending") for name in names])
    return taken(table, numpy_of(wanted))


def same(column: Any) -> bool:
    """Whether all of a column is one value."""
    return bool(len(pc.unique(column)) == 1)


def spans_of(table: Any) -> tuple[Span, ...]:
    """Which sequences of which partitions a table has."""
    if table.num_rows and same(table["partition"]) and same(table["broker_group"]):
        bounds = pc.min_max(table["sequence"]).as_py()
        place = table["broker_group"][0].as_py(), table["partition"][0].as_py()
        return (Span(*place, bounds["min"], bounds["max"] + 1, table.num_rows),)
    groups = table.select(PLACE).group_by(["broker_group", "partition"])
    found = groups.aggregate([("sequence", "min"), ("sequence", "max"), ("sequence", "count")]).to_pylist()
    spans = (
        Span(
            row["broker_group"],
            row["partition"],
            row["sequence_min"],
            row["sequence_max"] + 1,
            row["sequence_count"],
        )
        for row in found
    )
    return tuple(sorted(spans))


def write_file(store: Store, table: Any, hour: Hour, stem: str, compression: str) -> File:
    """Write a table of one hour of one subject, and the list of its ids; and what a lake says of it."""
    if compression not in COMPRESSIONS:
        raise WrongRequest(f"compression {compression!r}: write one of {', '.join(COMPRESSIONS)}")
    table = sorted_by_key(table.select(STORED))
    rows = row_group_rows(table)
    codec, level = COMPRESSIONS[compression]
    bloom = {"ndv": min(rows, table.num_rows), "fpp": FALSE_POSITIVES}
    name = data_name(hour, stem)
    size = store.make(
        name,
        lambda sink: pq.write_table(
            table,
            sink,
            row_group_size=rows,
            compression=codec,
            compression_level=level,
            use_dictionary=list(REPEATED),
            write_statistics=WITH_LIMITS,
            write_page_index=True,
            write_page_checksum=True,
            bloom_filter_options={"id": bloom, "key": bloom},
            sorting_columns=[pq.SortingColumn(STORED.index("key"))],
            store_schema=False,
        ),
    )
    ids, first_and_last = build_ids(table["id"])
    store.write(ids_name(name), ids)
    stored = pc.min_max(table["stored_at"].cast(pa.int64())).as_py()
    return File(
        name, hour.subject, hour.date, hour.hour, table.num_rows, size, spans_of(table),
        (stored["min"] // 1000, stored["max"] // 1000), first_and_last,
    )  # fmt: skip


def row_group_rows(table: Any) -> int:
    """Rows of about so many bytes."""
    size = sum(
        int(sizes_of(column).sum()) if pa.types.is_binary_view(column.type) else column.nbytes
        for column in table.columns
    )
    return int(max(ROWS_MIN, min(ROWS_MAX, ROW_GROUP_BYTES * table.num_rows // max(1, size))))


@contextmanager
def reading(file: File) -> Generator[None]:
    """What is wrong with a file while it is read, as what is wrong with the lake. Arrow finds a flipped bit by the sums
    of pages, and raises whatever it stumbles over first.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise LakeDamaged(f"{file.name} is named by a commit, and is not there: {error}") from error
    except (OSError, pa.ArrowException) as error:
        raise LakeDamaged(f"{file.name} cannot be read: {error}") from error


def opened(source: Any) -> Any:
    """An open file of Arrow's as Parquet."""
    return pq.ParquetFile(source, page_checksum_verification=True)


def read_from(store: Store, file: File, columns: Sequence[str] = COLUMNS, schema: Any = SCHEMA) -> Any:
    """Columns of a file of a store; ``LakeDamaged`` when it is not what was written."""
    with reading(file):
        return read_file(store.open(file.name, file.size), file, columns, schema=schema)


def unpacked_bytes(store: Store, file: File) -> int:
    """How much a file is in memory, about."""
    with reading(file):
        metadata = opened(store.open(file.name, file.size)).metadata
        return sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))


def read_file(
    source: Any, file: File, columns: Sequence[str] = COLUMNS, rows: Any = None, schema: Any = SCHEMA
) -> Any:
    """Columns of a file; with ``rows`` only those at these places. A file of an older version lacks what came later:
    that is null. ``source`` is an open file of Arrow's.
    """
    parquet = opened(source)
    there = [name for name in columns if name in parquet.schema_arrow.names]
    if rows is None:
        table = parquet.read(there)
        if table.num_rows != file.rows:
            raise LakeDamaged(f"{file.name} has {table.num_rows} rows, and should have {file.rows}")
    else:
        table = _some_rows(parquet, there, rows)
    return completed(table, file, columns, schema)


def _some_rows(parquet: Any, columns: Sequence[str], rows: Any) -> Any:
    """Of the row groups that have one of them."""
    metadata, parts, begin = parquet.metadata, [], 0
    for group in range(metadata.num_row_groups):
        end = begin + metadata.row_group(group).num_rows
        own = rows[(rows >= begin) & (rows < end)] - begin
        if len(own):
            parts.append(parquet.read_row_group(group, list(columns)).take(numbers_of(own)))
        begin = end
    return pa.concat_tables(parts) if parts else parquet.schema_arrow.empty_table().select(list(columns))


def completed(table: Any, file: File, columns: Sequence[str], schema: Any = SCHEMA) -> Any:
    """The same with what its folder says, and with nulls for what it was written without."""
    made: list[Any] = []
    for name in columns:
        kind = schema.field(name).type
        if name in table.column_names:
            made.append(table[name].cast(kind))
        elif name == "subject":
            made.append(pa.repeat(pa.scalar(file.subject), table.num_rows))
        elif name == "date":
            made.append(pa.repeat(pa.scalar(date.fromisoformat(file.date), kind), table.num_rows))
        elif name == "hour":
            made.append(pa.repeat(pa.scalar(file.hour, kind), table.num_rows))
        else:
            made.append(pa.nulls(table.num_rows, kind))
    fields = [pa.field(name, schema.field(name).type) for name in columns]
    return pa.Table.from_arrays(made, schema=pa.schema(fields))


def in_order(table: Any) -> Any:
    """By partition and sequence: as the messages were stored."""
    keys = [(name, "ascending") for name in PLACE]
    return table.take(pc.sort_indices(table, sort_keys=keys))
