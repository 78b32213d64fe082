"""Brokers of a group are not equally far, and each drops by itself what is old."""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

from tidemill_spark.archive import Task, Wanted, plan, write_range
from tidemill_spark.commits import Partition, State
from tidemill_spark.errors import StoreFailed, WrongRequest
from tidemill_spark.ranges import PATH, Range, RangeGone, read, standings
from tidemill_spark.rows import cut_rows
from tidemill_spark.workers import processes
from tidemill_wire.batch import BatchIds, Origin, stamp
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.errors import CorruptBatch

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)
NOON_MS = 1_800_014_400_000


class Place(ThreadingHTTPServer):
    """Meta, or a broker that has the messages from ``first`` to before ``next``, of which ``at`` is of noon."""

    def __init__(self, first: int = 0, next_: int = 0, at: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.first, self.next, self.at = first, next_, at
        self.data = b"bytes"
        self.members: list[Place] = []

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """See ``Place``."""

    server: Place

    def do_GET(self) -> None:
        here = self.server
        head, status, body = dict[str, str](), 200, here.data
        if self.path == "/v1/brokers":
            rows = [
                {"alive": True, "role": role, "in_sync": True, "addresses": {"control": one.place}}
                for role, one in zip(("slave", "master"), here.members, strict=True)
            ]
            body = json.dumps([{"group": "g0", "retired": False, "brokers": rows}]).encode()
        elif self.path.startswith(f"{PATH}/s/batches"):
            at = int(self.path.partition("from=")[2].partition("&")[0])
            if at < here.first:
                status, body = 410, json.dumps({"first": here.first}).encode()
            head = {"Tidemill-Next": str(here.next)}
        else:
            row = {"subject": "s", "partition": "s", "first": here.first, "next": here.next, "bytes": 9}
            row |= {"at": min(max(here.at, here.first), here.next)} if "at=" in self.path else {}
            body = json.dumps({"group": "g0", "partitions": [row]}).encode()
        self.send_response(status)
        for name, value in {**head, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_said: object) -> None:
        """Nobody reads it."""


@contextmanager
def serving(one: Place) -> Iterator[Place]:
    with one:
        thread = threading.Thread(target=one.serve_forever, args=(0.01,))
        thread.start()
        yield one
        one.shutdown()
        thread.join()


@pytest.fixture(name="group")
def _group() -> Iterator[Place]:
    """Meta of a slave that is behind, and has dropped more, and of its master."""
    with ExitStack() as stack:
        meta = stack.enter_context(serving(Place()))
        meta.members = [stack.enter_context(serving(one)) for one in (Place(50, 90, 95), Place(20, 100, 95))]
        yield meta


def test_all_brokers_together_have_what_one_of_them_has(group: Place) -> None:
    (slave,) = standings(group.place, ["s"], NOON)
    assert (slave.first, slave.next, slave.at, slave.complete) == (50, 90, 90, False)
    (whole,) = standings(group.place, ["s"], NOON, of_all=True)
    assert (whole.first, whole.next, whole.at, whole.complete) == (20, 100, 95, True)


def test_a_slave_that_is_behind_or_has_dropped_more_hides_nothing_from_an_archive(group: Place) -> None:
    wanted = Wanted(group.place, "", ("s",), safety_lag_ms=0)
    place = Partition("s", "g0", "s")
    (task,), _ = plan(wanted, State(watermarks={place: 30}), 0)
    assert (task.range.first_sequence, task.range.next_sequence) == (
        30,
        95,
    )  # as of the time that is asked for
    assert plan(wanted, State(watermarks={place: 99}), 0)[0] == []
    with pytest.raises(WrongRequest, match="made anew"):
        plan(wanted, State(watermarks={place: 101}), 0)
    group.members.pop(1)  # who does not answer may have it
    group.members.append(Place(0, 0))
    group.members[1].server_close()
    assert plan(wanted, State(watermarks={place: 101}), 0)[0] == []


def test_what_one_broker_has_dropped_is_read_from_another(group: Place) -> None:
    urls = tuple(one.place for one in group.members)
    assert list(read(Range("s", "g0", "s", 30, 100, 0, group.place, urls))) == [b"bytes"]
    with pytest.raises(RangeGone, match="begins at 20") as gone:
        list(read(Range("s", "g0", "s", 10, 100, 0, group.place, urls)))
    assert pickle.loads(pickle.dumps(gone.value)).first == 20  # as it comes from a worker's process


def test_rows_with_large_properties_make_batches_that_brokers_take() -> None:
    rows = pa.table(
        {
            "body": ["x"] * 400,
            "key": ["k" * 1000] * 400,
            "properties": pa.array([[("p", "v" * 60_000)]] * 400, pa.map_(pa.string(), pa.string())),
        }
    )
    origin = Origin(b"s", 7, 1, BatchIds(7).next(0), 0)
    made = [build_batch(origin, one.content) for one in cut_rows(rows.to_batches()[0], 1, lambda _: 0)]
    assert max(map(len, made)) < 2 << 20
    assert sum(map(len, made)) > 400 * 61_000


def test_a_broker_whose_bytes_are_not_what_was_stored_is_passed_over(group: Place, tmp_path: Path) -> None:
    made = build_batch(Origin(b"s", 7, 1, BatchIds(7).next(NOON_MS), NOON_MS), Content([b"a", b"b"]))
    stamp(made, 0, len(made), 30, 0, NOON_MS, 1)
    rotten = bytearray(made)
    rotten[-1] ^= 1
    slave, master = group.members
    slave.data, master.data = bytes(rotten), bytes(made)
    slave.first, slave.next = master.first, master.next = 30, 32
    urls = tuple(one.place for one in group.members)
    task = Task(Range("s", "g0", "s", 30, 32, 0, group.place, urls), None, str(tmp_path), "Zstd")
    assert [file.rows for file in write_range(task).piece.files] == [2]
    master.data = slave.data
    with pytest.raises(CorruptBatch, match="s on g0, between 30 and 32: the checksum"):
        write_range(task)


def die(_task: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_a_worker_that_is_killed_is_said_in_a_sentence() -> None:
    with processes(1) as workers, pytest.raises(StoreFailed, match="fewer --workers"):
        list(workers.each(die, [1]))
