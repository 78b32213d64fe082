"""Messages that wait at the delay service: find them, cancel them, give them another time.

Each delay group is asked, over a connection that is dialled by the first question and again when it is lost. While one
cannot be reached a question waits for it, until the deadline of a send. What changes something and was not
answered is not asked again: its answer would be about a world in which it may have been done.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from tidemill.backoff import Backoff
from tidemill.encode import check_timer_key
from tidemill.errors import BrokerUnreachable, ConnectionLost, OutcomeUnknown, TidemillError, Unavailable
from tidemill.later import Delay, due_at
from tidemill.link import Answer, Link, dial
from tidemill.router import Router
from tidemill.settings import ClientSettings
from tidemill.subscription import milliseconds
from tidemill_wire.batch import parse_message_id
from tidemill_wire.commands import Command, Goodbye
from tidemill_wire.fields import parse_subject
from tidemill_wire.limits import TIMERS_PAGE_MAX
from tidemill_wire.timing import Cancel, ListTimers, Reschedule, Show, Target, TimerRow, Waiting
from tidemill_wire.timing import Changed as Answered

FOR_EVER_MS = (1 << 63) - 1
PAGE = 100
NOTHING_DONE = ("not_master", "not_told")
"""Errors of who cannot do it now, and has not."""

Wanted = TypeVar("Wanted", Answered, Waiting)


@dataclass(frozen=True, slots=True)
class Timer:
    """A message that waits."""

    id: str
    subject: str
    timer_key: str | None
    due: datetime
    stored_at: datetime
    size: int
    """Of its body, in bytes."""
    body: bytes | None = None
    """Absent in lists, and when it is larger than 256 KiB."""
    cron: str | None = None
    """Expression and time zone, when it recurs."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of a ``cancel`` or ``reschedule``."""

    changed: int
    """So many are cancelled, and will never be given out; or are due at the other time."""
    gone: int
    """So many were too far: they are on their way to their subject, or have arrived."""


class Desk:
    """See the module."""

    def __init__(self, router: Router, settings: ClientSettings) -> None:
        self._router = router
        self._settings = settings
        self._links: dict[str, Link] = {}
        """By delay group."""
        self._turns: dict[str, asyncio.Lock] = {}
        """Of every delay group that was ever heard of: one that nobody leads just now may have what is asked for."""

    async def groups(self) -> list[str]:
        """All there are, one at least."""
        deadline = self._deadline()
        backoff = Backoff(self._settings.backoff_base_s, self._settings.backoff_max_s, self._settings.random)
        while True:
            failure = BrokerUnreachable("no delay service is there that could have messages for later")
            try:
                await self._router.refresh()
            except BrokerUnreachable as error:
                failure = error
            for one in self._router.atlas.delays:
                self._turns.setdefault(one.group, asyncio.Lock())
            if self._turns:
                return list(self._turns)
            await _pause(backoff, deadline, failure)

    async def ask_all(self, command: Command, wanted: type[Wanted]) -> list[Wanted]:
        """The answers of all delay groups, for nobody knows which of them has a message."""
        return await asyncio.gather(*(self.ask(group, command, wanted) for group in await self.groups()))

    async def ask(self, group: str, command: Command, wanted: type[Wanted]) -> Wanted:
        """The answer of a delay group, or what went wrong."""
        deadline = self._deadline()
        while True:
            answer = await self._answer(group, command, deadline)
            if isinstance(answer, wanted):
                return answer
            if not isinstance(answer, TidemillError):
                raise BrokerUnreachable("the delay service answered what was not asked")
            if isinstance(answer, Unavailable) and answer.kind.name in NOTHING_DONE:
                if (link := self._links.pop(group, None)) is not None:
                    link.close()
                if asyncio.get_running_loop().time() >= deadline:
                    raise answer
                await asyncio.sleep(self._settings.backoff_base_s)
                continue
            if not isinstance(answer, ConnectionLost):
                raise answer
            if wanted is Answered:
                raise OutcomeUnknown(f"nobody answered what became of it: ask again, or look ({answer})")
            if asyncio.get_running_loop().time() >= deadline:
                raise answer

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._settings.send_timeout_s

    async def _answer(self, group: str, command: Command, deadline: float) -> Answer:
        link = await self._linked(group, deadline)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        link.ask(command, lambda answer: None if future.done() else future.set_result(answer))
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            return ConnectionLost(f"{link.address} did not answer in time")

    async def _linked(self, group: str, deadline: float) -> Link:
        settings = self._settings
        backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        async with self._turns[group]:
            while (link := self._links.get(group)) is None or link.lost.done():
                try:
                    self._links[group] = await dial(await self._router.of_delays(group), settings)
                except BrokerUnreachable as error:
                    await _pause(backoff, deadline, error)
            return link

    def close(self) -> None:
        """Nothing more is asked."""
        for link in self._links.values():
            link.tell(Goodbye("the client is closed"))
            link.close()


