"""A strict subject is expanded, and a broker group drained, while order keys are sent and handled: real processes."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.clusters import Cluster
from e2e.queues import run_command
from tidemill import Client, Message, Worker
from tidemill_wire.ordering import Chart
from tidemill_wire.routes import PartitionSet

pytestmark = pytest.mark.e2e

SUBJECT, KEYS = "order.changed", [f"o-{number}" for number in range(40)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three broker groups; a subject lies on two of them at first."""
    made = Cluster(tmp_path_factory.mktemp("expand") / "cluster", 3, 0)
    try:
        yield made.start()
    finally:
        made.close()


class Diary:
    """What was sent and handled of each key."""

    def __init__(self) -> None:
        self.sent = dict.fromkeys(KEYS, 0)
        self.begun: dict[str, list[int]] = defaultdict(list)
        self.working: set[str] = set()
        self.faults: list[str] = []

    async def handle(self, message: Message) -> None:
        key, number = message.order_key or "", int(message.body)
        done = self.begun[key]
        if key in self.working:
            self.faults.append(f"{key}:{number} is begun beside another one")
        if number > (max(done) + 1 if done else 0):
            self.faults.append(f"{key}:{number} is begun after {done[-3:]}")
        done.append(number)
        self.working.add(key)
        await asyncio.to_thread(sum, range(1000))  # its work, beside that of other keys
        self.working.discard(key)

    @property
    def finished(self) -> bool:
        return all(self.begun[key] and max(self.begun[key]) == self.sent[key] - 1 for key in KEYS)


async def produce(mq: Client, diary: Diary, over: asyncio.Event) -> None:
    while not over.is_set():
        await asyncio.gather(*(send_next(mq, diary, key) for key in KEYS))
        await wait_so(
            lambda: sum(diary.sent.values()) - sum(map(len, diary.begun.values())) < 400 or over.is_set()
        )


async def send_next(mq: Client, diary: Diary, key: str) -> None:
    number = diary.sent[key]
    diary.sent[key] += 1
    await mq.send(SUBJECT, str(number), order_key=key)


async def change(cluster: Cluster, *words: str) -> str:
    done = await asyncio.to_thread(run_command, *words, server=cluster.server)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_keys_are_in_order_through_expansions_and_a_drain(cluster: Cluster) -> None:
    diary, over = Diary(), asyncio.Event()

    async def run() -> list[Any]:
        workers = [Worker(cluster.server) for _ in range(2)]
        for worker in workers:
            worker.on(SUBJECT, group="warehouse", by_key=True, concurrency=20)(diary.handle)
        async with Client(cluster.server) as mq, asyncio.TaskGroup() as tasks:
            producing = tasks.create_task(produce(mq, diary, over))
            serving = [tasks.create_task(worker.serve()) for worker in workers]
            await wait_handled(diary, 5)
            said = await change(cluster, "expand", SUBJECT, "--partitions", "5", "-o", "json")
            await wait_handled(diary, 15)
            await change(cluster, "broker", "drain", "g0", "--no-wait")
            await asyncio.to_thread(cluster.wait_moved, SUBJECT)
            await wait_handled(diary, 15)
            over.set()
            await producing
            await wait_so(lambda: diary.finished)
            for worker in workers:
                worker.stop()
            await asyncio.gather(*serving)
        return [json.loads(line) for line in said.splitlines()]

    rows = asyncio.run(run())

    assert diary.faults == []
    assert {key: sorted(set(done)) for key, done in diary.begun.items()} == {
        key: list(range(diary.sent[key])) for key in KEYS
    }
    assert sum(row["order_keys"] for row in rows) == 1024
    assert len(rows) == 5
    route = cluster.get(f"/v1/subjects/{SUBJECT}/route")
    chart = Chart(PartitionSet.from_map(route))
    assert "g0" not in {chart.of(key).group for key in KEYS}
    assert cluster.get(f"/v1/subjects/{SUBJECT}/groups/warehouse/allocation")["closed"] == []


async def wait_handled(diary: Diary, more: int) -> None:
    """Until so many more of each key were begun."""
    goal = {key: len(diary.begun[key]) + more for key in KEYS}
    await wait_so(lambda: all(len(diary.begun[key]) >= goal[key] for key in KEYS))


async def wait_so(what: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < 60, "messages are not handled"
        await asyncio.sleep(0.02)


def test_an_expansion_that_waits_for_a_broker_is_given_up(cluster: Cluster) -> None:
    """Keys that were refused meanwhile are taken where they were."""

    async def run() -> None:
        async with Client(cluster.server) as mq:
            await mq.send("bills", "0", order_key="b-1")
            await change(cluster, "expand", "bills", "--partitions", "4", "--no-wait")
            said = await asyncio.to_thread(run_command, "expand", "bills", "--give-up", server=cluster.server)
            assert said.returncode == 0 or "no order keys of bills are moving" in said.stderr, said
            await mq.send("bills", "1", order_key="b-1")

    asyncio.run(run())

    wrong = run_command("expand", "bills", server=cluster.server)
    assert wrong.returncode == 2
    assert "--partitions N" in wrong.stderr
