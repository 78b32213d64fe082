"""Stores of lakes, each a real one: a folder, S3, HDFS. What a lake needs of them, and whole archives there."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.queues import Queue, wait_until
from spark import programs
from tidemill import Client
from tidemill_spark import archive, finding, reconciling, upkeep
from tidemill_spark.errors import StoreFailed, WrongRequest
from tidemill_spark.lake import Lake
from tidemill_spark.queries import Query
from tidemill_spark.ranges import standings
from tidemill_spark.stores import open_store
from tidemill_spark.workers import processes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

KINDS = {"local": None, "s3": programs.s3, "hdfs": programs.hdfs}


@pytest.fixture(scope="module", params=KINDS, name="uri")
def _uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp(str(request.param))
    start = KINDS[request.param]
    if start is None:
        yield str(folder)
        return
    with start(folder) as said, pytest.MonkeyPatch.context() as patch:
        for name, value in said.items():
            if name != "uri":
                patch.setenv(name, value)
        yield f"{said['uri']}/tests"


def test_object_is_created_once_replaced_whole_listed_and_deleted(uri: str) -> None:
    store = open_store(f"{uri}/contract")
    name, odd = "_tidemill/commits/1.json", "subject=a.b-c_d/hour=01/one %é.parquet"
    assert store.create(name, b"one")
    assert not store.create(name, b"two")
    assert store.read(name) == b"one"
    store.write(odd, b"x" * 3_000_000)
    store.write(odd, b"y" * 2_999_999 + b"z")
    assert store.fetch(odd, 2_999_990, 10) == b"y" * 9 + b"z"
    file = store.open(odd, 3_000_000)
    assert file.size() == 3_000_000
    file.seek(2_999_998)
    assert file.read() == b"yz"
    listed = {one.name: one.size for one in store.list("")}
    assert listed == {name: 3, odd: 3_000_000}
    assert [one.name for one in store.list("_tidemill")] == [name]
    assert list(store.list("nothing")) == []
    assert all(abs(one.modified_ms - time.time() * 1000) < 3_600_000 for one in store.list(""))
    for ask in (store.read, lambda missing: store.fetch(missing, 0, 1)):
        with pytest.raises(FileNotFoundError):
            ask("missing")
    store.delete([odd, "missing", name])
    assert list(store.list("")) == []


def test_of_many_who_create_one_name_one_does(uri: str) -> None:
    made: list[int] = []

    def create(number: int) -> None:
        if open_store(f"{uri}/race").create("_tidemill/commits/7.json", b"%d" % number):
            made.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(made) == 1
    assert open_store(f"{uri}/race").read("_tidemill/commits/7.json") == b"%d" % made[0]


def test_archive_there_is_equal_to_the_logs_found_in_and_compacted(uri: str, tmp_path: Path) -> None:
    queue = Queue(tmp_path / "data")
    try:
        queue.start()
        where, subject = f"{uri}/lake", "order.paid"
        wanted = archive.Wanted(queue.server, where, (subject,), safety_lag_ms=0)
        with processes(2) as workers:
            for turn in range(2):
                send(queue.server, subject, 500 * (turn + 1))
                assert archive.run(wanted, workers, now_ms, lambda _: None).rows == 500
            lake = Lake.at(where)
            found = finding.pa.concat_tables(list(finding.find(lake, Query(keys=("o-7",)))))
            assert found["body"].to_pylist() == [b"7", b"7"]
            (again,) = finding.find(lake, Query(ids=(found["id"][0].as_py(),)))
            assert again.num_rows == 1
            assert finding.sql(lake, "SELECT count(*) AS n FROM messages").to_pylist() == [{"n": 1000}]
            assert upkeep.compact(lake, workers, now_ms).made == 1
            (row,) = reconciling.reconcile(queue.server, Lake.at(where), workers)
            assert (row.lake, row.equal) == (1000, True)
    finally:
        queue.close()


def send(server: str, subject: str, total: int) -> None:
    async def work() -> None:
        async with Client(server) as client:
            await asyncio.gather(
                *(client.send(subject, b"%d" % number, key=f"o-{number}") for number in range(500))
            )

    asyncio.run(work())
    wait_until(
        "they may be archived",
        lambda: sum(one.next - one.first for one in standings(server, [subject])) >= total,
        60,
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("uri", ["gopher://x/y", "s3a:///folder", "hdfs:///folder"])
def test_uri_that_names_no_store_is_refused(uri: str) -> None:
    with pytest.raises(WrongRequest):
        open_store(uri)


def test_store_that_does_not_answer_is_said_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEMILL_WEBHDFS", "127.0.0.1:0")
    with pytest.raises(StoreFailed, match="does not answer"):
        open_store("hdfs://nowhere/lake").read("x")
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailed, match="cannot be written"):
        open_store(str(tmp_path / "file")).write("x", b"")
