"""How long partitions of a group in order are nobody's, when consumers join, leave and are killed."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.clusters import Cluster
from e2e.queues import wait_until
from e2e.services import environment
from tidemill import Client, Consumer
from tidemill.subscription import Sharing, Subscription

pytestmark = pytest.mark.e2e

SUBJECT, PARTITIONS = "order.changed", 64
GRACEFUL_S = 2.0
AUTHORISATION_S = 10.0
PATIENCE_S = 60.0
LONE_CONSUMER = """
import sys
from tidemill import Worker

worker = Worker(sys.argv[1])

@worker.on(sys.argv[2], group=sys.argv[3], by_key=True)
async def handle(message):
    pass

worker.run()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two broker groups, and a subject with 64 partitions on them."""
    made = Cluster(tmp_path_factory.mktemp("rebalance") / "cluster", 2, 0)
    try:
        made.start()
        strict = {"orderStrategy": "Strict"}
        manifest = {
            "apiVersion": "tidemill.dev/v1alpha1",
            "kind": "Subject",
            "metadata": {"name": SUBJECT},
            "spec": strict,
        }
        made.post("/v1/declarations", manifest)
        made.expand(SUBJECT, partitions=PARTITIONS)
        yield made
    finally:
        made.close()


def consume(mq: Client, group: str) -> Consumer:
    return mq.consumer(Subscription.parse(SUBJECT, group, "earliest", None, Sharing(by_key=True)), 100)


def owned(*consumers: Consumer) -> list[int]:
    """How many partitions each pulls from."""
    return [sum(map(len, one.allotment.ours().values())) for one in consumers]


async def wait_owned(what: Callable[[], bool], seconds: float) -> float:
    """How long it took."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < seconds, "the partitions are not all owned"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


def test_partitions_are_owned_again_within_two_seconds_of_a_join_and_of_a_leave(cluster: Cluster) -> None:
    async def scenario() -> tuple[float, float]:
        async with (
            Client(cluster.server) as first,
            Client(cluster.server) as second,
            consume(first, "join") as one,
        ):
            await wait_owned(lambda: owned(one) == [PARTITIONS], PATIENCE_S)
            async with consume(second, "join") as other:
                joined = await wait_owned(lambda: owned(one, other) == [PARTITIONS // 2] * 2, PATIENCE_S)
            left = await wait_owned(lambda: owned(one) == [PARTITIONS], PATIENCE_S)
        return joined, left

    joined, left = asyncio.run(scenario())

    print(f"owned again {joined:.2f} s after a join, {left:.2f} s after a leave")
    assert joined <= GRACEFUL_S
    assert left <= GRACEFUL_S


def test_partitions_of_a_consumer_that_is_killed_are_owned_again_when_its_authorisation_is_over(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "lone.py"
    script.write_text(LONE_CONSUMER)

    async def scenario() -> float:
        async with Client(cluster.server) as mq, consume(mq, "killed") as one:
            await wait_owned(lambda: owned(one) == [PARTITIONS], PATIENCE_S)
            killed = await asyncio.create_subprocess_exec(
                sys.executable, str(script), cluster.server, SUBJECT, "killed", env=environment()
            )
            try:
                await wait_owned(lambda: owned(one) == [PARTITIONS // 2], PATIENCE_S)
                path = f"/v1/subjects/{SUBJECT}/groups/killed/allocation"
                await asyncio.to_thread(
                    wait_until, "it has the others", lambda: not cluster.get(path)["waiting"], PATIENCE_S
                )
            finally:
                killed.kill()
                await killed.wait()
            return await wait_owned(lambda: owned(one) == [PARTITIONS], PATIENCE_S)

    took = asyncio.run(scenario())

    print(f"owned again {took:.2f} s after a kill")
    assert took <= AUTHORISATION_S + 1.0
