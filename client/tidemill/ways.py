"""Where order keys of a subject lie, before anybody has said so: who waits to be told, in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from tidemill.router import Router
from tidemill_wire.fields import parse_subject


class Ways:
    """See the module."""

    def __init__(self, router: Router, patience_s: float) -> None:
        self._router = router
        self._patience_s = patience_s
        self._closed = False
        self._news = asyncio.Event()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def known(self, subject: str) -> bool:
        """Whether it is known where order keys lie, and nobody waits to be told."""
        return self._told(subject) and subject not in self._waiting

    async def learn(self, subject: str) -> None:
        """Until it is known where order keys of a subject lie; one after the other, so that none is overtaken. Who is
        told nothing in time goes on without: to the spool, or to its error.
        """
        self._router.want(subject)
        parse_subject(subject)
        waiting = self._waiting.setdefault(subject, deque())
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(mine)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_s):
                    if waiting[0] is not mine:
                        await mine
                    await self._tell(subject)
        finally:
            waiting.remove(mine)
            if not waiting:
                del self._waiting[subject]
            elif not waiting[0].done():
                waiting[0].set_result(None)

    def news(self) -> None:
        """Somebody said who serves what."""
        self._news.set()

    def close(self) -> None:
        """Nothing more will be told."""
        self._closed = True
        self._news.set()

    def _told(self, subject: str) -> bool:
        atlas = self._router.atlas
        return subject in atlas.routes if atlas.routed else bool(atlas.brokers)

    async def _tell(self, subject: str) -> None:
        while not self._closed and subject not in self._router.refused and not self._told(subject):
            self._news.clear()
            await self._news.wait()
