"""Archives on a real Spark while everything dies: runs at random moments, brokers in the midst of being read.

``LAKE_KILLS`` says how many runs are killed, ``LAKE_SEED`` draws the moments. Every other turn a broker is killed as
well, a slave or a master, so that another one goes on with the answer; every third turn two runs are started at once.
After each turn the lake is equal to the logs, and so is what is archived of what was done with the messages.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from e2e.clusters import Cluster
from e2e.queues import wait_until
from spark.submitted import DONE_SECONDS, Job, wait_so_long
from tidemill import Client
from tidemill_spark import finding, reconciling
from tidemill_spark.action_reconciling import reconcile_actions
from tidemill_spark.lake import Lake
from tidemill_spark.ranges import standings
from tidemill_spark.workers import Workers, processes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200)]

MESSAGES = 4000
BODY_BYTES = 1000
SUBJECTS = ("storm.a", "storm.b")
ACKED = "SELECT sum(messages)::BIGINT AS messages FROM actions WHERE action = 'acked' AND consumer_group = 'billing'"
CLUSTER_SECONDS = 120
HANDLED = 100


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "data", 1, 1, settings={"TIDEMILL_SEGMENT_BYTES": str(1 << 20)})
    cluster.start()
    yield cluster
    cluster.close()


@pytest.fixture(name="workers")
def _workers() -> Iterator[Workers]:
    with processes(2) as workers:
        yield workers


def whole(cluster: Cluster) -> bool:
    row = cluster.group("g0")
    return len(row["in_sync"]) == 2 and all(one["alive"] for one in row["brokers"])


def send(cluster: Cluster, turn: int) -> None:
    """Some large batches, and some messages on their own."""

    async def work() -> None:
        async with Client(cluster.server) as client:
            for subject in SUBJECTS:
                bodies = [b"%d/%d" % (turn, at) + b"." * BODY_BYTES for at in range(MESSAGES // 2)]
                await client.send_many(subject, bodies)
            sends = [client.send(SUBJECTS[0], b"%d" % at, key=f"o-{at % 9}") for at in range(MESSAGES // 20)]
            await asyncio.gather(*sends)

    asyncio.run(work())


def handle(cluster: Cluster, count: int) -> None:
    """A group is given some, fails a few of them, and handles the others."""

    async def work() -> None:
        async with Client(cluster.server) as client, client.consume(SUBJECTS[0], group="billing") as messages:
            async with asyncio.timeout(CLUSTER_SECONDS):
                for number in range(count):
                    message = await anext(messages)
                    await (message.nack(reason="no amount") if number % 10 == 0 else message.ack())

    asyncio.run(work())


SENT = MESSAGES + MESSAGES // 20


def readable(cluster: Cluster, count: int) -> bool:
    return sum(one.next - one.first for one in standings(cluster.server, SUBJECTS)) >= count


def archiving(cluster: Cluster, uri: Path) -> Job:
    subjects = [part for one in SUBJECTS for part in ("--subject", one)]
    where = ("--server", cluster.server, "--name", "storm", *subjects, "--to", str(uri))
    return Job("archive", *where, "--safety-lag-seconds", "0")


def files(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def wait_somewhere(job: Job, uri: Path, chance: random.Random) -> None:
    """At any moment: of its start, or of its work, from its first file on."""
    if chance.random() < 0.3:
        wait_so_long(job, chance.uniform(0, 10))
        return
    before = files(uri)
    wait_until("the run writes", lambda: not job.running or files(uri) > before, DONE_SECONDS)
    wait_so_long(job, chance.uniform(0, 1.5))


def kill_one_broker(cluster: Cluster, chance: random.Random) -> str:
    row = cluster.group("g0")
    roles = {one["name"]: "master" if one["name"] == row["master"] else "slave" for one in row["brokers"]}
    name = chance.choice(sorted(roles))
    os.kill(cluster.children()[name], signal.SIGKILL)
    return roles[name]


def test_lake_is_equal_to_the_logs_after_every_kill_of_a_run_and_of_a_broker(
    cluster: Cluster, workers: Workers, tmp_path: Path
) -> None:
    chance = random.Random(int(os.environ.get("LAKE_SEED", "1")))
    kills = int(os.environ.get("LAKE_KILLS", "2"))
    uri = tmp_path / "lake"
    happened = Counter[str]()
    for turn in range(kills):
        wait_until("both brokers are in sync", partial(whole, cluster), CLUSTER_SECONDS)
        send(cluster, turn)
        handle(cluster, HANDLED)
        wait_until("they may be read", partial(readable, cluster, SENT * (turn + 1)), CLUSTER_SECONDS)
        one, *others = [archiving(cluster, uri) for _ in range(2 if turn % 3 == 1 else 1)]
        wait_somewhere(one, uri, chance)
        if turn % 2:
            happened[f"{kill_one_broker(cluster, chance)} killed"] += 1
            wait_so_long(one, chance.uniform(0, 1))
        happened["run killed" if one.running else "run over before"] += 1
        one.kill()
        for other in others:
            assert other.done()["state"] == "Succeeded"
            happened["run beside it ended"] += 1
        wait_until("both brokers are in sync", partial(whole, cluster), CLUSTER_SECONDS)
        found = reconciling.reconcile(cluster.server, Lake.at(str(uri)), workers)
        assert [row.row() for row in found if not row.equal] == []
        done = reconcile_actions(cluster.server, str(uri), workers)
        assert [row.row() for row in done if not row.equal] == []
        happened["equal"] += 1
    both = [archiving(cluster, uri) for _ in range(2)]
    wait_somewhere(both[0], uri, chance)
    happened[f"{kill_one_broker(cluster, chance)} killed"] += 1
    assert [job.done()["state"] for job in both] == ["Succeeded"] * 2
    wait_until("both brokers are in sync", partial(whole, cluster), CLUSTER_SECONDS)
    found = reconciling.reconcile(cluster.server, Lake.at(str(uri)), workers)
    assert [row.row() for row in found if not row.equal] == []
    assert sum(row.lake for row in found) == SENT * kills
    assert sum(file.rows for file in Lake.at(str(uri)).files()) == SENT * kills
    done = reconcile_actions(cluster.server, str(uri), workers)
    assert [row.row() for row in done if not row.equal] == []
    acked = finding.sql(Lake.at(str(uri)), ACKED).to_pylist()
    assert acked[0]["messages"] >= kills * HANDLED * 9 // 10
    print(f"\n{SENT * kills} messages, {dict(sorted(happened.items()))}")
