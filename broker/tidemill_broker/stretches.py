"""What of a partition may be archived, and where it lies: by its consume log, without a look at a message.

A *limit* is a position of the message log up to which all is committed and on this disk; no more is told, for what is
read once is never asked for again, and a sequence whose message a power cut took is used again.

A *piece* is a part of a partition that can be read by itself: what of it lies in one segment, cut at every so many
batches. Its bytes are estimated from those of the whole run, but for the open segment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tidemill_broker.partitions import Partition
from tidemill_journal.entries import WINDOW_ROWS, Rows, Run, row_count, row_length
from tidemill_journal.segments import Segments


class Piece(NamedTuple):
    """Sequences from ``first`` to ``next``, about how many bytes they are, and when the last of them was stored at the
    latest.
    """

    first: int
    next: int
    bytes: int
    last_stored_at_ms: int


class Extent(NamedTuple):
    """Bytes of a segment's file that are whole batches, one after the other."""

    file: str
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one segment: in memory, or in the windows of its run."""

    base: int
    file: str
    run: Run | None
    rows: Rows | None


def readable(partition: Partition, segments: Segments, limit: int) -> int:
    """The sequence behind the last message that may be archived."""
    recent = partition.recent
    index = bisect_left(recent.positions, limit)
    if index and recent.positions[index - 1] + row_length(recent.sizes[index - 1]) > limit:
        index -= 1
    if index:
        end = recent.firsts[index - 1] + row_count(recent.sizes[index - 1])
    else:
        ends = (
            stored.run.end_sequence
            for stored in reversed(partition.runs)
            if segments.end_of(stored.run.base) <= limit
        )
        end = next(ends, partition.first_kept)
    return max(partition.first_kept, min(end, partition.visible))


def pieces(partition: Partition, first: int, end: int) -> Iterator[Piece]:
    """The pieces between two sequences, none of which begins before one or ends behind the other."""
    for stored in partition.runs:
        run = stored.run
        each = run.size // max(1, run.rows)
        starts = [*run.sparse, run.end_sequence]
        for window, start in enumerate(starts[:-1]):
            low, high = max(first, start), min(end, starts[window + 1])
            rows = min(run.rows - window * WINDOW_ROWS, WINDOW_ROWS)
            if low < high:
                yield Piece(low, high, each * rows, run.last_stored_at_ms)
    recent = partition.recent
    for index in range(0, len(recent), WINDOW_ROWS):
        last = min(index + WINDOW_ROWS, len(recent))
        low = max(first, recent.firsts[index])
        high = min(end, recent.firsts[last - 1] + row_count(recent.sizes[last - 1]))
        if low < high:
            sizes = np.frombuffer(recent.sizes[index:last], "<u8")
            yield Piece(low, high, int((sizes & 0xFFFF_FFFF).sum()), max(recent.stamps[index:last]))


def parts(
    partition: Partition, segments: Segments, first: int, end: int, rows_max: int = 1 << 62
) -> Iterator[Part]:
    """Where the rows of these sequences are. Those of the open segment are copied, for they may go to a thread, and no
    more of them than ``rows_max``.
    """
    for stored in partition.runs:
        run = stored.run
        if run.end_sequence > first and run.first_sequence < end:
            yield Part(run.base, segments.file(run.base), run, stored.rows)
    recent = partition.recent
    if recent and recent.end_sequence > first and recent.firsts[0] < end:
        begin = recent.find(first)
        until = min(bisect_left(recent.firsts, end), begin + rows_max)
        yield Part(segments.open_base, segments.file(segments.open_base), None, _copied(recent, begin, until))


def _copied(rows: Rows, begin: int, until: int) -> Rows:
    made = Rows()
    made.firsts, made.positions = rows.firsts[begin:until], rows.positions[begin:until]
    made.sizes, made.stamps = rows.sizes[begin:until], rows.stamps[begin:until]
    made.blooms = rows.blooms[begin:until]
    return made


class Gathered:
    """Extents of batches, up to a number of bytes; ``next`` is the sequence behind them."""

    def __init__(self, first: int, end: int, size_max: int, extents_max: int) -> None:
        self.next = first
        self.size = 0
        self.extents: list[Extent] = []
        self._first, self._end = first, end
        self._size_max, self._extents_max = size_max, extents_max

    @property
    def full(self) -> bool:
        return self.size >= self._size_max or len(self.extents) >= self._extents_max or self.next >= self._end

    def add(self, part: Part, rows: Rows) -> None:
        """The rows that are wanted, of one segment; batches that lie side by side are one extent."""
        firsts = np.frombuffer(rows.firsts, "<u8").astype(np.int64)
        ends, lengths = rows.ends(), rows.lengths()
        wanted = np.flatnonzero((ends > max(self._first, self.next)) & (firsts < self._end))
        if not len(wanted) or self.full:
            return
        total = np.cumsum(lengths[wanted])
        room = int(np.searchsorted(total, self._size_max - self.size, side="right"))
        more, wanted = len(wanted), wanted[: max(room, 0 if self.extents else 1)]
        if not len(wanted):
            self._end = self.next  # there is more, and no room for it
            return
        places = np.frombuffer(rows.positions, "<u8").astype(np.int64)[wanted] - part.base
        own = lengths[wanted]
        gaps = np.flatnonzero(places[1:] != places[:-1] + own[:-1]) + 1
        most = self._extents_max - len(self.extents)
        starts = np.concatenate([[0], gaps])[:most]
        stops = np.concatenate([gaps, [len(wanted)]])[:most]
        sums = np.concatenate([[0], np.cumsum(own)])
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            self.extents.append(Extent(part.file, int(places[start]), int(sums[stop] - sums[start])))
        taken = int(stops[-1])
        self.size += int(sums[taken])
        self.next = int(ends[wanted[taken - 1]])
        if taken < more:
            self._end = self.next

    def finish(self, end: int) -> None:
        """All rows up to a sequence were offered: what is left out of the numbers is behind, too."""
        if not self.full:
            self.next = max(self.next, end)


def since(rows: Rows, at_ms: int) -> int | None:
    """The first sequence of the first row that was stored at or after a time."""
    young = np.flatnonzero(np.frombuffer(rows.stamps, "<i8") >= at_ms)
    return rows.firsts[int(young[0])] if len(young) else None
