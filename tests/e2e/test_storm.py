"""A cluster under load whose processes are killed in turn: nothing lost, nothing again after its ack, keys in order.

Three broker groups of two, and meta, below one `tidemill up`. A producer keeps its rate whatever is not answered yet;
consumers of a shared group and workers by key are processes beside it. Every ``STORM_PAUSE`` seconds one more process
is killed, and each round begins with a planned hand-over, so slaves are struck as well as masters.

What was promised is asserted always; times with slack, for others work on the same cores. ``STORM_STRICT=1`` asserts
the times themselves: ``make soak`` has the whole of it, 5,000 messages a second for 10 minutes.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import deque
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from e2e.clusters import Cluster
from e2e.queues import run_command, wait_until
from e2e.storm_programs import ORDERED, PROBE, SHARED
from e2e.storms import Consumed, Handled, Produced, Program, gaps, wait_begun, wait_drained
from e2e.test_cluster import group_of

SECONDS = float(os.environ.get("STORM_SECONDS", "45"))
PAUSE_SECONDS = float(os.environ.get("STORM_PAUSE", "5"))
RATE = int(os.environ.get("STORM_RATE", "500"))
STRICT = os.environ.get("STORM_STRICT") == "1"
STALL_SECONDS, WRITES_AGAIN_SECONDS, HAND_OVER_SECONDS = 2.0, 10.0, 1.0
SLACK = 1.0 if STRICT else 5.0
GROUPS, SLOTS = ("g0", "g1", "g2"), ("0", "1")
PATIENCE_SECONDS = 120.0
SETTLE_SECONDS = 5.0
"""So long a hand-over can be seen in the answers."""
CONSUMERS, WORKERS = ("ann", "bob"), 2

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(SECONDS + 600)]


class Kill(NamedTuple):
    """One process's. ``in_sync``: how many of its group were, itself included."""

    at: float
    name: str
    group: str
    master: bool
    in_sync: int
    epoch: int


class HandOver(NamedTuple):
    began: float
    ended: float
    group: str
    said: float
    """By the command."""


class Storm:
    """The order of what is done to a cluster, and what meta was seen to say meanwhile."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.kills: list[Kill] = []
        self.hand_overs: list[HandOver] = []
        self.epochs: dict[tuple[str, int], float] = {}
        """When meta was first seen to have a master for a group's epoch."""

    def steps(self) -> Iterator[str]:
        """Without end: a hand-over, each broker, meta."""
        for turn in count():
            yield f"hand over {GROUPS[turn % len(GROUPS)]}"
            yield from (f"{group}-{slot}" for slot in SLOTS for group in GROUPS)
            yield "meta-0"

    def wait_over(self) -> None:
        """All that is done in ``SECONDS``; the last process has as long a time to come back as all others."""
        end = time.monotonic() + SECONDS
        for step in self.steps():
            at = time.monotonic() + PAUSE_SECONDS
            while (now := time.monotonic()) < min(at, end):
                self._look(now)
                time.sleep(0.05)
            if at >= end:
                return
            if step.startswith("hand over"):
                self._hand_over(step.rpartition(" ")[2])
            else:
                self._kill(step)

    def _look(self, now: float) -> None:
        for name in GROUPS:
            row = group_of(self._cluster, name)
            if row["master"] and row["state"] == "RW":
                self.epochs.setdefault((name, row["epoch"]), now)

    def _kill(self, name: str) -> None:
        wait_until(f"{name} is there", lambda: name in self._cluster.children(), PATIENCE_SECONDS)
        group = name.partition("-")[0] if name != "meta-0" else ""
        row = group_of(self._cluster, group) if group else {"master": "", "in_sync": [], "epoch": 0}
        os.kill(self._cluster.children()[name], signal.SIGKILL)
        at = time.monotonic()
        self.kills.append(Kill(at, name, group, row["master"] == name, len(row["in_sync"]), row["epoch"]))

    def _hand_over(self, group: str) -> None:
        wait_until(
            f"all of {group} are in sync",
            lambda: len(group_of(self._cluster, group)["in_sync"]) == len(SLOTS),
            PATIENCE_SECONDS,
        )
        began = time.monotonic()
        done = run_command("broker", "handover", group, "--output", "json", server=self._cluster.server)
        assert done.returncode == 0, done.stderr
        self.hand_overs.append(HandOver(began, time.monotonic(), group, json.loads(done.stdout)["seconds"]))

    def seen_again(self, kill: Kill) -> float | None:
        """How long after a master's kill meta was seen to have another epoch, with a master."""
        later = [
            at for (group, epoch), at in self.epochs.items() if group == kill.group and epoch > kill.epoch
        ]
        return min(later) - kill.at if later else None


def manifest(folder: Path) -> Path:
    """Both subjects lie on all groups, and a subject for probes on each."""
    rows = [(SHARED, GROUPS), (ORDERED, GROUPS), *((f"{PROBE}.{group}", (group,)) for group in GROUPS)]
    path = folder / "storm.yaml"
    path.write_text(
        "".join(
            f"---\napiVersion: tidemill.dev/v1alpha1\nkind: Subject\nmetadata: {{name: {name}}}\n"
            f"spec: {{placement: {{brokerGroups: [{', '.join(groups)}]}}, orderStrategy: Strict, "
            "config: [{name: durability, value: normal}]}\n"
            for name, groups in rows
        )
    )
    return path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", len(GROUPS), len(SLOTS) - 1, manifests=[manifest(tmp_path)])
    try:
        yield made.start()
    finally:
        made.close()


