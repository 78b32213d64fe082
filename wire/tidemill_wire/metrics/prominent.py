"""Which of many get a name of their own among labels, and what the others are together.

The heaviest half of the names is given anew each time; the other half stays with whoever had one, as long as it is
among the first ``2 * most``: so two of equal weight do not take turns, and what becomes heavy is named at once.
Counters of the others are added up by their growth: when one of them gets a name, or loses it, what all others have
counted together neither falls nor jumps, so a rate over it is right at all times.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import chain, islice
from typing import Generic, TypeVar

Key = TypeVar("Key")


class Prominent(Generic[Key]):
    """At most ``most`` names, for things with ``counters`` counters each."""

    def __init__(self, most: int, counters: int) -> None:
        self._most = most
        self._named: set[Key] = set()
        self._known: dict[Key, tuple[int, ...]] = {}
        self._traffic: dict[Key, float] = {}
        self._nothing = (0,) * counters
        self.others = [0] * counters
        """What all that had no name have counted."""

    def count(self, key: Key, now: tuple[int, ...]) -> float:
        """What a thing has counted up to now; how much of it is of late: what was before counts half each time."""
        known = self._known.get(key, self._nothing)
        if now == known:
            self._known[key] = known
            self._traffic[key] = recent = self._traffic.get(key, 0.0) / 2
            return recent
        grown = [max(0, new - old) for new, old in zip(now, known, strict=True)]
        self._known[key] = now
        if key not in self._named:
            for index, growth in enumerate(grown):
                self.others[index] += growth
        self._traffic[key] = recent = sum(grown) + self._traffic.get(key, 0.0) / 2
        return recent

    def choose(self, weights: Mapping[Key, tuple[float, ...]]) -> set[Key]:
        """Who has a name from now on, of all there are. What is not there any more is forgotten."""
        first = heapq.nlargest(2 * self._most, weights, key=weights.__getitem__)
        heaviest = first[: -(-self._most // 2)]
        kept = (key for key in first if key in self._named)
        self._named = set(islice(dict.fromkeys(chain(heaviest, kept, first)), self._most))
        if len(self._known) > len(weights):
            self._known = {key: self._known[key] for key in weights}
            self._traffic = {key: self._traffic[key] for key in weights}
        return self._named
