"""Archives of real brokers by plain processes: killed, doubled, compacted, expired, searched, and sent again."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

from e2e.queues import Queue, wait_until
from e2e.services import environment
from tidemill import Client
from tidemill_spark import archive, finding, reconciling, replay, upkeep
from tidemill_spark.commits import Partition
from tidemill_spark.errors import WrongRequest
from tidemill_spark.lake import GRACE_MS, Lake
from tidemill_spark.queries import Query
from tidemill_spark.ranges import standings
from tidemill_spark.workers import Workers, processes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SEGMENT_BYTES = 1 << 20
KILLS = 6
COMMAND = (sys.executable, "-m", "tidemill_spark")
TIDEMILL = (sys.executable, "-m", "tidemill.cli", "archive")


@pytest.fixture(scope="module", name="queue")
def _queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    settings = {"TIDEMILL_SEGMENT_BYTES": str(SEGMENT_BYTES)}
    queue = Queue(tmp_path_factory.mktemp("queue") / "data", settings=settings)
    queue.start()
    yield queue
    queue.close()


@pytest.fixture(scope="module", name="workers")
def _workers() -> Iterator[Workers]:
    with processes(2) as workers:
        yield workers


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def send(server: str, subject: str, count: int, first: int = 0) -> None:
    """Bodies alone, and one in ten with all that a message may have."""

    async def work() -> None:
        async with Client(server) as client:
            await client.send_many(
                subject, [b"%d" % number + b"." * 200 for number in range(first, first + count)]
            )
            sends = (
                client.send(
                    subject,
                    b"rich %d" % number,
                    key=f"o-{number % 7}",
                    tags={"vip"} if number % 2 else {"vip", "new"},
                    properties={"n": number},
                    order_key=f"k{number % 5}",
                    priority=number % 2,
                )
                for number in range(first, first + count // 10)
            )
            await asyncio.gather(*sends)

    asyncio.run(work())
    wait_readable(server, subject, (first + count) + (first + count) // 10)


def wait_readable(server: str, subject: str, count: int) -> None:
    def holds() -> bool:
        return sum(one.next - one.first for one in standings(server, [subject])) >= count

    wait_until(f"{count} messages of {subject} may be archived", holds, 60)


def wanted(queue: Queue, uri: Path, subject: str) -> archive.Wanted:
    return archive.Wanted(queue.server, str(uri), (subject,), safety_lag_ms=0)


def run(queue: Queue, uri: Path, subject: str, workers: Workers) -> archive.Totals:
    return archive.run(wanted(queue, uri, subject), workers, now_ms, lambda _: None)


def differing(queue: Queue, uri: Path, workers: Workers) -> list[dict[str, Any]]:
    rows = reconciling.by_partition(reconciling.reconcile(queue.server, Lake.at(str(uri)), workers))
    assert rows
    return [row for row in rows if not row["equal"]]


def rows_in(uri: Path) -> int:
    return sum(one.rows for one in Lake.at(str(uri)).files())


def command(*arguments: str, base: Sequence[str] = COMMAND) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*base, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """It and the processes that it began."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_runs_killed_at_random_moments_and_two_at_once_lose_and_double_nothing(
    queue: Queue, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(4711)
    total = 0
    uri = tmp_path / "lake"
    ended = Counter[str]()
    for turn in range(KILLS):
        send(queue.server, "killed", 3000, first=total)
        total += 3000
        options = ("run", "--server", queue.server, "--subject", "killed", "--to", str(uri), "--workers", "2")
        runs = [command(*options) for _ in range(1 + turn % 2)]
        before = Lake.at(str(uri)).state.number
        if turn % 3 == 0:  # in the midst of committing, as far as one can hit that from outside
            wait_until("a run ends or commits", partial(ended_or_committed, runs, uri, before), 120)
        else:
            wait_part(runs[0], chance.uniform(0.2, 4.0))
        for one in runs:
            ended["killed" if one.poll() is None else "ended"] += 1
            kill(one) if one.poll() is None else one.communicate()
        assert differing(queue, uri, workers) == [] if Lake.at(str(uri)).state.number else True
    both = [command(*options, base=TIDEMILL) for _ in range(2)]
    for one in both:
        said, errors = one.communicate(timeout=300)
        assert one.returncode == 0, errors
        assert b"messages archived" in said
    assert differing(queue, uri, workers) == []
    assert rows_in(uri) == total + total // 10
    assert ended["killed"] > 0


