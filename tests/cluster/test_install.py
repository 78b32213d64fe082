"""From nothing to a message: the image, both charts and the operator, on nodes that run pods."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from cluster.real import RealCluster
from samples.scripts import ROOT

pytestmark = [pytest.mark.real_cluster, pytest.mark.timeout(2_700)]  # image and cluster may have to be built

CHARTS = ROOT / "charts"
READY_SECONDS = 180.0
"""From the first command until the queue is ready."""


@pytest.fixture
def with_queue(with_image: RealCluster) -> Iterator[RealCluster]:
    """The cluster, which is as it was when the test has ended."""
    yield with_image
    for release, namespace in (("queue", "queues"), ("tidemill-operator", "tidemill-system")):
        with_image.helm("uninstall", release, "--namespace", namespace, "--ignore-not-found", "--wait")


def test_two_commands_and_a_queue_takes_messages_within_three_minutes(with_queue: RealCluster) -> None:
    cluster = with_queue
    small = str(CHARTS / "tidemill/ci/small-values.yaml")

    helm(
        cluster,
        "install",
        "tidemill-operator",
        "tidemill-system",
        "--create-namespace",
        "--wait",
        "--timeout=180s",
    )
    helm(cluster, "install", "queue", "queues", "--create-namespace", f"--values={small}")
    cluster.ask(
        "wait", "-n", "queues", "--for=condition=Ready", "queuecluster/queue", "--timeout=180s", seconds=200
    )
    operator = cluster.helm("test", "tidemill-operator", "-n", "tidemill-system", "--logs", seconds=200)
    messages = cluster.helm("test", "queue", "-n", "queues", "--logs", seconds=200)

    operators = cluster.json("get", "deployment", "tidemill-operator", "-n", "tidemill-system")
    queue = cluster.json("get", "queuecluster", "queue", "-n", "queues")
    (ready,) = [one for one in queue["status"]["conditions"] if one["type"] == "Ready"]
    began, ended = operators["metadata"]["creationTimestamp"], ready["lastTransitionTime"]
    assert (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds() < READY_SECONDS
    assert (operator.returncode, messages.returncode) == (0, 0), operator.stderr + messages.stderr
    assert "the operator is ready, and counts" in operator.stdout
    assert "revision 1 of queue" in messages.stdout
    (group,) = cluster.json("get", "brokergroups", "-n", "queues")["items"]
    assert group["status"]["master"]["broker"] == "g0-0"


def helm(cluster: RealCluster, command: str, release: str, namespace: str, *words: str) -> None:
    chart = CHARTS / ("tidemill" if release == "queue" else release)
    said = cluster.helm(command, release, str(chart), "--namespace", namespace, *words, seconds=200)
    assert said.returncode == 0, said.stderr
