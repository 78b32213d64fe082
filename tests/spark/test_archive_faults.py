"""What would hold an archive up, or be told of it wrongly: subjects that stand still or were removed, files that are
gone or broken.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from e2e.clusters import Cluster
from e2e.queues import Queue, run_command, wait_until
from tidemill import Client
from tidemill.errors import Refused
from tidemill_spark import archive, reconciling
from tidemill_spark.commits import Partition, Piece
from tidemill_spark.delta import ranges_for
from tidemill_spark.jobs.command import main
from tidemill_spark.lake import Lake
from tidemill_spark.ranges import standings
from tidemill_spark.workers import Workers

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

DONE_SECONDS = 120.0


@pytest.fixture(name="workers")
def _workers() -> Iterator[Workers]:
    """In this process."""
    with ThreadPoolExecutor(1) as executor:
        yield Workers(executor, 1)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def send(server: str, subject: str, count: int, all_there: int) -> None:
    """Messages, until so many of the subject may be archived."""

    async def work() -> None:
        async with Client(server) as client:
            await client.send_many(subject, [b"%d" % number + b"." * 200 for number in range(count)])

    asyncio.run(work())

    def readable() -> int:
        return sum(one.next - one.first for one in standings(server, [subject]))

    wait_until(f"{all_there} may be archived", lambda: readable() >= all_there, DONE_SECONDS)


def run(server: str, uri: Path, subject: str, workers: Workers, span_ms: int | None = None) -> int:
    """How many messages that were."""
    wanted = archive.Wanted(server, str(uri), (subject,), safety_lag_ms=0, max_span_ms=span_ms)
    return archive.run(wanted, workers, now_ms, lambda _: None).rows


def differing(server: str, uri: Path, workers: Workers) -> list[dict[str, Any]]:
    rows = reconciling.by_partition(reconciling.reconcile(server, Lake.at(str(uri)), workers))
    assert rows
    return [row for row in rows if not row["equal"]]


def rows_in(uri: Path) -> int:
    return sum(one.rows for one in Lake.at(str(uri)).files())


def wait_so_long(milliseconds: int) -> None:
    began_ms = now_ms()
    wait_until("it is later", lambda: now_ms() - began_ms > milliseconds)


def test_subject_that_stood_still_for_longer_than_a_span_holds_nothing_up(
    queue: Queue, workers: Workers, tmp_path: Path
) -> None:
    """What a run takes at most is counted from the first message that is not archived, and not from the last one that
    is: that may be long ago.
    """
    for subject in ("idle.a", "idle.b"):
        send(queue.server, subject, 20, 20)
    while run(queue.server, tmp_path, "idle.*", workers, 200):
        pass
    assert rows_in(tmp_path) == 40
    wait_so_long(1000)
    send(queue.server, "idle.a", 20, 40)
    wait_so_long(1000)
    assert run(queue.server, tmp_path, "idle.*", workers, 200) > 0
    while run(queue.server, tmp_path, "idle.*", workers, 200):
        pass
    assert rows_in(tmp_path) == 60


def test_files_that_are_gone_or_broken_are_named_by_reconcile_and_by_find(
    queue: Queue, workers: Workers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for turn in range(3):
        send(queue.server, "broken", 100, 100 * (turn + 1))
        assert run(queue.server, tmp_path, "broken", workers) == 100
    gone, flipped, whole = Lake.at(str(tmp_path)).files()
    (tmp_path / gone.name).unlink()
    data = bytearray((tmp_path / flipped.name).read_bytes())
    data[300:310] = bytes(10)
    (tmp_path / flipped.name).write_bytes(data)
    (row,) = differing(queue.server, tmp_path, workers)
    assert row["lost"]["messages"] == gone.rows + flipped.rows
    assert row["lake"] == whole.rows
    assert set(row["damaged"]["files"]) == {gone.name, flipped.name}
    for asked in (("find", str(tmp_path), "--where", "true"), ("compact", str(tmp_path), "--workers", "1")):
        assert main(asked) == 1
        said = capsys.readouterr().err
        assert gone.name in said or flipped.name in said


def test_a_name_that_is_written_wrongly_is_said(
    queue: Queue, workers: Workers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is not an archive, or a subject, without messages."""
    nowhere = str(tmp_path / "nowhere")
    for asked in (
        ("status", nowhere), ("find", nowhere, "--key", "k"), ("sql", nowhere, "SELECT 1"), ("expire", nowhere),
        ("replay", nowhere, "--target", "t", "--dry-run"), ("reconcile", nowhere, "--server", queue.server),
    ):  # fmt: skip
        assert main(asked) == 1
        assert f"nothing is archived at {nowhere}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    send(queue.server, "named", 5, 5)
    assert run(queue.server, tmp_path / "lake", "named", workers) == 5
    wanted = ("run", "--server", queue.server, "--to", str(tmp_path / "lake"), "--workers", "1")
    assert main((*wanted, "--subject", "named", "--subject", "namde.*")) == 0
    assert "nothing of namde.* is archived" in capsys.readouterr().err


def test_subject_that_was_removed_and_declared_again_goes_on_in_its_archive(
    workers: Workers, tmp_path: Path
) -> None:
    """Its sequences go on, so nothing of the new one is taken for archived; what was not archived is missing."""
    cluster = Cluster(tmp_path / "cluster", 1, 0)
    try:
        cluster.start()
        lake = tmp_path / "lake"
        send(cluster.server, "again", 30, 30)
        assert run(cluster.server, lake, "again", workers) == 30
        send(cluster.server, "again", 10, 40)
        (place,) = Lake.at(str(lake)).archived()
        done = run_command("subjects", "remove", "again", "--yes", "--force", server=cluster.server)
        assert done.returncode == 0, done.stderr
        wait_until("it is gone", lambda: not standings(cluster.server, ["again"]), DONE_SECONDS)
        assert run(cluster.server, lake, "again", workers) == 0
        piece = Piece(place, 30, 30, 40)
        wanted = archive.Wanted(cluster.server, str(lake), ("again",))
        assert ranges_for(wanted, (piece,)) == []  # of a table of Delta that was to have it
        wait_until("it may be declared", lambda: declared(cluster.server, "again"), DONE_SECONDS)
        wait_until("its broker has heard so", lambda: taken(cluster.server, "again", 50), DONE_SECONDS)
        assert run(cluster.server, lake, "again", workers) == 50
        assert differing(cluster.server, lake, workers) == []
        state = Lake.at(str(lake)).state
        assert (state.missing, state.watermarks[Partition(*place)]) == (10, 90)
    finally:
        cluster.close()


def taken(server: str, subject: str, count: int) -> bool:
    """A broker hears with its next beat that a subject is there again."""
    try:
        send(server, subject, count, count)
    except Refused:
        return False
    return True


def declared(server: str, subject: str) -> bool:
    said = {
        "apiVersion": "tidemill.dev/v1alpha1",
        "kind": "Subject",
        "metadata": {"name": subject},
        "spec": {},
    }
    request = urllib.request.Request(f"http://{server}/v1/declarations", json.dumps([said]).encode())
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        if json.loads(error.read())["error"]["code"] != "not_gone":
            raise
        return False
    return True
