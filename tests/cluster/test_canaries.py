"""The canary of a QueueCluster on a real API server, which refuses what it would refuse anywhere: made, let in, rolled
with the image, and gone without a trace. Pods are played: what runs in one is in ``e2e/test_canary.py``.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.metas import Meta
from e2e.operators import Operator, wait_until
from e2e.shops import Shop

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

CLUSTER, NAME = "watched", "watched-canary"
KINDS = "deployment,service,serviceaccount,networkpolicy,grant.tidemill.dev"
MADE = {"Deployment", "Grant", "NetworkPolicy", "Service", "ServiceAccount"}


def spec(tag: str = "1", **canary: Any) -> dict[str, Any]:
    return {
        "image": {"repository": "registry.test/tidemill", "tag": tag},
        "security": {
            "token": {"name": "cluster-token", "key": "token"},
            "serviceAccounts": {"audience": "watched.queues.example.org"},
        },
        "canary": canary,
    }


def made(shop: Shop) -> set[str]:
    """The kinds of what there is of it."""
    listed = json.loads(shop.ask("get", KINDS, "-o", "json"))["items"]
    return {one["kind"] for one in listed if one["metadata"]["name"] == NAME}


def image(shop: Shop) -> str:
    [container] = (shop.get("deployment", NAME) or {})["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


def test_it_is_made_where_pods_are_restricted_rolled_with_the_image_and_taken_away(
    shop: Shop, meta: Meta, operator: Operator
) -> None:
    shop.cluster.ask(
        "label", "namespace", shop.namespace, "pod-security.kubernetes.io/enforce=restricted", "--overwrite"
    )
    shop.apply("QueueCluster", CLUSTER, spec(enabled=True, intervalMilliseconds=250))
    shop.wait("queuecluster", CLUSTER, "True", "Reconciled", "CanaryReady")
    assert made(shop) == MADE
    grant = shop.get("grant.tidemill.dev", NAME)
    assert grant is not None
    assert grant["spec"]["principals"] == [{"kind": "ServiceAccount", "name": NAME}]

    shop.apply("QueueCluster", CLUSTER, spec("2", enabled=True, intervalMilliseconds=250))
    wait_until("it has the other image", lambda: image(shop) == "registry.test/tidemill:2")
    shop.wait("queuecluster", CLUSTER, "True", "Reconciled", "CanaryReady")

    shop.apply("QueueCluster", CLUSTER, spec("2", enabled=False))
    wait_until("nothing is left of it", lambda: made(shop) == set())
    wait_until(
        "nothing is said of it", lambda: shop.condition("queuecluster", CLUSTER, "CanaryReady") == ("", "")
    )


def test_a_second_pass_writes_nothing(shop: Shop, meta: Meta, operator: Operator) -> None:
    """The API server adds fields; what the operator sends must be nothing else than what it keeps."""
    shop.apply("QueueCluster", CLUSTER, spec(enabled=True))
    shop.wait("queuecluster", CLUSTER, "True", "Reconciled", "CanaryReady")
    before = {kind: (shop.get(kind, NAME) or {})["metadata"] for kind in KINDS.split(",")}

    shop.annotate("queuecluster", CLUSTER, "tests.tidemill.dev/look=again")
    shop.apply("QueueCluster", CLUSTER, {**spec(enabled=True), "update": {"groupDelaySeconds": 1}})
    wait_until(
        "it looked again",
        lambda: (shop.get("queuecluster", CLUSTER) or {})["status"].get("observedGeneration") == 2,
    )

    after = {kind: (shop.get(kind, NAME) or {})["metadata"] for kind in KINDS.split(",")}
    assert {kind: one["uid"] for kind, one in after.items()} == {
        kind: one["uid"] for kind, one in before.items()
    }
    assert [one.get("generation") for one in after.values()] == [
        one.get("generation") for one in before.values()
    ]
