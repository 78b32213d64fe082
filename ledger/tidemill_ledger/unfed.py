"""Slaves that cannot be sent what comes next, for the master's disk refuses it: told so, and not by asking it again.

fed       --a piece cannot be read-->  told which one, by ``read_failed``; its feed is over
unfed     --it asks again----------->  told the same, from memory
          --``AGAIN_MS`` later------>  fed again: a file may have been restored
"""

from __future__ import annotations

from tidemill_host.machine import Unread
from tidemill_wire.errors import Unavailable

AGAIN_MS = 60_000


class Unfed:
    """By the name of the slave: what it was told, and until when."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, int]] = {}

    def note(self, slave: str, unread: Unread, now_ms: int) -> Unavailable:
        """A piece for a slave could not be read; what it is to be told."""
        self._told[slave] = str(unread), now_ms + AGAIN_MS
        return _error(str(unread))

    def check(self, slave: str, now_ms: int) -> None:
        """Raise what a slave was told, if that was a moment ago."""
        problem, until_ms = self._told.get(slave, ("", 0))
        if now_ms < until_ms:
            raise _error(problem)
        self._told.pop(slave, None)

    def count(self, now_ms: int) -> int:
        """Slaves that are not fed."""
        return sum(now_ms < until_ms for _, until_ms in self._told.values())


def _error(problem: str) -> Unavailable:
    return Unavailable(
        "read_failed", f"the master's {problem}: look at its disk, or let another replica lead"
    )
