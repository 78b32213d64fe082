"""A connection that comes back: dialled again, with backoff, for as long as somebody wants it.

    state     event         next
    down      dialled       up       ``on_up(link)``
    down      failed        down     ``on_down(error)``, after a wait
    up        link lost     down     ``on_down(error)``

A connection that was lost within a second counts as a failure, so that a broker which takes and drops connections is
not
stormed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from tidemill.backoff import Backoff
from tidemill.errors import BrokerUnreachable, TidemillError
from tidemill.link import Link, dial
from tidemill.routes import Address
from tidemill.settings import ClientSettings

STEADY_S = 1.0

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

    def moved(self, address: Address) -> None:
        """The broker is there. When that is news, nothing is waited for any more that concerns the other place."""
        if self._tried is None or self._tried.place == address.place:
            return
        self._hurry = True
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
                        await asyncio.sleep(backoff.next())
                self._waiting = None
        finally:
            if self._link is not None:
                self._link.close()

    async def _once(self) -> TidemillError:
        """Dial, and stay until it is lost; why it is lost, or was not found."""
        try:
            self._hurry = False
            self._tried = await self._locate()
            self._link = await self._dial(self._tried)
        except TidemillError as error:
            return error
        except (OSError, TimeoutError) as error:
            return BrokerUnreachable(f"no broker was found: {str(error) or type(error).__name__}")
        self._watchers.up(self._link)
        return await self._link.lost

    async def _dial(self, address: Address) -> Link:
        """A link. A host that is gone answers nothing for seconds: they are not waited for when it was replaced."""
        try:
            async with asyncio.timeout(None) as self._waiting:
                return await dial(address, self._settings)
        except TimeoutError:
            raise BrokerUnreachable(f"the broker is not at {address} any more") from None
        finally:
            self._waiting = None
