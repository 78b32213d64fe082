"""The queue of keys to look at: each at most once in it, each with at most one worker.

    add            waiting → due                            an event, or a pass of the resync
    take           due → taken                              deletions first, then who has waited longest
    done           taken → gone, or due after again_ms, or due at once when it was added meanwhile
    failed         taken → waiting, for longer after each failure: by chance, up to a bound that doubles

A key that is added while it waits for its next try is due at once: something has changed, and the try may succeed. That
cannot be a hot loop, for what the operator writes itself does not count as a change (``store.py``).

Pure: time and chance are given.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from random import Random

K = TypeVar("K", bound=Hashable)

BACKOFF_MS_MIN = 1_000
BACKOFF_MS_MAX = 300_000
DOUBLINGS_MAX = 9
assert BACKOFF_MS_MIN << DOUBLINGS_MAX >= BACKOFF_MS_MAX


@dataclass(slots=True)
class Entry:
    """What is known of a key that is somewhere in the queue."""

    since_ms: int
    """When it became due, or will."""
    urgent: bool = False
    taken: bool = False
    again: bool = False
    """Added while it was taken."""
    number: int = 0
    """Of the heap's row that counts; rows with other numbers are left behind, and passed over."""


@dataclass(slots=True)
class WorkQueue(Generic[K]):
    """See the module."""

    chance: Random
    _entries: dict[K, Entry] = field(default_factory=dict[K, Entry])
    _failures: dict[K, int] = field(default_factory=dict[K, int])
    _due: list[tuple[bool, int, int, K]] = field(default_factory=list[tuple[bool, int, int, K]])
    _later: list[tuple[int, int, K]] = field(default_factory=list[tuple[int, int, K]])
    _numbers: int = 0

    def add(self, key: K, now_ms: int, *, urgent: bool = False) -> None:
        """Something may have changed: look at it soon; ``urgent``, before the others."""
        entry = self._entries.get(key)
        if entry is None:
            self._put(key, Entry(now_ms, urgent), now_ms)
            return
        more_urgent = urgent and not entry.urgent
        entry.urgent = entry.urgent or urgent
        if entry.taken:
            entry.again = True
        elif entry.since_ms > now_ms or more_urgent:
            entry.since_ms = min(entry.since_ms, now_ms)
            self._put(key, entry, now_ms)

    def take(self, now_ms: int) -> K | None:
        """The next key, which is its taker's until ``done`` or ``failed``."""
        self._ripen(now_ms)
        while self._due:
            _, _, number, key = heapq.heappop(self._due)
            if self._counts(number, key):
                self._entries[key].taken = True
                return key
        return None

    def done(self, key: K, now_ms: int, again_ms: int | None = None) -> None:
        """It was looked at; ``again_ms``: once more after that time, though nothing happens."""
        self._failures.pop(key, None)
        self._leave(key, now_ms, again_ms)

    def failed(self, key: K, now_ms: int, at_least_ms: int = 0) -> int:
        """It could not be looked at, or be helped. In how many ms it is tried again."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        bound = min(BACKOFF_MS_MAX, BACKOFF_MS_MIN << min(failures, DOUBLINGS_MAX))
        pause_ms = max(at_least_ms, round(self.chance.uniform(0, bound)))
        entry = self._entries[key]
        if entry.again:  # what changed meanwhile may be what was missing, or what this very try has written
            entry.again, pause_ms = False, max(at_least_ms, min(pause_ms, BACKOFF_MS_MIN))
        self._leave(key, now_ms, pause_ms)
        return pause_ms

    def failures(self, key: K) -> int:
        """How many tries in a row have failed."""
        return self._failures.get(key, 0)

    def next_ms(self) -> int | None:
        """When the next key is due; None: nobody knows of one."""
        while self._due and not self._counts(self._due[0][2], self._due[0][3]):
            heapq.heappop(self._due)
        while self._later and not self._counts(self._later[0][1], self._later[0][2]):
            heapq.heappop(self._later)
        heads = [*(row[1] for row in self._due[:1]), *(row[0] for row in self._later[:1])]
        return min(heads, default=None)

    def depth(self, now_ms: int) -> int:
        """How many keys are due and not taken."""
        return sum(1 for entry in self._entries.values() if not entry.taken and entry.since_ms <= now_ms)

    def oldest_ms(self, now_ms: int) -> int:
        """For how long the one that waits longest has been due."""
        since = (entry.since_ms for entry in self._entries.values() if not entry.taken)
        return max(0, now_ms - min(since, default=now_ms))

    def _leave(self, key: K, now_ms: int, again_ms: int | None) -> None:
        entry = self._entries.pop(key)
        assert entry.taken, f"{key} was not taken"
        if entry.again:
            self._put(key, Entry(now_ms, entry.urgent), now_ms)
        elif again_ms is not None:
            self._put(key, Entry(now_ms + again_ms, entry.urgent), now_ms)

    def _put(self, key: K, entry: Entry, now_ms: int) -> None:
        self._numbers += 1
        entry.number = self._numbers
        self._entries[key] = entry
        if entry.since_ms <= now_ms:
            heapq.heappush(self._due, (not entry.urgent, entry.since_ms, entry.number, key))
        else:
            heapq.heappush(self._later, (entry.since_ms, entry.number, key))

    def _ripen(self, now_ms: int) -> None:
        while self._later and self._later[0][0] <= now_ms:
            since_ms, number, key = heapq.heappop(self._later)
            if self._counts(number, key):
                heapq.heappush(self._due, (not self._entries[key].urgent, since_ms, number, key))

    def _counts(self, number: int, key: K) -> bool:
        """Whether a row of a heap is the one of its key, which nobody has taken."""
        entry = self._entries.get(key)
        return entry is not None and entry.number == number and not entry.taken
