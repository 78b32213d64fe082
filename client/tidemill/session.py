"""A connection that comes back: dialled again, with backoff, for as long as somebody wants it.

    state     event         next
    down      dialled       up       ``on_up(link)``
    down      failed        down     ``on_down(error)``, after a wait
    up        link lost     down     ``on_down(error)``
    down      told where    down     dialled there at once, and then often, for a while

A connection that was lost within a second counts as a failure, so that a broker which takes and drops connections is
not stormed. A broker that is said to be elsewhere now may be beginning there, with its port closed for some tenths of a
second: it is dialled without asking anybody, and what failed elsewhere does not make anybody wait for seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from tidemill.backoff import Backoff
from tidemill.errors import BrokerUnreachable, TidemillError, wait_of
from tidemill.link import Link, dial
from tidemill.routes import Address
from tidemill.settings import ClientSettings

STEADY_S = 1.0
BEGINNING_S = 2.0
"""So long after it was told where the broker is now, it is expected there."""
BEGINNING_PAUSE_S = 0.25
"""Between two attempts then, at most."""

Found = TypeVar("Found")
Locate: TypeAlias = Callable[[], Awaitable[Address]]


@dataclass(frozen=True, slots=True)
class Watchers:
    """Whom a session tells."""

    up: Callable[[Link], None]
    down: Callable[[TidemillError], None]


class Session:
    """The connection to the broker that ``locate`` finds. ``moved`` says that it would find another one now."""

    def __init__(self, locate: Locate, settings: ClientSettings, watchers: Watchers) -> None:
        self._locate = locate
        self._settings = settings
        self._watchers = watchers
        self._link: Link | None = None
        self._tried: Address | None = None
        self._waiting: asyncio.Timeout | None = None
        """Around what need not be waited for when the broker turns out to be somewhere else."""
        self._hurry = False
        self._told: tuple[Address, float] | None = None
        """Where the broker is said to begin, and until when it is dialled there without asking."""

    def moved(self, address: Address) -> None:
        """The broker is there. When that is news, nothing is waited for any more that concerns the other place."""
        if self._tried is None or self._tried.place == address.place:
            return
        self._hurry = True
        self._told = address, asyncio.get_running_loop().time() + BEGINNING_S
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())
        elif self._link is not None:
            self._link.close()

    async def run(self) -> None:
        """Until cancelled."""
        settings = self._settings
        backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        loop = asyncio.get_running_loop()
        try:
            while True:
                since = loop.time()
                error = await self._once()
                if self._link is not None and loop.time() - since >= STEADY_S:
                    backoff.reset()
                self._link = None
                self._watchers.down(error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0 if self._hurry else None) as self._waiting:
                        await asyncio.sleep(max(self._pause_s(backoff), wait_of(error)))
                self._waiting = None
        finally:
            if self._link is not None:
                self._link.close()

    async def _once(self) -> TidemillError:
        """Dial, and stay until it is lost; why it is lost, or was not found."""
        try:
            self._hurry = False
            where = self._expected()
            if where is None:
                where = await self._unless_moved(self._locate(), "where it was")
            self._tried = where
            link = await self._unless_moved(dial(where, self._settings), f"at {where}")
            self._link = link
            self._told = None
        except TidemillError as error:
            return error
        except (OSError, TimeoutError) as error:
            return BrokerUnreachable(f"no broker was found: {str(error) or type(error).__name__}")
        self._watchers.up(link)
        return await link.lost

    def _expected(self) -> Address | None:
        """Where the broker begins now."""
        if self._told is None or asyncio.get_running_loop().time() >= self._told[1]:
            return None
        return self._told[0]

    def _pause_s(self, backoff: Backoff) -> float:
        settings = self._settings
        if self._expected() is None:
            return backoff.next()
        return settings.random.random() * min(BEGINNING_PAUSE_S, settings.backoff_max_s)

    async def _unless_moved(self, work: Awaitable[Found], where: str) -> Found:
        """A host that is gone answers nothing for seconds, be it the broker's or meta's: they are not waited for when
        it is known by then where the broker is.
        """
        try:
            async with asyncio.timeout(None) as self._waiting:
                return await work
        except TimeoutError:
            if self._waiting is None or not self._waiting.expired():
                raise
            raise BrokerUnreachable(f"the broker is not {where} any more") from None
        finally:
            self._waiting = None
