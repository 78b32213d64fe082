"""How busy a broker is, as meta places new subjects by it: bytes that are stored a second, smoothed.

Every replica of a broker group stores the same, so it is read off the end of the message log, and costs nothing.
"""

from __future__ import annotations

from math import exp

from tidemill_wire.limits import MIB

FULL_BYTES = 100 * MIB
"""A second of it is all that a broker can do: the disk and the loop of a common machine are near their end there."""
SMOOTHED_MS = 10_000
"""A moment of much traffic is not yet a busy broker."""


class Load:
    """0 is idle, 1 can do no more."""

    def __init__(self, full_bytes: int = FULL_BYTES) -> None:
        self._full_bytes = full_bytes
        self._end = self._at_ms = 0
        self._rate = 0.0
        self._measured = False

    def measured(self, end: int, now_ms: int) -> float:
        """The load by now, when the message log ends there. A clock that was set back measures from there on."""
        passed_ms = now_ms - self._at_ms
        if self._measured and passed_ms > 0 and end >= self._end:
            rate = 1000 * (end - self._end) / passed_ms
            self._rate += (rate - self._rate) * (1 - exp(-passed_ms / SMOOTHED_MS))
        self._end, self._at_ms, self._measured = end, now_ms, True
        return min(1.0, self._rate / self._full_bytes)
