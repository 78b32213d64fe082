"""tidemill through its own public client, in plain Python."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable
from contextlib import suppress
from datetime import UTC, datetime

import driving

from tidemill import Client

TOPIC = driving.text("topic")
SERVER = "127.0.0.1:" + driving.text("port")
BATCH = driving.number("batch", 500)
LATER = driving.number("later") or None
"""Seconds until what is sent is due."""
TASKS = driving.number("tasks", 16)
"""Batches under way: with 500 messages each about the window that the peers get."""
DUE = struct.Struct("<q")


async def produce() -> None:
    async with Client(SERVER) as mq:
        if driving.text("how") == "each":

            async def send(body: bytes) -> Awaitable[object]:
                return mq.send(TOPIC, body)

            await driving.window_of(send, driving.number("window", 10_000))
        measurement = driving.Measurement()

        async def run(topic: str, limit: float) -> int:
            end = driving.clock() + limit
            bodies = driving.chunk(BATCH)

            async def worker() -> int:
                sent = 0
                while driving.clock() < end:
                    began = driving.clock()
                    await mq.send_many(topic, bodies, delay=LATER)
                    measurement.note(began, BATCH)
                    sent += BATCH
                return sent

            async with asyncio.TaskGroup() as group:
                workers = [group.create_task(worker()) for _ in range(TASKS)]
            return sum(one.result() for one in workers)

        await run(TOPIC + "-warm", driving.seconds("warm"))
        measurement.begin()
        measurement.finish(await run(TOPIC, driving.seconds("secs")))


async def consume() -> None:
    meter = driving.Meter()
    async with Client(SERVER) as mq, mq.consume(TOPIC, group="bench", start="earliest") as messages:
        async for batch in messages.batches():
            meter.took(len(batch.bodies))


async def sync() -> None:
    async with Client(SERVER) as mq:
        await driving.one_at_a_time(lambda body: mq.send(TOPIC, body))


async def end_to_end() -> None:
    """Open loop: a message is sent when it is due, and its latency counts from then, however late we are."""
    rate = driving.number("rate")
    skip = int(rate * driving.seconds("skip"))
    total = skip + int(rate * driving.seconds("secs"))
    latencies: list[float] = []
    all_here = asyncio.Event()

    async def receive(mq: Client) -> None:
        async with mq.consume(TOPIC, group="e2e", start="earliest") as messages:
            async for batch in messages.batches():
                now_ns = int(driving.clock() * 1e9)
                latencies.extend((now_ns - DUE.unpack_from(body)[0]) / 1e9 for body in batch.bodies)
                if len(latencies) >= total:
                    all_here.set()

    async with Client(SERVER) as mq, asyncio.TaskGroup() as group:
        group.create_task(receive(mq))
        await asyncio.sleep(driving.seconds("join"))
        measurement = driving.Measurement()
        start = driving.clock()
        for count in range(total):
            if count == skip:
                measurement.begin()
            due = start + count / rate
            while (early := due - driving.clock()) > 0:
                # uvloop counts in milliseconds: the last bit is spun, as in the other drivers, or it would be the
                # driver's own lateness that is measured.
                pause = early - 0.002 if early > 0.003 else 0
                await asyncio.sleep(pause)
            body = DUE.pack(int(due * 1e9)) + driving.BODIES[count & 63][DUE.size :]
            group.create_task(mq.send(TOPIC, body))
        elapsed = measurement.since()
        print("end", flush=True)
        try:
            async with asyncio.timeout(20):
                await all_here.wait()
        except TimeoutError:
            pass  # The result says how many are missing.
        measured = sorted(latencies[skip:total])
        driving.report(total - skip, elapsed, measured, received=len(latencies), sent=total)


async def due() -> None:
    """Each message for its own moment, those of 10 ms in one call; lateness counts until the consumer has it."""
    rate = driving.number("rate")
    total = int(rate * driving.seconds("secs"))
    late: list[float] = []
    all_here = asyncio.Event()

    async def receive(mq: Client) -> None:
        async with mq.consume(TOPIC, group="due", start="earliest") as messages:
            async for batch in messages.batches():
                now_ms = time.time_ns() // 1_000_000
                late.extend((now_ms - DUE.unpack_from(body)[0]) / 1e3 for body in batch.bodies)
                if len(late) >= total:
                    all_here.set()

    async with Client(SERVER) as mq, asyncio.TaskGroup() as group:
        group.create_task(receive(mq))
        measurement = driving.Measurement()
        measurement.begin()
        first_s = time.time() + driving.seconds("ahead")
        each = rate // 100
        for count in range(0, total, each):
            at_ms = round(1000 * (first_s + count / rate))
            bodies = [DUE.pack(at_ms) + body[DUE.size :] for body in driving.chunk(min(each, total - count))]
            await mq.send_many(TOPIC, bodies, at=datetime.fromtimestamp(at_ms / 1000, UTC))
        elapsed = measurement.since()
        with suppress(TimeoutError):  # the result says how many are missing
            async with asyncio.timeout(driving.seconds("ahead") + driving.seconds("secs") + 30):
                await all_here.wait()
        print("end", flush=True)
        late.sort()
        edges = {"least_ms": 1e3 * late[0], "most_ms": 1e3 * late[-1]} if late else {}
        driving.report(total, elapsed, late, received=len(late), sent=total, **edges)


async def topics() -> None:
    names = [f"many{number}" for number in range(driving.number("topics"))]

    async with Client(SERVER) as mq:
        began = driving.clock()
        await mq.send_each((name, driving.BODIES[0]) for name in names)
        first_s = driving.clock() - began
        measurement = driving.Measurement()
        measurement.begin()

        async def rounds() -> int:
            sent = 0
            while measurement.since() < driving.seconds("secs"):
                await mq.send_each((name, driving.BODIES[0]) for name in names)
                sent += len(names)
            return sent

        # Two rounds under way are the window of 10,000 that the peers get.
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(rounds()) for _ in range(2)]
        sent = sum(worker.result() for worker in workers)
        measurement.finish(sent, create_s=0.0, first_touch_s=first_s)


driving.main(
    {"produce": produce, "consume": consume, "sync": sync, "e2e": end_to_end, "topics": topics, "due": due}
)
