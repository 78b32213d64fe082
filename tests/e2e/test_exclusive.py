"""Two exclusive consumers of a subject on two broker groups: one is at work, and when it is killed the other."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.clusters import Cluster
from e2e.services import environment
from tidemill import Client

pytestmark = pytest.mark.e2e

SUBJECT, GROUP = "turns.taken", "one"
AUTHORISATION_S = 10.0
MESSAGES = 400
AGAIN_MAX = 20
"""Acks that gather for a moment, of one consumer; two would have begun the messages of each other."""
CONSUMER = """
import asyncio, sys
from tidemill import Client

async def main():
    async with Client(sys.argv[1]) as mq, mq.consume(sys.argv[2], group=sys.argv[3], exclusive=True) as messages:
        print("ready", flush=True)
        async for message in messages:
            print("begun", message.body.decode(), flush=True)
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


class Running:
    """A consumer in a process of its own, and when it began its messages."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.begun: dict[str, float] = {}
        self.reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            said, _, body = line.decode().strip().partition(" ")
            if said == "begun":
                self.begun[body] = time.monotonic()

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self.reading


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", 2, 0)
    try:
        made.start()
        made.post(
            "/v1/declarations",
            {
                "apiVersion": "tidemill.dev/v1alpha1",
                "kind": "Subject",
                "metadata": {"name": SUBJECT},
                "spec": {},
            },
        )
        yield made
    finally:
        made.close()


def groups_of(cluster: Cluster) -> set[str]:
    return {one["group"] for one in cluster.get(f"/v1/subjects/{SUBJECT}/route")["partitions"]}


async def start(cluster: Cluster, script: Path) -> Running:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), cluster.server, SUBJECT, GROUP,
        env=environment(), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return Running(process)


async def wait_until(what: Callable[[], bool], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends, "it does not come about"
        await asyncio.sleep(0.01)


def test_one_of_two_is_at_work_over_all_broker_groups_and_when_it_is_killed_the_other_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "consumer.py"
    script.write_text(CONSUMER)
    assert len(groups_of(cluster)) == 2

    async def scenario() -> float:
        async with Client(cluster.server) as mq:
            sends = (
                mq.send(SUBJECT, str(number), order_key=f"k{number % 50}") for number in range(10 * MESSAGES)
            )
            await asyncio.gather(*sends)
        running = [await start(cluster, script), await start(cluster, script)]
        try:
            await wait_until(lambda: any(len(one.begun) >= MESSAGES for one in running), 60)
            [one] = [one for one in running if one.begun]
            [other] = [each for each in running if each is not one]
            killed = time.monotonic()
            await one.kill()
            await wait_until(lambda: len(other.begun) >= MESSAGES, 60)
            again = one.begun.keys() & other.begun.keys()
            assert len(again) <= AGAIN_MAX, "what was not acked comes again, and nothing else"
            return min(other.begun.values()) - killed
        finally:
            for each in running:
                await each.kill()

    took = asyncio.run(scenario())

    print(f"the other one went on {took:.2f} s after the kill")
    assert took <= AUTHORISATION_S + 1.0
