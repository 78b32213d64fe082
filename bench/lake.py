"""An archive beside plain pyarrow that writes the same columns; a lookup in many rows; a replay.

    python bench/lake.py archive [messages]    a broker of its own, 1 KiB messages with keys
    python bench/lake.py find [rows]           rows are generated, a thousand a batch
    python bench/lake.py replay [messages]     100 bytes and a key, into a broker of its own

Prints one line of JSON. CPU seconds are of all processes but the broker's, whose own are named.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from e2e.queues import Queue, wait_until
from tidemill import Client
from tidemill_spark import archive, finding, replay
from tidemill_spark.arrow import pa, pc
from tidemill_spark.commits import Commit, Partition, Piece
from tidemill_spark.lake import Lake
from tidemill_spark.layout import Hour, ids_name
from tidemill_spark.queries import Query
from tidemill_spark.ranges import standings
from tidemill_spark.tables import pq, write_file
from tidemill_spark.workers import processes

NOON_MS = 1_800_014_400_000
FILE_ROWS = 1_000_000


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


def fill(queue: Queue, subject: str, count: int, size: int) -> None:
    chance = random.Random(1)

    async def work() -> None:
        async with Client(queue.server) as client:
            for first in range(0, count, 20_000):
                bodies = [chance.randbytes(size // 2).hex() for _ in range(min(20_000, count - first))]
                await asyncio.gather(
                    *(client.send(subject, body, key=f"o-{at % 5000}") for at, body in enumerate(bodies))
                )

    asyncio.run(work())
    wait_until(
        "they may be read",
        lambda: sum(o.next - o.first for o in standings(queue.server, [subject])) >= count,
        120,
    )


def bench_archive(count: int, folder: Path) -> dict[str, Any]:
    queue = Queue(folder / "data").start()
    try:
        fill(queue, "orders", count, 1024)
        wanted = archive.Wanted(queue.server, str(folder / "lake"), ("orders",), safety_lag_ms=0)
        broker_s, began, cpu = broker_cpu_s(queue), time.monotonic(), cpu_s()
        with processes() as workers:
            totals = archive.run(wanted, workers, now_ms, lambda _: None)
        ours_s, ours_cpu, broker_s = time.monotonic() - began, cpu_s() - cpu, broker_cpu_s(queue) - broker_s
        lake = Lake.at(wanted.uri)
        plain_s = plain_cpu = 0.0
        for file in lake.files():
            table = pq.ParquetFile(lake.store.open(file.name, file.size)).read()
            began, cpu = time.monotonic(), cpu_s()
            pq.write_table(table, folder / "plain.parquet", compression="zstd", compression_level=1)
            plain_s, plain_cpu = plain_s + time.monotonic() - began, plain_cpu + cpu_s() - cpu
        return {
            "messages": totals.rows, "read_mb": totals.read_bytes / 1e6, "written_mb": totals.written_bytes / 1e6,
            "read_per_planned": totals.read_bytes / max(1, totals.planned_bytes),
            "archive_s": ours_s, "archive_cpu_s": ours_cpu, "plain_s": plain_s, "plain_cpu_s": plain_cpu,
            "broker_cpu_s_per_100_mb": broker_s / (totals.read_bytes / 1e8),
        }  # fmt: skip
    finally:
        queue.close()


def bench_find(count: int, folder: Path) -> dict[str, Any]:
    lake = Lake.at(str(folder))
    place = Partition("orders", "g0", "orders")
    wanted = ""
    began = time.monotonic()
    for number, first in enumerate(range(0, count, FILE_ROWS)):
        rows = min(FILE_ROWS, count - first)
        table, hour = generated(first, rows), Hour("orders", f"2027-01-{1 + number // 24:02d}", number % 24)
        file = write_file(lake.store, table, hour, str(first), "Zstd")
        lake.commit(
            Commit(str(number), "bench", 0, (Piece(place, first or None, first, first + rows, (file,)),))
        )
        if first <= count // 2 < first + rows:
            wanted = table["id"][rows // 2].as_py()
    made_s = time.monotonic() - began
    for file in lake.files():
        for name in (file.name, ids_name(file.name)):
            with open(folder / name, "rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    began, cpu = time.monotonic(), cpu_s()
    found = list(finding.find(Lake.at(str(folder)), Query(ids=(wanted,))))
    assert [table["id"].to_pylist() for table in found] == [[wanted]]
    by_id_s, by_id_cpu = time.monotonic() - began, cpu_s() - cpu
    began = time.monotonic()
    keyed = sum(table.num_rows for table in finding.find(lake, Query(keys=("o-77",))))
    return {
        "rows": count, "files": len(lake.files()), "made_s": made_s, "by_id_cold_s": by_id_s,
        "by_id_cpu_s": by_id_cpu, "by_key_s": time.monotonic() - began, "by_key_rows": keyed,
    }  # fmt: skip


def generated(first: int, count: int) -> Any:
    """Messages of an hour, a thousand a batch."""
    at = np.arange(first, first + count)
    prefixes = pa.array(
        f"{((NOON_MS + batch) << 16):016x}{7:016x}-"
        for batch in range(first // 1000, (first + count) // 1000 + 1)
    )
    numbers = pa.array(at % 1000).cast(pa.string())
    ids = pc.binary_join_element_wise(prefixes.take(pa.array(at // 1000 - first // 1000)), numbers, "")
    keys = pc.binary_join_element_wise("o-", pa.array(at % 100_000).cast(pa.string()), "")
    times = pa.array((NOON_MS + at // 1000) * 1000).cast(finding.SCHEMA.field("stored_at").type)
    known = {
        "id": ids, "key": keys, "created_at": times, "stored_at": times, "sequence": pa.array(at),
        "body": ids.cast(pa.binary()),
        "subject": pa.repeat("orders", count), "broker_group": pa.repeat("g0", count),
        "partition": pa.repeat("orders", count), "producer": pa.repeat("7", count),
    }  # fmt: skip
    made = []
    for one in finding.SCHEMA:
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
    return pa.Table.from_arrays(made, schema=finding.SCHEMA)


def bench_replay(count: int, folder: Path) -> dict[str, Any]:
    queue = Queue(folder / "data").start()
    try:
        fill(queue, "orders", count, 100)
        wanted = archive.Wanted(queue.server, str(folder / "lake"), ("orders",), safety_lag_ms=0)
        with processes() as workers:
            archive.run(wanted, workers, now_ms, lambda _: None)
            again = replay.Wanted(queue.server, wanted.uri, Query(), "again", run="bench")
            began, broker_s = time.monotonic(), broker_cpu_s(queue)
            counts = replay.run(again, workers, lambda _: None)
            seconds, broker_s = time.monotonic() - began, broker_cpu_s(queue) - broker_s
            cpu = cpu_s()
        return {
            "messages": counts.rows, "seconds": seconds, "a_second": counts.rows / seconds,
            "broker_cpu_s": broker_s, "workers_cpu_s": cpu_s() - cpu,
        }  # fmt: skip
    finally:
        queue.close()


BENCHES = {
    "archive": (bench_archive, 1_000_000),
    "find": (bench_find, 10_000_000),
    "replay": (bench_replay, 1_000_000),
}

if __name__ == "__main__":
    bench, default = BENCHES[sys.argv[1]]
    with tempfile.TemporaryDirectory() as where:
        figures = bench(int(sys.argv[2]) if len(sys.argv) > 2 else default, Path(where))
    print(
        json.dumps(
            {name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}
        )
    )
