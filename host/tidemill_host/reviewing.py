"""Who shows a token that is in no charter: a service asks meta, and goes by the answer for as long as that says.

It is asked when somebody shows one, so a beat is not waited for; what meta does not answer is asked about again when it
is shown again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import aiohttp

from tidemill_host.calling import Caller
from tidemill_wire.access import Access
from tidemill_wire.reviewing import Finding, Reviews, parse_findings

PATH = "/v1/brokers/reviews"
PATIENCE_S = 6.0
PAUSE_S = 0.05
"""Those that are shown within it are asked about together."""


class Reviewing:
    """One service and its metas. ``keep`` runs until it is cancelled."""

    def __init__(
        self, access: Access, caller: Caller, metas: Sequence[str], now_ms: Callable[[], int]
    ) -> None:
        self._reviews: Reviews = access.reviews
        self._caller = caller
        self._metas = list(metas)
        self._now_ms = now_ms
        self._wake = asyncio.Event()
        self._reviews.on, self._reviews.wake = access.locked, self._wake.set

    async def keep(self) -> None:
        """Question after question."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                if (
                    not self._reviews.wanted()
                ):  # what one question had no room for, or a former one left, is next
                    await self._wake.wait()
                await asyncio.sleep(PAUSE_S)
                self._wake.clear()
                wanted = dict(self._reviews.wanted())
                began_ms = self._now_ms()
                found: Mapping[str, Finding] = {}
                if wanted:
                    found = await self._ask(session, list(wanted.values()))
                settle(self._reviews, wanted, found, began_ms)

    async def _ask(self, session: aiohttp.ClientSession, tokens: Sequence[str]) -> Mapping[str, Finding]:
        """The first replica of meta that answers; nothing when none does."""
        for _ in self._metas:
            url, body = self._caller.url(self._metas[0], PATH), {"tokens": list(tokens)}
            try:
                async with session.post(url, json=body, **self._caller.options()) as response:
                    if response.status == 200:
                        return parse_findings(await response.json(content_type=None))
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                pass  # the heartbeat says what is wrong with meta
            self._metas.append(self._metas.pop(0))
        return {}


def settle(reviews: Reviews, wanted: Mapping[str, str], found: Mapping[str, Finding], now_ms: int) -> None:
    """What was asked about, and what of it was answered."""
    for digest in wanted:
        if digest in found:
            reviews.answered(digest, found[digest], now_ms)
        else:
            reviews.unanswered(digest)
