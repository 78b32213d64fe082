"""Lanes that a test drives by hand, on a real loop, and a clock that stands."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from tidemill_host.persist import Lanes


class HandLane(Executor):
    """Jobs wait until ``run`` is called."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Callable[[], Any], Future[Any]]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((lambda: fn(*args, **kwargs), future))
        return future

    async def run(self) -> None:
        """The job that waits for longest, and what the loop makes of it."""
        job, future = self.jobs.popleft()
        try:
            future.set_result(job())
        except Exception as error:
            future.set_exception(error)
        await turns()


def hand_lanes() -> Lanes:
    return Lanes(HandLane(), HandLane(), HandLane())


async def turns(count: int = 6) -> None:
    """So many turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


class StandingClock:
    """``step`` is how long each write seems to take."""

    def __init__(self) -> None:
        self.now = 1_780_000_000.0
        self.step = 0.0

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def seconds(self) -> float:
        self.now += self.step
        return self.now
