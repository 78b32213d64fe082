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
        self._past = [self.now]
        """What was committed since the last gap."""

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
            self._past = []
        self.now = after
        self._past.append(after)
        self._probes["books_kept"] += 1
        for row in rows:
            place = row["subject"], row["position"], row["row"]
            if place in self.rows:
                self._problems.append(f"archived twice: {place}, {row['action']}")
            self.rows[place] = row

    def check(self, broker: Broker, disk: Disk) -> None:
        """Against the log as it lies there in the end, from the first commit on whose position is still in it."""
        end, start = self.now.position, broker.logs.actions.start
        if end > broker.logs.actions.end:
            self._problems.append(f"archived up to {end} of a log that ends at {broker.logs.actions.end}")
            return
        begin = next((one for one in self._past if one.position >= start), self.now)
        if begin.position >= end:
            return
        behind, found = told(broker, disk, begin.position, end)
        if behind != end:
            return  # the disk has lost it since
        account = Account.after(begin.carried)
        wanted = {(row["subject"], row["position"], row["row"]): row for row in account.rows(found.rows)}
        rows = {place: row for place, row in self.rows.items() if place[1] >= begin.position}
        if wanted != rows:
            differ = sorted(
                place for place in wanted.keys() | rows.keys() if wanted.get(place) != rows.get(place)
            )
            shown = [(wanted.get(place), rows.get(place)) for place in differ[:3]]
            self._problems.append(f"the archive is not the log, at {len(differ)} rows: {shown}")
        if account.carried != self.now.carried:
            self._problems.append("what is held is not what follows from the log")
        self._probes["books_compared"] += 1
