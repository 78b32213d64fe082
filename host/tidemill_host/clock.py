"""The time that machines are told: wall-clock milliseconds that never go back.

The wall clock is read once; from then on the monotonic clock counts. A clock that is set back or forward while the
service runs therefore ends no lease early and revives none. Drift against the wall is corrected at the next start.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two readings of the same time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def seconds(self) -> float:
        """Seconds since some moment, fine enough to time a write of 300 bytes."""
        ...


class RealClock:
    """The operating system's clocks."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000

    def seconds(self) -> float:
        return time.monotonic()


def timestamp(at_ms: int) -> str:
    """As RFC 3339 has it, and every answer and log of ours."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
