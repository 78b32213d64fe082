"""Where a group begins or goes on: places and times as sequences of a partition.

A time means the first batch that was stored at or after it, and all that comes behind that one. Stored-at times grow
with the sequences unless the broker's clock was set back; then a time may mean a place that is as good.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from tidemill_broker.consume_log import ConsumeLog
from tidemill_broker.partitions import Partition
from tidemill_journal.entries import Rows
from tidemill_wire.kinds import Place, Start


def begin(partition: Partition, place: Place, value: int = 0) -> tuple[int, int]:
    """Cursor and ``start_ms`` of a group that begins there. A time is as exact as can be told without reading: to the
    segment; the rest is found when the group is served (``first_since``).
    """
    match place:
        case Place.EARLIEST:
            return partition.first_kept, 0
        case Place.LATEST:
            return partition.next_sequence, 0
        case Place.SEQUENCE:
            return min(max(value, partition.first_kept), partition.next_sequence), 0
        case Place.TIME:
            for stored in partition.runs:
                if stored.run.last_stored_at_ms >= value:
                    return stored.run.first_sequence, value
            recent = partition.recent
            index = _first_row_since(recent, 0, value)
            if index < len(recent):
                return recent.firsts[index], 0
            return partition.next_sequence, value  # it may lie in the future


def begin_as_asked(partition: Partition, start: int) -> tuple[int, int]:
    """The same for the ``start`` of a PULL."""
    match start:
        case Start.EARLIEST:
            return begin(partition, Place.EARLIEST)
        case Start.LATEST:
            return begin(partition, Place.LATEST)
        case _:
            return begin(partition, Place.TIME, start)


def first_since(
    consume_log: ConsumeLog, partition: Partition, place: tuple[int, int], waiter: Hashable
) -> int:
    """The sequence of the first batch from a cursor on that was stored at or after ``start_ms``; the next sequence
    when there is none yet. Raises ``Loading`` when rows have to be read: a window for each halving of a segment.
    """
    cursor, start_ms = place
    while True:
        stored = partition.run_for(cursor)
        if stored is None:
            recent = partition.recent
            index = _first_row_since(recent, recent.find(cursor) if recent else 0, start_ms)
            return recent.firsts[index] if index < len(recent) else partition.next_sequence
        run = stored.run
        if run.last_stored_at_ms < start_ms:
            cursor = run.end_sequence
            continue
        low, high = run.window(cursor), len(run.sparse) - 1
        while low < high:  # the first window whose last batch is not too old
            middle = (low + high) // 2
            rows = consume_log.rows_for(partition, run.sparse[middle], waiter)
            assert rows is not None
            last = min(rows.find(run.sparse[middle + 1]), len(rows)) - 1
            if rows.stamps[last] >= start_ms:
                high = middle
            else:
                low = middle + 1
        start = max(cursor, run.sparse[low])
        rows = consume_log.rows_for(partition, start, waiter)
        assert rows is not None
        index = _first_row_since(rows, rows.find(start), start_ms)
        if index < len(rows):
            return max(cursor, rows.firsts[index])
        cursor = rows.end_sequence


def _first_row_since(rows: Rows, index: int, start_ms: int) -> int:
    """The first row from ``index`` on that was stored at or after ``start_ms``; their number when there is none."""
    if index >= len(rows):
        return len(rows)
    young = np.flatnonzero(np.frombuffer(rows.stamps, "<i8")[index:] >= start_ms)
    return index + int(young[0]) if len(young) else len(rows)
