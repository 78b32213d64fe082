"""Errors of logs.

JournalError
  CorruptLog        bytes that must be good are not; holds the file and the position
  CorruptIndex      a file that is made of a log is not whole: it can be made again; holds its name
  CorruptRun        the same of the rows by which a segment's batches are found
  CorruptRecord     one record is not whole: the end of what can be read, or damage; the caller knows which
"""

from __future__ import annotations


class JournalError(Exception):
    """A log cannot be used as it is."""


class CorruptRecord(JournalError):
    """A record is not whole."""


class CorruptLog(JournalError):
    """Damage in a place that had reached the disk, so it is no torn tail and nothing is cut."""

    def __init__(self, file: str, position: int, detail: str) -> None:
        self.file = file
        self.position = position
        super().__init__(
            f"{file} is damaged at position {position} ({detail}), in a part that had been synced to disk: "
            f"run `tidemill inspect log` on the data folder, then restore the file or move it away"
        )


class CorruptIndex(JournalError):
    """An index cannot answer. Nothing is lost: it is made again of its segment."""

    def __init__(self, file: str, detail: str) -> None:
        self.file = file
        super().__init__(
            f"{file} is damaged ({detail}): stop the broker, remove that file, and start it; it is made again"
        )


class CorruptRun(JournalError):
    """Rows that lead to batches are not as they were written. Nothing is lost: they are made again of their segment."""

    def __init__(self, file: str, detail: str) -> None:
        self.file = file
        super().__init__(
            f"{file} is damaged ({detail}): stop the broker, remove that file, and start it; it is made again"
        )
