"""How soon a broker is ready: empty, and on a large log after an orderly stop, a kill at rest and a kill under load.

``python bench/start.py --gib 10`` fills a folder below the current one (or ``--data``) with so much, and removes it at
the end. The time is from starting the process to its line ``ready``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import tempfile
from pathlib import Path

from servers import LOW, Running, broker_command

from tidemill import Client

BODY = os.urandom(1024)
BATCH, UNDER_WAY, SUBJECTS = 500, 8, 20
STORED_BYTES = len(BODY) + 5  # a message and its share of the batch
BEHIND_GIB = 0.45
"""Below what makes a checkpoint by itself (512 MiB): the most that a start has to read again."""


def started(folder: str) -> Running:
    """A broker on the folder; ``seconds`` says how long it took to be ready."""
    return Running(broker_command(folder), LOW)


async def fill(server: str, gib: float) -> None:
    """Batches of many messages, over some subjects."""
    rest = iter(range(int(gib * (1 << 30) / STORED_BYTES / BATCH)))

    async def send() -> None:
        for number in rest:
            await mq.send_many(f"start.{number % SUBJECTS}", [BODY] * BATCH)

    async with Client(server) as mq, asyncio.TaskGroup() as group:
        for _ in range(UNDER_WAY):
            group.create_task(send())


def size_gib(folder: str) -> float:
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / (1 << 30)


def note(what: str, seconds: float, folder: str) -> None:
    print(
        json.dumps({"start": what, "ready_s": round(seconds, 2), "gib": round(size_gib(folder), 2)}),
        flush=True,
    )


def measure(folder: str, gib: float) -> None:
    broker = started(folder)
    note("empty", broker.seconds, folder)
    asyncio.run(fill(broker.server, gib))
    broker.end(signal.SIGTERM)
    broker = started(folder)
    note("after an orderly stop", broker.seconds, folder)
    broker.end(signal.SIGKILL)
    broker = started(folder)
    note("after a kill at rest", broker.seconds, folder)
    asyncio.run(fill(broker.server, BEHIND_GIB))
    broker.end(signal.SIGKILL)
    broker = started(folder)
    note("after a kill under load", broker.seconds, folder)
    broker.end(signal.SIGTERM)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=10.1, help="how large the log becomes")
    parser.add_argument("--data", default=".", help="where the folder is made")
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="start-", dir=arguments.data)
    try:
        measure(folder, arguments.gib)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
