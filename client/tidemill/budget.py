"""How much may be handed in: the bytes of all that was sent and has not ended, over all lanes of a producer."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """What was sent, and how it ended."""

    messages: int = 0
    batches: int = 0
    bytes: int = 0
    failed: int = 0


class Budget:
    """``held`` is counted by whoever takes messages; ``give_back`` by whoever sees them end."""

    __slots__ = ("_idle", "_loop", "_max", "_room", "closed", "held", "tally")

    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max
        self._loop = asyncio.get_running_loop()
        self._room: deque[asyncio.Future[None]] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self.held = 0
        self.tally = Tally()
        self.closed = False

    @property
    def full(self) -> bool:
        """There is no room for more: ``await room()`` first."""
        return self.held >= self._max

    async def room(self) -> None:
        """Until there is room."""
        while self.full and not self.closed:
            future: asyncio.Future[None] = self._loop.create_future()
            self._room.append(future)
            await future

    def give_back(self, size: int) -> None:
        """So much has ended."""
        self.held -= size
        if self._room:
            self.admit()
        if not self.held and self._idle:
            idle, self._idle = self._idle, []
            _wake(idle)

    def admit(self) -> None:
        """All that wait look again, in their order, and wait anew when there is no room left."""
        if not self.full or self.closed:
            waiting, self._room = self._room, deque()
            _wake(waiting)

    async def drained(self, within_s: float | None = None) -> None:
        """Until all that was handed in has ended, one way or the other; or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.held and not self.closed:
                    future: asyncio.Future[None] = self._loop.create_future()
                    self._idle.append(future)
                    await future

    def close(self) -> None:
        """Nobody waits any more: they hand in next, and hear of it there."""
        self.closed = True
        self.admit()


def _wake(futures: deque[asyncio.Future[None]] | list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
