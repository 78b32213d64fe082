"""The cost curve: CPU of the broker a message and a megabyte, as size, subjects and connections grow.

``python bench/curve.py`` prints the tables of ``docs/performance.md``. One broker a table, page cache durability, one
client process. Each figure is the lowest of ``--rounds``, since other work on a machine only ever adds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

from processes import cpu_seconds
from servers import LOW, Running, broker_command

from tidemill import Client

SIZES = (64, 256, 1024, 4096, 16_384, 65_536, 262_144)
SUBJECTS = (1, 10, 100, 1_000, 10_000)
CONNECTIONS = (1, 4, 16, 64)
BYTES_A_SIZE = 200_000_000
MESSAGES_MOST = 1_000_000

Row = tuple[str, float, float, float]
Table = Callable[[str, int], Awaitable[list[Row]]]


async def sizes(server: str, pid: int) -> list[Row]:
    """In and out of one subject each, by size."""
    rows: list[Row] = []
    async with Client(server) as mq:
        for size in SIZES:
            count = min(MESSAGES_MOST, BYTES_A_SIZE // size)
            bodies = [os.urandom(size) for _ in range(min(64, count))] * (count // min(64, count))
            subject = f"size.{size}.{time.monotonic_ns()}"
            began, before = time.perf_counter(), cpu_seconds(pid)
            await mq.send_many(subject, bodies)
            came_in, rate = cpu_seconds(pid) - before, len(bodies) / (time.perf_counter() - began)
            before, got = cpu_seconds(pid), 0
            async with mq.consume(subject, group="curve") as messages:
                async for batch in messages.batches():
                    got += len(batch)
                    if got == len(bodies):
                        break
            went_out = cpu_seconds(pid) - before
            rows.append(
                (f"in, {size:,} B", rate, came_in * 1e6 / len(bodies), came_in * 1e9 / (len(bodies) * size))
            )
            rows.append((f"out, {size:,} B", 0, went_out * 1e6 / got, went_out * 1e9 / (got * size)))
    return rows


async def subjects(server: str, pid: int) -> list[Row]:
    """100 B, round-robin over so many subjects, one message each in turn; the subjects exist already."""
    rows: list[Row] = []
    body, count = b"x" * 100, 200_000
    async with Client(server) as mq:
        for number in SUBJECTS:
            names = [f"subject.{index}" for index in range(number)]
            await mq.send_each([(name, body) for name in names])
            pairs = [(names[index % number], body) for index in range(count)]
            began, before = time.perf_counter(), cpu_seconds(pid)
            await mq.send_each(pairs)
            used, rate = cpu_seconds(pid) - before, count / (time.perf_counter() - began)
            rows.append((f"{number:,} subjects", rate, used * 1e6 / count, used * 1e9 / (count * len(body))))
    return rows


async def connections(server: str, pid: int) -> list[Row]:
    """1 KiB, the same messages over so many connections, each with a subject of its own."""
    rows: list[Row] = []
    total, size = 256_000, 1024
    bodies = [os.urandom(size) for _ in range(64)]
    for number in CONNECTIONS:
        clients = [Client(server) for _ in range(number)]
        for index, client in enumerate(clients):
            await client.send(f"connection.{index}", b"first")
        share = bodies * (total // number // 64)
        began, before = time.perf_counter(), cpu_seconds(pid)
        await asyncio.gather(*(c.send_many(f"connection.{index}", share) for index, c in enumerate(clients)))
        count = len(share) * number
        used, rate = cpu_seconds(pid) - before, count / (time.perf_counter() - began)
        rows.append((f"{number} connections", rate, used * 1e6 / count, used * 1e9 / (count * size)))
        for client in clients:
            await client.close()
    return rows


def measure(table: Table) -> list[Row]:
    """Start a broker on an empty folder, fill one table, stop it."""
    with tempfile.TemporaryDirectory() as folder, Running(broker_command(folder), LOW) as broker:
        return asyncio.run(table(broker.server, broker.pid))  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for title, table in (("size", sizes), ("subjects", subjects), ("connections", connections)):
        best: dict[str, Row] = {}
        for _ in range(arguments.rounds):
            for name, rate, message, megabyte in measure(table):
                known = best.get(name, (name, 0.0, message, megabyte))
                best[name] = (name, max(rate, known[1]), min(message, known[2]), min(megabyte, known[3]))
        sys.stdout.write(
            f"\n| {title} | msg/s | broker CPU s/M messages | broker CPU s/GB |\n|---|---:|---:|---:|\n"
        )
        for name, rate, message, megabyte in best.values():
            shown = f"{rate:,.0f}" if rate else ""
            sys.stdout.write(f"| {name} | {shown} | {message:.2f} | {megabyte:.2f} |\n")


if __name__ == "__main__":
    main()
