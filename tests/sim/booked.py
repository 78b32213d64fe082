"""Who archives the action log of a simulated queue: reads what may be read, dies before it is committed, comes twice.

What is committed are positions, rows, and what consumers hold there: as an archive has them, made by the same code, in
memory. In the end the log must say the same: each row once, and none that is not in it.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from samples.tellings import Row, told
from tidemill_broker.machine import Broker
from tidemill_broker.telling import Names
from tidemill_host.disk import Disk
from tidemill_journal.errors import CorruptRecord
from tidemill_spark.actions import Account

Place = tuple[str, int, int]
"""Subject, position, number of the row."""


@dataclass(frozen=True, slots=True)
class Committed:
    """An archive as it lies in its lake."""

    position: int = 0
    carried: str = field(default_factory=lambda: Account(whole=True).carried)
    gaps: int = 0


class Books:
    """Of one action log, of whichever broker has it."""

    def __init__(self, seed: str, problems: list[str], probes: Counter[str]) -> None:
        self._chance = random.Random(f"{seed}/books")
        self._problems = problems
        self._probes = probes
        self.now = Committed()
        self.rows: dict[Place, Row] = {}
        self._lazy = self._chance.choice((0.0, 0.0, 0.95))
        self._names: tuple[Broker | None, Names] = (None, Names())
        """What a door knows, in the life of the broker that it stands before."""
        self._whole_from = 0
        """Behind the last gap."""

    def look(self, broker: Broker, disk: Disk, limit: int) -> None:
        """A run, or two at once, on what may be read of a log; each of which may die before it has committed."""
        if self._chance.random() < self._lazy:
            return
        if self._names[0] is not broker:
            self._names = broker, Names()
        for run in [self._read(broker, disk, limit) for _ in range(self._chance.choice((1, 1, 2)))]:
            if run is None:
                continue
            before, after, rows = run
            if self._chance.random() < 0.2:
                self._probes["books_died"] += 1
            elif before is not self.now:
                self._probes["books_late"] += 1
            else:
                self._commit(after, rows)

    def _read(self, broker: Broker, disk: Disk, limit: int) -> tuple[Committed, Committed, list[Row]] | None:
        before, start = self.now, broker.logs.actions.start
        first = max(before.position, start)
        if first >= limit:
            return None
        gap = first > before.position
        account = Account(whole=False) if gap else Account.after(before.carried)
        until = limit if self._chance.random() < 0.7 else self._chance.randrange(first, limit) + 1
        names = self._names[1] if self._chance.random() < 0.7 else Names()
        try:
            behind, found = told(broker, disk, first, until, names)
        except CorruptRecord:
            return None  # the disk has lost it, and the broker has not noticed yet
        if found.unnamed and not start:
            self._problems.append(f"nobody knows whose {found.unnamed} actions before {behind} are")
        rows = list(account.rows(found.rows))
        return before, Committed(behind, account.carried, before.gaps + gap), rows

    def _commit(self, after: Committed, rows: list[Row]) -> None:
        if after.gaps > self.now.gaps:
            self._probes["books_gaps"] += 1
            self._whole_from = min((row["position"] for row in rows), default=after.position)
        self.now = after
        self._probes["books_kept"] += 1
        for row in rows:
            place = row["subject"], row["position"], row["row"]
            if place in self.rows:
                self._problems.append(f"archived twice: {place}, {row['action']}")
            self.rows[place] = row

    def check(self, broker: Broker, disk: Disk) -> None:
        """Against the log as it lies there in the end. Where its beginning is gone, nobody can say what is held there:
        positions are compared then, and the rows of each otherwise.
        """
        end = self.now.position
        if end > broker.logs.actions.end:
            self._problems.append(f"archived up to {end} of a log that ends at {broker.logs.actions.end}")
            return
        start = broker.logs.actions.start
        if start > 0 or self.now.gaps:
            self._check_positions(broker, disk, max(start, self._whole_from), end)
            return
        behind, found = told(broker, disk, start, end)
        if behind != end:
            return  # the disk has lost it since
        wanted = {
            (row["subject"], row["position"], row["row"]): row for row in Account(whole=True).rows(found.rows)
        }
        if wanted != self.rows:
            places = sorted(
                place
                for place in wanted.keys() | self.rows.keys()
                if wanted.get(place) != self.rows.get(place)
            )
            self._problems.append(
                f"the archive is not the log: {places[:3]}, {[self.rows.get(place) for place in places[:3]]}"
            )
        self._probes["books_whole"] += 1

    def _check_positions(self, broker: Broker, disk: Disk, first: int, end: int) -> None:
        if first >= end:
            return
        behind, found = told(broker, disk, first, end)
        if behind != end:
            return  # the disk has lost it since
        there = {row["position"] for row in found.rows}
        strange = {
            position for _, position, _ in self.rows if first <= position < end and position not in there
        }
        if strange:
            self._problems.append(f"archived, and not in the log: {sorted(strange)[:3]}")
