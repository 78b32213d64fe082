"""Workers by key over a real cluster: meta allots partitions, and hands them over when workers come, stop and stand."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.clusters import Cluster
from e2e.queues import wait_until
from e2e.test_ordered import DIARY, entries, start
from tidemill import Client

pytestmark = pytest.mark.e2e

SUBJECT = "order.changed"
KEYS = [f"o-{number}" for number in range(12)]
STEPS, MORE = 400, 50


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", 2, 0).start()
    yield made
    made.close()


async def send(cluster: Cluster, first: int, end: int) -> None:
    """As any program does; keys find their partitions."""
    async with Client(cluster.server) as mq:
        for step in range(first, end):
            await asyncio.gather(*(mq.send(SUBJECT, str(step), order_key=key) for key in KEYS))


def handled(output: Path) -> int:
    """How many messages some handler came to the end of."""
    return len({(key, step) for _, _, what, key, step in entries(output) if what == "ended" and key in KEYS})


def begun_by(output: Path, process: subprocess.Popen[bytes]) -> set[str]:
    """The keys of which a process began messages."""
    return {key for _, pid, what, key, _ in entries(output) if pid == process.pid and what == "began"}


def test_partitions_are_shared_handed_over_and_taken_over(cluster: Cluster, tmp_path: Path) -> None:
    script, output = tmp_path / "diary.py", tmp_path / "output"
    script.write_text(DIARY)
    asyncio.run(send(cluster, 0, STEPS))

    first = start(cluster, script, output)
    wait_until("one worker has both partitions", lambda: len(begun_by(output, first)) > len(KEYS) / 2, 60)
    second = start(cluster, script, output)
    wait_until("the second one has some", lambda: begun_by(output, second), 60)
    first.send_signal(signal.SIGSTOP)
    stopped = max(at for at, *_ in entries(output))
    wait_until("the second one has all", lambda: begun_by(output, second) >= set(KEYS), 60)
    first.send_signal(signal.SIGCONT)
    asyncio.run(send(cluster, STEPS, STEPS + MORE))
    wait_until("all was handled", lambda: handled(output) == (STEPS + MORE) * len(KEYS), 120)
    for process in (first, second):
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0

    open_now: dict[str, dict[int, float]] = {key: {} for key in KEYS}
    reached = dict.fromkeys(open_now, -1)
    for at, pid, what, key, step in entries(output):
        if what == "began":
            others = [began for other, began in open_now[key].items() if other != pid]
            in_the_middle = [began for began in others if began <= stopped < at]
            assert others == in_the_middle, f"{key} {step} was begun beside another worker"
            assert step <= reached[key] + 1, f"{key} {step} was begun before {reached[key] + 1}"
            open_now[key][pid] = at
        else:
            open_now[key].pop(pid, None)
            reached[key] = max(reached[key], step)
