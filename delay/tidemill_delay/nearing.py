"""Which hour is loaded next: the earliest that is not wholly in the wheel. And how far the others are in it.

A calendar of a year has 8,760 hours, and something is sent or due many times a second: no hour but the earliest is
looked at for it.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heapify, heappop, heappush

from tidemill_delay.wheel import Wheel


class Nearing:
    """See the module."""

    def __init__(self, hours: Collection[int], hour_ms: int, ahead_ms: int) -> None:
        self._hour_ms = hour_ms
        self._ahead_ms = ahead_ms
        self._high: dict[int, int] = {}
        """Of hours that are in the wheel: due times up to this are."""
        self._left = list(hours)
        heapify(self._left)
        self._known = set(hours)
        """Those that are in the heap."""
        self._closed_ms = 0

    def high_ms(self, start_ms: int) -> int | None:
        """Up to which due time an hour is in the wheel; ``None`` when it is not there at all."""
        return self._high.get(start_ms)

    def placed(self, start_ms: int) -> None:
        """Something came into an hour, which may be a new one."""
        if start_ms not in self._high:
            self.known(start_ms)

    def known(self, start_ms: int) -> None:
        """Something of an hour is left to be loaded."""
        if start_ms not in self._known:
            self._known.add(start_ms)
            heappush(self._left, start_ms)

    def loaded(self, start_ms: int, high_ms: int) -> None:
        """Due times of an hour up to this are in the wheel."""
        self._high[start_ms] = high_ms

    def relieve(self, wheel: Wheel, most: int) -> None:
        """When more came into hours of the wheel than it may hold, what is due last leaves it, and is loaded once more.
        A quarter of it is free then: it does not happen with each message, nor is a page loaded at once.
        """
        if wheel.size > most:
            for start_ms, high_ms in wheel.relieve(3 * most // 4):
                self._high[start_ms] = high_ms
                self.known(start_ms)

    def earliest(self, hours: Collection[int], closed_ms: int) -> int | None:
        """The earliest hour that is not wholly in the wheel; before ``closed_ms`` some are gone."""
        if closed_ms > self._closed_ms:
            self._closed_ms = closed_ms
            self._high = {start_ms: high for start_ms, high in self._high.items() if start_ms in hours}
        while self._left and (self._left[0] not in hours or self._is_whole(self._left[0])):
            self._known.discard(heappop(self._left))
        return self._left[0] if self._left else None

    def nears_ms(self, start_ms: int) -> int:
        """When an hour is to be loaded. The first that is open may have what is due at any time, when a clock that ran
        ahead has closed the hours before it.
        """
        return 0 if start_ms <= self._closed_ms else start_ms - self._ahead_ms

    def _is_whole(self, start_ms: int) -> bool:
        return self._high.get(start_ms, -1) >= start_ms + self._hour_ms

    def check(self, hours: Collection[int], closed_ms: int) -> None:
        """The earliest is the one that is found by looking at all of them."""
        left = [start_ms for start_ms in hours if not self._is_whole(start_ms)]
        assert self.earliest(hours, closed_ms) == min(left, default=None), (self._left, left)
