"""Clients over the routes of a real meta: where messages go, and what becomes of them when something is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import MakeQueue
from e2e.queues import environment
from e2e.towns import MANY, PATIENCE_SECONDS, Cluster, Ledger, consume, produce, wait_given, wait_more
from tidemill import Client, ClientSettings
from tidemill_wire.ordering import logical_partition

pytestmark = pytest.mark.e2e

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


def test_a_killed_broker_group_keeps_no_sender_waiting_for_long(cluster_of) -> None:
    """One of two groups is gone for good. What was in flight there may be stored, and cannot go elsewhere."""
    cluster, ledger = cluster_of(g0=1, g1=1), Ledger()
    settings = ClientSettings(send_timeout_s=PATIENCE_SECONDS, backoff_max_s=0.2)

    async def case() -> int:
        async with Client(cluster.meta.server, settings=settings) as mq, asyncio.TaskGroup() as tasks:
            producers = [tasks.create_task(produce(mq, ledger, name=name)) for name in "ab"]
            consumer = tasks.create_task(consume(mq, ledger))
            await wait_more(ledger, 10 * MANY)
            stuck = cluster.master("g0")
            await asyncio.to_thread(stuck.kill)
            mq_again = Client(cluster.meta.server, settings=settings)
            for number in range(20):  # a sender that has nothing in flight there
                await asyncio.wait_for(mq_again.send("orders", b"again-%d" % number), WRITES_AGAIN_SECONDS)
                ledger.stored.add(b"again-%d" % number)
            await mq_again.close()
            await asyncio.to_thread(stuck.start)
            await wait_more(ledger, 5 * MANY)
            ledger.over = True
            await asyncio.gather(*producers)
            await wait_given(ledger)
            consumer.cancel()
        return len(ledger.stored)

    stored = asyncio.run(case())

    assert ledger.failures == []
    assert ledger.stored <= ledger.given
    assert stored == sum(stored_in(cluster, group) for group in ("g0", "g1"))


@pytest.mark.parametrize("strategy", ["Strict", "BestTried"])
def test_order_keys_of_a_killed_broker_group_wait_or_go_elsewhere_as_their_subject_says(
    cluster_of, strategy: str
) -> None:
    cluster = cluster_of(g0=1, g1=1)
    spec = {"orderStrategy": strategy, "placement": {"brokerGroups": ["g0", "g1"]}}
    declared = {"apiVersion": "tidemill.dev/v1alpha1", "kind": "Subject", "metadata": {"name": "orders"}}
    cluster.meta.post("/v1/declarations", {**declared, "spec": spec})
    keys = [key for key in (f"k{number}" for number in range(200)) if logical_partition(key) < 512][:20]

    async def case() -> tuple[int, int, list[str]]:
        async with Client(cluster.meta.server, settings=PATIENT) as mq:
            for key in keys:
                await mq.send("orders", f"{key}-0", order_key=key)
            await asyncio.to_thread(cluster.master("g0").kill)
            sends = asyncio.gather(*(mq.send("orders", f"{key}-1", order_key=key) for key in keys))
            done, _ = await asyncio.wait([sends], timeout=5.0)
            await asyncio.to_thread(cluster.queues["g0-0"].start)
            await sends
            given: list[str] = []
            async with asyncio.timeout(PATIENCE_SECONDS), mq.consume("orders", group="all") as messages:
                async for message in messages:
                    given.append(message.body.decode())
                    if len(given) == 2 * len(keys):
                        break
        return len(done), mq.unordered, given

    done, unordered, given = asyncio.run(case())

    assert (done, unordered) == ((1, len(keys)) if strategy == "BestTried" else (0, 0))
    assert sorted(given) == sorted(f"{key}-{at}" for key in keys for at in (0, 1))


def test_meta_killed_stops_nothing_and_a_client_with_cached_routes_begins_without_it(
    cluster_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache is there without anybody having asked for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cluster, ledger = cluster_of(g0=1, g1=1), Ledger()
    settings = ClientSettings(send_timeout_s=PATIENCE_SECONDS, backoff_max_s=0.2)

    async def case() -> None:
        async with Client(cluster.meta.server, settings=settings) as mq, asyncio.TaskGroup() as tasks:
            producer = tasks.create_task(produce(mq, ledger))
            consumer = tasks.create_task(consume(mq, ledger))
            await wait_more(ledger, 10 * MANY)
            await wait_kept(tmp_path / "tidemill", b"orders")
            await asyncio.to_thread(cluster.meta.kill)
            await wait_more(ledger, 50 * MANY)
            said = await asyncio.to_thread(another_process, cluster.meta.server)
            assert said == b"stored received\n"
            ledger.over = True
            await producer
            await wait_given(ledger)
            consumer.cancel()

    asyncio.run(case())

    assert ledger.failures == []
    assert ledger.twice == []


async def wait_kept(folder: Path, subject: bytes) -> None:
    """Until the file of routes names the subject: it is written now and then."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(subject in cache.read_bytes() for cache in folder.glob("routes-*.json")):
        assert time.monotonic() < deadline, f"{subject!r} is not in {folder}"
        await asyncio.sleep(0.05)


OTHER_PROCESS = """
import asyncio, sys
from tidemill import Client

async def main(server):
    async with Client(server) as mq:
        await mq.send("orders", b"from another process")
        print("stored", end=" ")
        async with mq.consume("orders", group="others") as messages:
            async for message in messages:
                if message.body == b"from another process":
                    print("received")
                    return

asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 120))
"""


def another_process(server: str) -> bytes:
    command = [sys.executable, "-c", OTHER_PROCESS, server]
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_stored_messages_are_found_and_groups_are_moved_over_all_broker_groups(cluster_of) -> None:
    cluster = cluster_of(g0=1, g1=1)

    async def case() -> None:
        async with Client(cluster.meta.server, settings=PATIENT) as mq:
            sent = [await mq.send("orders", b"%d" % number, key="k") for number in range(20)]
            assert min(stored_in(cluster, group) for group in ("g0", "g1")) > 0
            found = [await mq.find(receipt.id) for receipt in sent]
            assert [one.body for one in found if one is not None] == [b"%d" % number for number in range(20)]
            assert sorted([one.body async for one in mq.browse("orders")]) == sorted(
                b"%d" % n for n in range(20)
            )
            assert len(await mq.find_by_key("orders", "k", limit=15).all()) == 15
            assert len(await mq.find_by_key(None, "k").all()) == 20
            assert await mq.find(f"{'0' * 32}-0") is None
            async with mq.consume("orders", group="workers", name="ann") as messages:
                first = [(await anext(messages)).body for _ in range(20)]
            moved = await mq.seek("orders", "workers", "earliest")
            assert moved.again == 20
            async with mq.consume("orders", group="workers", name="ann") as messages:
                again = [(await anext(messages)).body for _ in range(20)]
            assert sorted(first) == sorted(again)
            assert {row["name"] for row in await mq.subjects()} == {"orders"}

    asyncio.run(case())
