"""Every query of every dashboard returns data, of a real Prometheus that scrapes real services under load; and the
table of metrics has what these services say, and nothing else.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError

import pytest

from e2e.canaries import CanaryProcess
from e2e.clusters import Cluster
from e2e.conftest import STANDALONE, wait_for_later
from e2e.prometheus import Prometheus, watching
from e2e.queues import Queue, wait_until
from e2e.watched import chosen, load, panels
from tidemill_operator.doors.metrics import Metrics
from tidemill_wire.metrics.of_clients import CLIENT, WORKER
from tidemill_wire.metrics.reference import EVERYTHING

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 90.0
NEEDS_A_FAULT = {"refusal"}
"""Panels of what only a fault counts; that their query is one is looked at, and their metric is in the table."""


@contextmanager
def served(page: Callable[[], bytes]) -> Iterator[str]:
    """A page of numbers at a port; the operator's, without the operator's Kubernetes."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page())

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def counted(metrics: Metrics) -> bytes:
    """The operator's page, after a bit more of everything that it counts."""
    metrics.passes.labels("Subject", "done").inc()
    metrics.pass_seconds.labels("Subject").observe(0.01)
    metrics.requeues.labels("conflict").inc()
    metrics.applies.labels("StatefulSet", "changed").inc()
    metrics.drift.labels("Service").inc()
    metrics.api_requests.labels("get", "200").inc()
    metrics.meta_requests.labels("get", "200").inc()
    metrics.watched.labels("subjects").set(time.time())
    metrics.objects.labels("Subject").set(3)
    metrics.leader.set(1)
    return metrics.page()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It watches a queue and a cluster of one group with a slave, both under load, a canary, and an operator's page."""
    folder = tmp_path_factory.mktemp("watched")
    queue = Queue(folder / "queue", command=STANDALONE)
    cluster = Cluster(folder / "cluster", 1, 1, options=("--delays", "1"))
    metrics = Metrics()
    canary: CanaryProcess | None = None
    try:
        wait_for_later(queue.start())
        cluster.start()
        groups: list[dict[str, Any]] = []
        wait_until("all are in sync", lambda: in_sync(cluster, groups) == [2, 2], PATIENCE_SECONDS)
        targets = [one["addresses"]["control"] for group in groups for one in group["brokers"]]
        canary = CanaryProcess(folder, cluster.server, "--later-every", "1", "--later", "0.3").start()
        with served(lambda: counted(metrics)) as operator, load(queue.server), load(cluster.server):
            hosts = [queue.server, cluster.server, operator, canary.address, *targets]
            with watching(folder / "prometheus", hosts) as found:
                wait_until("all are scraped", lambda: is_up(found, hosts), PATIENCE_SECONDS)
                yield found
    finally:
        if canary is not None:
            canary.close()
        queue.close()
        cluster.close()


def in_sync(cluster: Cluster, groups: list[dict[str, Any]]) -> list[int]:
    """Replicas of broker groups and delay groups, which are noted; none while meta is too busy to say it."""
    with suppress(HTTPError):
        groups[:] = [*cluster.get("/v1/brokers"), *cluster.get("/v1/delays")]
        return [len(group["in_sync"]) for group in groups]
    return []


def is_up(prometheus: Prometheus, hosts: list[str]) -> bool:
    health = prometheus.healthy()
    return len(health) == len(set(hosts)) and set(health.values()) == {"up"}


def numbers(rows: list[dict[str, Any]]) -> list[float]:
    """What is a number of an answer."""
    return [value for row in rows if not math.isnan(value := float(row["value"][1]))]


@pytest.mark.parametrize("name, panel", [pytest.param(name, panel, id=name) for name, panel in panels()])
def test_a_panel_shows_something(prometheus: Prometheus, name: str, panel: Mapping[str, Any]) -> None:
    for legend, query in panel["queries"].items():
        asked = chosen(query)
        named = set(re.findall(r"tidemill_\w+", asked))
        assert {re.sub("_(bucket|sum|count)$", "", one) for one in named} <= set(EVERYTHING), named
        if panel.get("needs") in NEEDS_A_FAULT:
            assert prometheus.query(asked) == []
            continue
        wait_until(
            f"{name}: {legend} shows something", lambda asked=asked: numbers(prometheus.query(asked)),
            PATIENCE_SECONDS,
        )  # fmt: skip


def test_lines_are_told_apart_by_labels_that_there_are(prometheus: Prometheus) -> None:
    for name, panel in panels():
        for legend, query in panel["queries"].items():
            rows = prometheus.query(chosen(query))
            wanted = set(re.findall(r"{{(\w+)}}", legend))
            assert all(wanted <= set(row["metric"]) for row in rows), (name, legend, rows[:1])


def test_a_counter_of_the_others_never_falls(prometheus: Prometheus) -> None:
    """Whoever gets a name or loses it."""
    for row in prometheus.query('resets(tidemill_subject_messages_total{subject="other"}[5m])'):
        assert float(row["value"][1]) == 0


def test_all_metrics_of_the_table_are_said_and_have_its_types_and_labels(prometheus: Prometheus) -> None:
    """But for those of programs, which say them themselves, what only a fault or a quota counts, and what only a
    service with a certificate says, which tests of alerts ask for.
    """
    programs = set(CLIENT) | set(WORKER)
    rows = prometheus.query('{__name__=~"tidemill_.*"}')
    found: dict[str, set[str]] = {}
    for row in rows:
        labels = dict(row["metric"])
        name = re.sub("_(bucket|sum|count)$", "", labels.pop("__name__"))
        name = name if name in EVERYTHING else labels.pop("__name__", name)
        found.setdefault(name, set()).update(labels.keys() - {"instance", "job", "le"})
    created = {name for name in found if name.endswith("_created")}
    table = {name: {label.name for label in metric.labels} for name, metric in EVERYTHING.items()}
    faults = {"tidemill_refused_total", "tidemill_delay_refused_total", "tidemill_over_quota_total"}
    faults |= {name for name in table if "_certificate_" in name}

    assert {name: labels for name, labels in found.items() if name not in created} == {
        name: labels for name, labels in table.items() if name not in programs and name in found
    }
    assert set(table) - set(found) - programs <= faults
