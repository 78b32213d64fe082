"""Sending for later: to the delay service, which takes the same SEND as a broker and keeps it until it is due.

It has lanes of its own, and a spool of its own where the client has one. Nothing of it goes anywhere else: while no
delay service can be reached such a send is spooled, or waits, and fails at its deadline. When a message is due stands
in its batch as a time of day, so it may lie in the spool for as long as it will. Of several delay groups a client takes
one, by chance; when that one fails, what comes from then on goes to another one, or to the spool, and what had been
given to the first waits for its next master.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeAlias

from tidemill.budget import Budget
from tidemill.encode import check_timer_key
from tidemill.errors import BrokerUnreachable, Refused, TidemillError
from tidemill.lane import Lane
from tidemill.link import Link
from tidemill.parcel import NO_EXTRAS, Extras, Partition, Waiter
from tidemill.router import Router
from tidemill.routes import Address, Routes
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
        if isinstance(delay, bool) or not isinstance(delay, int | float | timedelta):
            raise TypeError(f"delay {delay!r} is neither seconds nor a timedelta")
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if not 0 <= seconds <= DELAY_MS_MAX / 1000:
            raise ValueError(f"a delay of {seconds} s is not within 0 and {DELAY_MS_MAX // 1000}")
        return now_ms + round(1000 * seconds)
    if at is None:
        return None
    if not isinstance(at, datetime):
        raise TypeError(f"at {at!r} is no datetime: write one with a time zone, as datetime.now(UTC)")
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


class Way:
    """To one delay group: which one is decided when it is dialled first, and stays so, for what was sent there may be
    stored there and nowhere else.
    """

    def __init__(self, lane: Lane, choose: Callable[[Routes], Address]) -> None:
        self.lane = lane
        self.group = ""
        self.failing = False
        """It has been lost, or not been reached, since it was there last."""
        self.session: Session
        self._choose = choose

    def locate(self, delays: Routes) -> Address:
        """The master of its group, or of the one that it will be."""
        open_now = [one for one in delays if one.group == self.group or not self.group]
        if not open_now:
            named = f" of the group {self.group}" if self.group else ""
            raise BrokerUnreachable(f"no delay service{named} is there to take messages for later")
        address = self._choose(tuple(open_now))
        self.group = address.group
        return address

    def up(self, link: Link) -> None:
        self.failing = False
        self.lane.up(link)

    def down(self, error: TidemillError) -> None:
        self.failing = True
        self.lane.down(error)


class Later:
    """See the module."""

    def __init__(
        self, settings: ClientSettings, router: Router, tasks: Tasks, budget: Budget, places: Places | None
    ) -> None:
        self._settings = settings
        self._router = router
        self._tasks = tasks
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._base = self._new_way()
        """That of the spool."""
        self._ways = [self._base]
        """The one that is taken comes first."""
        self._spools = places is not None
        router.listeners.append(self._routes_changed)
        if places is not None:
            places.add(self._base.lane, self)

    def put(self, subject: str, body: bytes, extras: Extras, waiter: Waiter, priority: int = 0) -> None:
        """One message; ``extras`` say when."""
        lane = self._lane
        partition = lane.partition(subject, priority)
        deadline = self._loop.time() + self._settings.send_timeout_s
        self._budget.held += partition.add(partition, body, extras, waiter, deadline)
        _wake(lane)

    def put_many(
        self, subject: str, bodies: list[bytes], place: int, waiter: Waiter, terms: tuple[int, int]
    ) -> None:
        """Bodies for one subject, about a batch of them; ``terms`` are priority and when."""
        priority, due_ms = terms
        lane = self._lane
        partition = lane.partition(subject, priority)
        deadline = self._loop.time() + self._settings.send_timeout_s
        self._budget.held += lane.gather.add_many(partition, bodies, place, waiter, deadline)
        partition.open[-1].note_due(due_ms)
        _wake(lane)

    @property
    def away(self) -> bool:
        """It could not be reached for a while."""
        return all(way.lane.overdue for way in self._ways)

    # -- ways --------------------------------------------------------------------------------------------------

    @property
    def _lane(self) -> Lane:
        """Where a message goes: as ever, unless that fails and another delay group is there."""
        way = self._ways[0]
        if way.failing and way.group:
            found = self._other(way)
            if found is not None:
                self._ways.remove(found)
                self._ways.insert(0, found)
        way = self._base if self._spools and self._ways[0].failing else self._ways[0]
        return way.lane

    def _other(self, failing: Way) -> Way | None:
        known = {one.group: one for one in self._ways}
        others = [one.group for one in self._router.atlas.open_delays if one.group != failing.group]
        for group in others:
            if group in known and not known[group].failing:
                return known[group]
        fresh = [group for group in others if group not in known]
        if not fresh:
            return None
        way = self._new_way()
        way.group = self._settings.random.choice(fresh)
        self._ways.append(way)
        return way

    def _new_way(self) -> Way:
        lane = Lane(LANE, self._settings, self._budget, self)
        way = Way(lane, self._settings.random.choice)

        async def locate() -> Address:
            return way.locate(await self._router.delays())

        way.session = Session(locate, self._settings, Watchers(way.up, way.down))
        self._tasks.start(way.session.run(), "tidemill sends for later")
        return way

    def _routes_changed(self) -> None:
        for address in self._router.atlas.open_delays:
            for way in self._ways:
                if way.group == address.group:
                    way.session.moved(address)

    # -- what the lane says --------------------------------------------------------------------------------------

    def stands(self, lane: Lane) -> None:
        """What is on its way stays there, and what comes is sent elsewhere."""

    def outdated(self, partition: Partition) -> None:
        """A delay service has no fences."""

    def landed(self) -> None:
        """Nothing waits for it."""

    # -- what its spool asks -----------------------------------------------------------------------------------

    def lane(self, group: str) -> Lane:
        """There is one that is spooled."""
        del group
        return self._base.lane

    def carrier(self, subject: str, group: str = "") -> Lane | None:
        """It takes everything."""
        del subject, group
        return self._base.lane

    def pieces_of(self, batch: bytes, lane: Lane) -> list[tuple[str, bytes]]:
        """Order keys lie nowhere yet."""
        del batch, lane
        return []

    def fail(self, error: TidemillError) -> None:
        """It is over."""
        for way in self._ways:
            way.lane.fail(error)


def _wake(lane: Lane) -> None:
    if lane.scheduled is None:
        lane.wake()


def extras_with(
    extras: Extras | None, due_ms: int, timer_key: str | None = None, cron: bytes | None = None
) -> Extras:
    """The same, when it is due, what it is found by until then, and how it recurs."""
    key = None if timer_key is None else check_timer_key(timer_key)
    return (extras or NO_EXTRAS)._replace(due_ms=due_ms, timer_key=key, cron=cron)
