"""Partitions: a subject's messages on this broker, and the consume log that finds them.

The consume log has a row a batch. Rows of the open message segment are in memory (``recent``); when that segment is
sealed they go into its run file, of which only the directory stays in memory and windows of rows are read on demand.

    first kept .. runs (sealed segments) .. recent (open segment) .. next_sequence
                                  visible: stored as durably as the subject asks for; consumers see nothing beyond

Invariants (``check``): rows grow in sequence and position; visible <= next_sequence; a sequence is never used twice,
though sequences may be left out where a power cut took messages that nobody had been promised.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tidemill_journal.entries import Rows, Run, row_count, row_length
from tidemill_ledger.producers import Remembering
from tidemill_wire.lanes import priority_of
from tidemill_wire.limits import DEDUPLICATION_SECONDS_DEFAULT
from tidemill_wire.quotas import Rates
from tidemill_wire.transacting import HALF_PARTITION

Archived: TypeAlias = tuple[tuple[int, int], ...]
"""By lane, its priority and the sequence below which archives have all; lanes that are missing: nothing."""


@dataclass(frozen=True, slots=True)
class SubjectSettings:
    """What the broker needs to know of a declared subject."""

    durability: str
    retention_seconds: int
    retention_bytes: int
    message_bytes_max: int
    best_tried: bool = False
    """In order as far as nothing fails: what does is given out later, and does not hold up what is behind it."""
    deduplication_seconds: int = DEDUPLICATION_SECONDS_DEFAULT
    """For how long a dedup key is known; 0: sends with one are refused."""
    archived: Archived | None = None
    """Of a subject whose messages are kept until an archive has them: what archives have."""

    rates: Rates | None = None
    """What may be sent to it here, if that is bounded."""
    in_flight_max: int = 0
    """How many of its messages consumers may hold here, those of all groups together; 0: any number."""
    dead_letters: bool = True
    """Whether its groups may keep dead letters; what is given up is dropped and counted if not."""
    later_seconds: int | None = None
    """How far ahead its messages may be sent, 0: not at all. The delay service beside a lone broker asks for it."""

    def to_map(self) -> dict[str, Any]:
        said: dict[str, Any] = {
            "durability": self.durability, "retention": self.retention_seconds,
            "bytes": self.retention_bytes, "message": self.message_bytes_max,
        }  # fmt: skip
        if self.best_tried:
            said["best_tried"] = True
        if self.deduplication_seconds != DEDUPLICATION_SECONDS_DEFAULT:
            said["dedup"] = self.deduplication_seconds
        if self.archived is not None:
            said["archived"] = [list(one) for one in self.archived]
        if self.rates is not None:
            said["rates"] = [self.rates.messages, self.rates.bytes]
        if self.in_flight_max:
            said["in_flight"] = self.in_flight_max
        if not self.dead_letters:
            said["dead_letters"] = False
        if self.later_seconds is not None:
            said["later"] = self.later_seconds
        return said

    @classmethod
    def from_map(cls, values: Mapping[str, Any]) -> SubjectSettings:
        return cls(
            values["durability"],
            values["retention"],
            values["bytes"],
            values["message"],
            values.get("best_tried", False),
            values.get("dedup", DEDUPLICATION_SECONDS_DEFAULT),
            tuple((*one,) for one in values["archived"]) if "archived" in values else None,
            Rates(*values["rates"]) if "rates" in values else None,
            values.get("in_flight", 0),
            values.get("dead_letters", True),
            values.get("later"),
        )

    def having(self, archived: Archived | None) -> SubjectSettings:
        """What is declared, with what archives have already."""
        return self if self.archived is None else replace(self, archived=archived or ())

    def let_go(self, end_sequence: int) -> bool:
        """Whether no archive is to have the messages before a sequence, which is behind one of the same lane."""
        if self.archived is None:
            return True
        return dict(self.archived).get(priority_of(end_sequence - 1), 0) >= end_sequence


class Partition(Remembering):
    """One subject on this broker."""

    __slots__ = (
        "bytes_in", "groups", "identity", "low", "metered", "name", "next_sequence", "raw_name", "recent", "runs",
        "settings", "synced", "visible",
    )  # fmt: skip

    def __init__(self, identity: int, name: str, settings: SubjectSettings) -> None:
        super().__init__()
        self.identity = identity
        self.name = name
        self.raw_name = name.encode()
        self.settings = settings
        self.synced = settings.durability == "high"
        self.low = settings.durability == "low"
        self.metered = settings.rates is not None
        self.next_sequence = 0
        self.visible = 0
        self.bytes_in = 0
        """Of batches that were stored here in this life, by a master."""
        self.recent = Rows()
        self.runs: list[StoredRun] = []
        self.groups: dict[str, int] = {}

    def configure(self, settings: SubjectSettings) -> None:
        """The declaration changed."""
        self.settings = settings
        self.synced = settings.durability == "high"
        self.low = settings.durability == "low"
        self.metered = settings.rates is not None

    def given(self, cursor: int) -> None:
        """Sequences below a group's cursor are used: a power cut may take their messages, and nobody else knows."""
        self.next_sequence = max(self.next_sequence, cursor)

    @property
    def first_kept(self) -> int:
        """The oldest sequence that retention has left."""
        if self.runs:
            return self.runs[0].run.first_sequence
        return self.recent.firsts[0] if self.recent else self.next_sequence

    @property
    def size(self) -> int:
        """Bytes that are kept, roughly: batches of the open segment are counted when it is sealed."""
        return sum(stored.run.size for stored in self.runs)

    def stored(self, first: int, position: int, size: int, now_ms: int, bloom: int = 0) -> None:
        """A batch was appended to the message log: a row, and the next sequence moves on."""
        assert first >= self.next_sequence, (self.name, first, self.next_sequence)
        self.recent.append(first, position, size, now_ms, bloom)
        self.bytes_in += row_length(size)
        self.next_sequence = first + row_count(size)

    def run_for(self, sequence: int) -> StoredRun | None:
        """The sealed run that holds a sequence or the first one after it; ``None``: look into ``recent``."""
        index = bisect_right(self.runs, sequence, key=lambda stored: stored.run.end_sequence)
        return self.runs[index] if index < len(self.runs) else None

    def check(self) -> None:
        """The invariants in the module's docstring."""
        assert self.visible <= self.next_sequence, (self.name, self.visible, self.next_sequence)
        ends = [stored.run.end_sequence for stored in self.runs]
        assert ends == sorted(ends)
        if self.recent:
            assert self.recent.end_sequence <= self.next_sequence
            assert not ends or ends[-1] <= self.recent.firsts[0]


class Hidden(Partition):
    """What lies in it nobody is shown: half messages."""

    __slots__ = ()

    @property
    def visible(self) -> int:
        return 0

    @visible.setter
    def visible(self, value: int) -> None:
        """It stays as it is."""


def make_partition(identity: int, name: str, settings: SubjectSettings) -> Partition:
    """A partition that is new here."""
    return (Hidden if name == HALF_PARTITION else Partition)(identity, name, settings)


class StoredRun:
    """A run's directory entry, and its rows while they are still in memory."""

    __slots__ = ("rows", "run")

    def __init__(self, run: Run, rows: Rows | None = None) -> None:
        self.run = run
        self.rows = rows
