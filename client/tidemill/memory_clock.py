"""The clock of the broker in memory: it goes as the wall clock does, and can be moved ahead.

What is to happen later waits here, and happens in the order of its times: by itself when its time has come, or at once
when somebody moves the clock past it. Nothing happens before the clock says its time. While the clock is moved it says,
for each thing that happens on the way, the time at which that was to happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

WAIT_S_MIN, WAIT_S_MAX = 0.001, 3600.0
"""Between two looks at a wall clock, which may be set, or stand still in a test."""


class MemoryClock:
    """See the module. ``base`` is the clock that it goes by."""

    def __init__(self, base: Callable[[], int]) -> None:
        self._base = base
        self._ahead_ms = 0
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    def now_ms(self) -> int:
        """The time of day, as far as this broker is concerned."""
        return self._base() + self._ahead_ms

    def call_at(self, due_ms: int, what: Callable[[], None]) -> None:
        """Do it then; what has the same time is done in the order of the calls."""
        self._number += 1
        heappush(self._waiting, (due_ms, self._number, what))
        self.watch()

    def watch(self) -> None:
        """Wake up in this event loop for what is next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            wait_s = (self._waiting[0][0] - self.now_ms()) / 1000
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(WAIT_S_MAX, max(WAIT_S_MIN, wait_s)), self._look)

    def advance(self, by_ms: int, *, away: bool = False) -> Iterator[None]:
        """Move ahead, one step with each ``next``: a step is to the next time at which something happens. ``away``: in
        one step to the end, as for somebody who was not there meanwhile; what was to happen happens then.
        """
        goal_ms = self.now_ms() + by_ms
        if away:
            self._move(goal_ms)
            self._happen()
            yield
        while self._waiting and self._waiting[0][0] <= goal_ms:
            self._move(self._waiting[0][0])
            self._happen()
            yield
        self._move(goal_ms)
        self.watch()

    def _move(self, to_ms: int) -> None:
        self._ahead_ms += max(0, to_ms - self.now_ms())

    def _look(self) -> None:
        self._timer = None
        self._happen()
        self.watch()

    def _happen(self) -> None:
        now_ms = self.now_ms()
        while self._waiting and self._waiting[0][0] <= now_ms:
            heappop(self._waiting)[2]()
