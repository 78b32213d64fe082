"""Workers of a group in order join, leave and are killed: how long until each of its 64 partitions has an owner again.

It is asked of meta, which grants a partition when its former owner has let go of it or is not authorised any more; and
it is seen in the diaries, for the partitions to which keys lead. ``STORM_STRICT=1`` asserts the times without slack.
"""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from e2e.asking import post
from e2e.clusters import Cluster
from e2e.queues import wait_until
from e2e.storm_programs import KEYS, ORDERED
from e2e.storms import Handled, Program, Tail

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SLACK = 1.0 if os.environ.get("STORM_STRICT") == "1" else 5.0
GRACEFUL_SECONDS, AUTHORISED_SECONDS = 2.0, 10.0
KILLED_SECONDS = AUTHORISED_SECONDS + 1
PARTITIONS, WORKERS = 64, 3
RATE = 3000
PATIENCE_SECONDS = 90.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", 2, 0)
    try:
        yield made.start()
    finally:
        made.close()


class Crew:
    """Workers, and what meta says of who has what."""

    def __init__(self, cluster: Cluster, folder: Path, stack: ExitStack) -> None:
        self.diary = folder / "handled"
        self._cluster = cluster
        self._folder = folder
        self._stack = stack
        self._made = 0
        self.running: list[Program] = []

    def start(self) -> None:
        self._made += 1
        errors = self._folder / f"worker-{self._made}.err"
        program = Program(errors, "work", self._cluster.server, str(self.diary))
        self._stack.callback(program.kill)
        self.running.append(program)

    def allocation(self) -> dict[str, Any]:
        """Nobody has anything before the first worker has spoken."""
        with suppress(urllib.error.HTTPError):
            return self._allocation()
        return {"owners": {}, "waiting": []}

    def _allocation(self) -> dict[str, Any]:
        found: dict[str, Any] = self._cluster.get(f"/v1/subjects/{ORDERED}/groups/storm-ordered/allocation")
        return found

    def owners(self) -> set[str]:
        return set(self.allocation()["owners"].values())

    def wait_owned(self, owners: int) -> float:
        """When all partitions were seen to be granted to so many workers."""
        wait_until(
            f"{PARTITIONS} partitions are of {owners} workers",
            lambda: is_owned(self.allocation(), owners),
            PATIENCE_SECONDS,
        )
        return time.monotonic()

    def owner_of(self, key: int) -> Program:
        """Who began a message of a key last."""
        pids = [
            int(line[1]) for line in Tail(self.diary).lines() if line[0] == "began" and int(line[2]) == key
        ]
        return next(one for one in self.running if one.process.pid == pids[-1])

    def goes(self, program: Program, how: Callable[[], None]) -> float:
        self.running.remove(program)
        began = time.monotonic()
        how()
        return began

    def begun_again(self, pid: int, moment: float) -> float:
        """How long after a moment the last of the keys that a process had was begun by another one."""
        lines = [line for line in Tail(self.diary).lines() if line[0] == "began"]
        keys = {line[2] for line in lines if int(line[1]) == pid and moment - 2 < float(line[4]) <= moment}
        first: dict[str, float] = {}
        for _, who, key, _, at in lines:
            if int(who) != pid and float(at) > moment:
                first.setdefault(key, float(at))
        assert keys
        return max(first.get(key, float("inf")) for key in keys) - moment


def is_owned(allocation: dict[str, Any], owners: int) -> bool:
    held = allocation["owners"]
    return len(held) == PARTITIONS and len(set(held.values())) == owners and not allocation["waiting"]


def test_partitions_are_owned_again_soon_after_a_worker_came_left_or_was_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    manifest = {"apiVersion": "tidemill.dev/v1alpha1", "kind": "Subject", "metadata": {"name": ORDERED}}
    placement = {"brokerGroups": ["g0", "g1"]}
    for path, body in (
        ("/v1/declarations", {**manifest, "spec": {"placement": placement}}),
        (f"/v1/subjects/{ORDERED}/expand", {"partitions": PARTITIONS, "version": 1}),
    ):
        assert (answered := post(cluster, path, body)).status == 200, answered
    handled, figures = Handled(tmp_path / "handled"), dict[str, float]()
    with ExitStack() as stack:
        crew = Crew(cluster, tmp_path, stack)
        for _ in range(WORKERS):
            crew.start()
        producer = Program(
            tmp_path / "producer.err", "produce", cluster.server, str(tmp_path / "sent"), str(RATE)
        )
        stack.callback(producer.kill)
        crew.wait_owned(WORKERS)
        wait_until("all keys are at work", lambda: all_begun(crew.diary), PATIENCE_SECONDS)

        crew.start()
        wait_until("meta knows the new one", lambda: len(crew.owners()) > WORKERS, PATIENCE_SECONDS)
        began = time.monotonic()
        figures["joined_s"] = crew.wait_owned(WORKERS + 1) - began

        for what, number in (("left", signal.SIGTERM), ("killed", signal.SIGKILL)):
            program, owners = crew.owner_of(0), len(crew.running) - 1
            began = crew.goes(
                program, lambda program=program, number=number: program.process.send_signal(number)
            )
            figures[f"{what}_s"] = crew.wait_owned(owners) - began
            program.process.wait(PATIENCE_SECONDS)
            wait_until(
                "its keys are begun by others",
                lambda pid=program.process.pid, began=began: crew.begun_again(pid, began) < PATIENCE_SECONDS,
                PATIENCE_SECONDS,
            )
            figures[f"{what}_begun_s"] = crew.begun_again(program.process.pid, began)
        producer.end()
    handled.read()
    print("\n" + json.dumps({name: round(value, 2) for name, value in figures.items()}))

    assert not handled.again, "again after its ack"
    assert not [one for one in handled.wrong if "before" in one], "a key skipped a message"
    assert max(figures["joined_s"], figures["left_s"], figures["left_begun_s"]) < GRACEFUL_SECONDS * SLACK
    assert max(figures["killed_s"], figures["killed_begun_s"]) < KILLED_SECONDS * SLACK


def all_begun(diary: Path) -> bool:
    return len({line[2] for line in Tail(diary).lines() if line[0] == "began"}) == KEYS
