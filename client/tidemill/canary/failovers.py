"""How long nobody was answered, and what a change of the master cost. Pure.

    nothing waits, or somebody was answered of late                  served
    something waits, or has failed, and for ``slow_ms`` nobody
    was answered                                                     interrupted, since the first of these was sent
    the next answer                                                  served; the interruption is over

A change of the master is known by the epoch in what comes. Its RTO is the interruption that was over before: from the
sending of the first probe that was not answered, or failed, to the first answer. Where there was none, it is how long
the first probe of the new epoch waited. Its RPO is the number of probes that were answered before and never came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KEPT_MAX = 20
"""Changes of the master that are told of."""
RECENT_MS = 30_000
"""An interruption that was over for longer has nothing to do with a change that is seen now."""


@dataclass(slots=True)
class Failover:
    """One change of the master: a failover, or a hand-over."""

    epoch: int
    at_ms: int
    """When the first probe of the new master came."""
    rto_ms: int
    rpo: int = 0
    settled: bool = False
    """What was answered before has come, or is lost: the RPO is what it is."""

    def to_map(self, now_ms: int) -> dict[str, Any]:
        """For a page."""
        return {
            "epoch": self.epoch, "ago_ms": now_ms - self.at_ms, "rto_ms": self.rto_ms, "rpo": self.rpo,
            "settled": self.settled,
        }  # fmt: skip


class Interruptions:
    """Whether sends are answered."""

    def __init__(self, slow_ms: int) -> None:
        self._slow_ms = slow_ms
        self._waiting: dict[int, int] = {}
        """When what waits was sent, by number: the oldest first."""
        self._failed_ms: int | None = None
        """When the first one was sent that has failed since the last answer."""
        self._answered_ms: int | None = None
        self._over: tuple[int, int] | None = None
        """How long the longest interruption of late was, and when it was over."""
        self._is_told = False
        """Of the interruption that goes on it was told."""

    def sent(self, number: int, now_ms: int) -> None:
        self._waiting[number] = now_ms

    def failed(self, number: int) -> None:
        sent_ms = self._waiting.pop(number)
        if self._failed_ms is None or sent_ms < self._failed_ms:
            self._failed_ms = sent_ms

    def answered(self, number: int, now_ms: int) -> int:
        """How long it waited for that."""
        if (since_ms := self.since(now_ms)) is not None and not self._is_told:
            self._over = max((now_ms - since_ms, now_ms), self._of_late(now_ms) or (0, 0))
        self._failed_ms, self._answered_ms, self._is_told = None, now_ms, False
        return now_ms - self._waiting.pop(number)

    def since(self, now_ms: int) -> int | None:
        """When the first one was sent that is not answered, while nobody is."""
        oldest = [next(iter(self._waiting.values()), None), self._failed_ms]
        since_ms = min((one for one in oldest if one is not None), default=None)
        if since_ms is None:
            return None
        silent_ms = max(since_ms, self._answered_ms if self._answered_ms is not None else since_ms)
        return since_ms if now_ms - silent_ms > self._slow_ms else None

    def tell(self, now_ms: int) -> int | None:
        """How long nobody was answered of late, or is not; of an interruption it is told once."""
        if (since_ms := self.since(now_ms)) is not None:
            self._is_told, self._over = True, None
            return now_ms - since_ms
        last, self._over = self._of_late(now_ms), None
        return None if last is None else last[0]

    def _of_late(self, now_ms: int) -> tuple[int, int] | None:
        over = self._over
        return over if over is not None and now_ms - over[1] <= RECENT_MS else None


class Failovers:
    """Changes of the master, as a canary sees them."""

    def __init__(self) -> None:
        self.epoch = 0
        self.count = 0
        self.recent: list[Failover] = []

    def begun(self, epoch: int, now_ms: int, rto_ms: int) -> None:
        """A probe of a later epoch came. The first epoch of all is no change."""
        if self.epoch:
            self.count += 1
            self.recent = [*self.recent, Failover(epoch, now_ms, rto_ms)][-KEPT_MAX:]
        self.epoch = epoch

    def lost(self, answered_ms: int, by: int = 1) -> None:
        """One that was answered then never came; or, with -1, came after all."""
        for one in self.recent:
            if answered_ms <= one.at_ms:
                one.rpo += by
                return
