"""How soon `tidemill up` is ready: empty, and on a large log after an orderly stop, a kill at rest and one under load.

``python bench/start.py --gib 10`` fills a folder below the current one (or ``--data``) with so much, and removes it at
the end. The time is from starting the process to its line ``ready``. ``bench/run.py`` does the same for its table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from servers import LOW, Running

from tidemill import Client

BODY = os.urandom(1024)
GIB = 10.1
BATCH, UNDER_WAY, SUBJECTS = 500, 8, 20
STORED_BYTES = len(BODY) + 5  # a message and its share of the batch
BEHIND_GIB = 0.45
"""Below what makes a checkpoint by itself (512 MiB): the most that a start has to read again."""


def started(folder: str) -> Running:
    """A queue on the folder; ``seconds`` says how long it took to be ready."""
    program = str(Path(sys.executable).with_name("tidemill"))
    return Running([program, "up", "--port", "0", "--http-port", "0", "--data", folder], LOW)


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


def lives(folder: str, gib: float) -> Iterator[tuple[str, float]]:
    """What kind of start, and the seconds until it was ready."""
    queue = started(folder)
    yield "empty", queue.seconds
    asyncio.run(fill(queue.server, gib))
    queue.end(signal.SIGTERM)
    queue = started(folder)
    yield f"{size_gib(folder):.1f} GiB, after an orderly stop", queue.seconds
    queue.end(signal.SIGKILL)
    queue = started(folder)
    yield f"{size_gib(folder):.1f} GiB, after a kill at rest", queue.seconds
    asyncio.run(fill(queue.server, BEHIND_GIB))
    queue.end(signal.SIGKILL)
    queue = started(folder)
    yield f"{size_gib(folder):.1f} GiB, after a kill under load", queue.seconds
    queue.end(signal.SIGTERM)


def measure(parent: str | Path, gib: float) -> Iterator[tuple[str, float]]:
    """The same on a folder that is made and removed."""
    folder = tempfile.mkdtemp(prefix="start-", dir=parent)
    try:
        yield from lives(folder, gib)
    finally:
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=GIB, help="how large the log becomes")
    parser.add_argument("--data", default=".", help="where the folder is made")
    arguments = parser.parse_args()
    for what, seconds in measure(arguments.data, arguments.gib):
        print(json.dumps({"start": what, "ready_s": round(seconds, 2)}), flush=True)


if __name__ == "__main__":
    main()
