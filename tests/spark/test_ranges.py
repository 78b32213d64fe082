"""Ranges of real brokers: read whole, once, from slaves first, over the death of a master, and in good time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from e2e.clusters import Cluster
from e2e.queues import Queue, wait_until
from tidemill import Client
from tidemill_spark.decode import Place, decode, split
from tidemill_spark.ranges import (
    Range,
    RangeGone,
    Standing,
    brokers,
    plan,
    read,
    standings,
)
from tidemill_spark.together import read_together

pytestmark = pytest.mark.e2e


def send(server: str, subject: str, count: int, size: int = 100, priority: int = 0) -> None:
    async def work() -> None:
        async with Client(server) as client:
            bodies = [b"%d" % number + b"." * size for number in range(count)]
            await client.send_many(subject, bodies, priority=priority)

    asyncio.run(work())


def read_all(ranges: list[Range]) -> list[tuple[str, int, bytes]]:
    found: list[tuple[str, int, bytes]] = []
    for one in ranges:
        for data in read(one, answer_bytes=64 << 10):
            batches, used = split(data)
            assert used == len(data)
            rows = decode(
                batches,
                Place(one.subject, one.broker_group, one.partition),
                ("sequence", "body"),
                one.first_sequence,
                one.next_sequence,
            )
            found += [
                (one.broker_group + one.partition, sequence, body)
                for sequence, body in zip(*rows.to_pydict().values(), strict=True)
            ]
    return found


def there(server: str, subject: str, count: int) -> list[Standing]:
    """When they are all on a disk."""
    found: list[Standing] = []

    def holds() -> bool:
        found[:] = standings(server, [subject])
        return sum(one.next - one.first for one in found if not one.partition.startswith("%")) >= count

    wait_until(f"{count} messages of {subject} may be read", holds, 60)
    return found


def test_ranges_of_several_segments_hold_each_message_once(queue: Queue) -> None:
    send(queue.server, "many", 30_000)
    send(queue.server, "many", 10, priority=5)
    there(queue.server, "many", 30_000)
    ranges = plan(queue.server, ["many"], target_bytes=256 << 10)
    rows = read_all(ranges)

    assert len(ranges) > 5
    assert {one.partition for one in ranges} == {"many", "%lane%5%many"}
    assert len(rows) == len({row[:2] for row in rows}) == 30_010
    assert sorted(int(body.rstrip(b".")) for _, _, body in rows[:30_000]) == list(range(30_000))


def test_ranges_of_many_partitions_are_read_together_as_they_are_one_by_one(queue: Queue) -> None:
    names = [f"many.s{number}" for number in range(20)]

    async def work() -> None:
        async with Client(queue.server) as client:
            for row in range(6):
                bodies = [b"%d" % row] * 30
                await asyncio.gather(*(client.send_many(name, bodies) for name in names))

    asyncio.run(work())
    there(queue.server, "many.*", 20 * 180)
    ranges = [replace(one, first_sequence=7) for one in plan(queue.server, ["many.*"])]
    for answer_bytes in (1, 2000, 1 << 20):
        found = read_together(ranges, answer_bytes)
        for one, batches in zip(ranges, found, strict=True):
            assert b"".join(batches) == b"".join(read(one))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
    gone = [replace(one, urls=(f"127.0.0.1:{nobody}",)) for one in ranges]
    assert [len(one) for one in read_together(gone)] == [len(one) for one in found]
    assert queue.get_text("/v1/ranges/many.s1/batches?from=30&until=30") == ""
    span = {"partition": "many.s1", "from": 0, "until": 1}
    for wrong in (
        {"spans": []},
        {"spans": [["many.s1", 0, 1]]},
        {"spans": [{"partition": "many.s1", "from": 0}]},
        {"spans": [{**span, "until": -1}]},
        {"spans": [span], "more": 1},
        {"spans": [{**span, "partition": "nobody"}]},
    ):
        with pytest.raises(HTTPError) as caught:
            queue.open(Request(queue.url("/v1/ranges/batches"), json.dumps(wrong).encode()))
        assert caught.value.code in {400, 404}
        caught.value.close()


def test_places_are_sequences_times_and_ends(queue: Queue) -> None:
    send(queue.server, "timed", 100)
    there(queue.server, "timed", 100)
    rows = read_all(plan(queue.server, ["timed"]))
    group = standings(queue.server, ["timed"])[0].broker_group
    now = datetime.now(UTC)

    assert [row[1] for row in rows] == list(range(100))
    middle = plan(queue.server, ["tim*"], {(group, "timed"): 40}, {(group, "timed"): 60})
    assert [row[1] for row in read_all(middle)] == list(range(40, 60))
    assert plan(queue.server, ["timed"], now, "latest") == []
    assert [
        row[1] for row in read_all(plan(queue.server, ["timed"], datetime(2020, 1, 1, tzinfo=UTC), now))
    ] == list(range(100))
    assert plan(queue.server, ["timed"], "latest") == []
    assert plan(queue.server, ["nobody"]) == []


def test_what_retention_took_is_said_with_where_to_go_on(tmp_path: Path) -> None:
    settings = {
        "TIDEMILL_SEGMENT_BYTES": str(64 << 10),
        "TIDEMILL_RETENTION_SECONDS": "1",
        "TIDEMILL_RETENTION_INTERVAL_MS": "200",
    }
    queue = Queue(tmp_path / "data", settings=settings)
    try:
        queue.start()
        for _ in range(10):
            send(queue.server, "short", 500)
        one = plan(queue.server, ["short"])[0]
        wait_until("retention drops", lambda: standings(queue.server, ["short"])[0].first > 0, 60)
        with pytest.raises(RangeGone) as caught:
            list(read(one))
        assert caught.value.first is not None
        assert caught.value.first > 0
    finally:
        queue.close()


def test_a_range_is_read_to_its_end_while_its_brokers_die(tmp_path: Path) -> None:
    """The slave is asked first; it dies, then the master is killed and the slave is back: all of it is read, once."""
    cluster = Cluster(tmp_path / "data", 1, 1)
    try:
        cluster.start()
        wait_until("a slave is in sync", lambda: len(cluster.group("g0")["in_sync"]) == 2, 60)
        send(cluster.server, "read", 20_000)
        there(cluster.server, "read", 20_000)
        (one,) = plan(cluster.server, ["read"])
        row = cluster.group("g0")
        slave = next(member for member in row["brokers"] if member["name"] != row["master"])
        assert one.urls[0] == slave["addresses"]["control"]

        seen, answers = b"", read(one, answer_bytes=64 << 10)
        for number, data in enumerate(answers):
            seen += data
            if number == 2:
                os.kill(cluster.children()[slave["name"]], signal.SIGKILL)
            if number == 6:
                os.kill(cluster.children()[row["master"]], signal.SIGKILL)
        batches, _ = split(seen)
        rows = decode(batches, Place("read", "g0", "read"), ("sequence",))
        assert rows.column("sequence").to_pylist() == list(range(20_000))
        assert list(brokers(cluster.server)) == ["g0"]
    finally:
        cluster.close()