def ended_or_committed(runs: Sequence[subprocess.Popen[bytes]], uri: Path, before: int) -> bool:
    return runs[0].poll() is not None or Lake.at(str(uri)).state.number > before


def wait_part(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass  # it is to be killed while it works


def test_reconcile_names_what_is_lost_doubled_strange_and_different(
    queue: Queue, workers: Workers, tmp_path: Path
) -> None:
    send(queue.server, "judged", 1000)
    run(queue, tmp_path, "judged", workers)
    place = Partition("judged", standings(queue.server, ["judged"])[0].broker_group, "judged")
    lake = Lake.at(str(tmp_path))
    (task, *_) = [
        one for one in reconciling.tasks(queue.server, lake, ["judged"]) if one.range.partition == "judged"
    ]
    logs = finding.pa.concat_tables([table for table, _ in archive.decoded(task.range)])
    table = logs.to_pylist()
    broken = [row for row in table if row["sequence"] not in {3, 4}] + [table[7]]
    broken[20] = {**broken[20], "body": b"another"}
    broken.append({**table[5], "sequence": 1_000_000})
    mine = finding.pa.Table.from_pylist(broken, schema=logs.schema)
    found = reconciling.judged(place, logs, reconciling.in_order(mine))
    assert (found.lost, found.doubled, found.strange) == ([3, 4], [7], [1_000_000])
    assert found.different == [broken[20]["sequence"]]
    assert not found.equal
    assert reconciling.judged(place, logs, logs).equal


def test_what_comes_late_goes_into_its_hour_and_small_files_become_one(
    queue: Queue, workers: Workers, tmp_path: Path
) -> None:
    for turn in range(3):
        send(queue.server, "small", 300, first=300 * turn)
        totals = run(queue, tmp_path, "small", workers)
        assert totals.rows == 330
        assert totals.read_bytes <= 1.05 * totals.planned_bytes
    lake = Lake.at(str(tmp_path))
    before = len(lake.files())
    done = upkeep.compact(lake, workers, lambda: now_ms() - 2 * GRACE_MS)
    assert (done.merged, done.rows, done.lost) == (before, 990, 0)
    assert before > done.made
    assert differing(queue, tmp_path, workers) == []
    assert run(queue, tmp_path, "small", workers).rows == 0
    old = lake.as_of(3)
    assert sum(one.rows for one in old.files.values()) == 990
    gone = upkeep.expire(lake, now_ms(), now_ms() - 2 * GRACE_MS)
    assert sum(one.rows for one in gone) == 990
    assert lake.sweep(now_ms() + GRACE_MS + 1000) == 0  # a reader may be at it, whatever clock who sweeps has
    for path in tmp_path.glob("**/*.*"):
        os.utime(path, (0, now_ms() / 1000 - GRACE_MS / 1000 - 60))
    assert lake.sweep(now_ms()) > 0
    assert list(tmp_path.glob("subject=*/**/*.parquet")) == []


def test_messages_are_found_by_id_key_time_and_sql_and_read_by_plain_tools(
    queue: Queue, workers: Workers, tmp_path: Path
) -> None:
    send(queue.server, "found", 2000)
    run(queue, tmp_path, "found", workers)
    lake = Lake.at(str(tmp_path))
    keyed = finding.pa.concat_tables(list(finding.find(lake, Query(keys=("o-3",)))))
    assert keyed.num_rows == len([number for number in range(200) if number % 7 == 3])
    identity = keyed["id"][4].as_py()
    (one,) = finding.find(lake, Query(ids=(identity,)))
    assert one.to_pylist() == [keyed.to_pylist()[4]]
    assert list(finding.find(lake, Query(ids=(f"{'0' * 32}-1",)))) == []
    counts = finding.sql(
        lake, "SELECT count(*) AS n, count(key) AS keyed FROM messages WHERE subject = 'found'"
    )
    assert counts.to_pylist() == [{"n": 2200, "keyed": 200}]
    # As docs/archive.md shows it, without any of ours:
    table = pq.read_table(tmp_path, filters=[("subject", "=", "found"), ("key", "=", "o-3")])
    assert table.num_rows == keyed.num_rows
    frame = pd.read_parquet(tmp_path, columns=["key", "body"])
    assert len(frame) == 2200
    files = f"read_parquet('{tmp_path}/subject=*/**/*.parquet', hive_partitioning = true)"
    asked = f"SELECT count(DISTINCT id) FROM {files}"
    assert duckdb.sql(asked).fetchall() == [(2200,)]
    listed = command("status", str(tmp_path), "--files").communicate(timeout=120)[0].decode().split()
    assert sorted(listed) == sorted(map(str, tmp_path.glob("subject=*/**/*.parquet")))
    said, _ = command("find", str(tmp_path), "--id", identity, "-o", "json").communicate(timeout=120)
    assert json.loads(said)["key"] == "o-3"
    nothing = command("find", str(tmp_path), "--key", "nobody")
    assert b"no archived message" in nothing.communicate(timeout=120)[1]
    assert nothing.returncode == 1


def resend(queue: Queue, uri: Path, query: Query, target: str, **more: Any) -> replay.Wanted:
    return replay.Wanted(queue.server, str(uri), query, target, **more)


def test_replay_keeps_what_messages_had_and_their_order_and_is_done_once(
    queue: Queue, workers: Workers, tmp_path: Path
) -> None:
    send(queue.server, "old", 2000)
    run(queue, tmp_path, "old", workers)
    dry = replay.run(resend(queue, tmp_path, Query(), "again", dry_run=True), workers, lambda _: None)
    assert dry.subjects == {"old": 2200}
    twice = [
        replay.run(resend(queue, tmp_path, Query(), "again", run="one"), workers, lambda _: None)
        for _ in range(2)
    ]
    assert [one.rows for one in twice] == [2200, 2200]
    lost = Lake.at(str(tmp_path)).store
    lost.delete(
        [one.name for one in lost.list("_tidemill/replays/one") if not one.name.endswith("plan.json")]
    )
    assert (
        replay.run(resend(queue, tmp_path, Query(), "again", run="one"), workers, lambda _: None).rows == 2200
    )
    wait_readable(queue.server, "again", 2200)
    assert sum(one.next - one.first for one in standings(queue.server, ["again"])) % (1 << 40) == 2200
    uri = tmp_path / "again"
    run(queue, uri, "again", workers)
    before, after = (finding.sql(Lake.at(str(one)), SEEN).to_pylist() for one in (tmp_path, uri))
    assert before == after
    with pytest.raises(replay.WrongRequest, match="something else"):
        replay.run(resend(queue, tmp_path, Query(keys=("o-1",)), "again", run="one"), workers, lambda _: None)


SEEN = """
SELECT coalesce(origin, id) AS id, key, order_key, tags, body, created_at, priority,
       row_number() OVER (PARTITION BY order_key, priority ORDER BY sequence) AS place
FROM messages WHERE order_key IS NOT NULL ORDER BY order_key, priority, place
"""


def test_replay_for_one_group_reaches_that_group_alone(
    queue: Queue, workers: Workers, tmp_path: Path
) -> None:
    send(queue.server, "shared", 500)
    run(queue, tmp_path, "shared", workers)

    async def handle(group: str, count: int, seconds: float) -> list[Any]:
        found: list[Any] = []
        async with Client(queue.server) as client, client.consume("shared", group=group) as messages:
            try:
                async with asyncio.timeout(seconds):
                    while len(found) < count:
                        message = await anext(messages)
                        found.append((message.body, message.properties))
                        await message.ack()
            except TimeoutError:
                pass  # so few came
        return found

    for group in ("mine", "theirs"):
        assert len(asyncio.run(handle(group, 550, 60))) == 550
    query = Query(tags=("new",))
    counts = replay.run(
        resend(queue, tmp_path, query, "shared", group="mine", run="two"), workers, lambda _: None
    )
    assert counts.rows == 25
    again = asyncio.run(handle("mine", 25, 60))
    assert {body for body, _ in again} == {b"rich %d" % number for number in range(0, 50, 2)}
    assert all("tidemill.replayed" in properties for _, properties in again)
    assert asyncio.run(handle("theirs", 1, 2)) == []


def test_folder_of_another_format_and_a_partition_made_anew_are_refused(
    queue: Queue, workers: Workers, tmp_path: Path
) -> None:
    Lake.at(str(tmp_path / "delta")).claim("Delta")
    with pytest.raises(WrongRequest, match="to another folder"):
        run(queue, tmp_path / "delta", "old", workers)
    send(queue.server, "short", 50)
    run(queue, tmp_path / "lake", "short", workers)
    lake = Lake.at(str(tmp_path / "lake"))
    place = next(iter(lake.archived()))
    ahead = archive.Piece(
        place, lake.archived()[place], lake.archived()[place] + 10, lake.archived()[place] + 20
    )
    lake.commit(archive.Commit("x", "x", 0, (ahead,)))
    with pytest.raises(WrongRequest, match="made anew"):
        run(queue, tmp_path / "lake", "short", workers)
