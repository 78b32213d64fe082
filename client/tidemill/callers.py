"""Questions that are asked until they are answered: of a broker group, over a connection that comes back.

For commands that may be said twice. One whose connection ends is said again over the next one, be that to another
broker of the group; one that is refused for now is said again after a wait; at its deadline it fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from tidemill.backoff import Backoff
from tidemill.doubts import denied
from tidemill.errors import (
    BrokerUnreachable,
    ConnectionLost,
    OutcomeUnknown,
    TidemillError,
    Unavailable,
    again,
    wait_of,
)
from tidemill.link import Answer, Link, OnAnswer
from tidemill.router import Router
from tidemill.session import Session, Watchers
from tidemill.settings import ClientSettings
from tidemill.tasks import Tasks
from tidemill_wire.commands import Command

Say: TypeAlias = Callable[[Link, OnAnswer], None]


class Caller:
    """One broker group."""

    def __init__(self, group: str, router: Router, settings: ClientSettings, tasks: Tasks) -> None:
        self.group = group
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._changed = asyncio.Event()
        self._failure: TidemillError | None = None
        self._closed: TidemillError | None = None
        self.session = Session(partial(router.of_group, group), settings, Watchers(self._up, self._down))
        tasks.start(self.session.run(), f"tidemill asks {group}")

    async def ask(self, command: Command, patience_s: float) -> Command:
        """The answer, or the error that is one. ``OutcomeUnknown``: it was said, and may have been done."""
        return await self.say(lambda link, heard: link.ask(command, heard), command.kind.name, patience_s)

    async def say(self, say: Say, what: str, patience_s: float) -> Command:
        """The same of what is more than a command: ``say`` writes it to a connection."""
        deadline = self._loop.time() + patience_s
        settings = self._settings
        backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        said = doubtful = False
        while True:
            link = await self._linked(deadline)
            if link is None:
                raise self._late(what, patience_s, said=said)
            said = True
            answer = await self._answer(link, say, deadline)
            match answer:
                case None:
                    link.close()  # it answers pings and nothing else: a new connection may do better
                    raise self._late(what, patience_s, said=True)
                case ConnectionLost():
                    doubtful = True
                    if self._link is link:
                        self._link = None
                case Unavailable():
                    wait_s = max(backoff.next(), wait_of(answer))
                    if self._loop.time() + wait_s >= deadline:
                        raise answer
                    await asyncio.sleep(wait_s)
                case TidemillError():
                    raise denied(what, answer) if doubtful else answer
                case _:
                    return answer

    def fail(self, error: TidemillError) -> None:
        """It is over."""
        self._closed = error
        self._changed.set()

    async def _linked(self, deadline: float) -> Link | None:
        """A connection; nothing at the deadline."""
        while self._link is None:
            if self._closed is not None:
                raise again(self._closed)
            self._changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                return None
        return self._link

    async def _answer(self, link: Link, say: Say, deadline: float) -> Answer | None:
        future: asyncio.Future[Answer] = self._loop.create_future()
        try:
            say(link, lambda answer: None if future.done() else future.set_result(answer))
            async with asyncio.timeout_at(deadline):
                return await future
        except (ConnectionLost, Unavailable) as error:
            return error
        except TimeoutError:
            return None

    def _late(self, name: str, patience_s: float, *, said: bool) -> TidemillError:
        what = f"no answer of broker group {self.group} within {patience_s:g} s to {name}"
        if said:
            return OutcomeUnknown(f"{what}: it may be done, or not")
        why = f": {self._failure}" if self._failure is not None else ""
        return BrokerUnreachable(f"{what}; it was not reached{why}")

    def _up(self, link: Link) -> None:
        self._link, self._failure = link, None
        self._changed.set()

    def _down(self, error: TidemillError) -> None:
        self._link, self._failure = None, error


class Callers:
    """Of each broker group that was asked anything."""

    def __init__(self, router: Router, settings: ClientSettings, tasks: Tasks) -> None:
        self._router = router
        self._settings = settings
        self._tasks = tasks
        self._callers: dict[str, Caller] = {}
        router.listeners.append(self._routes_changed)

    def to(self, group: str) -> Caller:
        """That of a broker group."""
        caller = self._callers.get(group)
        if caller is None:
            caller = self._callers[group] = Caller(group, self._router, self._settings, self._tasks)
        return caller

    def fail(self, error: TidemillError) -> None:
        """It is over."""
        for caller in self._callers.values():
            caller.fail(error)

    def _routes_changed(self) -> None:
        for group, caller in self._callers.items():
            address = self._router.atlas.brokers.get(group)
            if address is not None:
                caller.session.moved(address)
