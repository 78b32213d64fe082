"""Sending for later: to the delay service, which takes the same SEND as a broker and keeps it until it is due.

It has a lane of its own, and a spool of its own where the client has one. Nothing of it goes anywhere else: while no
delay service can be reached such a send is spooled, or waits, and fails at its deadline. When a message is due stands
in its batch as a time of day, so it may lie in the spool for as long as it will.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TypeAlias

from tidemill.budget import Budget
from tidemill.encode import check_timer_key
from tidemill.errors import Refused, TidemillError
from tidemill.lane import Lane
from tidemill.parcel import NO_EXTRAS, Extras, Partition, Waiter
from tidemill.router import Router
from tidemill.session import Session, Watchers
from tidemill.settings import ClientSettings
from tidemill.spooler import Places
from tidemill.tasks import Tasks
from tidemill_wire.limits import DELAY_MS_MAX

Delay: TypeAlias = float | timedelta
LANE = "%later"
"""A name that no broker group has."""


def due_at(delay: Delay | None, at: datetime | None, now_ms: int, timer_key: str | None = None) -> int | None:
    """When a message is due, in milliseconds; ``None``: now, like any other."""
    if timer_key is not None and delay is None and at is None:
        raise ValueError(f"the timer key {timer_key[:60]!r} is of a message for later: give a delay or at")
    if delay is not None and at is not None:
        raise ValueError("delay and at are both given: give one of them")
    if delay is not None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if not 0 <= seconds <= DELAY_MS_MAX / 1000:
            raise ValueError(f"a delay of {seconds} s is not within 0 and {DELAY_MS_MAX // 1000}")
        return now_ms + round(1000 * seconds)
    if at is None:
        return None
    if at.tzinfo is None:
        raise ValueError(f"the time {at.isoformat()} has no time zone: give one, as in datetime.now(UTC)")
    due_ms = round(1000 * at.timestamp())
    if due_ms - now_ms > DELAY_MS_MAX:
        days = (due_ms - now_ms) // 86_400_000
        raise Refused(
            "limit_exceeded",
            f"{at.isoformat()} is {days} days ahead, {DELAY_MS_MAX // 86_400_000} are the limit",
        )
    return due_ms


class Later:
    """See the module."""

    def __init__(
        self, settings: ClientSettings, router: Router, tasks: Tasks, budget: Budget, places: Places | None
    ) -> None:
        self._settings = settings
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._lane = Lane(LANE, settings, budget, self)
        self._session = Session(router.delay, settings, Watchers(self._lane.up, self._lane.down))
        tasks.start(self._session.run(), "tidemill sends for later")
        if places is not None:
            places.add(self._lane, self)

    def put(self, subject: str, body: bytes, extras: Extras, waiter: Waiter, priority: int = 0) -> None:
        """One message; ``extras`` say when."""
        partition = self._lane.partition(subject, priority)
        deadline = self._loop.time() + self._settings.send_timeout_s
        self._budget.held += partition.add(partition, body, extras, waiter, deadline)
        self._wake()

    def put_many(
        self, subject: str, bodies: list[bytes], place: int, waiter: Waiter, terms: tuple[int, int]
    ) -> None:
        """Bodies for one subject, about a batch of them; ``terms`` are priority and when."""
        priority, due_ms = terms
        partition = self._lane.partition(subject, priority)
        deadline = self._loop.time() + self._settings.send_timeout_s
        self._budget.held += self._lane.gather.add_many(partition, bodies, place, waiter, deadline)
        partition.open[-1].note_due(due_ms)
        self._wake()

    @property
    def away(self) -> bool:
        """It could not be reached for a while."""
        return self._lane.overdue

    def _wake(self) -> None:
        if self._lane.scheduled is None:
            self._lane.wake()

    # -- what the lane says --------------------------------------------------------------------------------------

    def stands(self, lane: Lane) -> None:
        """There is no other one to go to."""

    def outdated(self, partition: Partition) -> None:
        """A delay service has no fences."""

    def landed(self) -> None:
        """Nothing waits for it."""

    # -- what its spool asks -----------------------------------------------------------------------------------

    def lane(self, group: str) -> Lane:
        """There is one."""
        del group
        return self._lane

    def carrier(self, subject: str, group: str = "") -> Lane | None:
        """It takes everything."""
        del subject, group
        return self._lane

    def pieces_of(self, batch: bytes, lane: Lane) -> list[tuple[str, bytes]]:
        """Order keys lie nowhere yet."""
        del batch, lane
        return []

    def fail(self, error: TidemillError) -> None:
        """It is over."""
        self._lane.fail(error)


def extras_with(extras: Extras | None, due_ms: int, timer_key: str | None = None) -> Extras:
    """The same, when it is due, and what it is found by until then."""
    key = None if timer_key is None else check_timer_key(timer_key)
    return (extras or NO_EXTRAS)._replace(due_ms=due_ms, timer_key=key)
