"""Alerts that fire on real faults of real services, and clear when they are over; the rules are the chart's, but that
they look back over seconds and not over minutes. What needs hours is ``test_rules.py``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from e2e.asking import send
from e2e.clusters import Cluster
from e2e.conftest import STANDALONE, wait_for_later
from e2e.prometheus import Prometheus, watching
from e2e.queues import Queue, run_command, wait_until
from e2e.watched import alerts, hurried
from samples.authorities import Authority
from tidemill import Client

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 90.0
LAG_SECONDS = 2
NOT_FULL = {"TIDEMILL_FREE_SPACE_MIN_PERCENT": "1"}
FULL = {"TIDEMILL_FREE_SPACE_MIN_PERCENT": "100"}
KEPT = """
apiVersion: tidemill.dev/v1alpha1
kind: Subject
metadata: {name: kept}
spec:
  retention: {archive: Required}
"""


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    made = Queue(tmp_path_factory.mktemp("queue") / "data", settings=NOT_FULL, command=STANDALONE)
    try:
        wait_for_later(made.start())
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """A queue whose disk is to be empty, and is not."""
    made = Queue(tmp_path_factory.mktemp("full") / "data", settings=FULL)
    try:
        yield made.start()
    finally:
        made.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster") / "data", 1, 1)
    try:
        made.start()
        wait_until("its slave is in sync", lambda: len(group_of(made)["in_sync"]) == 2, PATIENCE_SECONDS)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Queue]:
    made = Queue(tmp_path_factory.mktemp("secured") / "data", settings={**NOT_FULL, **authority.serve()})
    try:
        yield made.start()
    finally:
        made.close()


@pytest.fixture(scope="module")
def prometheus(
    tmp_path_factory: pytest.TempPathFactory,
    queue: Queue,
    full: Queue,
    cluster: Cluster,
    secured: Queue,
    authority: Authority,
) -> Iterator[Prometheus]:
    queues = [f'instance{sign}"{cluster.server}"' for sign in ("=", "!=")]  # both have a g0
    rules = [hurried(rule, LAG_SECONDS) for mine in queues for rule in alerts(mine)]
    folder = tmp_path_factory.mktemp("prometheus") / "data"
    by_tls = {secured.server: authority.ca}
    with watching(folder, [queue.server, full.server, cluster.server], rules, by_tls) as found:
        yield found


def group_of(cluster: Cluster) -> dict[str, Any]:
    """As meta sees it; nothing while meta is too busy to say it."""
    with suppress(HTTPError, StopIteration):
        return cluster.group("g0")
    return {"in_sync": [], "brokers": [], "master": ""}


def wait_firing(prometheus: Prometheus, alert: str, **labels: str) -> None:
    wanted = {"alertname": alert, **labels}
    wait_until(
        f"{wanted} fires", lambda: any(wanted.items() <= one.items() for one in prometheus.firing()),
        PATIENCE_SECONDS,
    )  # fmt: skip


def wait_clear(prometheus: Prometheus, alert: str, **labels: str) -> None:
    wanted = {"alertname": alert, **labels}
    wait_until(
        f"{wanted} is clear", lambda: not any(wanted.items() <= one.items() for one in prometheus.firing()),
        PATIENCE_SECONDS,
    )  # fmt: skip


async def bury(server: str, subject: str) -> None:
    async with Client(server) as mq:
        await mq.send(subject, b"bad")
        async with mq.consume(subject, group="billing") as messages:
            await (await messages.take()).nack(error=ValueError("no amount"), reject=True)


async def purge(server: str, subject: str) -> None:
    async with Client(server) as mq:
        await mq.dead_letters(subject, "billing").purge()


def test_dead_letters_are_told_until_they_are_purged(queue: Queue, prometheus: Prometheus) -> None:
    asyncio.run(bury(queue.server, "letters"))
    wait_firing(prometheus, "TidemillDeadLetters", subject="letters", group="billing")

    asyncio.run(purge(queue.server, "letters"))
    wait_clear(prometheus, "TidemillDeadLetters", subject="letters")


async def handle(server: str, subject: str, *, fails: bool) -> None:
    """Until it is cancelled."""
    async with Client(server) as mq, mq.consume(subject, group="billing") as messages:
        async for message in messages:
            if fails:
                await message.nack(error=ConnectionError("no database"), delay=0.1)


async def pause(prometheus: Prometheus, server: str, subject: str) -> None:
    """All fails until the alert is there, nothing fails until it is not."""
    async with Client(server) as mq:
        await mq.send_many(subject, [b"%d" % number for number in range(200)])
    for fails, wait in ((True, wait_firing), (False, wait_clear)):
        handling = asyncio.create_task(handle(server, subject, fails=fails))
        await asyncio.to_thread(wait, prometheus, "TidemillGroupPaused", subject=subject)
        handling.cancel()
        await asyncio.wait([handling])


def test_a_group_is_told_to_be_paused_until_it_works(queue: Queue, prometheus: Prometheus) -> None:
    asyncio.run(pause(prometheus, queue.server, "outage"))


async def begin(server: str, subject: str) -> None:
    """A group that knows a subject, and is not there any more when the next messages come."""
    async with Client(server) as mq:
        await mq.send(subject, b"first")
        async with mq.consume(subject, group="billing") as messages:
            await (await messages.take()).ack()
        await mq.send_many(subject, [b"waits"] * 10)


async def drain(server: str, subject: str) -> None:
    async with Client(server) as mq, mq.consume(subject, group="billing") as messages:
        for _ in range(10):
            await (await messages.take()).ack()


def test_a_group_that_lags_and_nobody_consumes(queue: Queue, prometheus: Prometheus) -> None:
    asyncio.run(begin(queue.server, "backlog"))
    wait_firing(prometheus, "TidemillGroupLags", subject="backlog", group="billing")
    wait_firing(prometheus, "TidemillNobodyConsumes", subject="backlog", group="billing")

    asyncio.run(drain(queue.server, "backlog"))
    wait_clear(prometheus, "TidemillGroupLags", subject="backlog")
    wait_clear(prometheus, "TidemillNobodyConsumes", subject="backlog")


def test_an_archive_that_nobody_runs(queue: Queue, prometheus: Prometheus, tmp_path: Path) -> None:
    """Until somebody does."""
    (tmp_path / "kept.yaml").write_text(KEPT)
    assert run_command("apply", "-f", str(tmp_path / "kept.yaml"), server=queue.server).returncode == 0
    send(queue, "kept", "for years")
    wait_firing(prometheus, "TidemillArchiveLags", instance=queue.server)

    asked = ("archive", "run", "--subject", "kept", "--to", str(tmp_path / "lake"), "--workers", "1")
    done = run_command(*asked, "--safety-lag-seconds", "0", server=queue.server, seconds=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    wait_clear(prometheus, "TidemillArchiveLags", instance=queue.server)


def test_a_disk_that_is_to_be_emptier(full: Queue, prometheus: Prometheus) -> None:
    wait_firing(prometheus, "TidemillDiskRefuses", instance=full.server)

    full.stop()
    roomy = Queue(full.data, settings=NOT_FULL)
    roomy.port, roomy.http_port = full.port, full.http_port
    try:
        roomy.start()
        wait_clear(prometheus, "TidemillDiskRefuses", instance=full.server)
    finally:
        roomy.close()
        full.start()


def test_an_event_loop_that_stands_still(queue: Queue, prometheus: Prometheus) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    mine = {"alertname": "TidemillLoopStalls", "instance": queue.server}
    while not any(mine.items() <= one.items() for one in prometheus.firing()):
        assert time.monotonic() < deadline, "it stood still again and again, and nobody was told"
        os.kill(queue.pid, signal.SIGSTOP)
        try:
            Path(f"/proc/{queue.pid}/stat").read_text()
            wait_until("it has stood still for a while", Standing(0.7).is_over)
        finally:
            os.kill(queue.pid, signal.SIGCONT)
        wait_until("it has worked for a moment", Standing(0.7).is_over)

    wait_clear(prometheus, "TidemillLoopStalls", instance=queue.server)


class Standing:
    """A while, to be polled."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def is_over(self) -> bool:
        return time.monotonic() >= self._end


