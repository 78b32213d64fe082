"""Whose token is shown: a link is one cluster's, whatever the statuses of others say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

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
