"""An archive beside plain pyarrow that writes the same columns; what it costs by cores and subjects; a lookup in many
rows; a replay.

    python bench/lake.py archive [messages]        a broker of its own, 1 KiB messages with keys
    python bench/lake.py curve [messages]          the same for 1 and 2 workers, and 1 to 1,000 subjects
    python bench/lake.py find [rows] [folder]      rows are generated, a thousand a batch; a folder is gone on with
    python bench/lake.py replay [messages]         100 bytes and a key, into a broker of its own

Prints one line of JSON, or one a row. CPU seconds are of all processes but the broker's, whose own are named.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from e2e.queues import Queue, wait_until
from tidemill import Client
from tidemill_spark import archive, replay
from tidemill_spark.arrow import pa, pc
from tidemill_spark.commits import Commit, File, Partition, Piece
from tidemill_spark.lake import Lake
from tidemill_spark.layout import Hour
from tidemill_spark.queries import Query
from tidemill_spark.ranges import standings
from tidemill_spark.schema import SCHEMA
from tidemill_spark.stores import open_store
from tidemill_spark.tables import pq, write_file
from tidemill_spark.workers import processes

NOON_MS = 1_800_014_400_000
FILE_ROWS = 1_000_000
BATCH_ROWS = 1000
PLACE = Partition("orders", "g0", "orders")
SUBJECTS, WORKERS = (1, 10, 100, 1000), (1, 2)
FIND = (sys.executable, "-m", "tidemill_spark", "find")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def cpu_s() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def broker_cpu_s(queue: Queue) -> float:
    fields = Path(f"/proc/{queue.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fill(queue: Queue, subjects: Sequence[str], count: int, size: int) -> None:
    """So many messages in all, in turns."""
    chance = random.Random(1)

    async def work() -> None:
        async with Client(queue.server) as client:
            for first in range(0, count, 20_000):
                bodies = [chance.randbytes(size // 2).hex() for _ in range(min(20_000, count - first))]
                await asyncio.gather(
                    *(
                        client.send(subjects[at % len(subjects)], body, key=f"o-{at % 5000}")
                        for at, body in enumerate(bodies, first)
                    )
                )

    asyncio.run(work())
    wait_until(
        "they may be read",
        lambda: sum(o.next - o.first for o in standings(queue.server, subjects)) >= count,
        120,
    )


def archived(queue: Queue, uri: Path, subjects: Sequence[str], width: int | None = None) -> dict[str, Any]:
    """One run, and what it cost. Bytes archived are those of the batches in the log."""
    wanted = archive.Wanted(queue.server, str(uri), tuple(subjects), safety_lag_ms=0)
    size = sum(one.bytes for one in standings(queue.server, subjects))
    broker_s, began, cpu = broker_cpu_s(queue), time.monotonic(), cpu_s()
    with processes(width) as workers:
        totals = archive.run(wanted, workers, now_ms, lambda _: None)
    seconds, own_s, broker_s = time.monotonic() - began, cpu_s() - cpu, broker_cpu_s(queue) - broker_s
    return {
        "messages": totals.rows, "read_mb": totals.read_bytes / 1e6, "written_mb": totals.written_bytes / 1e6,
        "read_per_archived": totals.read_bytes / max(1, size), "archive_s": seconds, "archive_cpu_s": own_s,
        "broker_cpu_s_per_100_mb": broker_s / (totals.read_bytes / 1e8),
    }  # fmt: skip


def bench_archive(count: int, folder: Path) -> Iterator[dict[str, Any]]:
    queue = Queue(folder / "data").start()
    try:
        fill(queue, ["orders"], count, 1024)
        ours = archived(queue, folder / "lake", ["orders"])
        lake = Lake.at(str(folder / "lake"))
        plain_s = plain_cpu = 0.0
        for file in lake.files():
            table = pq.ParquetFile(lake.store.open(file.name, file.size)).read()
            began, cpu = time.monotonic(), cpu_s()
            pq.write_table(table, folder / "plain.parquet", compression="zstd", compression_level=1)
            plain_s, plain_cpu = plain_s + time.monotonic() - began, plain_cpu + cpu_s() - cpu
        yield {
            **ours, "plain_s": plain_s, "plain_cpu_s": plain_cpu,
            "time_by_plain": ours["archive_s"] / plain_s, "cpu_by_plain": ours["archive_cpu_s"] / plain_cpu,
        }  # fmt: skip
    finally:
        queue.close()


def bench_curve(count: int, folder: Path) -> Iterator[dict[str, Any]]:
    for number in SUBJECTS:
        queue = Queue(folder / f"data-{number}").start()
        try:
            subjects = [f"orders.{at}" for at in range(number)]
            fill(queue, subjects, count, 1024)
            for width in WORKERS:
                cost = archived(queue, folder / f"lake-{number}-{width}", subjects, width)
                yield {"subjects": number, "workers": width, **cost}
        finally:
            queue.close()


def bench_find(count: int, folder: Path) -> Iterator[dict[str, Any]]:
    """A lookup is a process of its own, and nothing of the lake is in memory."""
    lake = Lake.at(str(folder))
    began, there = time.monotonic(), sum(one.rows for one in lake.files())
    waiting: dict[int, Piece] = {}
    firsts = range(there, count, FILE_ROWS)
    with processes() as workers:
        wanted = [(str(folder), first, min(FILE_ROWS, count - first)) for first in firsts]
        for _, file in workers.each(made_file, wanted):
            first = file.spans[0].first
            piece = Piece(PLACE, first or None, first, file.spans[0].next, (file,))
            waiting[first] = piece
            while there in waiting:
                piece = waiting.pop(there)
                lake.commit(Commit(str(there), "bench", 0, (piece,)))
                there = piece.next
    made_s = time.monotonic() - began
    middle = count // 2
    looked = {
        "by_id": ("--id", f"{prefix_of(middle // BATCH_ROWS)}{middle % BATCH_ROWS}"),
        "by_key": ("--key", "o-77"),
    }
    said: dict[str, Any] = {"rows": count, "files": len(lake.files()), "made_s": made_s}
    for name, asked in looked.items():
        forget(folder)
        began, cpu = time.monotonic(), cpu_s()
        found = subprocess.run(
            [*FIND, str(folder), *asked, "-o", "json", "-n", "1000000"], check=True, capture_output=True
        )
        said |= {f"{name}_cold_s": time.monotonic() - began, f"{name}_cpu_s": cpu_s() - cpu}
        said[f"{name}_rows"] = len(found.stdout.splitlines())
    yield said


def forget(folder: Path) -> None:
    """Nothing of it is in the page cache any more."""
    for path in folder.glob("**/*.*"):
        if path.is_file():
            with path.open("rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def made_file(wanted: tuple[str, int, int]) -> File:
    """Of generated messages, each file an hour."""
    uri, first, rows = wanted
    number = first // FILE_ROWS
    hour = Hour("orders", f"2027-01-{1 + number // 24:02d}", number % 24)
    return write_file(open_store(uri), generated(first, rows), hour, str(first), "Zstd")


def prefix_of(batch: int) -> str:
    """Of the ids of its messages."""
    return f"{((NOON_MS + batch) << 16):016x}{7:016x}-"


def generated(first: int, count: int) -> Any:
    """Messages of an hour, a thousand a batch."""
    at = np.arange(first, first + count)
    begin, end = first // BATCH_ROWS, (first + count) // BATCH_ROWS + 1
    prefixes = pa.array(map(prefix_of, range(begin, end)))
    numbers = pa.array(at % BATCH_ROWS).cast(pa.string())
    ids = pc.binary_join_element_wise(prefixes.take(pa.array(at // BATCH_ROWS - begin)), numbers, "")
    keys = pc.binary_join_element_wise("o-", pa.array(at % 100_000).cast(pa.string()), "")
    times = pa.array((NOON_MS + at // BATCH_ROWS) * 1000).cast(SCHEMA.field("stored_at").type)
    known = {
        "id": ids, "key": keys, "created_at": times, "stored_at": times, "sequence": pa.array(at),
        "body": ids.cast(pa.binary()),
        "subject": pa.repeat("orders", count), "broker_group": pa.repeat("g0", count),
        "partition": pa.repeat("orders", count), "producer": pa.repeat("7", count),
    }  # fmt: skip
    made = []
    for one in SCHEMA:
        if one.name in known:
            made.append(known[one.name])
        elif one.nullable:
            made.append(pa.nulls(count, one.type))
        else:
            nothing: Any = (
                date(2027, 1, 1)
                if pa.types.is_date(one.type)
                else False
                if pa.types.is_boolean(one.type)
                else 0
            )
            made.append(pa.repeat(pa.scalar(nothing, one.type), count))
    return pa.Table.from_arrays(made, schema=SCHEMA)


def bench_replay(count: int, folder: Path) -> Iterator[dict[str, Any]]:
    queue = Queue(folder / "data").start()
    try:
        fill(queue, ["orders"], count, 100)
        wanted = archive.Wanted(queue.server, str(folder / "lake"), ("orders",), safety_lag_ms=0)
        with processes() as workers:
            archive.run(wanted, workers, now_ms, lambda _: None)
            again = replay.Wanted(queue.server, wanted.uri, Query(), "again", run="bench")
            began, broker_s = time.monotonic(), broker_cpu_s(queue)
            counts = replay.run(again, workers, lambda _: None)
            seconds, broker_s = time.monotonic() - began, broker_cpu_s(queue) - broker_s
            cpu = cpu_s()
        yield {
            "messages": counts.rows, "seconds": seconds, "a_second": counts.rows / seconds,
            "broker_cpu_s": broker_s, "workers_cpu_s": cpu_s() - cpu,
        }  # fmt: skip
    finally:
        queue.close()


BENCHES = {
    "archive": (bench_archive, 1_000_000),
    "curve": (bench_curve, 100_000),
    "find": (bench_find, 10_000_000),
    "replay": (bench_replay, 1_000_000),
}

if __name__ == "__main__":
    bench, default = BENCHES[sys.argv[1]]
    size = int(sys.argv[2]) if len(sys.argv) > 2 else default
    with tempfile.TemporaryDirectory() as made:
        for figures in bench(size, Path(sys.argv[3] if len(sys.argv) > 3 else made)):
            rounded = {
                key: round(value, 3) if isinstance(value, float) else value for key, value in figures.items()
            }
            print(json.dumps(rounded), flush=True)
