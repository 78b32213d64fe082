"""How often a machine's invariants are looked at: they are a fifth of what a seed costs.

What is broken mostly stays broken, so a look now and then finds it; in some of the seeds it is after each turn, which
tells the turn that broke it.
"""

from __future__ import annotations

import random

TURNS = 8
EACH_TURN_ONE_IN = 8


class Sparing:
    """When to look."""

    def __init__(self, seed: str) -> None:
        each = random.Random(f"{seed}/sparing").randrange(EACH_TURN_ONE_IN) == 0
        self._every = 1 if each else TURNS
        self._turns = 0

    def due(self) -> bool:
        """A turn has come."""
        self._turns += 1
        return self._turns % self._every == 0
