"""A service hears that there is news, and of the same news once; whatever becomes of the stream, it comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web

from tidemill_host import hearing
from tidemill_host.calling import IN_CLEAR
from tidemill_host.hearing import PATH, Hearing

PATIENCE_SECONDS = 30


@asynccontextmanager
async def meta(streams: Sequence[Sequence[bytes]], status: int = 200) -> AsyncIterator[tuple[str, list[int]]]:
    """Something that answers each request with the next stream, the last without an end; how often it was asked."""
    asked: list[int] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        number = len(asked)
        asked.append(status)
        if status != 200:
            return web.Response(status=status)
        response = web.StreamResponse()
        await response.prepare(request)
        for line in streams[min(number, len(streams) - 1)]:
            await response.write(line)
        if number >= len(streams) - 1:
            await asyncio.Event().wait()
        return response

    application = web.Application()
    application.router.add_post(PATH, answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [address] = runner.addresses
    try:
        yield f"127.0.0.1:{address[1]}", asked
    finally:
        await runner.cleanup()


async def heard(place: str, count: int) -> int:
    """Listen until there was so much news; how much there was."""
    news, enough = [0], asyncio.Event()

    def told() -> None:
        news[0] += 1
        if news[0] >= count:
            enough.set()

    async with aiohttp.ClientSession() as session:
        keeping = asyncio.ensure_future(Hearing(lambda: IN_CLEAR, [place], told).keep(session))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await enough.wait()
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
    return news[0]


async def test_another_version_is_news_and_the_same_one_is_none() -> None:
    lines = [b'{"access": 1}\n', b'{"access": 1}\n', b'{"acc', b'ess": 4}\n', b"{}\n", b'{"access": 2}\n']
    async with meta([lines]) as (place, _):
        assert await heard(place, 3) == 3


async def test_a_stream_that_ends_or_says_nonsense_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "AGAIN_SECONDS", 0.01)
    streams = [[b'{"access": 1}\n'], [b"nonsense\n"], [b"[]\n"], [b'{"access": 1}\n', b'{"access": 2}\n']]
    async with meta(streams) as (place, asked):
        assert await heard(place, 2) == 2
        assert len(asked) == len(streams)


async def test_a_meta_without_such_a_stream_is_asked_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        raise asyncio.CancelledError

    async with meta([], status=404) as (place, _), aiohttp.ClientSession() as session:
        monkeypatch.setattr(hearing.asyncio, "sleep", note)
        with suppress(asyncio.CancelledError):
            await Hearing(lambda: IN_CLEAR, [place], lambda: None).keep(session)
        monkeypatch.undo()
    assert pauses == [hearing.REFUSED_SECONDS]
