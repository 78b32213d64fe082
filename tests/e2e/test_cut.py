"""A master whose network is cut under load: it commits nothing, a slave takes over, and what it had alone is cut.

Every process has a network namespace of its own. Who lives on the cut machine is answered by nobody until it is healed,
and then by the successor; clients elsewhere go on. ``STORM_STRICT=1`` asserts the time without slack.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.namespaces import GROUPS, Cut, Machines, need_namespaces
from e2e.queues import Queue, wait_until
from e2e.storm_programs import ORDERED, PROBE, SHARED
from e2e.storms import Consumed, Handled, Produced, Program, gaps, wait_begun, wait_drained
from e2e.test_replication import log_of

pytestmark = pytest.mark.e2e

STRICT = os.environ.get("STORM_STRICT") == "1"
SLACK = 1.0 if STRICT else 5.0
WRITES_AGAIN_SECONDS = 10.0
PATIENCE_SECONDS = 120.0
RATE = int(os.environ.get("CUT_RATE", "300"))
WARM_SECONDS, APART_SECONDS, AFTER_SECONDS = 4.0, 5.0, 4.0
ON_THE_WAY_SECONDS = 0.5
"""What the slave had before the cut may be answered, and read, so much later."""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    need_namespaces()
    made = Machines(tmp_path)
    try:
        yield made.start()
    finally:
        made.close()


def declare(machines: Machines) -> None:
    """Clients' subjects lie on both groups, the probe's on the one whose master is cut."""
    for name, groups in ((SHARED, ["g0", "g1"]), (ORDERED, ["g0", "g1"]), (f"{PROBE}.g0", ["g0"])):
        machines.meta.post(
            "/v1/declarations",
            {
                "apiVersion": "tidemill.dev/v1alpha1",
                "kind": "Subject",
                "metadata": {"name": name},
                "spec": {
                    "placement": {"brokerGroups": groups},
                    "config": [{"name": "durability", "value": "normal"}],
                },
            },
        )


def wait_whole(machines: Machines) -> None:
    for name, members in GROUPS.items():
        wait_until(
            f"{name} is led, and all are in sync",
            lambda name=name, members=members: (
                (row := machines.group(name))["master"] and len(row["in_sync"]) == len(members)
            ),
            PATIENCE_SECONDS,
        )


class Cast:
    """Who talks to the cluster: producer, consumer and worker elsewhere, and a producer on the machine that is cut."""

    def __init__(self, machines: Machines, folder: Path, master: str, stack: ExitStack) -> None:
        self.consumed, self.handled = Consumed(folder / "consumed"), Handled(folder / "handled")
        self._diaries = {"elsewhere": folder / "elsewhere", "there": folder / "there"}
        self._machines = machines
        server = machines.meta.server

        def start(name: str, where: str, *words: str) -> Program:
            made = Program(folder / f"{name}.err", *words, before=machines.network.inside(where))
            stack.callback(made.kill)
            return made

        self._takers = [
            start("ann", "clients", "consume", server, str(folder / "consumed"), "ann"),
            start("worker", "clients", "work", server, str(folder / "handled")),
        ]
        self._makers = [
            start(
                "elsewhere", "clients", "produce", server, str(self._diaries["elsewhere"]), str(RATE), "g0"
            ),
            start("there", master, "produce", server, str(self._diaries["there"]), "0", "g0"),
        ]

    def end(self) -> tuple[Produced, Produced]:
        """Until all is sent, given and handled. Who was elsewhere, and who was there."""
        for one in self._makers:
            one.end()
        elsewhere, there = (Produced(path) for path in self._diaries.values())
        self.rest = wait_drained(
            elsewhere, self.consumed, self.handled, lambda: self._machines.get_masters("/v1/groups")
        )
        for one in self._takers:
            one.end()
        self.read()
        return elsewhere, there

    def read(self) -> None:
        self.consumed.read()
        self.handled.read()


def wait_cut(machines: Machines, master: str, how: Cut) -> tuple[float, float, float]:
    """Cut a master for as long as it takes until there is another, and some seconds; when, when there was, and when
    it was healed.
    """
    wait_passed(WARM_SECONDS)
    epoch = machines.group("g0")["epoch"]
    began = time.monotonic()
    machines.network.cut(master, how)
    wait_until("another is master", lambda: machines.group("g0")["epoch"] > epoch, PATIENCE_SECONDS)
    followed = time.monotonic()
    assert machines.group("g0")["master"] != master
    wait_passed(APART_SECONDS)
    healed = time.monotonic()
    machines.network.heal(master, how)
    wait_whole(machines)
    wait_passed(AFTER_SECONDS)
    return began, followed, healed


def wait_passed(seconds: float) -> None:
    """Time in which the clients do what they do."""
    time.sleep(seconds)


def wait_alike(one: Queue, two: Queue) -> None:
    """Until both logs are the same."""
    wait_until("the logs are alike", lambda: log_of(one, "message") == log_of(two, "message"), 30)


def stored(machines: Machines, subject: str) -> int:
    return sum(row["messages"] for row in machines.get_masters("/v1/subjects") if row["name"] == subject)


@pytest.mark.parametrize("how", list(Cut), ids=lambda how: how.value)
def test_a_master_that_is_cut_off_commits_nothing_and_follows_when_it_is_healed(
    machines: Machines, tmp_path: Path, how: Cut
) -> None:
    wait_whole(machines)
    declare(machines)
    master = machines.group("g0")["master"]
    with ExitStack() as stack:
        cast = Cast(machines, tmp_path, master, stack)
        wait_begun(*(tmp_path / name for name in ("elsewhere", "there", "consumed", "handled")))
        began, followed, healed = wait_cut(machines, master, how)
        elsewhere, there = cast.end()

    alone = [one.answered for one in there.of("probe") if began + ON_THE_WAY_SECONDS < one.answered < healed]
    moments = [one.answered for one in elsewhere.of("shared", "ordered")]
    figures: dict[str, Any] = {
        "cut": how.value,
        "appointed_s": round(followed - began, 2),
        "writes_again_s": round(elsewhere.writes_again("g0", began), 2),
        "back_s": round(there.writes_again("g0", healed), 2),
        "stall_s": round(gaps(moments)[0][0], 2),
        "slowest_send_s": {
            kind: round(elsewhere.slowest(kind), 2) for kind in ("shared", "ordered", "probe")
        },
        "answered": len(elsewhere.shared) + len(elsewhere.ordered),
        "repeated_unacked": cast.consumed.repeated + cast.handled.repeated,
    }
    print(f"\n{json.dumps(figures)}")
    assert [one.answered for one in there.of("probe") if one.answered < began], "it was served before the cut"
    assert not alone, f"{len(alone)} were answered on the machine that was cut off"
    assert not elsewhere.failed + there.failed
    assert not cast.rest, f"{cast.rest} were not handled in time"
    assert not elsewhere.shared - cast.consumed.given, "lost"
    assert not elsewhere.ordered - cast.handled.ended, "lost"
    assert not cast.consumed.again + cast.handled.again, "again after its ack"
    assert not cast.handled.wrong, cast.handled.wrong[:5]
    probes = len(elsewhere.of("probe")) + len(there.of("probe"))
    assert [stored(machines, one) for one in (SHARED, ORDERED, f"{PROBE}.g0")] == [
        len(elsewhere.shared),
        len(elsewhere.ordered),
        probes,
    ]
    assert figures["writes_again_s"] < WRITES_AGAIN_SECONDS * SLACK
    one, two = (machines.queues[name] for name in GROUPS["g0"])
    wait_alike(one, two)
    if how is not Cut.DEAF:  # the slave hears that one to the last, and may have all that it has
        assert any((machines.queues[master].data / "aside").iterdir()), (
            "it had something alone, and that was cut"
        )
