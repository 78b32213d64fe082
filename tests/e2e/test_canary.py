"""A real canary beside real brokers: it measures failovers, says what was lost, and needs no more than its grants."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import Request

import pytest

from e2e.canaries import CanaryProcess
from e2e.clusters import Cluster
from e2e.conftest import STANDALONE, MakeQueue
from e2e.prometheus import watching
from e2e.queues import Queue, run_command, wait_until
from e2e.watched import alerts, hurried
from samples.authorities import Authority
from tidemill import Client
from tidemill_wire.metrics.of_canaries import CANARY

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PATIENCE_SECONDS = 90.0
SUBJECT = "tidemill.canary.g0"
QUICK = ("--interval", "0.2", "--patience", "3", "--later-every", "1", "--later", "0.3")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two broker groups, one of them with somebody who can take over."""
    made = Cluster(tmp_path / "cluster", 2, 1, options=("--delays", "1"))
    try:
        made.start()
        wait_until(
            "g0 can change its master", lambda: len(made.group("g0")["in_sync"]) == 2, PATIENCE_SECONDS
        )
        wait_until("g1 is led", lambda: made.group("g1")["master"], PATIENCE_SECONDS)
        yield made
    finally:
        made.close()


def make_canary(folder: Path, server: str, **settings: str) -> CanaryProcess:
    return CanaryProcess(folder, server, *QUICK, settings=settings)


def test_a_failover_is_measured_and_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    canary = make_canary(tmp_path, cluster.server)
    try:
        canary.start()
        for group in ("g0", "g1"):
            wait_until(
                f"probes come through {group}", lambda group=group: canary.seen(group) > 5, PATIENCE_SECONDS
            )
            wait_until(
                f"and later ones through {group}", lambda group=group: canary.seen(group, "later") > 1, PATIENCE_SECONDS
            )  # fmt: skip
            route = cluster.get(f"/v1/subjects/tidemill.canary.{group}/route")
            assert [one["group"] for one in route["partitions"]] == [group]

        rules = [eager(hurried(rule)) for rule in alerts('instance=~".*"') if "FailoverSlow" in rule["alert"]]
        with watching(tmp_path / "prometheus", [canary.address], rules) as prometheus:
            wait_until("it is scraped", lambda: prometheus.query("tidemill_canary_epoch"), PATIENCE_SECONDS)
            os.kill(cluster.children()[cluster.group("g0")["master"]], signal.SIGKILL)
            wait_until(
                "the failover is measured",
                lambda: [one for one in canary.group("g0")["failovers"] if one["settled"]],
                PATIENCE_SECONDS,
            )
            wait_until("it is alerted", prometheus.firing, PATIENCE_SECONDS)
            wait_until("it is over", lambda: not prometheus.firing(), PATIENCE_SECONDS)

        seen = canary.group("g0")
        assert [(one["epoch"], one["rpo"]) for one in seen["failovers"]] == [(2, 0)]
        assert seen["failovers"][0]["rto_ms"] > 1000
        assert canary.metrics()['tidemill_canary_failovers_total{group="g0"}'] == 1
        for group in map(canary.group, ("g0", "g1")):
            assert [kind["lost"] for kind in group["probes"].values()] == [0, 0]
            assert group["doubled"]["stored"] == group["doubled"]["acknowledged"] == 0
            assert group["out_of_order"]["stored"] == 0
        told = run_command("status", "-o", "json", "-s", cluster.server, "--canary", canary.address)
        assert [one["group"] for one in json.loads(told.stdout)["canary"]["groups"]] == ["g0", "g1"]
        assert canary.stop() == 0
    finally:
        canary.close()


async def lose(server: str) -> None:
    """Probes that are stored and never come: somebody moves their group past them."""
    async with Client(server) as mq:
        await mq.suspend(SUBJECT, "canary")
        before = await stored(mq)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await stored(mq) < before + 5:
                await wait_a_moment()
        await mq.seek(SUBJECT, "canary", "latest")
        await mq.resume(SUBJECT, "canary")


async def stored(mq: Client) -> int:
    return int(next(one["next_sequence"] for one in await mq.subjects() if one["name"] == SUBJECT))


async def wait_a_moment() -> None:
    await asyncio.sleep(0.05)


def test_what_never_comes_is_lost_and_alerted(make_queue: MakeQueue, tmp_path: Path) -> None:
    """On a broker by itself, which knows of no meta and takes nothing for later."""
    queue = make_queue().start()
    canary = make_canary(tmp_path, queue.server)
    rules = [hurried(rule) for rule in alerts('instance=~".*"') if "Canary" in rule["alert"]]
    try:
        canary.start()
        wait_until("probes come", lambda: canary.seen("g0") > 3, PATIENCE_SECONDS)
        with watching(tmp_path / "prometheus", [canary.address], rules) as prometheus:
            lost = 'tidemill_canary_lost_total{kind="now"} == 0'
            wait_until("it is scraped", lambda: prometheus.query(lost), PATIENCE_SECONDS)
            asyncio.run(lose(queue.server))

            def firing() -> set[str]:
                return {one["alertname"] for one in prometheus.firing()}

            wait_until("it is alerted", lambda: firing() == {"TidemillCanaryLoses"}, PATIENCE_SECONDS)
            wait_until("it is over", lambda: not firing(), PATIENCE_SECONDS)
            assert prometheus.problems() == []
            named = {name for name in CANARY if prometheus.query(f"{{__name__=~'{name}(_count)?'}}")}
            assert named == set(CANARY)

        seen = canary.group("g0")
        assert seen["probes"]["now"]["lost"] >= 5
        done = run_command("doctor", "--over", "0", "-s", queue.server, "--canary", canary.address)
        assert done.returncode == 1
        assert "probes of its canary were stored and never came" in done.stdout
        assert "canary_lost tidemill.canary.g0: " in canary.errors
    finally:
        canary.close()


