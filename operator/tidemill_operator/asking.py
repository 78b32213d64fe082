"""What each object asked meta for lately: what it must see next, and when asking has become a quarrel.

A pass that asks is followed at once by one that looks. When that one asks again, and so on, meta keeps something else
than it is told: it is of another version, or somebody undoes it as fast. Then the object is left alone for a minute.
"""

from __future__ import annotations

from tidemill_operator.refusals import Failure
from tidemill_operator.store import Key

TIMES_MAX = 5
"""Passes in a row that ask."""
PAUSE_MS = 60_000
SENTENCE = "meta took what it was told, and shows something else: look at its version, and for who else declares this"


class Asked:
    """By object. Nothing of it has to outlive the process."""

    def __init__(self) -> None:
        self._last: dict[Key, tuple[float, int]] = {}

    def since_s(self, key: Key) -> float:
        """What is seen of meta must have been asked for after this."""
        return self._last.get(key, (0.0, 0))[0]

    def check(self, key: Key) -> None:
        """Whether it may ask once more."""
        if self._last.get(key, (0.0, 0))[1] >= TIMES_MAX:
            del self._last[key]
            raise Failure("passing", "Progressing", SENTENCE, PAUSE_MS)

    def note(self, key: Key, now_s: float) -> None:
        """It has asked."""
        self._last[key] = now_s, self._last.get(key, (0.0, 0))[1] + 1

    def settle(self, key: Key) -> None:
        """It has nothing to ask for."""
        self._last.pop(key, None)
