"""How consumption scales: consumers of one group over one subject, and groups over one subject.

``python bench/scaling.py`` starts a broker, fills a subject, and measures:

- *consumers*: 1 to 100 consumers with a handler of 5 ms (it sleeps, so that the handlers cost no CPU), messages
  handled a second, as a share of the rate of one consumer times their number; and the cores that client and broker
  used.
- *groups*: CPU of the broker for a delivered message, with 1 group and with 70, from a backlog by the batch, and live:
  single messages sent at a fixed rate, each delivered to all groups at once.

The consumers live in processes of their own, as many as the machine has cores. Figures are only worth as much as the
machine was quiet.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from processes import identify, usage
from servers import Running, broker_command

from tidemill import Client, ClientSettings

CONSUMERS = (1, 2, 5, 10, 20, 50, 100)
HANDLER_S = 0.005
WARM_UP_S, MEASURED_S = 4.0, 4.0
BODY = b"x" * 100
BACKLOG = 300_000
GROUPS = (1, 70)
DRAINED = 20_000
LIVE_RATE, LIVE_S = 100, 5.0
MANIFEST = """apiVersion: tidemill.dev/v1alpha1
kind: Subject
metadata: {{name: {name}}}
spec: {{config: [{{name: durability, value: low}}]}}
"""
SUBJECTS = ("scaling.work", "scaling.groups", "scaling.live")


async def work(server: str, group: str, consumers: int) -> tuple[int, float]:
    """So many consumers in this process for a while; messages handled within the measured time, and CPU seconds."""
    handled = 0
    counting = False

    async def consume(mq: Client) -> None:
        nonlocal handled
        async with mq.consume(SUBJECTS[0], group=group) as messages:
            async for _ in messages:
                await asyncio.sleep(HANDLER_S)
                handled += counting

    async with Client(server) as mq:
        tasks = [asyncio.create_task(consume(mq)) for _ in range(consumers)]
        await asyncio.sleep(WARM_UP_S)
        counting, before = True, time.process_time()
        await asyncio.sleep(MEASURED_S)
        counting, spent = False, time.process_time() - before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return handled, spent


def work_here(server: str, group: str, consumers: int) -> tuple[int, float]:
    return asyncio.run(work(server, group, consumers))


def measure_consumers(server: str, broker: int, pool: ProcessPoolExecutor) -> list[dict[str, float]]:
    """A row for each number of consumers."""
    rows: list[dict[str, float]] = []
    for count in CONSUMERS:
        shares = [len(range(part, count, PROCESSES)) for part in range(PROCESSES)]
        before, began = cpu_of(broker), time.monotonic()
        jobs = [pool.submit(work_here, server, f"work-{count}", share) for share in shares if share]
        done = [job.result() for job in jobs]
        broker_cores = (cpu_of(broker) - before) / (time.monotonic() - began)
        rate = sum(handled for handled, _ in done) / MEASURED_S
        rows.append(
            {
                "consumers": count,
                "messages_per_second": round(rate),
                "of_linear": round(rate / (rows[0]["messages_per_second"] * count), 3) if rows else 1.0,
                "client_cores": round(sum(spent for _, spent in done) / MEASURED_S, 2),
                "broker_cores": round(broker_cores, 2),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


async def drain(server: str, subject: str, groups: Sequence[str], count: int) -> None:
    """Every group takes so many messages, by the batch."""

    async def one(mq: Client, group: str) -> None:
        got = 0
        async with mq.consume(subject, group=group) as messages:
            async for batch in messages.batches():
                got += len(batch)
                if got >= count:
                    return

    settings = ClientSettings(prefetch_messages=5_000)
    async with Client(server, settings=settings) as mq:
        await asyncio.gather(*(one(mq, group) for group in groups))


async def measure_backlog(server: str, broker: int) -> list[dict[str, float]]:
    """The broker's CPU for a message of a backlog, by the number of groups."""
    async with Client(server) as mq:
        for at in range(0, DRAINED, 100):
            await mq.send_many(SUBJECTS[1], [BODY] * min(100, DRAINED - at))
    rows: list[dict[str, float]] = []
    for count in GROUPS:
        repeats = max(
            1, 70 // count // 7
        )  # one group alone is over before the kernel's clock has ticked twice
        before = cpu_of(broker)
        for number in range(repeats):
            await drain(server, SUBJECTS[1], [f"g{count}-{number}-{one}" for one in range(count)], DRAINED)
        delivered = DRAINED * count * repeats
        rows.append(
            {
                "groups": count,
                "delivered": delivered,
                "broker_us": (cpu_of(broker) - before) * 1e6 / delivered,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


async def measure_live(server: str, broker: int) -> list[dict[str, float]]:
    """The broker's CPU for a delivery when single messages come at a fixed rate, by the number of groups; the cost of
    storing them is measured without any group, and taken off."""
    rows: list[dict[str, float]] = []
    stored_s = await _live(server, broker, 0)
    for count in GROUPS:
        spent_s = await _live(server, broker, count) - stored_s
        delivered = int(LIVE_RATE * LIVE_S) * count
        rows.append({"groups": count, "delivered": delivered, "broker_us": spent_s * 1e6 / delivered})
        print(json.dumps(rows[-1]), flush=True)
    return rows


async def _live(server: str, broker: int, groups: int) -> float:
    async with Client(server) as mq:
        got = 0

        async def one(group: str) -> None:
            nonlocal got
            async with mq.consume(SUBJECTS[2], group=group, start="latest") as messages:
                async for _ in messages:
                    got += 1

        tasks = [asyncio.create_task(one(f"live{groups}-{number}")) for number in range(groups)]
        await asyncio.sleep(WARM_UP_S)
        before, began = cpu_of(broker), time.monotonic()
        for number in range(int(LIVE_RATE * LIVE_S)):
            await mq.send(SUBJECTS[2], BODY)
            await asyncio.sleep(max(0.0, began + (number + 1) / LIVE_RATE - time.monotonic()))
        await asyncio.sleep(0.5)
        spent_s = cpu_of(broker) - before
        assert got == int(LIVE_RATE * LIVE_S) * groups, (got, groups)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return spent_s


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    identity = identify(pid)
    assert identity is not None
    return usage([identity]).cpu_s


PROCESSES = os.cpu_count() or 1


async def fill(server: str, batch: int) -> None:
    async with Client(server) as mq:
        for _ in range(BACKLOG // batch):
            await mq.send_many(SUBJECTS[0], [BODY] * batch)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("consumers", "groups"), help="one of the two")
    parser.add_argument("--batch", type=int, default=100, help="messages in a producer's batch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(PROCESSES) as pool:
        manifest = Path(folder, "low.yaml")
        manifest.write_text("---\n".join(MANIFEST.format(name=name) for name in SUBJECTS))
        with Running(broker_command(f"{folder}/data", manifest)) as broker:
            if options.only != "groups":
                asyncio.run(fill(broker.server, options.batch))
                measure_consumers(broker.server, broker.pid, pool)
            if options.only != "consumers":
                asyncio.run(measure_backlog(broker.server, broker.pid))
                asyncio.run(measure_live(broker.server, broker.pid))


if __name__ == "__main__":
    main()
