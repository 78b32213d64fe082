"""A group's filter as numbers: which batches may hold what it wants, and which messages of a batch do.

Both are numpy over whole columns: a million rows of the consume log cost a few milliseconds.
"""

from __future__ import annotations

from array import array
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tidemill_ledger.gathering import Rows
from tidemill_wire.columns import bloom_of, hash_text

NEAR_ROWS = 16  # looked at one by one: what follows an append is one row
STEP_ROWS = 8192


class Sieve:
    """Any of the tags, or all of them."""

    def __init__(self, tags: tuple[str, ...], every: bool) -> None:
        hashes = [hash_text(tag.encode()) for tag in tags]
        self._hashes = [np.uint64(value) for value in hashes]
        self._every = every
        self._words = [bloom_of(hashes)] if every else sorted({bloom_of([value]) for value in hashes})

    def next_row(self, blooms: array[int], start: int, stop: int) -> int:
        """The first row from ``start`` on whose batch may hold what is wanted; ``stop`` when none does."""
        words = self._words
        near = min(stop, start + NEAR_ROWS)
        for index in range(start, near):
            bloom = blooms[index]
            if bloom and any(bloom & word == word for word in words):
                return index
        for at in range(near, stop, STEP_ROWS):
            # A view of its own for each step: while one is held, nothing can be appended to the array.
            part = np.frombuffer(blooms, "<u8", min(STEP_ROWS, stop - at), 8 * at)
            found = np.zeros(len(part), np.bool_)
            for word in words:
                found |= (part & np.uint64(word)) == np.uint64(word)
            index = int(found.argmax())
            if found[index]:
                return at + index
        return stop

    def rows(self, counts: npt.NDArray[np.int32], hashes: npt.NDArray[np.uint64]) -> Rows:
        """The messages of a batch that are wanted, from its tag counts and tag hashes."""
        wanted = np.full(len(counts) - 1, self._every)
        before = np.zeros(len(hashes) + 1, np.int32)
        for value in self._hashes:
            np.cumsum(hashes == value, out=before[1:])
            has = before[counts[1:]] > before[counts[:-1]]
            wanted = wanted & has if self._every else wanted | has
        return np.flatnonzero(wanted)


@lru_cache(maxsize=1024)
def sieve_of(tags: tuple[str, ...], every: bool) -> Sieve:
    """The sieve of a filter; groups of the same filter share one."""
    return Sieve(tags, every)
