"""Acks of many handlers, gathered: a command for each would cost more than most handlers do.

What was handled within a few milliseconds is acknowledged with one command a subject. A handler's slot is free at
once; ``acked`` is told when the broker has answered, and never of what went to the spool instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from tidemill.delivery import Settler, add_range
from tidemill.errors import LeaseLost, TidemillError
from tidemill.tasks import Tasks
from tidemill.worker.context import Context
from tidemill.worker.statistics import Counts
from tidemill_wire.ranges import pairs

GATHERED_MAX = 1000

Acked: TypeAlias = Callable[[list[Context]], Awaitable[None]]
Place: TypeAlias = tuple[Settler, str]

log = logging.getLogger("tidemill.worker")


class Acks:
    """See the module."""

    def __init__(self, linger_s: float, acked: Acked, counts: Counts, tasks: Tasks) -> None:
        self._linger_s = linger_s
        self._acked = acked
        self._counts = counts
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Place, list[tuple[int, Context]]] = {}
        self._count = 0
        self._open = 0
        self._timer: asyncio.TimerHandle | None = None
        self._quiet = asyncio.Event()
        self._quiet.set()

    def add(self, context: Context) -> None:
        """Its message was handled."""
        number = context.message.settle()
        if number is None:
            return  # the handler has settled it
        self._waiting.setdefault(context.message.origin, []).append((number, context))
        self._count += 1
        self._quiet.clear()
        if self._count >= GATHERED_MAX:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._linger_s, self.flush)

    def flush(self) -> None:
        """Say what has gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting, self._count = self._waiting, {}, 0
        for place, found in waiting.items():
            self._open += 1
            self._tasks.start(self._tell(place, found), "tidemill acks")

    async def drained(self) -> None:
        """Until all has been answered."""
        self.flush()
        await self._quiet.wait()

    async def _tell(self, place: Place, found: list[tuple[int, Context]]) -> None:
        settler, subject = place
        found.sort(key=_number)
        ranges: list[int] = []
        for number, _ in found:
            add_range(ranges, number, number)
        try:
            kept = await self._acknowledge(settler, subject, found, ranges)
            if kept:
                await self._acked(kept)
        except TidemillError as error:
            log.warning("ack_unanswered %s messages=%d: %s", subject, len(found), error)
        finally:
            self._open -= 1
            if not self._open and not self._waiting:
                self._quiet.set()

    async def _acknowledge(
        self, settler: Settler, subject: str, found: list[tuple[int, Context]], ranges: list[int]
    ) -> list[Context]:
        """Of which the broker has answered that they are."""
        lost: Sequence[int] = ()
        try:
            if not await settler.ack_now(subject, ranges):
                self._counts.spooled += len(found)
                return []
        except LeaseLost as error:  # those will be handled again
            lost = error.ranges
            late = sum(_within(number, lost) for number, _ in found)
            self._counts.lost += late
            log.warning("ack_too_late %s messages=%d: %s", subject, late, error)
        return [context for number, context in found if not _within(number, lost)]


def _within(number: int, ranges: Sequence[int]) -> bool:
    return any(first <= number <= last for first, last in pairs(ranges))


def _number(one: tuple[int, Context]) -> int:
    return one[0]
