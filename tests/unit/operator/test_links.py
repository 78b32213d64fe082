"""Whose token is shown, and to whom: a link is one cluster's, to the Service that was made for it, whatever a status
says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from samples.kubernetes import manifest
from tidemill_operator.doors.keys import Keys
from tidemill_operator.doors.meta import Metas
from tidemill_operator.doors.metrics import Metrics
from tidemill_operator.settings import OperatorSettings
from tidemill_operator.store import endpoint_of, service_of

FORGED = "evil.example:7401"


async def nothing(path: str) -> Mapping[str, Any]:
    raise AssertionError(f"nobody asked for {path}")


@asynccontextmanager
async def opened(file: str = "") -> AsyncIterator[Metas]:
    metas = Metas(OperatorSettings(metas_file=file), Metrics(), Keys(nothing))
    await metas.open()
    try:
        yield metas
    finally:
        await metas.close()


def cluster(namespace: str, name: str = "prod", endpoint: str = FORGED) -> dict[str, Any]:
    made = manifest("QueueCluster", name, {})
    made["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    return {**made, "status": {"meta": {"endpoint": endpoint}}}


def service(of: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """That of a cluster's meta, as the operator makes it."""
    key = service_of(of)
    owner = {
        "kind": "QueueCluster",
        "name": of["metadata"]["name"],
        "uid": of["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"name": key.name, "namespace": key.namespace, "ownerReferences": [owner], **more}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata}


async def test_nobody_is_asked_where_a_status_says_but_at_the_clusters_own_service() -> None:
    """Who may write a status would be shown the cluster's token."""
    async with opened() as metas:
        shop = cluster("shop")
        link = metas.link(shop, service(shop))
        assert link is not None
        assert link.endpoint == "prod-meta.shop.svc:7401"
        del shop["status"]
        assert metas.link(shop, service(shop)) is link


@pytest.mark.parametrize(
    "more",
    [
        {"ownerReferences": []},
        {"ownerReferences": [{"kind": "QueueCluster", "name": "prod", "uid": "another", "controller": True}]},
        {"ownerReferences": [{"kind": "QueueCluster", "name": "prod", "uid": "uid-shop-prod"}]},
        {"name": "prod"},
        {"namespace": "evil"},
    ],
)
async def test_a_service_that_is_somebody_elses_is_shown_nothing(more: dict[str, Any]) -> None:
    """It may have been there before, to wait for what is said to it."""
    shop = cluster("shop")
    assert endpoint_of(shop, service(shop, **more)) == ""
    async with opened() as metas:
        assert metas.link(shop, service(shop, **more)) is None
        assert metas.link(shop, None) is None
        assert metas.link(None, None) is None


async def test_who_names_another_clusters_endpoint_does_not_speak_with_its_token() -> None:
    async with opened() as metas:
        clusters = [
            cluster("shop"),
            cluster("evil", endpoint="prod-meta.shop.svc:7401"),
            cluster("shop", "x"),
        ]
        own, foreign, twin = (metas.link(one, service(one)) for one in clusters)

        assert own is not None
        assert foreign is not None
        assert twin is not None
        assert [one.endpoint for one in (own, foreign, twin)] == [
            "prod-meta.shop.svc:7401", "prod-meta.evil.svc:7401", "x-meta.shop.svc:7401",
        ]  # fmt: skip
        assert (own.manners.namespace, foreign.manners.namespace) == ("shop", "evil")

        metas.keep_only(clusters[:2])
        assert metas.links() == [own, foreign]
        metas.keep_only(())
        assert metas.links() == []


async def test_an_operator_outside_of_kubernetes_is_told_by_its_own_file(tmp_path: Path) -> None:
    file, shop, other = tmp_path / "metas", cluster("shop"), cluster("other")
    async with opened(str(file)) as metas:
        assert metas.link(shop, None) is None
        file.write_text("shop/prod localhost:1\n\nno line\n of this\n")
        link = metas.link(shop, None)
        assert link is not None
        assert link.endpoint == "localhost:1"
        assert metas.link(other, None) is None
        file.write_text("shop/prod localhost:1\nshop/prod localhost:22\n")
        link = metas.link(shop, service(shop))
        assert link is not None
        assert link.endpoint == "localhost:22"
        file.unlink()
        link = metas.link(shop, service(shop))
        assert link is not None
        assert link.endpoint == "prod-meta.shop.svc:7401"
