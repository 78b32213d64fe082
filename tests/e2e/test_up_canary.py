"""`tidemill up --canary`: a queue on this machine that is watched, and says what was seen wherever one looks."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from e2e.clusters import Cluster, is_there
from e2e.conftest import STANDALONE, MakeQueue
from e2e.queues import Queue, run_command, wait_until
from samples.authorities import Authority

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PATIENCE_SECONDS = 90.0
CANARY = ("--canary", "--canary-port", "0")
LONE = ("--canary", "0")
"""As `tidemill up` says it to the process that it becomes."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", 1, 1, options=CANARY)
    try:
        yield made.start()
    finally:
        made.close()


def told(queue: Queue) -> dict[str, Any]:
    """What the queue's own port says; nothing while meta, which comes after the broker, is not there."""
    with suppress(HTTPError):
        found: dict[str, Any] = queue.get("/v1/canary")
        return found
    return {"page": None, "problem": ""}


def canary_of(queue: Queue) -> dict[str, Any]:
    """What is said of g0; nothing as long as nothing is."""
    groups = (told(queue)["page"] or {"groups": []})["groups"]
    return next((one for one in groups if one["group"] == "g0"), {})


def seen(queue: Queue) -> int:
    return int(canary_of(queue).get("probes", {"now": {"seen": 0}})["now"]["seen"])


def failovers(queue: Queue) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = canary_of(queue).get("failovers", [])
    return found


def process_of(queue: Queue) -> int:
    """The canary's, which is a child of the queue's own; 0: there is none."""
    below = Path(f"/proc/{queue.pid}/task/{queue.pid}/children").read_text().split()
    for pid in map(int, below):
        with suppress(OSError):  # it has just ended
            if "tidemill.canary" in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                return pid
    return 0


def test_a_cluster_measures_what_the_death_of_a_master_costs(cluster: Cluster) -> None:
    wait_until("probes come", lambda: seen(cluster) > 5, PATIENCE_SECONDS)
    wait_until("somebody can take over", lambda: len(cluster.group("g0")["in_sync"]) == 2, PATIENCE_SECONDS)

    os.kill(cluster.children()[cluster.group("g0")["master"]], signal.SIGKILL)
    wait_until(
        "the failover is measured", lambda: [one for one in failovers(cluster) if one["settled"]], PATIENCE_SECONDS
    )  # fmt: skip

    wait_until("it is told", lambda: canary_of(cluster), PATIENCE_SECONDS)
    found = canary_of(cluster)
    assert {one["rpo"] for one in found["failovers"]} == {0}
    assert found["failovers"][0]["epoch"] == 2
    assert found["failovers"][0]["rto_ms"] > 1000
    assert [kind["lost"] for kind in found["probes"].values()] == [0, 0]
    lines = run_command("status", "-s", cluster.server).stdout.splitlines()
    [titles] = [number for number, line in enumerate(lines) if line.startswith("CANARY")]
    row = lines[titles + 1].split()
    assert (row[0], row[2], row[3], row[-1]) == ("g0", "0", "0", "0")
    assert int(row[-3]) == len(failovers(cluster))
    assert int(row[-2].replace(",", "")) == failovers(cluster)[-1]["rto_ms"]


def test_a_canary_that_dies_comes_again_at_its_place_and_ends_with_its_cluster(cluster: Cluster) -> None:
    wait_until("probes come", lambda: seen(cluster) > 1, PATIENCE_SECONDS)
    place, first = cluster.get("/v1/canary")["address"], process_of(cluster)

    os.kill(first, signal.SIGKILL)
    wait_until("there is another one", lambda: process_of(cluster) not in {0, first}, PATIENCE_SECONDS)
    wait_until("probes come again", lambda: seen(cluster) > 1, PATIENCE_SECONDS)
    assert cluster.get("/v1/canary")["address"] == place
    last = process_of(cluster)

    assert cluster.stop() == 0
    assert not is_there(last)


def test_a_lone_queue_has_one_and_the_doctor_hears_of_what_is_wrong(make_queue: MakeQueue) -> None:
    queue = make_queue("watched", command=STANDALONE, options=LONE).start()
    wait_until("probes come", lambda: seen(queue) > 3, PATIENCE_SECONDS)
    page = canary_of(queue)
    assert page["p99_ms"]["end_to_end"] >= 1
    status = json.loads(run_command("status", "-s", queue.server, "-o", "json").stdout)
    assert [one["group"] for one in status["canary"]["groups"]] == ["g0"]

    child = process_of(queue)
    os.kill(child, signal.SIGSTOP)
    try:
        wait_until("it is missed", lambda: told(queue)["problem"], PATIENCE_SECONDS)
        done = run_command("doctor", "--over", "0", "-s", queue.server)
        assert "it does not answer at 127.0.0.1:" in done.stdout
    finally:
        os.kill(child, signal.SIGCONT)
    wait_until("it is there again", lambda: told(queue)["page"], PATIENCE_SECONDS)
    assert queue.stop() == 0
    assert not is_there(child)


def test_a_queue_without_one_says_that_there_is_none(make_queue: MakeQueue) -> None:
    queue = make_queue("alone", command=STANDALONE).start()
    wait_until("meta is there", lambda: "address" in told(queue), PATIENCE_SECONDS)

    assert queue.get("/v1/canary") == {"address": "", "problem": "", "page": None}
    assert "CANARY" not in run_command("status", "-s", queue.server).stdout


def test_behind_locks_it_shows_the_clusters_token_and_trusts_its_authority(
    make_queue: MakeQueue, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    token = tmp_path / "cluster.token"
    token.write_text("the token of the cluster, which is long enough\n")
    settings = {**authority.serve(), "TIDEMILL_CLUSTER_TOKEN_FILE": str(token)}
    queue = make_queue("locked", settings=settings, command=STANDALONE, options=LONE)
    queue.ca, queue.token = str(authority.ca), token.read_text().strip()
    queue.start()

    wait_until("probes come", lambda: seen(queue) > 1, PATIENCE_SECONDS)
    assert canary_of(queue)["problem"] == ""
    assert queue.token not in queue.errors


def test_a_port_that_is_taken_is_said_before_anything_begins(make_queue: MakeQueue, tmp_path: Path) -> None:
    first = make_queue("first", command=STANDALONE, options=LONE).start()
    wait_until("meta is there", lambda: "address" in told(first), PATIENCE_SECONDS)
    taken = told(first)["address"].rpartition(":")[2]

    folder = str(tmp_path / "second")
    done = run_command(
        "up", "--data", folder, "--port", "0", "--http-port", "0", "--canary", "--canary-port", taken
    )

    assert done.returncode == 1
    assert f"port {taken} cannot be listened at" in done.stderr
    assert "--canary-port" in done.stderr
