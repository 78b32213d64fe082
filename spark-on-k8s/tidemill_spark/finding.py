"""Reading a lake: messages that a query means, a dataset of Arrow, SQL.

A message is found by its id in three steps: the files whose ids leave it open, of those the ones whose list of batch
ids has its batch, and of those the row. A file is sorted by key: of its row groups those are read whose keys leave it
open. Nothing of this needs Spark.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any

import numpy as np

from tidemill_spark import action_tables
from tidemill_spark.arrow import pa, pc
from tidemill_spark.commits import File
from tidemill_spark.ids import holds
from tidemill_spark.lake import Lake
from tidemill_spark.layout import actions_uri, ids_name
from tidemill_spark.queries import Query, select
from tidemill_spark.schema import COLUMNS, SCHEMA
from tidemill_spark.stores.ranged import arrow_file
from tidemill_spark.tables import completed, opened, read_file, reading

READERS = 8
"""Files looked at side by side: of a distant store each waits."""


def files_for(lake: Lake, query: Query) -> list[File]:
    """The files that may hold what is meant, after a look at their lists of ids."""
    found = lake.files(query.subjects, wanted=query.may_be_in)
    batches = query.batch_ids()
    if not batches:
        return found
    with ThreadPoolExecutor(READERS) as readers:
        held = readers.map(partial(_holds_one, lake, batches), found)
        return [one for one, is_held in zip(found, held, strict=True) if is_held]


def _holds_one(lake: Lake, batches: Sequence[bytes], file: File) -> bool:
    data = lake.store.read(ids_name(file.name))
    return any(holds(data, one) for one in batches)


def find(lake: Lake, query: Query, columns: Sequence[str] = COLUMNS) -> Iterator[Any]:
    """Tables of what is meant, file by file, in the order of their names: subject, day, hour."""
    files = files_for(lake, query)
    with ThreadPoolExecutor(READERS) as readers:
        for begin in range(0, len(files), READERS):
            for table in readers.map(partial(in_file, lake, query, columns), files[begin : begin + READERS]):
                if table.num_rows:
                    yield table


def in_file(lake: Lake, query: Query, columns: Sequence[str], file: File) -> Any:
    """What of a file is meant."""
    wanted = COLUMNS if query.where else columns
    with reading(file):
        source = lake.store.open(file.name, file.size)
        rows = _rows_of(source, query, file)
        table = read_file(source, file, wanted, rows)
    return query.filtered(table).select(list(columns))


def _rows_of(source: Any, query: Query, file: File) -> Any:
    """The places of rows; ``None`` for all."""
    timed = replace(query, start_ms=None, end_ms=None)
    within = (query.start_ms is None or query.start_ms <= file.stored_ms[0]) and (
        query.end_ms is None or file.stored_ms[1] < query.end_ms
    )
    looked = timed if within else query
    if not looked.columns:
        return None
    parquet = opened(source)
    metadata = parquet.metadata
    places: list[Any] = []
    begin = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        if not query.keys or _keys_may_be_in(row_group, query.keys):
            table = completed(parquet.read_row_group(group, list(looked.columns)), file, looked.columns)
            places.append(looked.rows(table) + begin)
        begin += row_group.num_rows
    return np.concatenate(places) if places else np.zeros(0, np.int64)


def _keys_may_be_in(row_group: Any, keys: Sequence[str]) -> bool:
    for at in range(row_group.num_columns):
        column = row_group.column(at)
        if column.path_in_schema == "key":
            said = column.statistics
            if said is None or not said.has_min_max:
                return said is None or said.null_count != row_group.num_rows
            return any(said.min <= key <= said.max for key in keys)
    return False


def dataset(lake: Lake, files: Sequence[File] | None = None, schema: Any = SCHEMA) -> Any:
    """A dataset of Arrow over what is in the lake, or some of its files: for DuckDB, pandas, Polars, and Arrow itself.

    Subject, date and hour are known of each file unread, so who filters by them reads few.
    """
    module: Any = importlib.import_module("pyarrow.dataset")
    checked = module.ParquetFragmentScanOptions(page_checksum_verification=True)
    parquet = module.ParquetFileFormat(default_fragment_scan_options=checked)
    fragments: list[Any] = []
    for file in lake.files() if files is None else files:
        day = pa.scalar(date.fromisoformat(file.date), pa.date32())
        known = (
            (module.field("subject") == file.subject)
            & (module.field("date") == day)
            & (module.field("hour") == pa.scalar(file.hour, pa.int8()))
        )
        source = arrow_file(file.size, partial(lake.store.fetch, file.name))
        fragments.append(parquet.make_fragment(source, partition_expression=known))
    return module.FileSystemDataset(fragments, schema, parquet)


def sql(lake: Lake, text: str, more: dict[str, Any] | None = None) -> Any:
    """What SQL says of the tables ``messages`` and ``actions``."""
    actions = Lake.at(actions_uri(lake.store.uri))
    tables = {"messages": dataset(lake), "actions": dataset(actions, schema=action_tables.SCHEMA)}
    return select(text, {**tables, **(more or {})})


def counted(lake: Lake, query: Query) -> dict[str, int]:
    """How many messages of each subject are meant, and how many bytes their bodies have."""
    rows: dict[str, int] = {}
    size = 0
    for table in find(lake, query, ("subject", "body")):
        rows[table["subject"][0].as_py()] = rows.get(table["subject"][0].as_py(), 0) + table.num_rows
        size += int(pc.sum(pc.binary_length(table["body"])).as_py() or 0)
    return {**rows, "": size}
