"""A stream of Spark beside live traffic, while masters are killed and the query is stopped and begun again.

``STREAM_SECONDS`` says how long, ``STREAM_RATE`` how many messages a second are sent, ``STREAM_PAUSE`` how many seconds
lie between one kill and the next. In the end the sink has what the logs have, each message once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from pyspark.errors import StreamingQueryException

from e2e.clusters import Cluster
from e2e.queues import wait_until
from tidemill import Client
from tidemill.errors import TidemillError
from tidemill_spark.ranges import standings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600), pytest.mark.filterwarnings("default")]

SECONDS = float(os.environ.get("STREAM_SECONDS", "20"))
RATE = int(os.environ.get("STREAM_RATE", "300"))
PAUSE_S = float(os.environ.get("STREAM_PAUSE", "5"))
SUBJECTS = ("live.a", "live.b")
TICK_S = 0.1
DONE_SECONDS = 180.0
PYTHON_IS_SLOW = "failed to connect back"
"""Spark waits ten seconds for Python to begin, on whatever machine."""


class Traffic:
    """A program that sends: which messages were answered, and how many were not."""

    def __init__(self, server: str) -> None:
        self.answered: list[bytes] = []
        self.doubtful = 0
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_said: object) -> None:
        self._over.set()
        self._thread.join()

    async def _send(self) -> None:
        number = 0
        async with Client(self._server) as client, asyncio.TaskGroup() as sends:
            while not self._over.is_set():
                for subject in SUBJECTS:
                    bodies = [
                        b"%d" % (number + at) for at in range(max(1, int(RATE * TICK_S) // len(SUBJECTS)))
                    ]
                    number += len(bodies)
                    sends.create_task(self._one(client, subject, bodies))
                await wait_a_tick()

    async def _one(self, client: Client, subject: str, bodies: list[bytes]) -> None:
        try:
            await client.send_many(subject, bodies)
        except TidemillError:
            self.doubtful += len(bodies)
        else:
            self.answered += bodies


async def wait_a_tick() -> None:
    """What keeps the rate."""
    await asyncio.sleep(TICK_S)


class Stream:
    """A query, stopped and begun again, over one checkpoint and one sink."""

    def __init__(self, spark: Any, server: str, folder: Path) -> None:
        self.sink = folder / "sink"
        self.begun = 0
        self._spark = spark
        self._server = server
        self._marks = folder / "marks"
        self._begin()

    def _begin(self) -> None:
        frame = (
            self._spark.readStream.format("tidemill")
            .option("meta", self._server)
            .option("subject", "live.*")
            .option("startingPosition", "earliest")
            .load()
        )
        rows = frame.selectExpr("id", "broker_group", "partition", "sequence", "cast(body as string) as body")
        self.begun += 1
        self._query = (
            rows.writeStream.format("parquet")
            .option("path", str(self.sink))
            .option("checkpointLocation", str(self._marks))
            .trigger(processingTime="1 second")
            .start()
        )

    def look(self) -> None:
        """It goes on, or has failed for a reason of Spark's own."""
        error = self._query.exception()
        if error is not None:
            assert PYTHON_IS_SLOW in str(error), str(error)[-3000:]
            self._begin()

    def again(self) -> None:
        self._query.stop()
        self._begin()

    def finish(self) -> None:
        while True:
            try:
                self._query.processAllAvailable()
            except StreamingQueryException:
                self.look()
                continue
            break
        self._query.stop()


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster", 1, 1, settings={"TIDEMILL_SEGMENT_BYTES": str(1 << 20)})
    cluster.start()
    yield cluster
    cluster.close()


def in_sync(cluster: Cluster) -> bool:
    row = cluster.group("g0")
    return len(row["in_sync"]) == 2 and all(one["alive"] for one in row["brokers"])


def kill_master(cluster: Cluster) -> None:
    os.kill(cluster.children()[cluster.group("g0")["master"]], signal.SIGKILL)


def test_the_sink_has_each_message_once_after_failovers_and_restarts(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    wait_until("a slave is in sync", lambda: in_sync(cluster), DONE_SECONDS)
    happened = Counter[str]()
    with Traffic(cluster.server) as traffic:
        wait_until(
            "the subjects are there", lambda: len(standings(cluster.server, ["live.*"])) >= 2, DONE_SECONDS
        )
        stream = Stream(spark, cluster.server, tmp_path)
        began = last = time.monotonic()

        def due() -> bool:
            stream.look()
            return time.monotonic() - last > PAUSE_S and in_sync(cluster)

        while time.monotonic() - began < SECONDS:
            wait_until("both brokers are in sync", due, DONE_SECONDS)
            kill_master(cluster)
            happened["masters killed"] += 1
            if happened["masters killed"] % 3 == 2:
                stream.again()
            last = time.monotonic()
    wait_until("both brokers are in sync", lambda: in_sync(cluster), DONE_SECONDS)

    def there() -> int:
        return sum(one.next - one.first for one in standings(cluster.server, ["live.*"]))

    wait_until("all that was answered may be read", lambda: there() >= len(traffic.answered), DONE_SECONDS)
    stream.finish()
    done = spark.read.parquet(str(stream.sink))
    places = done.select("broker_group", "partition", "sequence").distinct().count()
    rows, ids = done.count(), done.select("id").distinct().count()
    bodies = {row.body.encode() for row in done.select("body").distinct().collect()}
    figures = {
        "seconds": round(time.monotonic() - began), "answered": len(traffic.answered), "doubtful": traffic.doubtful,
        "in_logs": there(), "in_sink": rows, "queries": stream.begun, **happened,
    }  # fmt: skip
    print(f"\n{json.dumps(figures)}")
    assert rows == ids == places == there()
    assert bodies >= set(traffic.answered)
    assert happened["masters killed"] > 0
