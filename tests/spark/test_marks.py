"""What meta is told of a lake: of subjects that are there now, and in pieces. By plain processes, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.metas import Meta
from e2e.queues import Queue, wait_until
from spark.test_archive import now_ms
from tidemill import Client
from tidemill_spark import archive
from tidemill_spark.jobs.archive import reported
from tidemill_spark.lake import Lake
from tidemill_spark.ranges import standings
from tidemill_spark.workers import Workers, processes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SUBJECT = "paid"
MANIFEST = {
    "apiVersion": "tidemill.dev/v1alpha1",
    "kind": "Subject",
    "metadata": {"name": SUBJECT},
    "spec": {},
}


@pytest.fixture(name="workers")
def _workers() -> Iterator[Workers]:
    with processes(2) as workers:
        yield workers


@pytest.fixture(name="meta")
def _meta(tmp_path: Path) -> Iterator[Meta]:
    """With two broker groups of a broker each."""
    meta = Meta(tmp_path / "meta").start()
    queues: list[Queue] = []
    for name in ("g0-0", "g1-0"):
        known = {"TIDEMILL_NAME": name, "TIDEMILL_REPLICATED": "true", "TIDEMILL_META": meta.server}
        queues.append(Queue(tmp_path / name, settings=known).start())
    yield meta
    for queue in queues:
        queue.close()
    meta.close()


def send(server: str, count: int) -> None:
    async def work() -> None:
        async with Client(server) as client:
            for number in range(count):
                await client.send(SUBJECT, b"%d" % number)

    asyncio.run(work())


def test_watermarks_of_a_subject_that_was_removed_are_not_told_of_the_next_one_of_that_name(
    meta: Meta, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go in pieces, here of one partition each; and what is archived goes on behind what was."""
    monkeypatch.setattr("tidemill_spark.marks.PIECE_BYTES", 1)
    uri = str(tmp_path / "lake")
    wish = archive.Wanted(meta.server, uri, (SUBJECT,), "all", safety_lag_ms=0)

    def told() -> list[int]:
        """As meta has it after another run, which said the same."""
        said: dict[str, Any] = reported(wish, "", partial(archive.run, wish, workers, now_ms), None)
        kept = meta.get("/v1/archives/all")
        assert kept["watermarks"] == said["watermarks"]
        assert kept["runs"][-1]["state"] == "Succeeded"
        return [mark for marks in kept["watermarks"].values() for mark in marks.values()]

    def readable(count: int) -> bool:
        there = standings(meta.server, [SUBJECT])
        return sum(one.next - one.first for one in there) == count

    def is_taken() -> bool:
        return meta.ask("POST", "/v1/declarations", MANIFEST)[0] == 200

    wait_until(
        "the subject may be made", lambda: len(meta.get("/v1/routes")["brokers"]) == 2 and is_taken(), 60
    )
    send(meta.server, 40)
    wait_until("all may be archived", partial(readable, 40), 60)
    first = told()
    assert (len(first), sum(first)) == (2, 40)

    assert meta.ask("DELETE", f"/v1/subjects/{SUBJECT}?force=1")[0] == 200
    wait_until("the subject is gone", lambda: not standings(meta.server, [SUBJECT]), 60)
    assert told() == []
    wait_until("the subject may be made again", is_taken, 60)
    wait_until("its brokers have heard of it", lambda: len(standings(meta.server, [SUBJECT])) == 2, 60)
    assert told() == [], "nothing of the next one is archived"

    send(meta.server, 10)
    wait_until("what is new may be archived", partial(readable, 10), 60)
    assert sum(told()) == 40 + 10
    assert sum(one.rows for one in Lake.at(uri).files()) == 40 + 10
