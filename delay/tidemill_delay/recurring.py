"""Messages that recur: places the next occurrence before the present one leaves.

    due ──► held: its piece is read ──► the next one is placed ──► the disk has that ──► leaves
                                   └──► missed, and not wanted: the next one replaces it

The next one is a batch of the message log that says which occurrence it FOLLOWS, so both follow from the log, on a
slave and after any crash: an occurrence that has a follower gets no other one. Only whoever leads looks at clocks of
zones. While nothing may be written, or a piece cannot be read, or a zone is not known, the series waits as a whole.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from tidemill_delay.actions import Ended
from tidemill_delay.asking import Hands
from tidemill_delay.courier import LATE_MS, SOON_MS
from tidemill_delay.hours import file_of
from tidemill_delay.pieces import Addressed
from tidemill_delay.rows import length_of, place_of
from tidemill_delay.series import OPEN
from tidemill_delay.wheel import Entries
from tidemill_host.machine import Buffer, Read, Slice, Unread
from tidemill_wire.cron import Zones
from tidemill_wire.errors import CorruptBatch, WireError
from tidemill_wire.recurrence import MISSED_MS, only_utc

READS_MAX = 16
"""Pieces that are read at a time: thousands of series may recur at the full hour."""
FIRST_TOKEN = 1 << 40
"""Tokens of its reads go down from the negative of that, far below those of questions."""


@dataclass(slots=True)
class Held:
    """An occurrence that is due and has no follower."""

    entries: Entries

    @property
    def place(self) -> tuple[int, int]:
        """Hour and number."""
        return self.entries.hour, int(self.entries.numbers[0])


class Recurring:
    """See the module. ``leave`` sends entries on when the disk has all that was written."""

    def __init__(self, hands: Hands, leave: Callable[[list[Entries], int], None]) -> None:
        self.zones: Zones = only_utc
        """Set by whoever knows more of them."""
        self.reads: list[Read] = []
        self.refused: Counter[str] = Counter()
        self.size = 0
        """Occurrences that are held."""
        self._hands = hands
        self._leave = leave
        self._token = -FIRST_TOKEN
        self._waiting: deque[Held] = deque()
        """Those whose pieces are read next."""
        self._paused_ms = 0
        """Nothing is read until then, for nothing may be written."""
        self._reading: dict[int, Held] = {}
        self._put_off: list[tuple[int, int, Held]] = []
        """When to read again, and a number that sorts."""

    def hold(self, due: list[Entries], now_ms: int) -> list[Entries]:
        """Keep back what needs a follower; the rest."""
        rest: list[Entries] = []
        for entries in due:
            waits = self._open(entries)
            rows = np.flatnonzero(waits).tolist()
            self.size += len(rows)
            self._waiting.extend(Held(entries.take(row, row + 1).copy(1)) for row in rows)
            if len(rows) < len(waits):
                rest.append(entries.where(~waits))
        self.work(now_ms)
        return rest

    def _open(self, entries: Entries) -> npt.NDArray[np.bool_]:
        """Which of them recur, and have no follower; looked for among those that recur, when they are fewer."""
        series, numbers = self._hands.state.hours[entries.hour].series, entries.numbers
        waits = np.zeros(len(numbers), bool)
        if not series:
            return waits
        maybe = np.arange(len(numbers))
        if len(series) < len(numbers):
            maybe = np.flatnonzero(np.isin(numbers, np.fromiter(series, np.int64, len(series))))
        waits[maybe] = [series.get(number) == OPEN for number in numbers[maybe].tolist()]
        return waits

    def work(self, now_ms: int) -> None:
        """Read what comes next, and what is to be tried again."""
        while self._put_off and self._put_off[0][0] <= now_ms:
            self._waiting.append(heappop(self._put_off)[2])
        while self._waiting and len(self._reading) < READS_MAX and now_ms >= self._paused_ms:
            self._read(self._waiting.popleft())

    def wake_ms(self) -> int | None:
        """When there is something to try again."""
        wakes = [self._put_off[0][0]] if self._put_off else []
        if self._waiting and not self._reading:
            wakes.append(self._paused_ms)
        return min(wakes, default=None)

    def take_reads(self) -> list[Read]:
        """What is to be read."""
        reads, self.reads = self.reads, []
        return reads

    def loaded(self, token: int, data: Buffer | Unread, now_ms: int) -> None:
        """The piece of an occurrence, or that it cannot be read."""
        held = self._reading.pop(token)
        if isinstance(data, Unread):
            self._later(held, "read_failed", now_ms + LATE_MS)
        else:
            self._look(held, data, now_ms)
        self.work(now_ms)

    def _look(self, held: Held, data: Buffer, now_ms: int) -> None:
        try:
            self._follow(held, Addressed(data, place_of(int(held.entries.pieces[0]))), now_ms)
        except CorruptBatch:
            self._later(held, "corrupt_batch", now_ms + LATE_MS)
        except WireError as error:  # nothing may be written: neither what follows the others
            self.refused[error.kind.name] += 1
            self._waiting.appendleft(held)
            self._paused_ms = now_ms + SOON_MS
        except ValueError:
            self._later(held, "unknown_zone", now_ms + LATE_MS)

    def _follow(self, held: Held, piece: Addressed, now_ms: int) -> None:
        """Place the next occurrence, unless the series was ended meanwhile."""
        (start_ms, number), state = held.place, self._hands.state
        skipped = False
        if state.hours[start_ms].series[number] == OPEN:
            recurrence = piece.recurrence
            assert recurrence is not None
            due_ms = piece.asked_ms(number)
            base_ms = max(recurrence.planned_ms, due_ms)
            late_ms = now_ms - max(due_ms, piece.header.stored_at_ms)
            skipped = recurrence.missed == "none" and late_ms > MISSED_MS
            if recurrence.missed != "all":
                base_ms = max(base_ms, now_ms)
            next_ms = recurrence.next_ms(base_ms, self.zones(recurrence.zone))
            if next_ms is None:
                self._hands.act(Ended(start_ms, [number, number]), now_ms)
            else:
                said = replace(recurrence, planned_ms=next_ms, series=recurrence.series or piece.series)
                self._hands.move(piece.following((start_ms, number), said, replaces=skipped), now_ms)
            skipped &= next_ms is not None
        self.size -= 1
        if not skipped:
            self._leave([held.entries], now_ms)

    def _read(self, held: Held) -> None:
        piece = int(held.entries.pieces[0])
        self._token -= 1
        self._reading[self._token] = held
        self.reads.append(
            Read(self._token, Slice(file_of(held.entries.hour), place_of(piece), length_of(piece)))
        )

    def _later(self, held: Held, reason: str, at_ms: int) -> None:
        self.refused[reason] += 1
        self._token -= 1
        heappush(self._put_off, (at_ms, self._token, held))

    def check(self) -> None:
        """``size`` is what is there."""
        assert self.size == len(self._waiting) + len(self._reading) + len(self._put_off)
