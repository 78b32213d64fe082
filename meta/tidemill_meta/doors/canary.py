"""``GET /v1/canary``: what the queue's canary says, passed on for people who do not reach its page.

Where that page is, the settings say and no request. The canary is a program of its own, which may be away: then it is
said why, and the answer is an answer all the same.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple, cast

import aiohttp

from tidemill_wire import limits

PATH = "/v1/canary"
LOOK_S, TIMEOUT_S = 1.0, 2.0
PAGE_BYTES_MAX = 1 * limits.MIB
CHUNK_BYTES = 64 * limits.KIB
FIELDS = ("name", "problem", "groups")


class Page(NamedTuple):
    """What is told of it."""

    address: str
    """Empty: this queue has none, as far as meta knows."""
    problem: str
    """Why its page is not there."""
    page: dict[str, Any] | None


class Canary:
    """Asks at most once a second, whoever asks it; and who comes meanwhile waits for that answer."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = asyncio.Lock()
        self._told = Page(address, "", None)
        self._at_s = -LOOK_S

    async def page(self, *_: object) -> object:
        """As it is now."""
        if self._address:
            loop = asyncio.get_running_loop()
            async with self._lock:
                if loop.time() - self._at_s >= LOOK_S:
                    self._told = await self._ask()
                    self._at_s = loop.time()
        return self._told._asdict()

    async def _ask(self) -> Page:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        asked = f"http://{self._address}{PATH}"
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(asked, allow_redirects=False) as response,
            ):
                found = parse_page(await _read(response)) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = " ".join((str(error) or "it took too long").split())[:200]
            return Page(self._address, f"it does not answer at {self._address} ({why})", None)
        wrong = "" if found is not None else f"what answers at {self._address} is no canary"
        return Page(self._address, wrong, found)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """As much as a page may be, and one byte more of what is no page."""
    data = bytearray()
    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
        data += chunk
        if len(data) > PAGE_BYTES_MAX:
            break
    return bytes(data)


def parse_page(data: bytes) -> dict[str, Any] | None:
    """``None``: it is none."""
    if len(data) > PAGE_BYTES_MAX:
        return None
    try:
        found: object = json.loads(data)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    page = cast("dict[str, Any]", found)
    holds = all(name in page for name in FIELDS) and isinstance(page["groups"], list)
    return page if holds else None
