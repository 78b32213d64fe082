"""Clients over the routes of a real meta: where messages go, and what becomes of them when something is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.clusters import MANY, PATIENCE_SECONDS, Cluster, Ledger, consume, produce, wait_given, wait_more
from e2e.conftest import MakeQueue
from tidemill import Client, ClientSettings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

WRITES_AGAIN_SECONDS = 15.0
PATIENT = ClientSettings(send_timeout_s=PATIENCE_SECONDS, backoff_max_s=0.2)


@pytest.fixture
def cluster_of(make_queue: MakeQueue, tmp_path: Path) -> Iterator[object]:
    made: list[Cluster] = []

    def make(**groups: int) -> Cluster:
        made.append(Cluster(make_queue, tmp_path, **groups))
        return made[-1].start()

    yield make
    for cluster in made:
        cluster.close()


def stored_in(cluster: Cluster, group: str, subject: str = "orders") -> int:
    rows = cluster.master(group).get("/v1/subjects")
    return sum(row["messages"] for row in rows if row["name"] == subject)


def test_a_killed_master_is_followed_and_no_sender_hears_of_it(cluster_of) -> None:
    cluster, ledger = cluster_of(g0=2), Ledger()

    async def case() -> float:
        async with Client(cluster.meta.server, settings=PATIENT) as mq, asyncio.TaskGroup() as tasks:
            producer = tasks.create_task(produce(mq, ledger))
            consumer = tasks.create_task(consume(mq, ledger))
            await wait_more(ledger, 10 * MANY)
            await asyncio.to_thread(cluster.master("g0").kill)
            killed = time.monotonic()
            await wait_more(ledger, 2 * MANY, WRITES_AGAIN_SECONDS)
            gap = time.monotonic() - killed
            await wait_more(ledger, 5 * MANY)
            ledger.over = True
            await producer
            await wait_given(ledger)
            consumer.cancel()
        return gap

    gap = asyncio.run(case())

    print(f"failover through meta: {gap:.1f} s without writes")
    assert ledger.failures == []
    assert ledger.stored <= ledger.given
    assert not ledger.again


def test_messages_are_spread_over_broker_groups_and_all_are_consumed(cluster_of) -> None:
    cluster, ledger = cluster_of(g0=1, g1=1), Ledger()

    async def case() -> None:
        async with Client(cluster.meta.server, settings=PATIENT) as mq, asyncio.TaskGroup() as tasks:
            producer = tasks.create_task(produce(mq, ledger))
            consumer = tasks.create_task(consume(mq, ledger))
            await wait_more(ledger, 20 * MANY)
            ledger.over = True
            await producer
            await wait_given(ledger)
            consumer.cancel()

    asyncio.run(case())

    assert ledger.failures == []
    assert ledger.twice == []
    counts = [stored_in(cluster, group) for group in ("g0", "g1")]
    assert sum(counts) == len(ledger.stored)
    assert min(counts) > 0.2 * sum(counts)
