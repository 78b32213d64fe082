"""What is due and cannot leave: it holds no bytes, and no more than its row once there is much of it.

    refused ──► shelf of its subject ──► some of it is tried again after a pause, and what is taken brings more along

    nobody leads its broker group, or that one is silent ──► shelf of its subject there ──► goes on as that one takes it
    nobody has told its route                            ──► shelf of its subject       ──► goes on when it is told

One shelf is no other one's matter: what stands on it is neither read nor sent in the meantime, and takes no place in
the wheel. All of a shelf is tried again within ``ROUND_MS``, if that is not more than a thousand batches or a mebibyte
a second, and a short one each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tidemill_delay.due import entries_of, units_of
from tidemill_delay.parcels import Unit
from tidemill_delay.reading import READ_BYTES
from tidemill_delay.rows import length_of
from tidemill_delay.wheel import Entries

REFUSED, LOST, FREE = "", "?", "*"
"""Homes that are no broker groups: of what was refused, of what has no route, and of what has one again."""
TRIED = 4
"""Of a shelf, so many batches are tried at a time at least."""
TRIED_A_SECOND = 1_000
"""And not more, nor more than ``READ_BYTES``."""
TAKEN_BRINGS = 2
"""For each batch that was tried again and is taken, so many more are tried: a subject that takes messages again has all
of them soon.
"""
PULLED = 64
"""What a broker group that goes on is brought at a time."""
ROUND_MS = 15 * 60_000
WAIT_MS_MAX = 30_000
"""However long a broker says: the quota may be lifted meanwhile."""
PACKED = 512
"""So many batches become rows together."""


@dataclass(slots=True)
class Shelf:
    """See the module. The first that came goes first."""

    at_ms: int | None = None
    """When some of it is tried again; ``None``: not by time."""
    wait_ms: int = 0
    """How long it was to wait last."""
    size: int = 0
    """Messages."""
    count: int = 0
    """Batches."""
    first: deque[Unit] = field(default_factory=deque[Unit])
    rows: deque[tuple[int | None, Entries]] = field(default_factory=deque[tuple[int | None, Entries]])
    last: deque[Unit] = field(default_factory=deque[Unit])

    def put(self, unit: Unit) -> None:
        """What may be at a broker already goes first; the others follow from their rows, and from the version of the
        route by which they are looked for.
        """
        self.size += len(unit.numbers)
        self.count += 1
        if unit.parcel is not None:
            self.first.append(unit)
            return
        self.last.append(unit)
        if len(self.last) >= PACKED:
            alike: dict[tuple[int, int | None], list[Unit]] = {}
            for one in self.last:
                alike.setdefault((one.hour, one.version), []).append(one)
            self.last.clear()
            self.rows.extend((version, entries_of(units)) for (_, version), units in alike.items())

    def join(self, other: Shelf) -> None:
        """Take over what stands on another one."""
        self.size += other.size
        self.count += other.count
        self.first.extend(other.first)
        self.rows.extend(other.rows)
        self.last.extend(other.last)

    def pop(self, tick_ms: int) -> Unit | None:
        """The next one."""
        if not self.first and self.rows:
            version, entries = self.rows.popleft()
            for unit in units_of(entries, tick_ms):
                unit.version = version
                self.first.append(unit)
        elif not self.first:
            self.first, self.last = self.last, self.first
        if not self.first:
            self.count = 0
            return None
        unit = self.first.popleft()
        self.size -= len(unit.numbers)
        self.count -= 1
        return unit

    def held(self) -> int:
        """Messages, counted."""
        units = sum(len(unit.numbers) for some in (self.first, self.last) for unit in some)
        return units + sum(len(entries.due) for _, entries in self.rows)


class Shelves:
    """All of them: by home, which is a broker group or one of three others, and by subject."""

    def __init__(self, tick_ms: int) -> None:
        self.size = 0
        """Messages."""
        self._tick_ms = tick_ms
        self._homes: dict[str, dict[str, Shelf]] = {}
        self._ripe: list[tuple[int, str]] = []
        """When a subject is looked at, which may be too early by now."""

    def put(self, unit: Unit, subject: str, home: str, wait: tuple[int, int] | None = None) -> None:
        """``wait``, of what was refused: it is tried again then, after so many milliseconds."""
        shelf = self._homes.setdefault(home, {}).setdefault(subject, Shelf())
        unit.tried = False
        shelf.put(unit)
        self.size += len(unit.numbers)
        if wait is not None and (shelf.at_ms is None or wait[0] < shelf.at_ms):
            shelf.at_ms, shelf.wait_ms = wait
            heappush(self._ripe, (shelf.at_ms, subject))

    def ripe(self, now_ms: int) -> Iterator[Unit]:
        """What is tried again now."""
        while self._ripe and self._ripe[0][0] <= now_ms:
            at_ms, subject = heappop(self._ripe)
            shelf = self._homes.get(REFUSED, {}).get(subject)
            if shelf is None or shelf.at_ms != at_ms:
                continue
            most = min(TRIED_A_SECOND * shelf.wait_ms // 1000, -(-shelf.count * shelf.wait_ms // ROUND_MS))
            shelf.at_ms = now_ms + shelf.wait_ms
            heappush(self._ripe, (shelf.at_ms, subject))
            room = READ_BYTES * max(1, shelf.wait_ms // 1000)
            for unit in self._some(REFUSED, subject, max(TRIED, most)):
                yield unit
                room -= length_of(unit.piece)
                if room <= 0:
                    break

    def taken(self, subject: str) -> Iterator[Unit]:
        """A broker has one that was tried again: others are, too."""
        return self._some(REFUSED, subject, TAKEN_BRINGS)

    def _some(self, home: str, subject: str, count: int) -> Iterator[Unit]:
        shelf = self._homes.get(home, {}).get(subject)
        while shelf is not None and count > 0:
            count -= 1
            unit = shelf.pop(self._tick_ms)
            if not shelf.size:
                shelf = None
                del self._homes[home][subject]
            if unit is not None:
                self.size -= len(unit.numbers)
                unit.tried = home == REFUSED
                yield unit

    def pull(self, home: str) -> list[Unit]:
        """Something for a broker group that takes messages, of one subject after the other."""
        subject = next(iter(self._homes.get(home, {})), None)
        if subject is None:
            return []
        units = list(self._some(home, subject, PULLED))
        if subject in self._homes[home]:
            self._homes[home][subject] = self._homes[home].pop(subject)
        return units

    def told(self, subject: str) -> None:
        """Where a subject goes is said anew: what waits for that, or for some broker group, is looked at once more."""
        for home in [home for home, some in self._homes.items() if subject in some]:
            if home not in {REFUSED, FREE}:
                free = self._homes.setdefault(FREE, {}).setdefault(subject, Shelf())
                free.join(self._homes[home].pop(subject))

    def told_all(self) -> None:
        """Somebody takes every subject."""
        for subject in list(self._homes.get(LOST, {})):
            self.told(subject)

    def wake_ms(self) -> int | None:
        """When some of them are to be looked at."""
        return self._ripe[0][0] if self._ripe else None

    def homes(self, taking: set[str]) -> list[str]:
        """For whom something waits: of these broker groups, and of what has a route again."""
        return [home for home, some in self._homes.items() if some and (home == FREE or home in taking)]

    def check(self) -> None:
        """The sums are what is there."""
        for some in self._homes.values():
            for shelf in some.values():
                assert shelf.size == shelf.held() > 0
        assert self.size == sum(shelf.size for some in self._homes.values() for shelf in some.values())


class Resting:
    """What a quota keeps waiting: read again one behind the other of a subject, as the quota lets them."""

    def __init__(self) -> None:
        self.size = 0
        """Messages."""
        self._units: list[tuple[int, int, Unit]] = []
        """When each is read again, and a number that sorts."""
        self._until: dict[str, int] = {}
        """By subject, when the last of these comes."""
        self._number = 0

    def put(self, unit: Unit, subject: str, wait_ms: int, now_ms: int) -> None:
        """It was told to wait so long."""
        if not self._units:
            self._until.clear()
        again_ms = max(now_ms, self._until.get(subject, 0)) + wait_ms
        again_ms = min(again_ms, now_ms + WAIT_MS_MAX)
        self._until[subject] = again_ms
        self._number += 1
        self.size += len(unit.numbers)
        heappush(self._units, (again_ms, self._number, unit))

    def ripe(self, now_ms: int) -> Iterator[Unit]:
        """What is read again now."""
        while self._units and self._units[0][0] <= now_ms:
            unit = heappop(self._units)[2]
            self.size -= len(unit.numbers)
            yield unit

    def wake_ms(self) -> int | None:
        """When something is."""
        return self._units[0][0] if self._units else None

    def check(self) -> None:
        """The sum is what is there."""
        assert self.size == sum(len(unit.numbers) for _, _, unit in self._units)
