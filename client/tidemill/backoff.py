"""How long to wait before trying again: exponential with full jitter, so that a thousand do not come at once."""

from __future__ import annotations

import random


class Backoff:
    """Waits that double up to a bound, each drawn evenly from zero to there."""

    __slots__ = ("_base_s", "_failures", "_max_s", "_random")

    def __init__(self, base_s: float, max_s: float, chance: random.Random) -> None:
        self._base_s = base_s
        self._max_s = max_s
        self._random = chance
        self._failures = 0

    def next(self) -> float:
        """Seconds to wait after one more failure."""
        bound = min(self._max_s, self._base_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return self._random.random() * bound

    def reset(self) -> None:
        """It worked."""
        self._failures = 0
