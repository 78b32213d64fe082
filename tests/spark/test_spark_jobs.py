"""The jobs on a real Spark, as spark-submit runs them: killed, two at once, and into a table of Delta."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from e2e.queues import Queue, wait_until
from spark.submitted import DONE_SECONDS, Job, wait_so_long
from tidemill import Client
from tidemill_spark import finding, reconciling
from tidemill_spark.action_reconciling import reconcile_actions
from tidemill_spark.lake import Lake
from tidemill_spark.layout import COMMITS
from tidemill_spark.ranges import standings
from tidemill_spark.workers import processes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

MESSAGES = 4000
HANDLED = 300


@pytest.fixture(scope="module", name="queue")
def _queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    queue = Queue(
        tmp_path_factory.mktemp("queue") / "data", settings={"TIDEMILL_SEGMENT_BYTES": str(1 << 18)}
    )
    queue.start()

    async def send() -> None:
        async with Client(queue.server) as client:
            await client.send_many("order.paid", [b"%d" % number + b"." * 300 for number in range(MESSAGES)])
            async with client.consume("order.paid", group="billing") as messages, asyncio.timeout(60):
                for _ in range(HANDLED):
                    await (await anext(messages)).ack()

    asyncio.run(send())
    ready = lambda: sum(one.next - one.first for one in standings(queue.server, ["order.paid"])) == MESSAGES  # noqa: E731
    wait_until("they may be archived", ready, 60)
    yield queue
    queue.close()


def archive_job(queue: Queue, uri: Path, *more: str) -> Job:
    where = ("--server", queue.server, "--name", "tests", "--subject", "order.paid", "--to", str(uri))
    return Job("archive", *where, "--safety-lag-seconds", "0", *more)


def acked(uri: Path) -> int:
    """How many messages were handled, as the archive has it."""
    said = finding.sql(
        Lake.at(str(uri)), "SELECT sum(messages)::INT AS n FROM actions WHERE action = 'acked'"
    )
    return int(said.to_pylist()[0]["n"])


def wait_begun(job: Job, folder: Path, seconds: float) -> None:
    """Until it writes, and so much longer; or until it has ended."""
    wait_until("the job writes", lambda: not job.running or any(folder.rglob("*")), DONE_SECONDS)
    wait_so_long(job, seconds)


def test_archive_killed_in_its_midst_and_run_by_two_at_once_is_equal_to_the_logs(
    queue: Queue, tmp_path: Path
) -> None:
    chance = random.Random(int(os.environ.get("LAKE_SEED", "1")))
    for _ in range(int(os.environ.get("LAKE_KILLS", "1"))):
        job = archive_job(queue, tmp_path)
        wait_begun(job, tmp_path, chance.uniform(0, 2))
        job.kill()
    both = [archive_job(queue, tmp_path) for _ in range(2)]
    said = [one.done() for one in both]
    assert [one["state"] for one in said] == ["Succeeded"] * 2
    lake = Lake.at(str(tmp_path))
    assert sum(one.rows for one in lake.files()) == MESSAGES
    with processes(2) as workers:
        (row,) = reconciling.reconcile(queue.server, lake, workers)
        (done,) = reconcile_actions(queue.server, str(tmp_path), workers)
    assert (row.lake, row.equal) == (MESSAGES, True)
    assert (done.equal, done.logs == done.lake > 1) == (True, True)
    assert acked(tmp_path) == HANDLED
    assert sum(one["counts"]["actions"] for one in said) <= done.lake
    counted = Job(
        "replay", "--server", queue.server, "--from-uri", str(tmp_path), "--from", "2020-01-01T00:00Z",
        "--to", "2100-01-01T00:00Z", "--target", "again", "--rate", "0", "--run", "one",
    ).done()  # fmt: skip
    assert counted["counts"]["messages"] == MESSAGES


def test_table_of_delta_has_each_message_once_after_a_kill_and_two_runs_at_once(
    queue: Queue, tmp_path: Path
) -> None:
    job = archive_job(queue, tmp_path, "--format", "Delta")
    wait_begun(job, tmp_path / COMMITS, 1.0)
    job.kill()
    both = [archive_job(queue, tmp_path, "--format", "Delta") for _ in range(2)]
    for one in both:
        one.done()
    state = Lake.at(str(tmp_path)).state
    assert state.open_intent is None
    assert list(state.watermarks.values()) == [MESSAGES]
    log = sorted((tmp_path / "_delta_log").glob("*.json"))
    files = [
        json.loads(line)["add"]["path"]
        for one in log
        for line in one.read_text().splitlines()
        if '{"add"' in line
    ]
    paths = [str(tmp_path / one) for one in files]
    counted = duckdb.sql(
        "SELECT count(*), count(DISTINCT sequence), max(sequence) FROM read_parquet(?)", params=[paths]
    )
    assert counted.fetchall() == [(MESSAGES, MESSAGES, MESSAGES - 1)]
    transactions = [line for one in log for line in one.read_text().splitlines() if '"txn"' in line]
    assert all("tidemill/tests" in line for line in transactions)
    assert len(transactions) == len(log)
    assert acked(tmp_path) == HANDLED
