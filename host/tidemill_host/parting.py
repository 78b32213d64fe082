"""A server of a group says goodbye before it stops. What is to be done its farewell says; here it is carried out.

Meta is asked one replica after the other; where none answers, or all takes too long, the server stops as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

import aiohttp

from tidemill_host.local import LocalPeer
from tidemill_host.server import Server
from tidemill_wire.asking import Pause, Request
from tidemill_wire.errors import WireError
from tidemill_wire.replication import Handover, Stand, Stood

PARTING_SECONDS = 10.0

Step: TypeAlias = Request | Handover | Pause


class Farewell(Protocol):
    """What is to be done, one after the other."""

    def begin(self) -> Step | None: ...

    def answered(self, status: int, answer: object) -> Step | None: ...


class Parting:
    """One server and its metas."""

    def __init__(self, server: Server, metas: Sequence[str]) -> None:
        self._caller = server.caller
        self._local = LocalPeer(server, lambda _answer: None)
        self._metas = list(metas)

    async def say(self, farewell: Callable[[Stood], Farewell]) -> None:
        """All that is to be said of a server that stands so, or as much as there is time for."""
        with suppress(TimeoutError, WireError):
            async with asyncio.timeout(PARTING_SECONDS):
                stood = await self._local.ask(Stand())
                assert isinstance(stood, Stood)
                saying = farewell(stood)
                step = saying.begin()
                while step is not None:
                    step = saying.answered(*await self._do(step))
        self._local.close()

    async def say_unless(
        self, failed: asyncio.Future[Exception], farewell: Callable[[Stood], Farewell]
    ) -> None:
        """The same, until the server fails, which can say nothing any more."""
        saying = asyncio.ensure_future(self.say(farewell))
        await asyncio.wait((failed, saying), return_when=asyncio.FIRST_COMPLETED)
        if not saying.cancel():
            saying.result()

    async def _do(self, step: Step) -> tuple[int, object]:
        match step:
            case Pause(seconds):
                await asyncio.sleep(seconds)
                return 200, None
            case Handover():
                try:
                    return 200, await self._local.ask(step)
                except WireError:
                    return 503, None
            case Request():
                return await self._ask(step)

    async def _ask(self, request: Request) -> tuple[int, object]:
        timeout = aiohttp.ClientTimeout(total=request.patience_s)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for meta in self._metas:
                url = self._caller.url(meta, request.path)
                options = self._caller.options()
                try:
                    async with session.request(request.method, url, json=request.body, **options) as response:
                        return response.status, await response.json(content_type=None)
                except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                    continue
        return 0, None