def wait_well(cluster: Cluster) -> None:
    for group in GROUPS:
        wait_until(
            f"{group} is led, and all are in sync",
            lambda group=group: len(group_of(cluster, group)["in_sync"]) == len(SLOTS),
            PATIENCE_SECONDS,
        )


def stored(cluster: Cluster, subject: str) -> int:
    """How many messages of a subject the masters have."""
    return sum(row["messages"] for row in cluster.get_masters("/v1/subjects") if row["name"] == subject)


def test_each_process_killed_in_turn_loses_nothing_and_is_soon_made_up_for(
    cluster: Cluster, tmp_path: Path
) -> None:
    consumed, handled = Consumed(tmp_path / "consumed"), Handled(tmp_path / "handled")
    wait_well(cluster)
    running: deque[Program] = deque()

    def start(name: str, *words: str) -> Program:
        running.append(Program(tmp_path / f"{name}.err", *words))
        return running[-1]

    try:
        for name in CONSUMERS:
            start(name, "consume", cluster.server, str(tmp_path / "consumed"), name)
        for number in range(WORKERS):
            start(f"worker-{number}", "work", cluster.server, str(tmp_path / "handled"))
        diary = tmp_path / "produced"
        producer = start("producer", "produce", cluster.server, str(diary), str(RATE), *GROUPS)
        wait_begun(*(tmp_path / name for name in ("produced", "consumed", "handled")))
        storm = Storm(cluster)
        storm.wait_over()
        stopped = time.monotonic()
        producer.end()
        wait_well(cluster)
        produced = Produced(diary)
        rest = wait_drained(produced, consumed, handled, lambda: cluster.get_masters("/v1/groups"))
        for program in running:
            if program is not producer:
                program.end()
    finally:
        for program in running:
            program.kill()
    consumed.read()
    handled.read()
    figures = figures_of(storm, produced, stopped) | counts_of(produced, consumed, handled)
    print(f"\n{json.dumps(figures)}")

    assert not produced.failed, produced.failed[:5]
    assert not rest, f"{rest} were not handled in time"
    assert not produced.shared - consumed.given, "lost"
    assert not produced.ordered - handled.ended, "lost"
    assert not consumed.again + handled.again, "again after its ack"
    assert not handled.wrong, handled.wrong[:5]
    assert [stored(cluster, name) for name in (SHARED, ORDERED)] == [
        len(produced.shared),
        len(produced.ordered),
    ]
    assert figures["stall_s"] < STALL_SECONDS * SLACK
    struck = figures["masters_killed"] + figures["slaves_killed"]
    assert max(one["writes_again_s"] for one in struck) < WRITES_AGAIN_SECONDS * SLACK
    assert max(one["gap_s"] for one in figures["hand_overs"]) < HAND_OVER_SECONDS * SLACK


def figures_of(storm: Storm, produced: Produced, stopped: float) -> dict[str, Any]:
    """Times, in seconds."""
    moments = [one.answered for one in produced.of("shared", "ordered") if one.answered <= stopped]
    moments.append(stopped)
    struck = [(told_of(one, storm, produced), one) for one in storm.kills if one.group]
    hand_overs = [
        {
            "group": one.group,
            "gap_s": round(
                produced.longest_gap(one.group, one.began - 1, min(stopped, one.ended + SETTLE_SECONDS)), 2
            ),
            "said_s": one.said,
        }
        for one in storm.hand_overs
    ]
    return {
        "rate": RATE,
        "seconds": SECONDS,
        "kills": len(storm.kills),
        "stall_s": round(gaps(moments)[0][0], 2),
        "stalls": [[round(long, 2), before(storm, at)] for long, at in gaps(moments)[:5]],
        "slowest_send_s": {kind: round(produced.slowest(kind), 2) for kind in ("shared", "ordered", "probe")},
        "masters_killed": [row for row, one in struck if one.master],
        "slaves_killed": [row for row, one in struck if not one.master],
        "hand_overs": hand_overs,
    }


def told_of(kill: Kill, storm: Storm, produced: Produced) -> dict[str, Any]:
    """How its group fared."""
    appointed = storm.seen_again(kill) if kill.master else None
    return {
        "name": kill.name,
        "in_sync": kill.in_sync,
        "writes_again_s": round(produced.writes_again(kill.group, kill.at), 2),
        "appointed_s": None if appointed is None else round(appointed, 2),
    }


def before(storm: Storm, moment: float) -> str:
    """What was done last, and how long before; a stall is told from its beginning."""
    done = [(one.at, one.name) for one in storm.kills]
    done += [(one.began, f"hand-over of {one.group}") for one in storm.hand_overs]
    at, what = max((one for one in done if one[0] <= moment + 1), default=(moment, "the beginning"))
    return f"{moment - at:+.2f} s after {what}"


def counts_of(produced: Produced, consumed: Consumed, handled: Handled) -> dict[str, Any]:
    return {
        "answered": len(produced.shared) + len(produced.ordered),
        "failed": len(produced.failed),
        "lost": len(produced.shared - consumed.given) + len(produced.ordered - handled.ended),
        "again_after_ack": len(consumed.again) + len(handled.again),
        "order_violations": len(handled.wrong),
        "repeated_unacked": consumed.repeated + handled.repeated,
    }
