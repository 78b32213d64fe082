"""Between its beats a service hears from meta that somebody was granted something, or lost it.

What it hears is a number: another one than before wakes the next beat, which brings the rest. Without a stream, as
while meta is away, the beats alone bring it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

import aiohttp

from tidemill_host.calling import Caller

PATH = "/v1/brokers/access/watch"
QUIET_SECONDS = 30.0
"""Meta says something each ten seconds; who says nothing for so long is not there any more."""
AGAIN_SECONDS = 1.0
REFUSED_SECONDS = 10.0
"""A meta of an older version has no such stream, and need not be asked for it each second."""


class Hearing:
    """``keep`` runs until it is cancelled. ``metas`` are those of the beats: the one that is asked first is heard."""

    def __init__(self, caller: Callable[[], Caller], metas: Sequence[str], news: Callable[[], None]) -> None:
        self._caller = caller
        self._metas = metas
        self._news = news
        self._known: object = None

    async def keep(self, session: aiohttp.ClientSession) -> None:
        """Stream after stream."""
        while True:
            pause_s = AGAIN_SECONDS
            try:
                if not await self._hear(session):
                    pause_s = REFUSED_SECONDS
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                pass  # the beats ask the same meta, and say what is wrong with it
            await asyncio.sleep(pause_s)

    async def _hear(self, session: aiohttp.ClientSession) -> bool:
        """Until it ends; whether there was a stream at all."""
        caller = self._caller()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=AGAIN_SECONDS, sock_read=QUIET_SECONDS)
        url = caller.url(self._metas[0], PATH)
        async with session.post(url, json={}, timeout=timeout, **caller.options()) as response:
            if response.status >= 400:
                return False
            async for line in response.content:
                self._told(json.loads(line))
        return True

    def _told(self, said: object) -> None:
        version = said.get("access") if isinstance(said, dict) else None
        if version is not None and version != self._known:
            self._known = version
            self._news()
