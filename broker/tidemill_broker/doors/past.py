"""How lag went in the last hour: a few numbers of each group that has something to do, every quarter of a minute.

Whoever opens a page in the night wants to know since when. So the past is kept here, in memory, and not by pages that
were not open: sums of all groups, and lag and acks of those that had most to do. A look at all groups is taken a few at
a time between other work, and so seldom that it takes a five-hundredth of a core at most, whatever their number.

    waiting --EVERY_MS or longer--> looking, slice by slice --all rows--> noted, waiting
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, TypeAlias

from tidemill_host.clock import Clock

Row: TypeAlias = dict[str, Any]
Name: TypeAlias = tuple[str, str]

EVERY_MS = 15_000
POINTS_MAX = 240
"""An hour."""
SERIES_MAX = 400
"""Groups of which the past is kept: of 240 points of 24 bytes each, 2 MB."""
SLICE_ROWS = 100
SHARE = 500
SUMS = ("lag", "in_flight", "failed", "acked")


class Series:
    """Numbers over time, the last ``POINTS_MAX``."""

    __slots__ = ("_values", "_width")

    def __init__(self, width: int) -> None:
        self._width = 1 + width
        self._values = array("q")

    def note(self, at_ms: int, numbers: Sequence[int]) -> None:
        assert len(numbers) == self._width - 1
        self._values.extend((at_ms, *numbers))
        excess = len(self._values) - POINTS_MAX * self._width
        if excess > 0:
            del self._values[:excess]

    def rows(self) -> list[list[int]]:
        """Time and numbers, the oldest first."""
        values, width = self._values.tolist(), self._width
        return [values[at : at + width] for at in range(0, len(values), width)]


class Past:
    """What was noted."""

    def __init__(self) -> None:
        self.sums = Series(len(SUMS))
        self._groups: OrderedDict[Name, Series] = OrderedDict()

    def note(self, at_ms: int, rows: Sequence[Row]) -> None:
        """As all groups stand now. Those that have most to do are followed, until others have had more for longer."""
        self.sums.note(at_ms, [sum(row[name] for row in rows) for name in SUMS])
        by_name = {name_of(row): row for row in rows}
        for name in [one for one in self._groups if one not in by_name]:
            del self._groups[name]
        for row in reversed(nlargest(SERIES_MAX, rows, key=undone)):
            if undone(row) and name_of(row) not in self._groups:
                self._groups[name_of(row)] = Series(2)
            if undone(row):
                self._groups.move_to_end(name_of(row))
        while len(self._groups) > SERIES_MAX:
            self._groups.popitem(last=False)
        for name, series in self._groups.items():
            series.note(at_ms, (by_name[name]["lag"], by_name[name]["acked"]))

    def of(self, subject: str, group: str) -> list[list[int]]:
        """Time, lag and acks; nothing of a group that had nothing to do."""
        series = self._groups.get((subject, group))
        return [] if series is None else series.rows()

    @property
    def groups(self) -> Mapping[Name, Series]:
        """Those that are followed; who had most to do at last comes last."""
        return self._groups


def name_of(row: Row) -> Name:
    return row["subject"], row["group"]


def undone(row: Row) -> int:
    count: int = row["lag"] + row["in_flight"] + row["failed"]
    return count


class Sampler:
    """Notes in ``past`` what ``make`` says, from time to time, on the loop and without a task of its own."""

    def __init__(self, make: Callable[[], Iterator[Row]], clock: Clock) -> None:
        self.past = Past()
        self._make = make
        self._clock = clock
        self._timer: asyncio.Handle | None = None
        self._rows: list[Row] = []

    def start(self) -> None:
        """Take a first look at once."""
        self._begin()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        self._rows = []
        self._look(self._make(), 0.0)

    def _look(self, rows: Iterator[Row], busy_s: float) -> None:
        """One slice; the next one when others have had their turn."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for row in rows:
            self._rows.append(row)
            if not len(self._rows) % SLICE_ROWS:
                self._timer = loop.call_soon(self._look, rows, busy_s + loop.time() - began)
                return
        self.past.note(self._clock.now_ms(), self._rows)
        self._rows = []
        busy_s += loop.time() - began
        self._timer = loop.call_later(max(EVERY_MS / 1000, SHARE * busy_s), self._begin)