async def give_again(server: str) -> None:
    """Probes that were acked: somebody moves their group to where it began."""
    async with Client(server) as mq:
        await mq.seek(SUBJECT, "canary", "earliest")


async def withhold(server: str, *, holds: bool) -> None:
    """Probes that are stored and given to nobody."""
    async with Client(server) as mq:
        await (mq.suspend if holds else mq.resume)(SUBJECT, "canary")


def test_doubles_and_silence_are_alerted_until_they_are_over_and_so_is_a_canary_that_is_gone(
    make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue = make_queue().start()
    canary = make_canary(tmp_path, queue.server)
    rules = [eager(hurried(rule)) for rule in alerts('instance=~".*"') if "Canary" in rule["alert"]]
    try:
        canary.start()
        wait_until("probes come", lambda: canary.seen("g0") > 3, PATIENCE_SECONDS)
        with watching(tmp_path / "prometheus", [canary.address], rules) as prometheus:
            wait_until("it is scraped", lambda: prometheus.query("tidemill_canary_epoch"), PATIENCE_SECONDS)

            def fires(alert: str) -> bool:
                return alert in {one["alertname"] for one in prometheus.firing()}

            asyncio.run(give_again(queue.server))
            wait_until("doubles are told", lambda: fires("TidemillCanaryDoubles"), PATIENCE_SECONDS)
            wait_until("and over", lambda: not fires("TidemillCanaryDoubles"), PATIENCE_SECONDS)
            asyncio.run(withhold(queue.server, holds=True))
            wait_until("silence is told", lambda: fires("TidemillCanarySilent"), PATIENCE_SECONDS)
            asyncio.run(withhold(queue.server, holds=False))
            wait_until("and over", lambda: not fires("TidemillCanarySilent"), PATIENCE_SECONDS)
            assert not fires("TidemillCanaryGone")
            canary.kill()
            wait_until("that it is gone is told", lambda: fires("TidemillCanaryGone"), PATIENCE_SECONDS)
            wait_until(
                "for as long as it is known of", lambda: not fires("TidemillCanaryGone"), PATIENCE_SECONDS
            )
            assert prometheus.problems() == []
    finally:
        canary.close()


def eager(rule: Mapping[str, Any]) -> dict[str, Any]:
    """The same rule for a test's patience: what lasts for seconds there, of a minute and of ten seconds."""
    expression = rule["expr"].replace("> 60", "> 2").replace("> 10 ", "> 1 ")
    return {**rule, "expr": expression}


def test_it_needs_its_grant_and_nothing_else_and_speaks_tls(make_queue: MakeQueue, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    token = tmp_path / "cluster.token"
    token.write_text("the token of the cluster, which is long enough\n")
    settings = {**authority.serve(), "TIDEMILL_CLUSTER_TOKEN_FILE": str(token)}
    queue = make_queue("locked", settings=settings, command=STANDALONE)
    queue.ca, queue.token = str(authority.ca), token.read_text().strip()
    queue.start()
    own = tmp_path / "canary.token"
    by = {"TIDEMILL_CA": str(authority.ca), "TIDEMILL_TOKEN_FILE": str(own)}
    own.write_text(made_token(queue))
    canary = make_canary(tmp_path, queue.server, **by)
    try:
        canary.start()
        wait_until(
            "it is refused", lambda: "forbidden" in canary.group("g0").get("problem", ""), PATIENCE_SECONDS
        )
        assert canary.metrics()['tidemill_canary_trouble{group="g0"}'] == 1
        assert "forbidden" in canary.hindered()

        grant = {
            "principals": ["token:canary"],
            "permissions": [{"subjects": ["tidemill.canary.*"], "operations": ["Send", "Consume", "Admin"]}],
        }
        ask(queue, "PUT", "/v1/access/grants/canary", grant)
        wait_until("probes come", lambda: canary.seen("g0") > 3, PATIENCE_SECONDS)
        wait_until("and later ones", lambda: canary.seen("g0", "later") > 0, PATIENCE_SECONDS)
        wait_until("it has no problem", lambda: not canary.group("g0")["problem"], PATIENCE_SECONDS)
        assert canary.hindered() == ""
        assert own.read_text().strip() not in canary.errors
    finally:
        canary.close()


def ask(queue: Queue, method: str, path: str, body: object) -> dict[str, str]:
    with queue.open(Request(queue.url(path), json.dumps(body).encode(), method=method)) as answer:
        found: dict[str, str] = json.loads(answer.read())
        return found


def made_token(queue: Queue) -> str:
    return ask(queue, "POST", "/v1/access/tokens", {"who": "canary"})["secret"]
