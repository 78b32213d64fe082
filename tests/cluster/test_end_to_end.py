"""What people do with a queue on Kubernetes, with pods that run: install, declare, send and consume."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.programs import wait_until
from cluster.queue import CHARTS, ENDS_SECONDS, Queue
from cluster.real import RealCluster

pytestmark = [pytest.mark.real_cluster, pytest.mark.timeout(2_700)]  # image and cluster may have to be built

VALUES: dict[str, Any] = {
    "cluster": {"meta": {"storage": {"size": "128Mi"}}},
    "brokerDefaults": {"slaves": 1, "storage": {"size": "512Mi"}},
    "brokerGroups": [{"name": "g0"}, {"name": "later", "kind": "Delay", "slaves": 0}],
}
INSTALL_SECONDS, DECLARE_SECONDS = 180.0, 2.0
SHARED_MACHINE = 1 if "TIDEMILL_FAULTS" in os.environ else 3
"""`make test-cluster` has the machine to itself; `make test` runs all others beside."""
MESSAGES = 100_000


@pytest.fixture(scope="module")
def queue(with_image: RealCluster) -> Iterator[Queue]:
    """The operator and a queue: brokers with a slave, and a delay group."""
    made = Queue(with_image, "plain")
    began = time.monotonic()
    made.helm("install", "tidemill-operator", CHARTS / "tidemill-operator", "--wait")
    made.helm("install", "queue", CHARTS / "tidemill", values=VALUES)
    for kind in ("queuecluster", "brokergroup"):
        made.ready(kind, "--all")
    seconds = time.monotonic() - began
    print(f"operator and queue, from `helm install` to ready: {seconds:.1f} s")
    assert seconds < INSTALL_SECONDS
    yield made
    made.uninstall()


def test_a_subject_is_applied_and_pods_exchange_a_hundred_thousand_messages(queue: Queue) -> None:
    seconds = queue.declare("orders")
    print(f"Subject and ConsumerGroup, from `kubectl apply` to ready: {seconds:.2f} s")
    assert seconds < DECLARE_SECONDS * SHARED_MACHINE
    consumer, producer = queue.begin("consume", "orders", 0), queue.begin("produce", "orders", MESSAGES)
    sent, seen = queue.said(producer), queue.said(consumer)
    print(f"a producer's pod and a consumer's: {sent}, {seen}")
    assert (sent["sent"], seen["seen"]) == (MESSAGES, MESSAGES)


def test_a_canary_is_asked_for_and_meta_passes_on_what_it_says(queue: Queue) -> None:
    queue.helm("upgrade", "queue", CHARTS / "tidemill", values={**VALUES, "canary": {"enabled": True}})
    queue.ask(
        "wait", "queuecluster/queue", "--for=condition=CanaryReady", "--timeout=180s", seconds=INSTALL_SECONDS
    )

    def has_seen() -> bool:
        found = seen(queue)
        return found.get("now", 0) > 3 and found.get("later", 0) > 0

    wait_until("probes come, and those for later", has_seen, ENDS_SECONDS)

    queue.helm("upgrade", "queue", CHARTS / "tidemill", values={**VALUES, "canary": {"enabled": False}})
    wait_until(
        "nothing is left of it",
        lambda: not queue.items("deployments,services", "-l", "app.kubernetes.io/component=canary"),
        ENDS_SECONDS,
    )


def seen(queue: Queue) -> dict[str, int]:
    """Probes of g0 that came, by kind, as `tidemill status` says it next to meta."""
    done = queue.cluster.kubectl(
        "-n", queue.namespace, "exec", "statefulset/queue-meta", "--", "tidemill", "status", "-o", "json"
    )
    groups = json.loads(done.stdout).get("canary", {"groups": []})["groups"] if done.stdout else []
    kinds: dict[str, Any] = next((one["probes"] for one in groups if one["group"] == "g0"), {})
    return {kind: int(tally["seen"]) for kind, tally in kinds.items()}
