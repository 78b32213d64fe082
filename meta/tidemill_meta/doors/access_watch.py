"""Services hear at once that somebody was granted something, or lost it: a stream each, with the charter's version.

A line says a version and nothing else: whoever hears another one asks for the charter, as by a beat. So a line that is
lost with its stream costs no more than the time until the next beat, and a slow reader hears the last version only.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from aiohttp import web

from tidemill_meta.doors.watch import QUIET_SECONDS, WRITE_SECONDS


class AccessWatch:
    """The streams of one replica."""

    def __init__(self, version: Callable[[], int]) -> None:
        self._version = version
        self._woken: set[asyncio.Event] = set()

    def __len__(self) -> int:
        return len(self._woken)

    def changed(self) -> None:
        """There is another version."""
        for woken in self._woken:
            woken.set()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Write a stream until its reader is gone; its first line is the version that holds now."""
        response = web.StreamResponse(headers={"Server": "tidemill", "Cache-Control": "no-store"})
        response.content_type = "application/x-ndjson"
        woken = asyncio.Event()
        woken.set()
        self._woken.add(woken)
        try:
            await response.prepare(request)
            while True:
                await _wait(woken)
                line = json.dumps({"access": self._version()}).encode() + b"\n"
                async with asyncio.timeout(WRITE_SECONDS):
                    await response.write(line)
        except (ConnectionError, TimeoutError):
            return response  # nobody reads it any more
        finally:
            self._woken.discard(woken)


async def _wait(woken: asyncio.Event) -> None:
    """Until there is news; or for so long that a reader would wonder whether anybody is there."""
    try:
        async with asyncio.timeout(QUIET_SECONDS):
            await woken.wait()
    except TimeoutError:
        return
    woken.clear()
