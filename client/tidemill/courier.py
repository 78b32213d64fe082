"""Tells one broker what is kept for consumers that are not here: those of an earlier process, and those that have left.

A connection of its own, dialled for as long as something is to be told. An ack names its consumer, and the broker asks
for no more: who says it need not pull.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tidemill.ack_spool import Place
from tidemill.errors import ClientClosed, TidemillError
from tidemill.link import Link
from tidemill.session import Locate, Session, Watchers
from tidemill.settings import ClientSettings
from tidemill.settler import BrokerSettler


class Courier:
    """For one broker group."""

    def __init__(self, locate: Locate, settings: ClientSettings) -> None:
        self._settings = settings
        self._session = Session(locate, settings, Watchers(self._up, self._down))
        self._settlers: dict[Place, BrokerSettler] = {}
        self._link: Link | None = None
        self._empty = asyncio.Event()

    @property
    def empty(self) -> bool:
        """There is nothing to tell any more: another courier is made for what comes."""
        return self._empty.is_set()

    async def run(self) -> None:
        """Until all is told."""
        async with asyncio.TaskGroup() as group:
            session = group.create_task(self._session.run(), name="tidemill tells what was kept")
            await self._empty.wait()
            if self._link is not None:
                await self._link.part("what was kept is told")
            session.cancel()

    def add(self, place: Place, settler: BrokerSettler) -> None:
        """Let it say what it has adopted."""
        self._settlers[place] = settler
        if self._link is not None:
            settler.up(self._link)

    async def hand_over(self, place: Place) -> None:
        """Somebody else goes on. What is under way is answered first: said twice, it would be taken for lost."""
        settler = self._settlers.get(place)
        if settler is not None and self._link is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.close_timeout_s):
                    await settler.drained()
        self.drop(place)

    def drop(self, place: Place) -> None:
        """Nothing of it is left."""
        settler = self._settlers.pop(place, None)
        if settler is not None:
            settler.close(ClientClosed("somebody else tells it"))
        if not self._settlers:
            self._empty.set()

    async def finish(self) -> None:
        """Until all is told, if the broker is there."""
        if self._link is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.close_timeout_s):
                    await self._empty.wait()

    def _up(self, link: Link) -> None:
        self._link = link
        for settler in list(self._settlers.values()):
            settler.up(link)

    def _down(self, _error: TidemillError) -> None:
        self._link = None
        for settler in self._settlers.values():
            settler.down()
