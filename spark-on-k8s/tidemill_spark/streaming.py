"""The streaming reader: offsets are the next sequence of each partition.

A partition that appears later begins at its first message, for what made it would be missed otherwise. With a bound of
bytes, each partition moves on by its share of what there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidemill_spark.options import Options, to_offset, to_positions
from tidemill_spark.ranges import Key, RangeGone, Standing, place, ranges_of, standings
from tidemill_spark.source import RangePartition, rows_of


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc, unused-ignore]
    """See the module."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._target: dict[Key, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        start = self._options.start
        return to_offset({one.key: place(one, start) for one in self._standings()})

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        begins, now = to_positions(start), self._standings()
        ends = {one.key: max(one.next, begins.get(one.key, 0)) for one in now}
        if self._target is not None:
            ends = {
                key: min(end, max(self._target.get(key, 0), begins.get(key, 0))) for key, end in ends.items()
            }
        share = _share(limit, now, begins, ends)
        for one in now:
            first = begins.get(one.key, one.first)
            if ends[one.key] > first:
                ends[one.key] = first + math.ceil((ends[one.key] - first) * share)
        return to_offset({**begins, **ends})

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_bytes
        return ReadMaxBytes(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {one.key: one.next for one in self._standings()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begins, ends, options = to_positions(start), to_positions(end), self._options
        now = self._standings()
        spans = {one.key: (begins.get(one.key, one.first), ends.get(one.key, 0)) for one in now}
        gone = [key for key in ends if key not in spans and ends[key] > begins.get(key, 0)]
        if gone and options.fail_on_data_loss:
            raise RangeGone(f"{'/'.join(gone[0])} is not there any more", None)
        found = ranges_of(
            options.server, now, spans, target_bytes=options.target_bytes, prefers=options.prefers
        )
        return [RangePartition(one) for one in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        return rows_of(partition.range, self._columns, fail_on_data_loss=self._options.fail_on_data_loss)

    def commit(self, end: dict[str, int]) -> None:
        """Brokers keep what their subjects say, whoever has read it."""

    def _standings(self) -> list[Standing]:
        options = self._options
        at = options.start if isinstance(options.start, datetime) else None
        return standings(options.server, options.subjects, at, options.prefers)


def _share(
    limit: ReadLimit, now: Sequence[Standing], begins: Mapping[Key, int], ends: Mapping[Key, int]
) -> float:
    """How much of what there is may be read."""
    size = rows = 0.0
    for one in now:
        count = ends[one.key] - begins.get(one.key, one.first)
        if count > 0:
            rows += count
            size += count * one.bytes / max(1, one.next - one.first)
    most, there = 1.0, 0.0
    if isinstance(limit, ReadMaxBytes):
        most, there = limit.max_bytes, size
    elif isinstance(limit, ReadMaxRows):
        most, there = limit.max_rows, rows
    return min(1.0, most / there) if there else 1.0
