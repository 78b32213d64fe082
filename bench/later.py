"""Messages for later: how late they come at a steady rate, and how fast they are taken. `python -m bench.later`

A queue as `tidemill up` runs it: broker and delay service in one process. Lateness is from the due time to the time at
which the broker stored the message, by one clock; taken is compared with what the broker takes of the same bodies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from tidemill import Client

sys.path.insert(0, str(Path(__file__).parent))
from processes import cpu_seconds
from servers import Running, broker_command

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


async def measure(server: str, pid: int, arguments: argparse.Namespace) -> list[dict[str, object]]:
    async with Client(server) as mq:
        await mq.send("taken", b"", delay=7200)  # it is there
        found = [
            await taking(mq, pid, size, count)
            for size, count in ((1024, 300_000), (100, 1_000_000))
            for _ in "12"
        ]
        return [*found, await lateness(mq, arguments.rate, arguments.seconds, arguments.size)]


def main() -> None:
    """Run a queue, measure, print an object a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--size", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        manifest, data = Path(folder, "m.yaml"), Path(folder, "data")
        manifest.write_text(MANIFEST + MANIFEST.replace("later", "taken").join(("---\n", "")))
        command = [
            part.replace("tidemill_broker", "tidemill_standalone") for part in broker_command(data, manifest)
        ]
        with Running(command, {"TIDEMILL_DELAY_DURABILITY": "normal"}) as queue:
            for figures in asyncio.run(measure(queue.server, queue.pid, arguments)):
                print(json.dumps(figures))


if __name__ == "__main__":
    main()
