"""Consumers come and go in the middle of a backlog: nobody waits for that, and nothing is handled twice."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise

import pytest

from e2e.conftest import MakeQueue
from e2e.queues import Queue
from e2e.services import environment
from tidemill import Client, Consumer

pytestmark = pytest.mark.e2e

MESSAGES, BATCH = 15_000, 100
CROWD = 100
HANDLER_S = 0.005
PAUSE_MAX_S = 3.0
"""The machine's own pauses, a hundred connections at once, and 100 consumers that say goodbye."""


def test_one_consumer_becomes_a_hundred_and_one_again(make_queue: MakeQueue) -> None:
    queue = make_queue(settings={"TIDEMILL_DURABILITY": "low"}).start()
    handled, moments = asyncio.run(grow_and_shrink(queue.server))

    assert sorted(handled) == list(range(MESSAGES))
    assert set(handled.values()) == {1}, "what was acked came again"
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert max(gaps) < PAUSE_MAX_S
    assert queue.group("crowd")["acked"] == MESSAGES
    assert queue.group("crowd")["in_flight"] == queue.group("crowd")["failed"] == 0


async def grow_and_shrink(server: str) -> tuple[Counter[int], list[float]]:
    """One consumer, a hundred more soon after, and one again shortly before the end."""
    handled: Counter[int] = Counter()
    moments: list[float] = []
    crowd: list[Consumer] = []
    few, most = MESSAGES // 50, MESSAGES - MESSAGES // 50
    reached = {count: asyncio.Event() for count in (few, most, MESSAGES)}

    async def consume(mq: Client) -> None:
        async with mq.consume("scaling.crowd", group="crowd") as messages:
            crowd.append(messages)
            async for message in messages:
                await wait_as_for_a_database()
                handled[message.sequence] += 1
                moments.append(time.monotonic())
                if len(handled) in reached:
                    reached[len(handled)].set()

    async with Client(server) as mq:
        for _ in range(MESSAGES // BATCH):
            await mq.send_many("scaling.crowd", [b"work"] * BATCH)
        async with asyncio.timeout(120):
            tasks = [asyncio.create_task(consume(mq))]
            await reached[few].wait()
            tasks += [asyncio.create_task(consume(mq)) for _ in range(CROWD)]
            await reached[most].wait()
            await asyncio.gather(*(consumer.close() for consumer in crowd[1:]))
            await reached[MESSAGES].wait()
            await crowd[0].close()
            await asyncio.gather(*tasks)
    return handled, moments


PAUSED = """
import asyncio, sys
from tidemill import Client

async def main():
    async with Client(sys.argv[1]) as mq:
        async with mq.consume("scaling.order", group="order", exclusive=True) as messages:
            async for message in messages:
                print(message.sequence, flush=True)
                await asyncio.sleep(0.02)

asyncio.run(main())
"""


def test_consumer_that_was_paused_begins_nothing_that_another_one_has(queue: Queue) -> None:
    """SIGSTOP is a consumer that does not answer and is not gone; it still has messages when it is woken."""
    asyncio.run(fill(queue.server))
    command = [sys.executable, "-c", PAUSED, queue.server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            first = [int(process.stdout.readline()) for _ in range(5)]
            process.send_signal(signal.SIGSTOP)
            others = asyncio.run(take_over(queue.server, 199))
            process.send_signal(signal.SIGCONT)
            wait_for_what_comes_late()
        finally:
            process.kill()
        late = [int(line) for line in process.stdout if line.strip()]
    assert first == [0, 1, 2, 3, 4]
    assert others == list(range(others[0], others[0] + len(others)))
    assert others[0] <= 6, "it goes on with what was not acked"
    assert set(late) <= {5, 6}, "what was begun before the pause, and nothing more"


async def wait_as_for_a_database() -> None:
    """The handler's work: it takes time, and no CPU."""
    await asyncio.sleep(HANDLER_S)


def wait_for_what_comes_late() -> None:
    """What the woken process would begin, it would begin at once."""
    time.sleep(1.0)


async def fill(server: str) -> None:
    async with Client(server) as mq:
        await mq.send_many("scaling.order", [b"step"] * 200)


async def take_over(server: str, last: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(60), Client(server) as mq:
        async with mq.consume("scaling.order", group="order", exclusive=True) as messages:
            async for message in messages:
                found.append(message.sequence)
                if message.sequence == last:
                    break
    return found
