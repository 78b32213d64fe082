"""The data source on a real Spark against real queues: read, streamed, written, each message once."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from e2e.clusters import Cluster
from e2e.queues import Queue, wait_until
from tidemill import Client
from tidemill_spark.arrow import pa
from tidemill_spark.ranges import standings
from tidemill_spark.sending import Target, Task, send_all

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]


def send(server: str, subject: str, first: int, count: int, key: bool = False) -> None:
    async def work() -> None:
        async with Client(server) as client:
            if key:
                for number in range(first, first + count):
                    await client.send(
                        subject, b"%d" % number, key=f"k{number}", tags={"vip"}, properties={"n": number}
                    )
            else:
                await client.send_many(subject, [b"%d" % number for number in range(first, first + count)])

    asyncio.run(work())


def wait_readable(server: str, subject: str, count: int) -> None:
    wait_until(
        f"{count} of {subject} may be read",
        lambda: sum(one.next - one.first for one in standings(server, [subject])) >= count,
        60,
    )


def source(reader: Any, server: str, subject: str, **more: str) -> Any:
    return reader.format("tidemill").option("meta", server).option("subject", subject).options(**more)


def test_two_lines_read_all_there_is_with_all_its_columns(spark: Any, queue: Queue) -> None:
    send(queue.server, "batch", 0, 20_000)
    send(queue.server, "batch", 20_000, 5, key=True)
    wait_readable(queue.server, "batch", 20_005)
    frame = source(spark.read, queue.server, "bat*", targetBytes=str(64 << 10)).load()

    assert frame.rdd.getNumPartitions() > 1
    assert (
        frame.selectExpr("count(*)", "count(distinct id)", "count(distinct sequence)").first()[:]
        == (20_005,) * 3
    )
    row = frame.where("key = 'k20001'").first()
    assert (row.body, row.tags, row.subject, row.sequence) == (b"20001", ["vip"], "batch", 20_001)
    few = source(spark.read, queue.server, "batch").schema("sequence BIGINT, body BINARY").load()
    assert few.where("sequence < 3").orderBy("sequence").collect() == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert source(spark.read, queue.server, "batch", columns="body").load().columns == ["body"]


def test_filters_leave_out_partitions_and_times_and_never_a_row_too_many(spark: Any, queue: Queue) -> None:
    send(queue.server, "left", 0, 100)
    send(queue.server, "right", 0, 100)
    wait_readable(queue.server, "left", 100)
    wait_readable(queue.server, "right", 100)
    frame = source(spark.read, queue.server, "left,right").load()
    assert frame.where("subject = 'left'").count() == 100
    rows = frame.orderBy("stored_at").collect()
    assert len(rows) == 200  # the frame is as wide as it was

    def pushed() -> Any:
        return source(spark.read, queue.server, "left,right", pushFilters="true").load()

    left = pushed().where("subject = 'left'")
    assert left.rdd.getNumPartitions() == 1
    assert left.count() == 100
    middle = rows[100].stored_at
    late = pushed()
    assert late.where(late.stored_at >= middle).count() == sum(row.stored_at >= middle for row in rows)


def test_what_is_written_is_stored_once_though_a_task_is_run_again(spark: Any, queue: Queue) -> None:
    frame = spark.range(0, 20_000, 1, 4).selectExpr(
        "cast(id as string) as body", "concat('k', id) as key", "concat('o', id % 7) as order_key",
        "array('vip') as tags", "map('n', cast(id as string)) as properties",
    )  # fmt: skip
    frame.where("key < 'k5'").write.format("tidemill").option("meta", queue.server).option(
        "subject", "written"
    ).mode("append").save()
    few = frame.where("key < 'k5'").count()
    rest = pa.Table.from_pylist(
        [{"body": f"{number}", "key": f"r{number}", "order_key": f"o{number % 7}"} for number in range(5_000)]
    )
    for batches in (rest.to_batches(700)[:3], rest.to_batches(700), rest.to_batches(700)):
        send_all(Target(queue.server, "written"), Task("job", 0, 1_795_000_000_000), batches)

    wait_readable(queue.server, "written", few + 5_000)
    rows = source(spark.read, queue.server, "written").load()
    assert (
        rows.selectExpr("count(*)", "count(distinct id)", "count(distinct key)").first()[:]
        == (few + 5_000,) * 3
    )
    one = rows.where("key = 'k8'").first() or rows.where("key = 'k18'").first()
    assert (one.order_key, one.tags, one.ordered) == (f"o{int(one.body) % 7}", ["vip"], True)


def test_a_replay_for_one_group_reaches_it_and_no_other(spark: Any, queue: Queue) -> None:
    async def consume(group: str, count: int) -> list[bytes]:
        async with (
            Client(queue.server) as client,
            client.consume("again", group=group, start="earliest") as messages,
        ):
            found: list[bytes] = []
            async for message in messages:
                found.append(message.body)
                await message.ack()
                if len(found) == count:
                    break
            return found

    send(queue.server, "again", 0, 1)
    for group in ("mine", "other"):
        assert asyncio.run(consume(group, 1)) == [b"0"]
    frame = spark.range(1, 11).selectExpr("cast(id as string) as body")
    frame.write.format("tidemill").option("meta", queue.server).option("subject", "again").option(
        "group", "mine"
    ).mode("append").save()
    send(queue.server, "again", 99, 1)

    assert sorted(asyncio.run(consume("mine", 11))) == sorted(
        b"%d" % number for number in [*range(1, 11), 99]
    )
    assert asyncio.run(consume("other", 1)) == [b"99"]
    wait_until("mine is done", lambda: queue.group("mine")["lag"] == 0, 30)


def test_the_stream_has_each_message_once_while_a_master_is_killed(spark: Any, folder: Path) -> None:
    cluster = Cluster(folder / "cluster", 1, 1)
    try:
        cluster.start()
        wait_until("a slave is in sync", lambda: len(cluster.group("g0")["in_sync"]) == 2, 60)
        send(cluster.server, "live", 0, 5_000)
        wait_readable(cluster.server, "live", 5_000)

        def run() -> Any:
            frame = source(
                spark.readStream,
                cluster.server,
                "live",
                startingPosition="earliest",
                maxBytesPerTrigger="20000",
            ).load()
            return (
                frame.selectExpr("id", "sequence", "cast(body as string) as body")
                .writeStream.format("parquet")
                .option("path", str(folder / "sink"))
                .option("checkpointLocation", str(folder / "marks"))
                .trigger(processingTime="0 seconds")
                .start()
            )

        query = run()
        wait_until("two micro-batches", lambda: len(query.recentProgress) >= 2, 120)
        os.kill(cluster.children()[cluster.group("g0")["master"]], signal.SIGKILL)
        send(cluster.server, "live", 5_000, 5_000)
        wait_readable(cluster.server, "live", 10_000)
        query.stop()
        query = run()
        query.processAllAvailable()
        query.stop()
        done = spark.read.parquet(str(folder / "sink"))
        assert (
            done.selectExpr("count(*)", "count(distinct id)", "count(distinct body)").first()[:]
            == (10_000,) * 3
        )
    finally:
        cluster.close()


def test_a_stream_into_a_subject_stores_each_row_once_over_restarts(
    spark: Any, queue: Queue, folder: Path
) -> None:
    send(queue.server, "in", 0, 3_000)
    wait_readable(queue.server, "in", 3_000)

    def run(checkpoint: Path) -> None:
        frame = source(
            spark.readStream, queue.server, "in", startingPosition="earliest", maxBytesPerTrigger="20000"
        ).load()
        query = (
            frame.select("body")
            .writeStream.format("tidemill")
            .option("meta", queue.server)
            .option("subject", "out")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(
                error
            ):  # Spark waits ten seconds for Python, on whatever machine
                raise
            run(checkpoint)

    run(folder / "marks")
    last = max((folder / "marks" / "commits").glob("[0-9]*"), key=lambda one: int(one.name))
    last.unlink()  # as if the driver had died before it noted the last micro-batch
    crc = last.with_name(f".{last.name}.crc")
    crc.unlink(missing_ok=True)
    run(folder / "marks")
    wait_readable(queue.server, "out", 3_000)
    out = source(spark.read, queue.server, "out").load()
    assert out.selectExpr("count(*)", "count(distinct body)").first()[:] == (3_000, 3_000)
