"""Whoever shows a token that was never seen is asked about, however many come at once, and whoever asked before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from tidemill_host.calling import Caller
from tidemill_host.reviewing import Reviewing
from tidemill_wire.access import Access, Charter, digest_of
from tidemill_wire.errors import WireError
from tidemill_wire.reviewing import ASKED_MAX, Finding, findings_map

PATIENCE_SECONDS = 30
SHOP = "serviceaccount:queues/shop"


@asynccontextmanager
async def meta(*, silent: bool = False) -> AsyncIterator[str]:
    """Something that knows whose every token is, or says nothing at all."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if silent:
            await asyncio.Event().wait()
        tokens = (await request.json())["tokens"]
        return web.json_response(findings_map({digest_of(one): Finding(SHOP, 60_000) for one in tokens}))

    application = web.Application()
    application.router.add_post("/v1/brokers/reviews", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [address] = runner.addresses
    try:
        yield f"127.0.0.1:{address[1]}"
    finally:
        await runner.cleanup()


def locked() -> Access:
    access = Access(locked=True)
    access.obey(Charter(1))
    return access


def unknown(access: Access, tokens: list[str]) -> int:
    """How many of those who show them are told to come again."""
    return sum(answered(access, token) == "grants_unknown" for token in tokens)


def answered(access: Access, token: str) -> str:
    try:
        return access.identify(token, (), 0).who
    except WireError as error:
        return error.kind.name


@asynccontextmanager
async def reviewing(access: Access, place: str) -> AsyncIterator[None]:
    task = asyncio.ensure_future(Reviewing(access, Caller(), [place], lambda: 0).keep())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def all_known(access: Access, tokens: list[str]) -> None:
    """Each of them shows its token again and again."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for token in tokens:
            while answered(access, token) != SHOP:  # noqa: ASYNC110 -- nobody tells them, either
                await asyncio.sleep(0)


async def test_more_than_one_question_has_room_for_are_all_asked_about() -> None:
    access = locked()
    tokens = [f"ey{number}.b.c" for number in range(ASKED_MAX + 50)]
    async with meta() as place, reviewing(access, place):
        assert unknown(access, tokens) == len(tokens)

        await all_known(access, tokens)


async def test_what_a_former_question_left_is_asked_by_the_next_one() -> None:
    """A broker that becomes another one begins anew with what it was shown before."""
    access, tokens = locked(), ["eyold.b.c"]
    async with meta(silent=True) as silent, reviewing(access, silent):
        assert unknown(access, tokens) == 1
        assert access.reviews.wanted()

    async with meta() as place, reviewing(access, place):
        await all_known(access, tokens)
