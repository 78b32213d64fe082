"""Messages for later: `python -m bench.later [--part PART]`; without a part all of them, a quarter of an hour.

A queue as `tidemill up` runs it: broker and delay service in one process. Each line has the bounds that are set, and
whether they were kept.

taking    how fast they are taken, beside what the broker takes of the same bodies with the same durability, by turns
lateness  how late they come at a steady rate: from the due time to the time at which the broker stored the message
mixed     the same, sent one by one in no order: each batch has messages of the whole minute
beside    the same as lateness, while somebody else sends a thousand a second, each for another hour of a year
year      ten million over a year: memory, and the next start after a kill
hour      five million within an hour that has begun: memory, and how late the first of them come
kills     a million, and the queue killed twenty times while they come due: what is lost, what comes twice
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
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
BOUNDS: dict[str, dict[str, tuple[float, float]]] = {
    "taking": {"ratio": (0.7, 1000)},
    "lateness": {"p50_ms": (0, 300), "p99_ms": (0, 600), "least_ms": (0, 600)},
    "mixed": {"p50_ms": (0, 300), "p99_ms": (0, 600), "least_ms": (0, 600)},
    "beside": {"p50_ms": (0, 300), "p99_ms": (0, 600), "least_ms": (0, 600)},
    "year": {"rss_mb": (0, 300), "rss_after_start_mb": (0, 300), "start_s": (0, 10)},
    "hour": {"peak_rss_mb": (0, 300), "p50_ms": (0, 300), "p99_ms": (0, 600), "least_ms": (0, 600)},
    "kills": {"lost": (0, 0), "twice": (0, 0)},
}
"""Of each part, from where to where its figures may be. What is in flight when it is killed might come twice; it need
not, for the broker knows it.
"""
TOGETHER = 100
"""Messages that are due at one moment."""
SLOT_MS = 10
AHEAD_S = 20.0
WINDOW = 10_000
"""Messages that are sent one by one, and not answered yet."""
TASKS = 8
MANIFEST = """apiVersion: tidemill.dev/v1alpha1
kind: Subject
metadata: {name: later}
spec: {config: [{name: durability, value: normal}]}
"""


async def lateness(mq: Client, pid: int, part: str, arguments: argparse.Namespace) -> Figures:
    """Schedule all, then look at what the broker stored, and when."""
    begin_ms = round(1000 * (time.time() + AHEAD_S))
    slots = range(begin_ms, begin_ms + 1000 * arguments.seconds, SLOT_MS)
    each = arguments.rate * SLOT_MS // 1000
    total = each * len(slots)
    began = time.perf_counter()
    send = send_mixed if part == "mixed" else send_slots
    await send(mq, slots, each, os.urandom(arguments.size - 13))
    taken_s = time.perf_counter() - began
    late_by_s = time.time() - begin_ms / 1000
    if late_by_s > 0:
        raise SystemExit(
            f"to schedule took {late_by_s:.0f} s longer than there was time: give a smaller --rate"
        )
    cpu_s = cpu_seconds(pid)
    beside = asyncio.create_task(send_beside(mq)) if part == "beside" else None
    late = await late_now(mq, AHEAD_S + arguments.seconds + 30, total)
    if beside is not None:
        beside.cancel()
    return {
        "rate": arguments.rate, "seconds": arguments.seconds, "size": arguments.size, "messages": len(late),
        "scheduled_in_s": round(taken_s, 1), "server_cpu_us": round(1e6 * (cpu_seconds(pid) - cpu_s) / total, 1),
        **quantiles(late),
    }  # fmt: skip


async def send_beside(mq: Client, rate: int = 1000) -> None:
    """For any hours of a year, ten times a second, until it is cancelled."""
    chance = random.Random(7)
    while True:
        async with asyncio.TaskGroup() as sending:
            for _ in range(rate // 10):
                after_s = 7200 + chance.random() * 365 * 86_400
                sending.create_task(mq.send("later", b"", delay=after_s))
            sending.create_task(asyncio.sleep(0.1))


async def send_slots(mq: Client, slots: range, each: int, filling: bytes) -> None:
    """What is due together is sent together."""
    for due_ms in slots:
        at = datetime.fromtimestamp(due_ms / 1000, UTC)
        await mq.send_many("later", [b"%d" % due_ms + filling] * each, at=at)


async def send_mixed(mq: Client, slots: range, each: int, filling: bytes) -> None:
    """One by one, in no order; the client makes batches of those that come together."""
    all_ms = list(slots) * each
    random.Random(7).shuffle(all_ms)
    for first in range(0, len(all_ms), WINDOW):
        async with asyncio.TaskGroup() as sending:
            for due_ms in all_ms[first : first + WINDOW]:
                at = datetime.fromtimestamp(due_ms / 1000, UTC)
                sending.create_task(mq.send("later", b"%d" % due_ms + filling, at=at))


async def late_now(mq: Client, seconds: float, most: int) -> list[int]:
    """How late messages come for some time, from the time for which they were sent."""
    late: list[int] = []
    async with mq.consume("later", group="g") as messages:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for batch in messages.batches():
                    stored_ms = round(1000 * batch[0].stored_at.timestamp())
                    late += [stored_ms - int(body[:13]) for body in batch.bodies]
                    await batch.ack()
                    if len(late) >= most:
                        break
    return sorted(late)


def quantiles(late: list[int]) -> Figures:
    """Of lateness, which is sorted."""
    if not late:
        return dict.fromkeys(("p50_ms", "p99_ms", "most_ms", "least_ms"), math.inf)
    return {
        "p50_ms": late[len(late) // 2], "p99_ms": late[len(late) * 99 // 100], "most_ms": late[-1], "least_ms": late[0],
    }  # fmt: skip


async def taking(mq: Client, pid: int, size: int, seconds: float) -> Figures:
    """How fast, with a delay and without: a second of each, by turns, as the machine is not the same for long."""
    bodies = [os.urandom(size)] * 500
    sent, spent, cpu = Counter[str](), defaultdict[str, float](float), defaultdict[str, float](float)
    while sum(spent.values()) < seconds:
        for name, delay in (("now", None), ("later", 7200)):
            began, before_s = time.perf_counter(), cpu_seconds(pid)

            async def worker(began: float, delay: int | None) -> int:
                count = 0
                while time.perf_counter() < began + 1:
                    await mq.send_many("taken", bodies, delay=delay)
                    count += len(bodies)
                return count

            sent[name] += sum(await asyncio.gather(*(worker(began, delay) for _ in range(TASKS))))
            spent[name] += time.perf_counter() - began
            cpu[name] += cpu_seconds(pid) - before_s
    figures: Figures = {"size": size}
    for name in ("now", "later"):
        figures[f"{name}_rate"] = round(sent[name] / spent[name])
        figures[f"{name}_server_cpu_us"] = round(1e6 * cpu[name] / sent[name], 2)
    return figures | {"ratio": round(sent["later"] / spent["later"] * spent["now"] / sent["now"], 2)}


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


async def an_hour(server: str, pid: int, count: int = 5_000_000) -> Figures:
    """All in the hour that has begun; when that is nearly over, in the sixty minutes from now."""
    begin, end = time.time() + 90, (time.time() // 3600 + 1) * 3600
    if end - begin < 900:
        end = begin + 3600
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
        late = await late_now(mq, max(0.0, begin - time.time()) + 60, count)
    return {
        "part": "hour", "messages": count, "scheduled_in_s": round(spent, 1),
        "due_a_second": round(count / (end - begin)), "peak_rss_mb": max(peak_mb, rss_mb(pid)),
        "came": len(late), **quantiles(late),
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
    return float(round(usage(family(pid)).rss_mb, 1))


def judged(row: Figures) -> Figures:
    """With the bounds that are set, and whether they were kept."""
    bounds = BOUNDS[str(row["part"])]
    kept = all(low <= float(str(row[name])) <= high for name, (low, high) in bounds.items())
    return {**row, "bounds": bounds, "met": kept}


def rates(start: Starter, part: str, arguments: argparse.Namespace) -> Iterator[Figures]:
    """What one client sees of a queue."""

    async def measure(server: str, pid: int) -> list[Figures]:
        async with Client(server) as mq:
            if part != "taking":
                return [await lateness(mq, pid, part, arguments)]
            await mq.send("taken", b"", delay=7200)  # it is there
            return [await taking(mq, pid, size, arguments.taking) for size in (1024, 100)]

    with start() as queue:
        for row in asyncio.run(measure(queue.server, queue.pid)):
            yield {"part": part, "durability": arguments.durability, **row}


def figures_of(part: str, start: Starter, arguments: argparse.Namespace) -> Iterator[Figures]:
    """All rows of a part."""
    if part in ("taking", "lateness", "mixed", "beside"):
        yield from rates(start, part, arguments)
    elif part == "year":
        yield a_year(start)
    elif part == "kills":
        yield kills(start)
    else:
        with start() as queue:
            yield asyncio.run(an_hour(queue.server, queue.pid))


def main() -> None:
    """Run queues, measure, print an object a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=BOUNDS, action="append")
    parser.add_argument("--durability", choices=("normal", "high"), default="normal")
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--taking", type=float, default=20, help="seconds of each size")
    arguments = parser.parse_args()
    for part in arguments.part or BOUNDS:
        with tempfile.TemporaryDirectory() as folder:
            manifest, data = Path(folder, "m.yaml"), Path(folder, "data")
            subject = MANIFEST.replace("normal", arguments.durability)
            manifest.write_text(subject + "---\n" + subject.replace("later", "taken"))
            command = [
                piece.replace("tidemill_broker", "tidemill_standalone")
                for piece in broker_command(data, manifest)
            ]
            settings = {"TIDEMILL_DELAY_DURABILITY": arguments.durability}
            for row in figures_of(part, lambda: Running(command, settings), arguments):  # noqa: B023
                print(json.dumps(judged(row)), flush=True)


if __name__ == "__main__":
    main()
