"""The next page of an hour: all that is due before some moment, and not more than the wheel has room for.

    idle ──► counting ──► choosing ──► idle           an hour with more messages than room
    idle ──────────────► choosing ──► idle            the others

The index is read from its beginning in steps; *counting* finds the moment, *choosing* takes the rows before it, and
sorts them some at a time. What is placed meanwhile is told by ``placed``, and comes into the page as well.

What is counted is spread over bins from the hour's beginning to its end. When a clock ran ahead and closed hours, the
first that is open has also what is due in those, at any time before it: when that is more than there is room for, it is
counted once more, over bins of that time alone, until it is parted as finely as what is due in the hour.
"""

from __future__ import annotations

import numpy as np

from tidemill_delay.hours import Hour, rows_of
from tidemill_delay.rows import ROW_BYTES, decode_rows
from tidemill_delay.scatter import AT_ONCE
from tidemill_delay.settings import DelaySettings
from tidemill_delay.wheel import SPOKE_ROWS, Entries, merged
from tidemill_host.machine import Slice

STEP_ROWS = 64 * 1024
BINS = 4000
"""Of a second each for an hour and a tick."""


class Page:
    """One page of one hour: what is due after ``low_ms``, up to ``high_ms``, once that is known. Both are at the end of
    a tick: what is due in one tick is sent together, and must not be parted.
    """

    def __init__(self, hour: Hour, settings: DelaySettings, low_ms: int, room: int) -> None:
        self.hour = hour
        self.low_ms = low_ms
        self.high_ms: int | None = None
        self._spokes: list[Entries] = []
        self._some: list[Entries] = []
        """Not sorted yet."""
        self._some_rows = 0
        self._tick_ms = settings.tick_ms
        self._room = max(1, room)
        self._rows = hour.count
        self._spread(hour.start_ms - settings.tick_ms, hour.start_ms + settings.hour_ms)
        if hour.waiting <= room:
            self.high_ms = self._end_ms

    def _spread(self, begin_ms: int, end_ms: int) -> None:
        """Count from the first row on: what is due between two ends of ticks, in bins of whole ticks, and in one bin
        what is due before.
        """
        self._begin_ms, self._end_ms = begin_ms, end_ms
        self._width_ms = -(-(end_ms - begin_ms) // (BINS * self._tick_ms)) * self._tick_ms
        self._bins = np.zeros(BINS + 1, np.int64)
        self._at = 0

    def next(self) -> Slice | None:
        """What to read now; ``None`` when the page is whole."""
        if self._at >= self._rows:
            return None
        count = min(STEP_ROWS, self._rows - self._at)
        return Slice(rows_of(self.hour.start_ms), self._at * ROW_BYTES, count * ROW_BYTES)

    def loaded(self, data: bytes | bytearray | memoryview) -> None:
        """The rows that ``next`` asked for."""
        rows = decode_rows(data)
        numbers = np.arange(self._at, self._at + len(rows), dtype=np.int64)
        self._at += len(rows)
        until_ms = self._end_ms if self.high_ms is None else self.high_ms
        keep = (rows["due"] > self.low_ms) & (rows["due"] <= until_ms) & self.hour.done.without(numbers)
        if self.high_ms is None:
            since = np.maximum(rows["due"][keep] - self._begin_ms, 0)
            self._bins += np.bincount(-(-since // self._width_ms), minlength=BINS + 1)
            if self._at >= self._rows:
                self._choose()
            return
        self._add(Entries(self.hour.start_ms, rows["due"][keep], rows["piece"][keep], numbers[keep]))

    def _choose(self) -> None:
        """As many bins as there is room for, but at least the first that has anything; of one that is due before the
        hour, and too large, a part.
        """
        sums = np.cumsum(self._bins)
        first = int(np.searchsorted(sums, 0, "right"))
        last = max(int(np.searchsorted(sums, self._room, "right")) - 1, first)
        high_ms = min(self._end_ms, self._begin_ms + last * self._width_ms)
        if first <= BINS and sums[first] > self._room and high_ms < self.hour.start_ms:
            begin_ms = high_ms - self._width_ms if first else max(self.low_ms, AT_ONCE)
            if high_ms - begin_ms > self._tick_ms:
                self._spread(begin_ms, high_ms)
                return
        self.high_ms = high_ms
        self._at = 0

    def take(self) -> list[Entries]:
        """All of it, in parts that are sorted; it has nothing then."""
        self._sort()
        spokes, self._spokes = self._spokes, []
        return spokes

    def placed(self, entries: Entries) -> None:
        """Messages of this hour came while it is being loaded. Those beyond the page are in the file for the next;
        those before it do not wait for it.
        """
        self._add(entries.where(entries.due > self.low_ms))

    def _add(self, entries: Entries) -> None:
        if len(entries.due):
            self._some.append(entries)
            self._some_rows += len(entries.due)
            if self._some_rows >= SPOKE_ROWS // 2:
                self._sort()

    def _sort(self) -> None:
        if self._some:
            self._spokes.append(merged(self._some))
            self._some_rows = 0
