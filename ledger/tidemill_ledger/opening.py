"""The logs of a data folder as a crash left them: opened, cut where they are torn, and made to stay.

Bad bytes below what was synced are damage, and refuse the start with their position. Above it they are a torn tail:
they are copied to ``aside/`` and cut. A crash at any point of this leaves what the next opening needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidemill_journal.checkpoint import FOLDER as CHECKPOINTS
from tidemill_journal.checkpoint import checkpoint_file, checkpoint_number, unwrap
from tidemill_journal.errors import CorruptLog, CorruptRecord
from tidemill_journal.records import Record
from tidemill_journal.segments import Segments, base_of, from_listing
from tidemill_ledger.scanning import records_behind
from tidemill_ledger.storage import Storage


@dataclass(slots=True)
class Report:
    """What a recovery found and did; each start says it in its log."""

    checkpoint: int = 0
    """The one it began with; 0: none."""
    actions_replayed: int = 0
    batches_replayed: int = 0
    cut_bytes: dict[str, int] = field(default_factory=dict[str, int])
    """By log: what was set aside."""
    checkpoints_passed_over: int = 0
    """Newer ones that were not whole."""
    runs_rebuilt: int = 0


class Opening:
    """One data folder."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.report = Report()

    def sizes(self, folder: str) -> dict[str, int]:
        """The files of a folder."""
        return {name: self._storage.size(f"{folder}/{name}") or 0 for name in self._storage.names(folder)}

    def end_of(self, folder: str) -> int:
        """Where a log ends, be it whole or not."""
        sizes = self.sizes(folder)
        return max(
            (base + size for name, size in sizes.items() if (base := base_of(name)) is not None), default=0
        )

    def open(self, folder: str, size_max: int, synced: int) -> Segments:
        """A log, up to the first gap above what was synced."""
        segments, left_over = from_listing(folder, size_max, self.sizes(folder), synced)
        for file in reversed(left_over):
            cut = self.report.cut_bytes
            cut[folder] = cut.get(folder, 0) + (self._storage.size(file) or 0)
            self._storage.set_aside(file, 0)
        return segments

    def cut(self, segments: Segments, position: int, synced: int, error: Exception) -> None:
        """Bad bytes: damage below what was synced, else a torn tail."""
        file, _ = segments.locate(position)
        if position < synced:
            raise CorruptLog(file, position, str(error)) from error
        self.report.cut_bytes[segments.folder] = segments.end - position
        for dropped in segments.cut(position):  # the last one first: a crash in between leaves no gap
            self._storage.set_aside(dropped, 0)
        last = segments.file(segments.open_base)
        if (self._storage.size(last) or 0) > position - segments.open_base:
            self._storage.set_aside(last, position - segments.open_base)

    def behind(self, segments: Segments, position: int) -> Iterator[Record]:
        """Whole records behind bad bytes: one of them may know that these had been good, and are no torn tail."""
        for base in segments.bases:
            end = segments.end_of(base)
            if end > position:
                read = self._storage.reader(segments.file(base))
                yield from records_behind(read, base, end, max(base, position))

    def sync(self, segments: Segments, synced: int) -> None:
        """A killed process left bytes in the page cache: what is shown from now on must not be taken back."""
        for base in segments.bases:
            file = segments.file(base)
            unsynced = segments.end_of(base) > synced or base == segments.bases[-1]
            if unsynced and self._storage.size(file) is not None:  # else all of it was cut
                self._storage.sync(file)

    def checkpoint_numbers(self) -> list[int]:
        """Those that lie in the folder, whole or not."""
        found = (checkpoint_number(name) for name in self._storage.names(CHECKPOINTS))
        return sorted(number for number in found if number is not None)

    def payloads(self) -> Iterator[tuple[int, bytes]]:
        """Checkpoints that are whole, the newest first, with their numbers."""
        for number in reversed(self.checkpoint_numbers()):
            file = checkpoint_file(number)
            try:
                yield number, unwrap(self._storage.reader(file)(0, self._storage.size(file) or 0))
            except CorruptRecord:
                self.report.checkpoints_passed_over += 1
