"""What a link to a meta remembers, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from samples.kubernetes import manifest
from tidemill_operator.desired.locks import parse_locks
from tidemill_operator.doors.keys import Keys
from tidemill_operator.doors.meta import Link, Manners
from tidemill_operator.doors.metrics import Metrics
from tidemill_operator.settings import OperatorSettings


async def nothing(path: str) -> Mapping[str, Any]:
    raise AssertionError(f"nobody asked for {path}")


class Meta:
    """Answers any path, and notes it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        application = web.Application()
        application.router.add_get("/{path:.*}", self._answer)
        self.server = TestServer(application)

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        return web.json_response({"name": request.path})


async def test_what_nobody_asks_for_any_more_is_forgotten_with_the_second_resync() -> None:
    """An Archive or a Replay of each day has a path of its own, and the operator lives for months."""
    meta = Meta()
    await meta.server.start_server()
    try:
        async with aiohttp.ClientSession() as session:
            manners = Manners(Keys(nothing), "shop", parse_locks(manifest("QueueCluster", "prod", {})))
            endpoint = f"127.0.0.1:{meta.server.port}"
            link = Link(endpoint, session, OperatorSettings(), Metrics(), manners)
            for day in range(3):
                await link.see([f"/v1/archives/day{day}", "/v1/archives/kept"], 0.0)
            assert len(link._others) == 4

            link.forget_unasked()
            assert len(link._others) == 4, "all were asked for since the last resync"
            await link.see(["/v1/archives/kept"], 0.0)
            link.forget_unasked()

            assert list(link._others) == ["/v1/archives/kept"]
            seen = await link.see(["/v1/archives/day0"], 0.0)
            assert seen == {"/v1/archives/day0": {"name": "/v1/archives/day0"}}
    finally:
        await meta.server.close()
