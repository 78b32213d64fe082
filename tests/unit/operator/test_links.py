"""Whose token is shown: a link is one cluster's, whatever the statuses of others say. And what a link remembers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from samples.kubernetes import manifest
from tidemill_operator.doors.keys import Keys
from tidemill_operator.doors.meta import Metas
from tidemill_operator.doors.metrics import Metrics
from tidemill_operator.settings import OperatorSettings

ENDPOINT = "prod-meta.shop.svc:7401"


async def nothing(path: str) -> Mapping[str, Any]:
    raise AssertionError(f"nobody asked for {path}")


@asynccontextmanager
async def opened() -> AsyncIterator[Metas]:
    metas = Metas(OperatorSettings(), Metrics(), Keys(nothing))
    await metas.open()
    try:
        yield metas
    finally:
        await metas.close()


def cluster(namespace: str, name: str = "prod") -> dict[str, Any]:
    made = manifest("QueueCluster", name, {})
    made["metadata"]["namespace"] = namespace
    return {**made, "status": {"meta": {"endpoint": ENDPOINT}}}


async def test_who_names_another_clusters_endpoint_does_not_speak_with_its_token() -> None:
    async with opened() as metas:
        own, foreign, twin = (
            metas.link(one) for one in (cluster("shop"), cluster("evil"), cluster("shop", "x"))
        )

        assert own is not None
        assert foreign is not None
        assert len({id(own), id(foreign), id(twin)}) == 3
        assert (own.manners.namespace, foreign.manners.namespace) == ("shop", "evil")
        assert metas.link(cluster("shop")) is own

        metas.keep_only({ENDPOINT})
        assert len(metas.links()) == 3
        metas.keep_only(set())
        assert metas.links() == []


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
        async with opened() as metas:
            made = cluster("shop")
            endpoint = made["status"]["meta"]["endpoint"] = f"127.0.0.1:{meta.server.port}"
            link = metas.link(made)
            assert link is not None
            for day in range(3):
                await link.see([f"/v1/archives/day{day}", "/v1/archives/kept"], 0.0)
            assert len(link._others) == 4

            metas.keep_only({endpoint})
            assert len(link._others) == 4, "all were asked for since the last resync"
            await link.see(["/v1/archives/kept"], 0.0)
            metas.keep_only({endpoint})

            assert list(link._others) == ["/v1/archives/kept"]
            seen = await link.see(["/v1/archives/day0"], 0.0)
            assert seen == {"/v1/archives/day0": {"name": "/v1/archives/day0"}}
    finally:
        await meta.server.close()
