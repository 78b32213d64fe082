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


class Most(Generic[Key]):
    """How many there are of each of something. Of many those with most are kept, and what becomes of the others is
    counted together; whoever has been counted there stays there until it is among those with most by what came later.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._counts: dict[Key, int] = {}
        self._others = 0

    def note(self, key: Key, count: int) -> None:
        """So many more."""
        self._counts[key] = self._counts.get(key, 0) + count
        if len(self._counts) > self._kept:
            self._others += self._counts.pop(min(self._counts, key=self._counts.__getitem__))

    def rows(self, others: Key) -> list[tuple[Key, int]]:
        """Each, and how many; ``others`` is what the rest is called."""
        return [*self._counts.items(), *([(others, self._others)] if self._others else [])]


class Mistakes:
    """How many dead letters there are of each mistake, by fingerprint and type."""

    def __init__(self) -> None:
        self._most: Most[tuple[str, str]] = Most(METRIC_MISTAKES_MAX)

    def note(self, detail: FailureDetail | None, fingerprint: str, messages: int) -> None:
        """Messages were buried."""
        error = "" if detail is None else detail.error[:ERROR_CHARS]
        self._most.note((fingerprint or "none", error), messages)

    def rows(self) -> list[tuple[tuple[str, str], int]]:
        """Labels, and how many."""
        return self._most.rows((OTHER, ""))


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
