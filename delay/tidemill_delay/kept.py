"""Messages of pieces that were read, and are due soon: a piece whose messages are due at many ticks is read once for
many of them.

What is kept of a piece is a batch like it, of those of its messages that are due within five minutes; sooner, when
much is kept already. It goes when the last of them has left, or when its time is over: they may be cancelled meanwhile.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from tidemill_delay.parcels import Unit
from tidemill_delay.pieces import Addressed

KEPT_MS = 300_000
PIECES_MAX = 8192
"""Nothing is kept of a piece that is smaller than this part of what may be kept: to read it again takes less time, and
there would be more of them than are looked after quickly.
"""
OBJECT_BYTES = 2048
"""What one takes besides its bytes."""
LATE_MS = 5_000
"""What is due may leave so much later."""


class Some(NamedTuple):
    """Of one piece, what is due until then."""

    until_ms: int
    piece: Addressed


class Kept:
    """See the module."""

    def __init__(self, most_bytes: int) -> None:
        self.size = 0
        """Bytes."""
        self._most = most_bytes
        self._pieces: dict[tuple[int, int], Some] = {}
        self._until: list[tuple[int, int, int]] = []
        """When each goes; of one that is there no more, or was kept again, too."""

    def has(self, unit: Unit) -> bool:
        """Whether the messages of a unit are here."""
        some = self._pieces.get((unit.hour, unit.piece))
        return some is not None and some.piece.holds(unit.numbers)

    def take(self, unit: Unit) -> Addressed:
        """A piece that has them."""
        some = self._pieces[unit.hour, unit.piece]
        if unit.due_ms >= some.until_ms:
            self._drop(unit.hour, unit.piece)
        return some.piece

    def keep(self, unit: Unit, piece: Addressed, now_ms: int) -> None:
        """Some of a piece that was read for a unit."""
        room = self._most - self.size
        if room <= 0 or len(piece.data) < self._most // PIECES_MAX or len(unit.numbers) == len(piece.due):
            return
        until_ms = max(unit.due_ms, now_ms) + KEPT_MS * room // self._most
        rows = np.flatnonzero((piece.due > unit.due_ms) & (piece.due <= until_ms))
        if len(rows):
            self._drop(unit.hour, unit.piece)
            some = Some(int(piece.due[rows].max()), piece.excerpt(rows))
            self._pieces[unit.hour, unit.piece] = some
            self.size += len(some.piece.data) + OBJECT_BYTES
            heappush(self._until, (some.until_ms, unit.hour, unit.piece))

    def expire(self, now_ms: int) -> None:
        """What was to leave has left, or will not."""
        while self._until and self._until[0][0] < now_ms - LATE_MS:
            until_ms, hour, piece = heappop(self._until)
            some = self._pieces.get((hour, piece))
            if some is not None and some.until_ms == until_ms:
                self._drop(hour, piece)

    def _drop(self, hour: int, piece: int) -> None:
        gone = self._pieces.pop((hour, piece), None)
        if gone is not None:
            self.size -= len(gone.piece.data) + OBJECT_BYTES

    def check(self) -> None:
        """The sum is what is there, and all of it will go."""
        assert self.size == sum(len(some.piece.data) + OBJECT_BYTES for some in self._pieces.values())
        until = {(hour, piece): until_ms for until_ms, hour, piece in sorted(self._until)}
        assert all(some.until_ms <= until[key] for key, some in self._pieces.items())
