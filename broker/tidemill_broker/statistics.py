"""Numbers to watch. The host's metrics page is made of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidemill_broker.actions import FailureDetail
from tidemill_wire.limits import METRIC_MISTAKES_MAX
from tidemill_wire.metrics.powers import Powers
from tidemill_wire.metrics.words import OTHER

LEVEL_MAX = 12
"""Attempts from this one on are counted together: their backoff has stopped growing."""
ERROR_CHARS = 64

Key = TypeVar("Key")


@dataclass(slots=True)
class Most(Generic[Key]):
    """How many there are of each of something. Of many those with most are kept, and what becomes of the others is
    counted together; whoever has been counted there stays there until it is among those with most by what came later.
    """

    kept: int
    counts: dict[Key, int] = field(default_factory=dict[Key, int])
    others: int = 0

    def note(self, key: Key, count: int) -> None:
        """So many more."""
        self.counts[key] = self.counts.get(key, 0) + count
        if len(self.counts) > self.kept:
            self.others += self.counts.pop(min(self.counts, key=self.counts.__getitem__))

    def rows(self, others: Key) -> list[tuple[Key, int]]:
        """Each, and how many; ``others`` is what the rest is called."""
        return [*self.counts.items(), *([(others, self.others)] if self.others else [])]


@dataclass(slots=True)
class Mistakes:
    """How many dead letters there are of each mistake, by fingerprint and type."""

    most: Most[tuple[str, str]] = field(default_factory=lambda: Most(METRIC_MISTAKES_MAX))

    def note(self, detail: FailureDetail | None, fingerprint: str, messages: int) -> None:
        """Messages were buried."""
        error = "" if detail is None else detail.error[:ERROR_CHARS]
        self.most.note((fingerprint or "none", error), messages)

    def rows(self) -> list[tuple[tuple[str, str], int]]:
        """Labels, and how many."""
        return self.most.rows((OTHER, ""))


@dataclass(slots=True)
class Counters:
    """What the broker has done since it started."""

    batches: int = 0
    messages_in: int = 0
    duplicates: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    messages_acked: int = 0
    messages_nacked: int = 0
    leases_ended: int = 0
    messages_voided: int = 0
    messages_skipped: int = 0
    batches_skipped: int = 0
    batches_sifted: int = 0
    bytes_sifted: int = 0
    messages_buried: int = 0
    dead_dropped: int = 0
    groups_paused: int = 0
    messages_taken_back: int = 0
    unread: int = 0
    halves_kept: int = 0
    transactions_committed: int = 0
    transactions_rolled_back: int = 0
    transactions_silent: int = 0
    transactions_checked: int = 0
    retries: Counter[int] = field(default_factory=Counter[int])
    """By which attempt comes next."""
    mistakes: Mistakes = field(default_factory=Mistakes)
    batch_messages: Powers = field(default_factory=lambda: Powers(1, 17))
    refused: Counter[str] = field(default_factory=Counter[str])
