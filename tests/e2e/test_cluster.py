"""`tidemill up --brokers N --slaves M`: started, kept and ended as one thing."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from e2e.clusters import Cluster
from e2e.conftest import MakeQueue
from e2e.peers import exchange
from e2e.queues import COMMAND, run_command, wait_until

pytestmark = pytest.mark.e2e

MakeCluster: TypeAlias = Callable[..., Cluster]
PATIENCE_SECONDS = 60.0
MANIFEST = """
apiVersion: tidemill.dev/v1alpha1
kind: Subject
metadata: {name: orders}
spec: {config: [{name: durability, value: low}]}
"""


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    made: list[Cluster] = []

    def make(brokers: int, slaves: int, **more: Any) -> Cluster:
        made.append(Cluster(tmp_path / "cluster", brokers, slaves, **more))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def group_of(cluster: Cluster, name: str) -> dict[str, Any]:
    """As meta sees it; nothing while meta is away."""
    with suppress(OSError, urllib.error.URLError, ValueError, StopIteration):
        return cluster.group(name)
    return {"in_sync": [], "master": "", "epoch": 0, "state": "NRW"}


def test_a_cluster_starts_serves_and_ends_with_its_last_process(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    manifest = tmp_path / "orders.yaml"
    manifest.write_text(MANIFEST)
    cluster = make_cluster(2, 1, manifests=[manifest], options=("--delays", "1")).start()

    names = {"meta-0", "g0-0", "g0-1", "g1-0", "g1-1", "delay-0", "delay-1"}
    assert set(cluster.children()) == names
    assert [cluster.group(name)["state"] for name in ("g0", "g1")] == ["RW", "RW"]
    partitions = cluster.get("/v1/subjects/orders")["route"]["partitions"]
    assert {one["group"] for one in partitions} == {"g0", "g1"}
    asyncio.run(exchange(cluster.server, "hello"))

    assert cluster.stop() == 0
    assert cluster.left() == set()
    assert "killed" not in cluster.errors


def test_a_child_that_dies_is_started_again_and_joins(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, 1).start()
    wait_until("both are in sync", lambda: len(group_of(cluster, "g0")["in_sync"]) == 2, PATIENCE_SECONDS)
    master = cluster.group("g0")["master"]
    killed = cluster.children()[master]

    os.kill(killed, signal.SIGKILL)

    wait_until("another leads", lambda: group_of(cluster, "g0")["epoch"] > 1, PATIENCE_SECONDS)
    wait_until("both are in sync", lambda: len(group_of(cluster, "g0")["in_sync"]) == 2, PATIENCE_SECONDS)
    assert cluster.children()[master] != killed
    assert f"{master}, process {killed}, ended by itself (signal SIGKILL)" in cluster.errors
    asyncio.run(exchange(cluster.server, "hello"))


def test_meta_that_dies_is_started_again_at_its_port(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, 0).start()
    killed = cluster.children()["meta-0"]

    os.kill(killed, signal.SIGKILL)

    wait_until("it is there", lambda: cluster.children().get("meta-0", killed) != killed, PATIENCE_SECONDS)
    wait_until("it answers", lambda: group_of(cluster, "g0")["state"] == "RW", PATIENCE_SECONDS)
    asyncio.run(exchange(cluster.server, "hello"))


def test_a_keeper_that_is_killed_leaves_no_process_behind(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, 1).start()
    assert len(cluster.children()) == 3

    cluster.kill()

    wait_until("all have ended", lambda: not cluster.left(), PATIENCE_SECONDS)


def test_a_cluster_goes_on_where_it_was(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, 1).start()
    assert run_command("send", "orders", "tide", server=cluster.server).returncode == 0
    assert cluster.stop() == 0

    cluster.start()
    got = run_command(
        "consume", "orders", "--group", "later", "--count", "1", "--timeout", "30", server=cluster.server
    )
    assert (got.returncode, got.stdout.strip()) == (0, "tide"), got.stderr


def test_a_folder_of_one_kind_is_refused_by_the_other(
    make_cluster: MakeCluster, make_queue: MakeQueue
) -> None:
    queue = make_queue("cluster", command=COMMAND).start()
    assert queue.stop() == 0
    cluster = make_cluster(1, 0)
    cluster.launch()
    assert cluster.wait_end() == 1
    assert "holds a queue of one process" in cluster.errors
    assert cluster.errors.count("\n") == 1


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_a_cluster_at_an_address_of_ipv6_is_led_and_followed(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, 1, options=["--host", "::1"]).start()
    assert cluster.server == f"[::1]:{cluster.http_port}"
    wait_until("both are in sync", lambda: len(group_of(cluster, "g0")["in_sync"]) == 2, PATIENCE_SECONDS)
    asyncio.run(exchange(cluster.server, "six"))
