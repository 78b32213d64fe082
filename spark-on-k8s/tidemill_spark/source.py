"""``format("tidemill")``: messages as rows, read in one piece or as a stream, and written.

Offsets are sequences by partition, so a micro-batch that is read again has the same rows, from whichever broker. Which
columns are made is said by ``.schema(...)`` or the option ``columns``: Spark tells a source in Python no more.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidemill_spark.decode import Place, decode, portioned, split
from tidemill_spark.options import Options, parse_options
from tidemill_spark.ranges import Range, RangeGone, plan, read
from tidemill_spark.schema import COLUMNS, spark_schema
from tidemill_spark.sending import Target, Task, send_all
from tidemill_wire.errors import TidemillError

NARROWED = ("broker_group", "partition", "subject")
"""Columns by which whole partitions are left out."""
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class NotTold(TidemillError):
    """Spark did not say which micro-batch a task is of."""


class TidemillSource(DataSource):  # type: ignore[misc, unused-ignore]
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "tidemill"

    def schema(self) -> str:
        return spark_schema(parse_options(self.options, streaming=False).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(parse_options(self.options, streaming=False), columns_of(schema))

    def streamReader(self, schema: StructType) -> Any:
        from tidemill_spark.streaming import StreamReader

        return StreamReader(parse_options(self.options, streaming=True), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return Writer(target_of(self.options, overwrite=overwrite), uuid.uuid4().hex, _now_ms())

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return StreamWriter(target_of(self.options, overwrite=overwrite), _now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Those that Spark wants."""
    names = tuple(schema.names)
    if unknown := [name for name in names if name not in COLUMNS]:
        raise TidemillError(f"there is no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    return names


def target_of(given: Mapping[str, str], *, overwrite: bool) -> Target:
    """Where rows are written to."""
    options = parse_options(given, streaming=False)
    if overwrite or len(options.subjects) != 1 or options.subjects[0].endswith("*"):
        raise TidemillError("messages are appended to one subject: write with mode('append') and its name")
    return Target(options.server, options.subjects[0], options.group, options.replayed, options.rate)


@dataclass
class RangePartition(InputPartition):
    """What one task reads."""

    range: Range

    def __init__(self, one: Range) -> None:
        self.range = one


def rows_of(one: Range, columns: Sequence[str], *, fail_on_data_loss: bool) -> Iterator[Any]:
    """The record batches of a range; of what has expired an error, or nothing."""
    try:
        for data in read(one):
            yield from _decoded(one, data, columns)
    except RangeGone as gone:
        if fail_on_data_loss:
            raise
        if gone.first is not None and gone.first < one.next_sequence:
            rest = Range(
                one.subject, one.broker_group, one.partition, gone.first, one.next_sequence, 0, one.server,
                one.urls, one.prefers,
            )  # fmt: skip
            yield from rows_of(rest, columns, fail_on_data_loss=False)


def _decoded(one: Range, data: bytes, columns: Sequence[str]) -> Iterator[Any]:
    batches, _ = split(data)
    place = Place(one.subject, one.broker_group, one.partition)
    for portion in portioned(batches):
        rows = decode(portion, place, columns, one.first_sequence, one.next_sequence)
        if rows.num_rows:
            yield rows


class Reader(DataSourceReader):  # type: ignore[misc, unused-ignore]
    """All there is between two places."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._only: dict[str, set[str]] = {}
        self._since: datetime | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Whole partitions are left out, and what was stored before a time. Spark looks at the rows all the same: a
        range begins with the first batch of a time. Only who asks for it has it: Spark keeps what was narrowed for one
        query of a frame, and later queries of the same frame would miss rows.
        """
        if not self._options.push_filters:
            yield from filters
            return
        for one in filters:
            match one:
                case EqualTo((name,), value) if name in NARROWED:
                    self._narrow(name, {str(value)})
                case In((name,), values) if name in NARROWED:
                    self._narrow(name, set(map(str, values)))
                case (
                    GreaterThan(("stored_at",), value)
                    | GreaterThanOrEqual(("stored_at",), value)
                    | EqualTo(("stored_at",), value)
                ) if isinstance(value, datetime):
                    at = value.astimezone()
                    self._since = at if self._since is None else max(at, self._since)
                case _:
                    pass
            yield one

    def _narrow(self, name: str, values: set[str]) -> None:
        self._only[name] = self._only.get(name, values) & values

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        start = options.start
        if self._since is not None and not isinstance(start, dict):
            later = start if isinstance(start, datetime) else self._since
            start = start if start == "latest" else max(later, self._since)
        found = plan(
            options.server, options.subjects, start, options.end,
            target_bytes=options.target_bytes, prefers=options.prefers,
        )  # fmt: skip
        return [RangePartition(one) for one in found if self._wants(one)]

    def _wants(self, one: Range) -> bool:
        said = {"broker_group": one.broker_group, "partition": one.partition, "subject": one.subject}
        return all(said[name] in values for name, values in self._only.items())

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        return rows_of(partition.range, self._columns, fail_on_data_loss=self._options.fail_on_data_loss)


@dataclass
class Written(WriterCommitMessage):
    """What a task has stored."""

    messages: int


class Writer(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """Messages are stored while tasks run, each once, however often a task is tried; a job that fails leaves those that
    it has stored.
    """

    def __init__(self, target: Target, job: str, at_ms: int) -> None:
        self._target = target
        self._job = job
        self._at_ms = at_ms

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return Written(
            send_all(self._target, Task(self._job, _context().partitionId(), self._at_ms), iterator)
        )


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc, unused-ignore]
    """The same of each micro-batch: one that is written again, after a restart too, stores nothing twice."""

    def __init__(self, target: Target, at_ms: int) -> None:
        self._target = target
        self._at_ms = at_ms

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if not query or not batch:
            raise NotTold("Spark does not say which micro-batch this is of: its rows might be stored twice")
        job = json.dumps([query, batch])
        return Written(send_all(self._target, Task(job, context.partitionId(), self._at_ms), iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """There is nothing left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What is stored stays, and is not stored again."""


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a writer writes in a task"
    return context
