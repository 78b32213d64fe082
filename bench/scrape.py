"""What a look at the metrics page costs with many subjects and groups, and what a sender notices of it.

    python -m bench.scrape [--subjects 10000] [--scrapes 6]

A standalone queue, so many subjects with a message and a consumer group each; then one message after the other is sent,
for as long without scrapes as with them. Prints one JSON object: seconds and bytes of scrapes, milliseconds of sends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tidemill import Client

READY = re.compile(rb"ready tidemill://\S+ http://(\S+)\n")
SUBJECTS_A_PULL = 500
PAUSE_SECONDS = 0.6


def scrape(server: str) -> tuple[float, int]:
    """Seconds, and bytes."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://{server}/metrics", timeout=60) as answer:
        size = len(answer.read())
    return round(time.perf_counter() - began, 3), size


async def make(mq: Client, subjects: int) -> None:
    """Subjects, and a group in each that was given its message."""
    await mq.send_each((f"s{number // SUBJECTS_A_PULL}.{number}", b"x" * 100) for number in range(subjects))
    for part in range(-(-subjects // SUBJECTS_A_PULL)):
        left = min(SUBJECTS_A_PULL, subjects - part * SUBJECTS_A_PULL)
        async with mq.consume(f"s{part}.*", group="g") as messages:
            async for batch in messages.batches():
                left -= len(batch)
                if left <= 0:
                    break


@asynccontextmanager
async def sending(mq: Client) -> AsyncIterator[list[float]]:
    """One message after the other; the seconds of each."""
    took: list[float] = []

    async def send() -> None:
        while True:
            began = time.perf_counter()
            await mq.send("ping", b"x")
            took.append(time.perf_counter() - began)

    task = asyncio.create_task(send())
    yield took
    task.cancel()
    await asyncio.wait([task])


def summary(took: list[float]) -> dict[str, float]:
    took.sort()
    places = {"p50": len(took) // 2, "p99": len(took) * 99 // 100, "max": -1}
    return {name: round(1000 * took[place], 2) for name, place in places.items()}


async def measure(server: str, subjects: int, scrapes: int) -> dict[str, Any]:
    async with Client(server) as mq:
        await make(mq, subjects)
        async with sending(mq) as quiet:
            await asyncio.sleep(scrapes * PAUSE_SECONDS)
        found: list[tuple[float, int]] = []
        async with sending(mq) as scraped:
            for _ in range(scrapes):
                found.append(await asyncio.to_thread(scrape, server))
                await asyncio.sleep(PAUSE_SECONDS)
    return {
        "subjects": subjects,
        "scrape_s": [seconds for seconds, _ in found],
        "bytes": max(size for _, size in found),
        "send_ms": summary(quiet),
        "send_ms_scraped": summary(scraped),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.scrape")
    arguments.add_argument("--subjects", type=int, default=10_000)
    arguments.add_argument("--scrapes", type=int, default=6)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ports = ("--port", "0", "--http-port", "0")
        command = [sys.executable, "-m", "tidemill_standalone", "up", "--data", folder, *ports]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                found = READY.fullmatch(process.stdout.readline())
                assert found is not None, "the queue does not start"
                server = found[1].decode()
                print(json.dumps(asyncio.run(measure(server, given.subjects, given.scrapes))))
            finally:
                process.terminate()


if __name__ == "__main__":
    main()
