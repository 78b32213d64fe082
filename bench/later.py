"""Messages for later: `python -m bench.later [--part taking|lateness|year|hour|kills]`; all of them without a part.

A queue as `tidemill up` runs it: broker and delay service in one process.

taking    how fast they are taken, beside what the broker takes of the same bodies
lateness  how late they come at a steady rate: from the due time to the time at which the broker stored the message
year      ten million over a year: memory, and the next start after a kill
hour      five million within an hour that has begun: memory, and how late the first of them come
kills     a million, and the queue killed twenty times while they come due: what is lost, what comes twice
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from tidemill import Client

sys.path.insert(0, str(Path(__file__).parent))
from processes import cpu_seconds, family, usage
from servers import Running, broker_command

Figures: TypeAlias = dict[str, object]
Starter: TypeAlias = Callable[[], Running]
TOGETHER = 100
"""Messages that are due at one moment."""
SLOT_MS = 10
AHEAD_S = 20.0
MANIFEST = """apiVersion: tidemill.dev/v1alpha1
kind: Subject
metadata: {name: later}
spec: {config: [{name: durability, value: normal}]}
"""


async def lateness(mq: Client, rate: int, seconds: int, size: int) -> dict[str, object]:
    """Schedule all, then look at what the broker stored, and when."""
    begin_ms = round(1000 * (time.time() + AHEAD_S))
    slots = range(begin_ms, begin_ms + 1000 * seconds, SLOT_MS)
    filling = os.urandom(size - 13)
    each = rate * SLOT_MS // 1000
    began = time.perf_counter()
    for due_ms in slots:
        body = b"%d" % due_ms + filling
        await mq.send_many("later", [body] * each, at=datetime.fromtimestamp(due_ms / 1000, UTC))
    taken_s = time.perf_counter() - began
    late: list[int] = []
    total = each * len(slots)
    async with mq.consume("later", group="g") as messages:
        async for batch in messages.batches():
            stored_ms = round(1000 * batch[0].stored_at.timestamp())
            late += [stored_ms - int(body[:13]) for body in batch.bodies]
            await batch.ack()
            if len(late) >= total:
                break
    late.sort()
    return {
        "rate": rate, "seconds": seconds, "size": size, "messages": len(late), "scheduled_in_s": round(taken_s, 1),
        "p50_ms": late[len(late) // 2], "p99_ms": late[len(late) * 99 // 100], "most_ms": late[-1], "least_ms": late[0],
    }  # fmt: skip


async def taking(mq: Client, pid: int, size: int, count: int) -> dict[str, object]:
    """How fast, with a delay and without."""
    bodies = [os.urandom(size)] * count
    figures: dict[str, object] = {"size": size}
    for name, delay in (("now", None), ("later", 7200)):
        began, cpu = time.perf_counter(), cpu_seconds(pid)
        await mq.send_many("taken", bodies, delay=delay)
        spent = time.perf_counter() - began
        figures[f"{name}_rate"] = round(count / spent)
        figures[f"{name}_server_cpu_us"] = round(1e6 * (cpu_seconds(pid) - cpu) / count, 2)
    return figures


async def measure_rates(server: str, pid: int, arguments: argparse.Namespace) -> AsyncIterator[Figures]:
    async with Client(server) as mq:
        await mq.send("taken", b"", delay=7200)  # it is there
        if arguments.part in (None, "taking"):
            for size, count in ((1024, 300_000), (100, 1_000_000)):
                for _ in "12":
                    yield {"part": "taking", **await taking(mq, pid, size, count)}
        if arguments.part in (None, "lateness"):
            yield {
                "part": "lateness",
                **await lateness(mq, arguments.rate, arguments.seconds, arguments.size),
            }


async def schedule(server: str, count: int, moments: Sequence[float], size: int) -> float:
    """Send ahead, in calls of messages that are due together; how many seconds that took."""
    began = time.perf_counter()
    each = count // len(moments)
    bodies = [os.urandom(size)] * each
    async with Client(server) as mq:
        for moment in moments:
            await mq.send_many("later", bodies, at=datetime.fromtimestamp(moment, UTC))
    return time.perf_counter() - began


def a_year(start: Starter, count: int = 10_000_000) -> Figures:
    """Some of every hour of a year; the queue is killed and started again."""
    chance = random.Random(7)
    begin = time.time() + 2 * 3600
    moments = [begin + chance.random() * 365 * 86_400 for _ in range(count // TOGETHER)]
    queue = start()
    try:
        spent = asyncio.run(schedule(queue.server, count, moments, 100))
        full_mb = rss_mb(queue.pid)
    finally:
        queue.end(signal.SIGKILL)
    with start() as again:
        return {
            "part": "year", "messages": count, "scheduled_in_s": round(spent, 1), "rss_mb": full_mb,
            "start_s": round(again.seconds, 2), "rss_after_start_mb": rss_mb(again.pid),
        }  # fmt: skip


async def late_now(server: str, seconds: float) -> list[int]:
    """How late messages come for some time, from the time for which they were sent."""
    late: list[int] = []
    async with Client(server) as mq, mq.consume("later", group="g") as messages:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for batch in messages.batches():
                    stored_ms = round(1000 * batch[0].stored_at.timestamp())
                    late += [stored_ms - int(body[:13]) for body in batch.bodies]
                    await batch.ack()
    return sorted(late)


async def an_hour(server: str, pid: int, count: int = 5_000_000) -> Figures:
    """All in the hour that has begun, or in the next when this one is nearly over."""
    begin, end = time.time() + 90, (time.time() // 3600 + 1) * 3600
    if end - begin < 600:
        begin, end = end, end + 3600
    moments = [begin + (end - begin) * at / (count // TOGETHER) for at in range(count // TOGETHER)]
    filling = os.urandom(87)
    peak_mb, began = 0.0, time.perf_counter()
    async with Client(server) as mq:
        for at, moment in enumerate(moments):
            due_ms = round(1000 * moment)
            at_time = datetime.fromtimestamp(due_ms / 1000, UTC)
            await mq.send_many("later", [b"%d" % due_ms + filling] * TOGETHER, at=at_time)
            if at % 1000 == 0:
                peak_mb = max(peak_mb, rss_mb(pid))
    spent = time.perf_counter() - began
    late = await late_now(server, max(0.0, begin - time.time()) + 60)
    return {
        "part": "hour", "messages": count, "scheduled_in_s": round(spent, 1),
        "due_a_second": round(count / (end - begin)), "peak_rss_mb": max(peak_mb, rss_mb(pid)),
        "came": len(late), "p50_ms": late[len(late) // 2], "p99_ms": late[len(late) * 99 // 100],
        "most_ms": late[-1], "least_ms": late[0],
    }  # fmt: skip


def kills(start: Starter, count: int = 1_000_000, times: int = 20, gap_s: float = 5.0) -> Figures:
    """Numbered messages that come due while the queue is killed again and again; then all are read."""
    queue = start()
    begin = time.time() + 20
    moments = [begin + times * gap_s * at / (count // TOGETHER) for at in range(count // TOGETHER)]

    async def number_all(server: str) -> None:
        async with Client(server) as mq:
            for at, moment in enumerate(moments):
                bodies = [b"%d" % (at * TOGETHER + index) for index in range(TOGETHER)]
                await mq.send_many("later", bodies, at=datetime.fromtimestamp(moment, UTC))

    async def read_all(server: str) -> Counter[bytes]:
        seen: Counter[bytes] = Counter()
        async with Client(server) as mq, mq.consume("later", group="g") as messages:
            with suppress(TimeoutError):
                async with asyncio.timeout(60) as patience:
                    async for batch in messages.batches():
                        seen.update(batch.bodies)
                        await batch.ack()
                        patience.reschedule(
                            asyncio.get_running_loop().time() + (10 if len(seen) < count else 3)
                        )
        return seen

    try:
        asyncio.run(number_all(queue.server))
        time.sleep(max(0.0, begin - time.time()))
        for _ in range(times):
            time.sleep(gap_s)
            queue.end(signal.SIGKILL)
            queue = start()
        seen = asyncio.run(read_all(queue.server))
    finally:
        queue.end(signal.SIGKILL)
    return {
        "part": "kills", "messages": count, "kills": times, "lost": count - len(seen),
        "twice": sum(number - 1 for number in seen.values()),
    }  # fmt: skip


def rss_mb(pid: int) -> float:
    """What it has in memory now."""
    return round(usage(family(pid)).rss_mb, 1)


async def show(figures: AsyncIterator[Figures]) -> None:
    async for row in figures:
        print(json.dumps(row), flush=True)


def main() -> None:
    """Run queues, measure, print an object a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=("taking", "lateness", "year", "hour", "kills"))
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--size", type=int, default=100)
    arguments = parser.parse_args()

    def run(use: Callable[[Starter], None]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            manifest, data = Path(folder, "m.yaml"), Path(folder, "data")
            manifest.write_text(MANIFEST + MANIFEST.replace("later", "taken").join(("---\n", "")))
            command = [
                part.replace("tidemill_broker", "tidemill_standalone")
                for part in broker_command(data, manifest)
            ]
            use(lambda: Running(command, {"TIDEMILL_DELAY_DURABILITY": "normal"}))

    def rates(start: Starter) -> None:
        with start() as queue:
            asyncio.run(show(measure_rates(queue.server, queue.pid, arguments)))

    def hour(start: Starter) -> None:
        with start() as queue:
            print(json.dumps(asyncio.run(an_hour(queue.server, queue.pid))), flush=True)

    if arguments.part in (None, "taking", "lateness"):
        run(rates)
    if arguments.part in (None, "year"):
        run(lambda start: print(json.dumps(a_year(start)), flush=True))
    if arguments.part in (None, "hour"):
        run(hour)
    if arguments.part in (None, "kills"):
        run(lambda start: print(json.dumps(kills(start)), flush=True))


if __name__ == "__main__":
    main()
