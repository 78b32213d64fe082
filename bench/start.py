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
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tidemill import Client

BODY = os.urandom(1024)
BATCH, UNDER_WAY, SUBJECTS = 500, 8, 20
STORED_BYTES = len(BODY) + 5  # a message and its share of the batch
BEHIND_GIB = 0.45
"""Below what makes a checkpoint by itself (512 MiB): the most that a start has to read again."""


class Started:
    """A broker, and how long it took to be ready."""

    def __init__(self, folder: str) -> None:
        began = time.perf_counter()
        arguments = [
            sys.executable,
            "-m",
            "tidemill_broker",
            "up",
            "--data",
            folder,
            "--port",
            "0",
            "--http-port",
            "0",
        ]
        self.process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, text=True, env={**os.environ, "TIDEMILL_DURABILITY": "low"}
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        self.seconds = time.perf_counter() - began
        self.server = ready.rpartition("http://")[2].strip()
        assert self.server, "the broker did not start; its complaint is above"

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.communicate()


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
    broker = Started(folder)
    note("empty", broker.seconds, folder)
    asyncio.run(fill(broker.server, gib))
    broker.end(signal.SIGTERM)
    broker = Started(folder)
    note("after an orderly stop", broker.seconds, folder)
    broker.end(signal.SIGKILL)
    broker = Started(folder)
    note("after a kill at rest", broker.seconds, folder)
    asyncio.run(fill(broker.server, BEHIND_GIB))
    broker.end(signal.SIGKILL)
    broker = Started(folder)
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
