"""One hour of the calendar: how much it was given, and which of its messages are done, by number.

Messages of an hour are numbered in the order in which they came. Whatever happens to one is said with its number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidemill_delay.series import Follower
from tidemill_ledger.gathering import runs_of
from tidemill_wire.ranges import pairs

Numbers = npt.NDArray[np.int64]
GROWTH_LEAST = 1024


class Marks:
    """A set of numbers that fills up: a byte each while it does, nothing when it is empty."""

    __slots__ = ("_marks", "count")

    def __init__(self) -> None:
        self._marks = np.zeros(0, bool)
        self.count = 0

    def add(self, ranges: Sequence[int]) -> int:
        """Mark all numbers of the ranges; how many were not marked before."""
        before = self.count
        for first, last in pairs(ranges):
            self._reach(last + 1)
            marks = self._marks[first : last + 1]
            self.count += len(marks) - int(np.count_nonzero(marks))
            marks[:] = True
        return self.count - before

    def has(self, number: int) -> bool:
        """Whether a number is marked."""
        return number < len(self._marks) and bool(self._marks[number])

    def without(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        """Of each number, whether it is not marked."""
        if not self.count:
            return np.ones(len(numbers), bool)
        known = numbers < len(self._marks)
        free = np.ones(len(numbers), bool)
        free[known] = ~self._marks[numbers[known]]
        return free

    def to_bytes(self) -> bytes:
        """A bit a number."""
        return np.packbits(self._marks, bitorder="little").tobytes() if self.count else b""

    @classmethod
    def from_bytes(cls, data: bytes) -> Marks:
        """What ``to_bytes`` gave."""
        marks = cls()
        marks._marks = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(bool)
        marks.count = int(np.count_nonzero(marks._marks))
        return marks

    def _reach(self, end: int) -> None:
        if end > len(self._marks):
            grown = np.zeros(max(GROWTH_LEAST, end, 2 * len(self._marks)), bool)
            grown[: len(self._marks)] = self._marks
            self._marks = grown


class Hour:
    """See the module. ``size`` is how many bytes of pieces its file has, or will have when all is written; ``names`` is
    how many rows find them.
    """

    __slots__ = ("cancelled", "count", "done", "moved", "names", "series", "size", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.count = 0
        self.size = 0
        self.names = 0
        self.done = Marks()
        """Whatever became of them: also those of the next two."""
        self.cancelled = Marks()
        self.moved = Marks()
        """They have another time, and with it another number, maybe in another hour."""
        self.series: dict[int, Follower] = {}
        """Of those that recur, what comes after them."""

    @property
    def waiting(self) -> int:
        """Messages that are not done."""
        return self.count - self.done.count

    def place(self, messages: int, size: int) -> tuple[int, int]:
        """Room for a piece: its first number, and its place in the file."""
        first, place = self.count, self.size
        self.count += messages
        self.size += size
        return first, place

    def check(self) -> None:
        """Nothing is done that was not given, and whatever is cancelled or has another time is done."""
        assert self.cancelled.count + self.moved.count <= self.done.count
        assert self.done.count <= self.count, (self.start_ms, self.done.count, self.count)


def ranges_of(numbers: Numbers) -> list[int]:
    """Numbers that grow, as ranges."""
    return [number for first, end in runs_of(numbers) for number in (first, end - 1)]


def file_of(start_ms: int) -> str:
    """Where the pieces of an hour are."""
    return f"schedule/{start_ms:020}.pieces"


def rows_of(start_ms: int) -> str:
    """Where the index of an hour is."""
    return f"schedule/{start_ms:020}.rows"


def names_of(start_ms: int) -> str:
    """Where the messages of an hour are found by their names."""
    return f"schedule/{start_ms:020}.names"


def start_of(name: str) -> int | None:
    """The hour in a file's name (without folder); ``None`` for another file."""
    digits, _, suffix = name.partition(".")
    known = (
        suffix in ("pieces", "rows", "names") and len(digits) == 20 and digits.isascii() and digits.isdigit()
    )
    return int(digits) if known else None
