"""A log cut into segments: where the next bytes go, which file holds a position, what may be dropped.

A segment is a file named by the position of its first byte, 20 digits. Positions run through all segments without a
gap: the next segment begins where the last one ends, so a file's name and size say all there is to know, and the state
after a restart comes from what lies on the disk, not from a manifest. A record never spans two segments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidemill_journal.errors import CorruptLog

NAME_DIGITS = 20
SUFFIX = ".log"


class Place(NamedTuple):
    """Where bytes go: the file, their position in the log, and whether the file begins with them."""

    file: str
    position: int
    opened: bool


class Segments:
    """The segments of one log. The last one is open; the others are sealed and never change again."""

    def __init__(self, folder: str, size_max: int, bases: Iterable[int] = (), end: int = 0) -> None:
        self.folder = folder
        self.size_max = size_max
        self.bases = list(bases)
        self.end = end
        self._closed = False
        self._open_file = ""  # the name of the open segment, once something was appended to it
        self.records = 0  # records in the open segment, for a limit by count
        assert self.bases == sorted(self.bases)
        assert not self.bases or self.bases[-1] <= end

    def file(self, base: int) -> str:
        """The name of the segment that begins at ``base``."""
        return f"{self.folder}/{base:0{NAME_DIGITS}}{SUFFIX}"

    @property
    def start(self) -> int:
        """The oldest position that is kept."""
        return self.bases[0] if self.bases else self.end

    @property
    def open_base(self) -> int:
        """Where the open segment begins."""
        return self.bases[-1] if self.bases else self.end

    def is_full(self, size: int, records_max: int) -> bool:
        """Whether ``size`` more bytes need a new segment. The one place where this is decided."""
        if not self.bases or self._closed:
            return True
        filled = self.end - self.bases[-1]
        return filled > 0 and (filled + size > self.size_max or self.records >= records_max)

    def append(self, size: int, records_max: int = 1 << 62) -> Place:
        """Take room for one record of ``size`` bytes."""
        opened = self.is_full(size, records_max)
        if opened:
            self.bases.append(self.end)
            self.records = 0
            self._closed = False
            self._open_file = self.file(self.end)
        place = Place(self._open_file or self.file(self.bases[-1]), self.end, opened)
        self.end += size
        self.records += 1
        return place

    def follow(self, base: int, size: int, records: int) -> Place:
        """Take room for ``size`` bytes of a log that is copied: its segments begin where the other one's do."""
        opened = not self.bases or base != self.bases[-1]
        if opened:
            assert not self.bases or base == self.end
            self.bases.append(base)
            self.end, self.records, self._closed = base, 0, False
            self._open_file = self.file(base)
        place = Place(self._open_file or self.file(self.bases[-1]), self.end, opened)
        self.end += size
        self.records += records
        return place

    def locate(self, position: int) -> tuple[str, int]:
        """The file that holds a position, and the place in it."""
        assert self.start <= position < self.end, (self.start, position, self.end)
        base = self.bases[bisect_right(self.bases, position) - 1]
        return self.file(base), position - base

    def sealed(self) -> list[int]:
        """Bases of the segments that never change again, oldest first."""
        return self.bases[:-1]

    def end_of(self, base: int) -> int:
        """Where the segment that begins at ``base`` ends."""
        index = bisect_left(self.bases, base)
        if index == len(self.bases) or self.bases[index] != base:
            raise ValueError(f"no segment begins at {base}")
        return self.bases[index + 1] if index + 1 < len(self.bases) else self.end

    def close(self) -> None:
        """The open segment is full, whatever its size: the next record begins another one."""
        self._closed = True

    def cut(self, position: int) -> list[str]:
        """Forget all from ``position`` on; the files that hold nothing else, the last one first."""
        assert self.start <= position <= self.end
        dropped: list[str] = []
        while len(self.bases) > 1 and self.bases[-1] >= position:
            dropped.append(self.file(self.bases.pop()))
            self._closed = True  # what is the last one now was sealed before: it stays so
        self.end = position
        self._open_file = ""
        return dropped

    def drop_oldest(self) -> int:
        """Forget the oldest segment, which must be sealed; its base."""
        assert len(self.bases) > 1
        return self.bases.pop(0)


def base_of(name: str) -> int | None:
    """The base in a file's name (without folder), ``None`` for a file that is no segment."""
    digits, dot, suffix = name.partition(".")
    if len(digits) == NAME_DIGITS and digits.isascii() and digits.isdigit() and dot + suffix == SUFFIX:
        return int(digits)
    return None


def from_listing(
    folder: str, size_max: int, sizes: Mapping[str, int], synced: int
) -> tuple[Segments, list[str]]:
    """The segments that lie in a folder (names and sizes), and files that are cut off by a gap.

    A gap below ``synced`` is damage: a file is missing or too short. Above it, a power cut took the end of a segment
    but not the next one; what follows was never answered as synced and is left over.
    """
    bases = sorted(base for base in map(base_of, sizes) if base is not None)
    segments = Segments(folder, size_max)
    for index, base in enumerate(bases):
        if segments.bases and base != segments.end:
            if segments.end < synced:
                detail = f"the segment ends at {segments.end}, the next begins at {base}"
                raise CorruptLog(segments.file(segments.bases[-1]), segments.end, detail)
            return segments, [segments.file(other) for other in bases[index:]]
        segments.bases.append(base)
        segments.end = base + sizes[f"{base:0{NAME_DIGITS}}{SUFFIX}"]
    return segments, []
