"""What the broker in memory keeps: batches as lists, groups as cursors."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from tidemill_wire.batch import read_header
from tidemill_wire.columns import Batch
from tidemill_wire.filters import EVERYTHING, TagFilter
from tidemill_wire.kinds import Mode

Lease: TypeAlias = tuple[int, int]
"""A sequence and how often it failed."""


@dataclass(slots=True)
class StoredSubject:
    """Batches, back to back by their sequences."""

    batches: list[bytes] = field(default_factory=list[bytes])
    firsts: list[int] = field(default_factory=list[int])
    next_sequence: int = 0
    producers: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, list[tuple[int, int]]])

    def holding(self, sequence: int) -> int:
        """The index of the batch that a sequence is in."""
        return bisect_right(self.firsts, sequence) - 1


@dataclass(slots=True)
class Member:
    """A consumer within a group: its pull sequences and what it holds."""

    pulled: int = 0
    leases: dict[int, Lease] = field(default_factory=dict[int, Lease])


@dataclass(slots=True)
class StoredGroup:
    """A consumer group on one subject."""

    cursor: int
    wanted: TagFilter = EVERYTHING
    due: deque[Lease] = field(default_factory=deque[Lease])
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    acked: int = 0
    rejected: int = 0
    mode: Mode = Mode.AS_DECLARED
    owner: str = ""
    """Of a group in order: the consumer that has it."""
    suspended: bool = False

    @property
    def in_flight(self) -> int:
        return sum(len(member.leases) for member in self.members.values())

    def keep_order(self) -> None:
        """What failed comes before anything newer: what lies behind it is taken back."""
        if self.mode is Mode.AS_DECLARED or not self.due:
            return
        first = min(sequence for sequence, _ in self.due)
        for member in self.members.values():
            for number, lease in list(member.leases.items()):
                if lease[0] > first:
                    self.due.append(member.leases.pop(number))
        self.due = deque(sorted(self.due))


def first_since(subject: StoredSubject, start: int) -> int:
    if start <= 0:
        return 0
    found = (
        first for first, batch in zip(subject.firsts, subject.batches, strict=True) if _time(batch) >= start
    )
    return next(found, subject.next_sequence)


def next_wanted(batch: bytes, begin: int, span: tuple[int, int], wanted: TagFilter) -> tuple[int, int]:
    """The first run of wanted messages in a span of sequences of a batch: first sequence, count, which may be 0."""
    first, end = span
    if not wanted:
        return first, end - first
    tags = Batch(batch).tags() or []
    rows = [wanted.wants(one) for one in tags] or [False] * (end - begin)
    while first < end and not rows[first - begin]:
        first += 1
    last = first
    while last < end and rows[last - begin]:
        last += 1
    return first, last - first


def _time(batch: bytes) -> int:
    return read_header(batch).stored_at_ms
