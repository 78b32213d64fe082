"""Whether a broker is avoided, and for how long. Pure.

    state      event                                      next
    steady     failure, or an answer that was slow        avoided   for ``FIRST_S``
    avoided    time is up                                 on trial
    on trial   a quick answer                             steady
    on trial   failure, or a slow answer                  avoided   twice as long as before, ``MAX_S`` at most

What fails or is slow while a broker is avoided belongs to the same outage, and prolongs nothing. So does what was sent
before: an answer counts with the moment at which it was asked for. Quick answers while a broker is avoided say nothing,
or one that is slow for every other message would go in and out.
"""

from __future__ import annotations

FIRST_S = 0.25
MAX_S = 30.0
SLOW_S = 0.5
"""An answer takes the time of an fsync, and of a slave's; above it, another broker may do better."""


class Steadiness:
    """See the module."""

    __slots__ = ("_failures", "until")

    def __init__(self) -> None:
        self._failures = 0
        self.until = float("-inf")
        """Avoided up to then."""

    @property
    def steady(self) -> bool:
        """Nothing has gone wrong since it was tried last."""
        return not self._failures

    def failed(self, now: float) -> None:
        """It was lost, or could not take something."""
        if now < self.until:
            return
        self.until = now + min(MAX_S, FIRST_S * 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)

    def answered(self, asked_at: float, now: float) -> None:
        """It answered."""
        if not self._failures and now - asked_at <= SLOW_S:
            return
        if asked_at < self.until:
            return
        if now - asked_at > SLOW_S:
            self.failed(now)
        else:
            self._failures = 0
