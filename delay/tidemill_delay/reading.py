"""What is due is read, a bounded part of it at a time.

    due ──► reading ──► a unit, and a piece that has its messages
     └── kept ─┘

Neighbours are read together. What of a piece is due soon is kept (``kept``), and goes the same way without a read: so
whoever runs this has no more to do at a time than ``UNITS_MAX`` units are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from tidemill_delay.due import Due
from tidemill_delay.hours import file_of
from tidemill_delay.kept import Kept
from tidemill_delay.parcels import Unit
from tidemill_delay.pieces import Addressed
from tidemill_delay.rows import length_of, place_of
from tidemill_delay.settings import DelaySettings
from tidemill_host.machine import Buffer, Read, Slice
from tidemill_wire.errors import CorruptBatch

READ_BYTES = 1024 * 1024
"""Pieces that are neighbours are read together, up to this."""
READ_UNITS = 64
"""And up to so many."""
UNITS_MAX = 256
AGAIN_MS = 60_000
"""Until what could not be read is read again."""


class Reading:
    """See the module."""

    def __init__(self, settings: DelaySettings, begun_ms: int) -> None:
        self.due = Due(settings.tick_ms, begun_ms)
        self.kept = Kept(settings.kept_bytes)
        self.size = 0
        """Bytes that are being read."""
        self.refused: Counter[str] = Counter()
        """Messages that could not be read, as often as they were, by reason."""
        self._reads: list[Read] = []
        self._under_way: dict[int, Sequence[tuple[Unit, Addressed | None]]] = {}
        self._count = 0
        """Units that are being read."""
        self._unreadable: list[tuple[int, int, Unit]] = []
        """When to read again, and a number that sorts."""
        self._token = 0

    @property
    def is_full(self) -> bool:
        """So much is being read that nothing more is."""
        return self._count >= UNITS_MAX

    def again(self, now_ms: int) -> None:
        """What could not be read is read once more; alone, for others may be good."""
        while self._unreadable and self._unreadable[0][0] <= now_ms:
            self._begin([(heappop(self._unreadable)[2], None)])

    def wake_ms(self) -> int | None:
        """When that is."""
        return self._unreadable[0][0] if self._unreadable else None

    def begin(self) -> bool:
        """Read what is due next, if there is anything."""
        unit = self.due.pop()
        if unit is None:
            return False
        self._begin(self._kept(unit) if self.kept.has(unit) else neighbours(unit, self.due))
        return True

    def take_reads(self) -> list[Read]:
        """What is to be read."""
        reads, self._reads = self._reads, []
        return reads

    def loaded(self, token: int, data: Buffer, now_ms: int) -> Iterator[tuple[Unit, Addressed]]:
        """Bytes of an hour's file. A piece that is damaged harms no other one."""
        units = self._ended(token)
        view = memoryview(data)
        base, _ = span(units)
        for unit, piece in units:
            if piece is not None:
                yield unit, piece
                continue
            place, length = place_of(unit.piece), length_of(unit.piece)
            try:
                whole = Addressed(view[place - base : place - base + length], place)
                self.kept.keep(unit, whole, now_ms)
            except CorruptBatch:
                self.damaged(unit, now_ms)
                continue
            yield unit, whole

    def unread(self, token: int, now_ms: int) -> None:
        """What the disk did not read is tried again, piece by piece: one of them may be good."""
        for unit, _ in self._ended(token):
            self._later(unit, now_ms)

    def damaged(self, unit: Unit, now_ms: int) -> None:
        """Its piece cannot be what was written."""
        self.refused["corrupt_batch"] += len(unit.numbers)
        self._later(unit, now_ms)

    def _kept(self, first: Unit) -> Sequence[tuple[Unit, Addressed | None]]:
        units = [(first, self.kept.take(first))]
        while len(units) < READ_UNITS and (unit := self.due.head()) is not None:
            if unit.hour != first.hour or not self.kept.has(unit):
                break
            self.due.pop()
            units.append((unit, self.kept.take(unit)))
        return units

    def _begin(self, units: Sequence[tuple[Unit, Addressed | None]]) -> None:
        start, size = span(units)
        self._token += 1
        self.size += size
        self._count += len(units)
        self._under_way[self._token] = units
        self._reads.append(Read(self._token, Slice(file_of(units[0][0].hour), start, size)))

    def _ended(self, token: int) -> Sequence[tuple[Unit, Addressed | None]]:
        units = self._under_way.pop(token)
        self.size -= span(units)[1]
        self._count -= len(units)
        return units

    def _later(self, unit: Unit, now_ms: int) -> None:
        self._token += 1
        heappush(self._unreadable, (now_ms + AGAIN_MS, self._token, unit))

    def messages(self) -> int:
        """Counted."""
        units = [unit for some in self._under_way.values() for unit, _ in some]
        units += [unit for _, _, unit in self._unreadable]
        return self.due.messages() + sum(len(unit.numbers) for unit in units)

    def check(self) -> None:
        """The sums are what is there."""
        self.kept.check()
        assert self.size == sum(span(some)[1] for some in self._under_way.values())
        assert self._count == sum(map(len, self._under_way.values()))


def neighbours(first: Unit, due: Due) -> Sequence[tuple[Unit, Addressed | None]]:
    """The next units that lie one behind the other, or in one piece: they are read in one go."""
    start = place_of(first.piece)
    end = start + length_of(first.piece)
    units: list[tuple[Unit, Addressed | None]] = [(first, None)]
    while len(units) < READ_UNITS and (other := due.head()) is not None:
        place = place_of(other.piece)
        stop = place + length_of(other.piece)
        if other.hour != first.hour or not start <= place <= end or stop - start > READ_BYTES:
            break
        end = max(end, stop)
        due.pop()
        units.append((other, None))
    return units


def span(units: Sequence[tuple[Unit, Addressed | None]]) -> tuple[int, int]:
    """Where the pieces of some units begin, and how many bytes that is: the last one need not end last. Of those that
    are kept nothing is read.
    """
    pieces = [unit.piece for unit, kept in units if kept is None]
    if not pieces:
        return 0, 0
    start = min(map(place_of, pieces))
    return start, max(place_of(piece) + length_of(piece) for piece in pieces) - start