def test_a_slave_that_is_gone(cluster: Cluster, prometheus: Prometheus) -> None:
    wait_until("both are in sync", lambda: len(group_of(cluster)["in_sync"]) == 2, PATIENCE_SECONDS)
    group = group_of(cluster)
    [slave] = {one["name"] for one in group["brokers"]} - {group["master"]}
    frozen = cluster.children()[slave]
    os.kill(frozen, signal.SIGSTOP)
    try:
        wait_firing(prometheus, "TidemillNotInSync", group="g0")
        wait_firing(prometheus, "TidemillBrokerDead")
    finally:
        os.kill(frozen, signal.SIGCONT)
    wait_clear(prometheus, "TidemillNotInSync", group="g0")
    wait_clear(prometheus, "TidemillBrokerDead")


def test_a_broker_group_without_a_master(cluster: Cluster, prometheus: Prometheus) -> None:
    frozen = [pid for name, pid in cluster.children().items() if name.startswith("g0")]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_firing(prometheus, "TidemillNoMaster", group="g0")
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    wait_clear(prometheus, "TidemillNoMaster", group="g0")
    wait_clear(prometheus, "TidemillNotInSync", group="g0")


def test_a_certificate_that_is_about_to_end(
    secured: Queue, authority: Authority, prometheus: Prometheus
) -> None:
    """Of 90 days one is left; then it is renewed, and nothing is started again."""
    now = datetime.now(UTC)
    authority.issue(
        "server", "127.0.0.1", "localhost", life=(now - timedelta(days=89), now + timedelta(days=1))
    )
    wait_firing(prometheus, "TidemillCertificateEnds", instance=secured.server)

    authority.issue("server", "127.0.0.1", "localhost", life=(now, now + timedelta(days=90)))
    wait_clear(prometheus, "TidemillCertificateEnds", instance=secured.server)


def test_no_rule_is_wrong(prometheus: Prometheus) -> None:
    wait_until("the rules were evaluated", lambda: prometheus.query("count(up)"), PATIENCE_SECONDS)

    assert prometheus.problems() == []
