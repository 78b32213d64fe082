"""A store of meta in memory: what several replicas of a test share. It keeps what the database keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidemill_meta.storing import Anew, Board, Bulletin, Changes, Decide, Entry, Gaps, StoreAway, is_lost


class MemoryStore:
    """The same as meta's ``doors/store.py`` does on a database. ``away`` makes it fail."""

    def __init__(self, *, alone: bool = False) -> None:
        self.alone = alone
        self.away = False
        self.revision = self._began = 0
        self._gaps: Gaps = ()
        self._entries: dict[tuple[str, str], tuple[int, Entry]] = {}
        self._bulletins: dict[str, Bulletin] = {}
        self._horizon = self._floor = 0

    async def open(self) -> None:
        self._reach()

    async def close(self) -> None:
        return

    async def changes(self, after: int) -> Changes:
        self._reach()
        whole = after < self._horizon or is_lost(after, self.revision, self._gaps)
        rows = (row for row in self._entries.values() if whole or row[0] > after)
        found = tuple(entry for _, entry in sorted(rows, key=lambda row: row[0]))
        floor = self._floor if whole else 0
        return Changes(self.revision, found, whole, floor, self._gaps, self._began)

    async def commit(self, after: int, decide: Decide) -> Changes:
        decided = decide(await self.changes(after))
        anew = decided if isinstance(decided, Anew) else None
        entries = tuple(decided.entries if isinstance(decided, Anew) else decided)
        if not entries and anew is None:
            return Changes(self.revision, (), gaps=self._gaps, began=self._began)
        if anew is not None:
            for place, (_, former_entry) in self._entries.items():
                self._entries[place] = anew.revision, replace(former_entry, version=anew.revision)
            self._entries |= {(one.kind, one.name): (anew.revision, one) for one in entries}
            self.revision = self._began = self._horizon = self._floor = anew.revision
            self._gaps = ()
            return Changes(0, ())
        for entry in entries:
            former = self._entries.get((entry.kind, entry.name))
            assert entry.version > (former[1].version if former is not None else 0), entry
        self.revision += 1
        for entry in entries:
            self._entries[entry.kind, entry.name] = self.revision, entry
        return Changes(self.revision, entries, gaps=self._gaps, began=self._began)

    def copied(self, now_ms: int) -> MemoryStore:
        """What begins with a copy of it then: another life."""
        copy = MemoryStore(alone=self.alone)
        copy.revision, copy._began, copy._entries = now_ms, self._began, dict(self._entries)
        copy._gaps = (*self._gaps, (self.revision, now_ms))
        copy._horizon, copy._floor = self._horizon, self._floor
        return copy

    async def exchange(self, mine: Bulletin) -> Board:
        self._reach()
        self._bulletins[mine.replica] = mine
        return Board(self.revision, tuple(self._bulletins.values()))

    async def forget(self, until: int, silent: Mapping[str, int]) -> int:
        self._reach()
        gone = {
            place: entry.version
            for place, (revision, entry) in self._entries.items()
            if entry.body is None and revision <= until
        }
        for place in gone:
            del self._entries[place]
        if gone:
            self._horizon = max(self._horizon, until)
            self._floor = max(self._floor, *gone.values())
        for replica, number in silent.items():
            if (known := self._bulletins.get(replica)) is not None and known.number == number:
                del self._bulletins[replica]
        return self._floor

    def _reach(self) -> None:
        if self.away:
            raise StoreAway("the store in memory was told to be away")
