"""What people do with a queue on Kubernetes, with pods that run: install, declare, send and consume."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.queue import CHARTS, Queue
from cluster.real import RealCluster

pytestmark = [pytest.mark.real_cluster, pytest.mark.timeout(2_700)]  # image and cluster may have to be built

VALUES: dict[str, Any] = {
    "cluster": {"meta": {"storage": {"size": "128Mi"}}},
    "brokerDefaults": {"slaves": 1, "storage": {"size": "512Mi"}},
    "brokerGroups": [{"name": "g0"}, {"name": "later", "kind": "Delay", "slaves": 0}],
}
INSTALL_SECONDS, DECLARE_SECONDS = 180.0, 2.0
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
    assert seconds < DECLARE_SECONDS
    consumer, producer = queue.begin("consume", "orders", 0), queue.begin("produce", "orders", MESSAGES)
    sent, seen = queue.said(producer), queue.said(consumer)
    print(f"a producer's pod and a consumer's: {sent}, {seen}")
    assert (sent["sent"], seen["seen"]) == (MESSAGES, MESSAGES)
