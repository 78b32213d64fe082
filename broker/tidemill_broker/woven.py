"""Batches of several partitions as they lie among each other in the log: one answer for who archives many.

    rows of each partition  --by position-->  one list, cut at a number of bytes  -->  extents, mostly long ones

A thousand small partitions that were written side by side are one stretch of the log; asked for one by one they are a
request each, and an extent for nearly every batch. What is cut off, or was not looked at any more, is said by where
each partition goes on.

     0  partitions n    u32
     4  batches m       u32
     8  next            i64 x n   the sequence of each partition to go on from
    ..  owners          u32 x m   of which partition each batch is, by its number in the request
    ..  the batches
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tidemill_broker.stretches import Extent, Part
from tidemill_journal.entries import Rows

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

HEAD = struct.Struct("<II")
POSITION, BASE, LENGTH, END, OWNER = range(5)


@dataclass(frozen=True, slots=True)
class Cut:
    """What one answer has: the bytes before the batches, and where these lie."""

    head: bytes
    extents: list[Extent]
    size: int


class Woven:
    """See the module. ``spans`` are sequences of each partition, the second not included."""

    def __init__(self, spans: Sequence[tuple[int, int]], size_max: int, rows_max: int) -> None:
        self._spans = spans
        self._size_max, self._rows_max = size_max, rows_max
        self._rows: list[Array] = []
        self._files: dict[int, str] = {}
        self._count = 0
        self._sizes = [0] * len(spans)
        self._whole = [False] * len(spans)

    @property
    def full(self) -> bool:
        """No more rows are looked at: what there is makes an answer."""
        return self._count >= self._rows_max

    def add(self, number: int, part: Part, rows: Rows) -> bool:
        """The rows that are wanted of a partition, of one segment; whether more of it are."""
        first, until = self._spans[number]
        firsts = np.frombuffer(rows.firsts, "<u8").astype(np.int64)
        ends = rows.ends()
        mine = (ends > first) & (firsts < until) & (first < until)
        wanted = np.flatnonzero(mine)[: self._rows_max - self._count]
        made = np.empty((5, len(wanted)), np.int64)
        made[POSITION] = np.frombuffer(rows.positions, "<u8").astype(np.int64)[wanted]
        made[BASE], made[OWNER] = part.base, number
        made[LENGTH], made[END] = rows.lengths()[wanted], ends[wanted]
        self._files[part.base] = part.file
        self._rows.append(made)
        self._count += len(wanted)
        self._sizes[number] += int(made[LENGTH].sum())
        behind = len(ends) > 0 and int(ends[-1]) >= until
        return not self.full and not behind and self._sizes[number] < self._size_max

    def finish(self, number: int) -> None:
        """All rows of a partition were offered: what is left out of the numbers is behind, too."""
        self._whole[number] = not self.full and self._sizes[number] < self._size_max

    def cut(self) -> Cut:
        """As much as one answer has, from the lowest position on: one batch at least, when there is any."""
        rows = np.concatenate(self._rows, axis=1) if self._rows else np.empty((5, 0), np.int64)
        rows = rows[:, np.argsort(rows[POSITION], kind="stable")]
        room = int(np.searchsorted(np.cumsum(rows[LENGTH]), self._size_max, side="right"))
        kept, left = rows[:, : max(1, room)], rows[:, max(1, room) :]
        next_ = np.array([first for first, _ in self._spans], np.int64)
        np.maximum.at(next_, kept[OWNER], kept[END])
        done = np.array(self._whole, bool)
        done[left[OWNER]] = False
        ends = np.array([until for _, until in self._spans], np.int64)
        next_ = np.where(done, np.maximum(next_, ends), next_)
        head = HEAD.pack(len(self._spans), kept.shape[1])
        head += next_.astype("<i8").tobytes() + kept[OWNER].astype("<u4").tobytes()
        return Cut(head, self._extents(kept), int(kept[LENGTH].sum()))

    def _extents(self, kept: Array) -> list[Extent]:
        if not kept.shape[1]:
            return []
        apart = (kept[POSITION, 1:] != kept[POSITION, :-1] + kept[LENGTH, :-1]) | (
            kept[BASE, 1:] != kept[BASE, :-1]
        )
        starts = np.concatenate([[0], np.flatnonzero(apart) + 1])
        sizes = np.add.reduceat(kept[LENGTH], starts)
        found = zip(kept[BASE, starts].tolist(), kept[POSITION, starts].tolist(), sizes.tolist(), strict=True)
        return [Extent(self._files[base], position - base, size) for base, position, size in found]
