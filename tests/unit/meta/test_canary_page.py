"""What meta passes on of a canary: its page as it is, or why there is none; never more than a page may be."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tidemill_meta.doors import canary as door
from tidemill_meta.doors.canary import PAGE_BYTES_MAX, Canary, parse_page
from tidemill_meta.settings import read_settings
from tidemill_wire.settings import SettingsError

PAGE = {"name": "canary", "problem": "", "groups": []}


@asynccontextmanager
async def serving(*answers: web.Response) -> AsyncGenerator[tuple[str, list[str]]]:
    """A page that gives these, one after the other; and what was asked of it."""
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        asked.append(request.path)
        return answers[min(len(asked), len(answers)) - 1]

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()


async def test_its_page_is_passed_on_and_asked_for_once_a_second() -> None:
    async with serving(web.json_response(PAGE)) as (address, asked):
        canary = Canary(address)

        told = [await canary.page() for _ in range(20)]

    assert told[0] == {"address": address, "problem": "", "page": PAGE}
    assert told == [told[0]] * 20
    assert asked == ["/v1/canary"]


async def test_a_queue_without_one_asks_nobody() -> None:
    assert await Canary("").page() == {"address": "", "problem": "", "page": None}


async def test_one_that_is_away_is_said_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "LOOK_S", 0.0)
    async with serving(web.json_response(PAGE)) as (address, _):
        canary = Canary(address)
        assert (await canary.page())["page"] == PAGE  # type: ignore[index]

    told = await canary.page()

    assert isinstance(told, dict)
    assert told["page"] is None
    assert told["problem"].startswith(f"it does not answer at {address} (")


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=500),
        web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}),
        web.Response(text="<html>"),
        web.json_response(["canary"]),
        web.json_response({**PAGE, "groups": "all"}),
    ],
    ids=["broken", "elsewhere", "markup", "a list", "other fields"],
)
async def test_what_is_no_canary_is_not_taken_for_one(answer: web.Response) -> None:
    async with serving(answer) as (address, _):
        told = await Canary(address).page()

    assert told == {"address": address, "problem": f"what answers at {address} is no canary", "page": None}


def test_a_page_without_end_is_none() -> None:
    long = json.dumps({**PAGE, "problem": "x" * PAGE_BYTES_MAX})

    assert parse_page(long.encode()) is None
    assert parse_page(json.dumps(PAGE).encode()) == PAGE


@pytest.mark.parametrize("written", ["nowhere", "host:", ":9465", "host:port"])
def test_a_place_that_is_none_is_refused_at_the_start(written: str) -> None:
    with pytest.raises(SettingsError, match="HOST:PORT"):
        read_settings({"TIDEMILL_META_CANARY": written})
