"""Worker processes killed each second under load: nothing lost, nothing again after its ack, redelivery in time.

One process of the pool is spared: on a busy machine the others may all be starting at once, and then nobody is there
to begin anything again. ``WORKER_SECONDS=60 WORKER_RATE=2000`` is the
whole of it, and part of ``make soak``; without them it is a short one.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.queues import Queue
from e2e.workers import Line, Workers
from tidemill import Client

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SECONDS = float(os.environ.get("WORKER_SECONDS", "5"))
RATE = int(os.environ.get("WORKER_RATE", "2000"))
PROCESSES = 3  # each lives for as many seconds: longer than a busy machine needs to start one
PAUSE_SECONDS = "0.02"  # of a handler: long enough that kills strike handlers at work
BEAT_SECONDS = 0.02
REDELIVERY_SECONDS = 11.0
PATIENCE_SECONDS = 120.0


async def wait_produced(mq: Client, sent: list[str], sending: asyncio.Event) -> None:
    """RATE messages a second for SECONDS; each body exists once."""
    loop = asyncio.get_running_loop()
    await sending.wait()
    began = loop.time()
    while (passed := loop.time() - began) < SECONDS:
        bodies = [f"m{number}" for number in range(len(sent), int(passed * RATE))]
        if bodies:
            await mq.send_many("orders", [body.encode() for body in bodies])
            sent += bodies
        await asyncio.sleep(BEAT_SECONDS)


async def wait_kills(
    workers: Workers, running: list[subprocess.Popen[bytes]], sending: asyncio.Event
) -> list[tuple[float, int]]:
    """Each second one is killed and another takes its place; when, and which. Sending begins when all are at work."""
    kills: list[tuple[float, int]] = []
    loop = asyncio.get_running_loop()
    while any("concurrency" not in workers.errors(process) for process in running):  # noqa: ASYNC110 - of other processes
        await asyncio.sleep(BEAT_SECONDS)
    sending.set()
    began = loop.time()
    while loop.time() - began < SECONDS:
        await asyncio.sleep(1)
        victim = running.pop(0)
        kills.append((time.monotonic(), victim.pid))
        victim.kill()
        victim.wait()
        running.append(workers.start(PAUSE=PAUSE_SECONDS))
    return kills


async def wait_settled(queue: Queue, count: int) -> dict[str, int]:
    """Until the broker says that nothing is left."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        rows = await asyncio.to_thread(queue.get, "/v1/groups")
        for row in rows:
            if row["acked"] >= count and not row["lag"] + row["in_flight"] + row["failed"]:
                return dict(row)
        assert time.monotonic() < deadline, rows
        await asyncio.sleep(0.2)


class Again(NamedTuple):
    """A message that a killed process had begun, begun again."""

    seconds: float
    """Since that kill."""
    deliveries: int
    """Since then. More than one: it was given out in time, to a process that was killed before it began it."""


def redeliveries(diary: list[Line], kills: list[tuple[float, int]]) -> dict[int, list[Again]]:
    """By process that was killed."""
    of_pid = {pid: at for at, pid in kills}
    began: dict[str, Line] = {}
    found: dict[int, list[Again]] = defaultdict(list)
    for line in diary:
        if line.word == "began":
            before = began.get(line.body)
            if before is not None and before.pid in of_pid:
                again = Again(line.at - of_pid[before.pid], line.attempts - before.attempts)
                found[before.pid].append(again)
            began[line.body] = line
    return found


def again_after_ack(diary: list[Line]) -> list[str]:
    """Begun after the broker had answered their ack."""
    acked: set[str] = set()
    again: list[str] = []
    for line in diary:
        if line.word == "acked":
            acked.add(line.body)
        elif line.word == "began" and line.body in acked:
            again.append(line.body)
    return again


async def work(queue: Queue, workers: Workers) -> tuple[list[str], list[tuple[float, int]]]:
    sent: list[str] = []
    sending = asyncio.Event()
    workers.start(PAUSE=PAUSE_SECONDS)  # the one that is spared
    running = [workers.start(PAUSE=PAUSE_SECONDS) for _ in range(PROCESSES)]
    async with Client(queue.server) as mq, asyncio.TaskGroup() as tasks:
        tasks.create_task(wait_produced(mq, sent, sending))
        killing = tasks.create_task(wait_kills(workers, running, sending))
    row = await wait_settled(queue, len(sent))
    assert row["acked"] == len(sent), "each message was acknowledged once"
    return sent, killing.result()


def test_killed_each_second_nothing_is_lost_and_nothing_comes_again_after_its_ack(
    queue: Queue, tmp_path: Path
) -> None:
    workers = Workers(tmp_path, queue)
    try:
        sent, kills = asyncio.run(work(queue, workers))
    finally:
        workers.close()
    diary = workers.diary()
    lost = set(sent) - {line.body for line in diary if line.word == "ended"}
    again = again_after_ack(diary)
    late = redeliveries(diary, kills)
    every = sorted(one for ones in late.values() for one in ones)
    firsts = sorted(min(ones) for ones in late.values())
    assert every, "a kill struck handlers at work"
    direct = [one.seconds for one in firsts if one.deliveries == 1]
    print(
        f"\nsent {len(sent)}, kills {len(kills)}, lost {len(lost)}, acked then again {len(again)}, "
        f"begun again {len(every)}, of which {sum(one.deliveries > 1 for one in every)} were struck by kills twice; "
        f"redelivery began {direct[0]:.2f} to {direct[-1]:.2f} s after the kill in {len(direct)} of {len(firsts)} "
        f"kills; half of the messages within {every[len(every) // 2].seconds:.2f} s, all within {every[-1].seconds:.2f}"
    )
    for one in firsts:
        if one.deliveries > 1:
            print(f"struck again: {one}")
    assert not lost
    assert not again
    # Each kill that strikes a message before its handler begins costs it those seconds once more.
    assert max(one.seconds / one.deliveries for one in firsts) <= REDELIVERY_SECONDS