async def _pause(backoff: Backoff, deadline: float, error: BrokerUnreachable) -> None:
    """Before another try, unless there is no time for one."""
    wait_s = backoff.next()
    if asyncio.get_running_loop().time() + wait_s >= deadline:
        raise error
    await asyncio.sleep(wait_s)


class Timing(ABC):
    """The calls of a client about what waits."""

    settings: ClientSettings
    _router: Router
    _desk: Desk | None = None

    @abstractmethod
    def _check(self) -> None:
        """It is open, and in its process."""

    async def cancel(
        self, identity: str | None = None, *, subject: str | None = None, timer_key: str | None = None
    ) -> Changed:
        """Never give out the message with this id, or all messages of a subject that wait under a timer key.

        Those that are ``gone`` are on their way, or were given out before. All others are ``changed``. Of a message
        that recurs nothing more comes.
        """
        return await self._change(Cancel(target_of(identity, subject, timer_key)))

    async def reschedule(
        self,
        identity: str | None = None,
        *,
        subject: str | None = None,
        timer_key: str | None = None,
        delay: Delay | None = None,
        at: datetime | None = None,
    ) -> Changed:
        """Give out at another time what waits under this id or timer key. A message keeps its id."""
        target = target_of(identity, subject, timer_key)
        due_ms = due_at(delay, at, self.settings.now_ms())
        if due_ms is None:
            raise ValueError("reschedule to when: give a delay or at")
        return await self._change(Reschedule(target, max(0, due_ms)))

    async def timer(
        self, identity: str | None = None, *, subject: str | None = None, timer_key: str | None = None
    ) -> Timer | None:
        """The message that waits under this id, or the first that is due of those under a timer key; ``None``: none."""
        answers = await self._asks().ask_all(Show(target_of(identity, subject, timer_key)), Waiting)
        rows = (row for answer in answers for row in answer.rows)
        row = min(rows, key=lambda row: row.due_ms, default=None)
        return None if row is None else timer_of(row)

    async def timers(
        self,
        subject: str,
        prefix: str = "",
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Timer]:
        """A subject's messages that wait under timer keys, of those that begin with ``prefix``; due from ``since`` to
        before ``until``. Of each delay group about in the order in which they are due; what changes meanwhile may be
        missing, or there twice.
        """
        name = parse_subject(subject)
        since_ms = 0 if since is None else max(0, milliseconds(since, "since"))
        until_ms = FOR_EVER_MS if until is None else max(0, milliseconds(until, "until"))
        desk, left = self._asks(), limit
        for group in await desk.groups():
            after = ""
            while left is None or left > 0:
                size = PAGE if left is None else min(left, TIMERS_PAGE_MAX)
                command = ListTimers(name, prefix, since_ms, until_ms, after, size)
                page = await desk.ask(group, command, Waiting)
                for row in page.rows:
                    yield timer_of(row)
                left = None if left is None else left - len(page.rows)
                after = page.after
                if not after:
                    break

    async def _change(self, command: Cancel | Reschedule) -> Changed:
        answers = await self._asks().ask_all(command, Answered)
        return Changed(sum(one.changed for one in answers), sum(one.gone for one in answers))

    def _asks(self) -> Desk:
        self._check()
        if self._desk is None:
            self._desk = Desk(self._router, self.settings)
        return self._desk


def target_of(identity: str | None, subject: str | None, timer_key: str | None) -> Target:
    """One of the two ways to say which messages are meant."""
    if identity is not None:
        if subject is not None or timer_key is not None:
            raise ValueError("an id and a timer key are both given: give one of them")
        parse_message_id(identity)
        return Target(id=identity)
    if subject is None or timer_key is None:
        raise ValueError("say which messages: an id, or a subject and a timer_key")
    return Target(subject=parse_subject(subject), timer_key=check_timer_key(timer_key))


def timer_of(row: TimerRow) -> Timer:
    """As people see it."""
    due, stored_at = (datetime.fromtimestamp(at_ms / 1000, UTC) for at_ms in (row.due_ms, row.stored_ms))
    return Timer(
        row.id, row.subject, row.timer_key or None, due, stored_at, row.size, row.body, row.cron or None
    )
