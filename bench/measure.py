"""Runs one step against a server and says what it cost: one row of the results."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import processes
from peers.base import Server, Session, Step
from processes import Identity, Moment

Row = dict[str, Any]

QUIET_CORES = 0.25
DISTURBED_CORES = 0.15
"""More than this used by others while we measured, and the row is marked."""
BACKED_BYTES = 4 * 1024**3
"""About what the fastest writes in one step."""
DRAIN_SHARE = 0.98
"""How much of a backlog a drain waits for: the last batch of a client may stay behind."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things are measured."""

    secs: float = 3.5
    warm: float = 1.5
    e2e_secs: float = 6.0
    e2e_skip: float = 2.0
    e2e_join: float = 3.0
    e2e_rate: int = 5000
    due_rate: int = 5000
    due_secs: float = 10.0
    due_ahead: float = 10.0
    """How long after the first send the first message is due: all are scheduled by then."""
    topics: int = 5000
    topics_secs: float = 6.0
    patience: float = 150.0
    """The most that the first touch of the topics may take; one that is cut short would slow down what follows."""
    settle: float = 20.0
    """The most that a server may take from ready to quiet before it is measured."""
    quick: bool = False

    def options(self, mode: str) -> dict[str, object]:
        if mode == "e2e":
            return {
                "secs": self.e2e_secs,
                "skip": self.e2e_skip,
                "join": self.e2e_join,
                "rate": self.e2e_rate,
            }
        if mode == "topics":
            return {"secs": self.topics_secs, "topics": self.topics, "patience": self.patience}
        if mode == "due":
            return {"secs": self.due_secs, "rate": self.due_rate, "ahead": self.due_ahead}
        return {"secs": self.secs, "warm": self.warm}


QUICK = Pace(
    secs=0.7,
    warm=0.3,
    e2e_secs=1.0,
    e2e_skip=0.5,
    due_rate=500,
    due_secs=1.0,
    due_ahead=2.0,
    topics=200,
    topics_secs=0.7,
    patience=20.0,
    settle=5.0,
    quick=True,
)


class Gate:
    """Waits for a moment in which others leave the machine alone, up to a sum over the whole run."""

    def __init__(self, budget_s: float) -> None:
        self.left_s = budget_s

    def wait(self, server: Server) -> None:
        while self.left_s > 0:
            own = server.processes()
            first = processes.moment(own, [])
            time.sleep(0.5)
            if processes.foreign_cores(first, processes.moment(own, [])) < QUIET_CORES:
                return
            time.sleep(1.5)
            self.left_s -= 2.0


def rest(server: Server, patience_s: float) -> Row:
    """Workload h: how long until the server was up, and what it needs when nobody asks for anything."""
    limit = time.monotonic() + patience_s
    began = time.monotonic()
    while True:
        own = server.processes()
        first = processes.moment(own, [])
        time.sleep(1.0)
        last = processes.moment(own, [])
        idle = (last.server.cpu_s - first.server.cpu_s) / (last.at_s - first.at_s)
        if idle < 0.2 or time.monotonic() > limit:
            break
    return {
        "startup_s": round(server.ready_s, 2),
        "settled_s": round(time.monotonic() - began, 1),
        "idle_cpu_percent": round(100 * idle, 1),
        "rss_mb": round(last.server.rss_mb, 1),
        "load": processes.load(),
    }


def run(step: Step, server: Server, pace: Pace, backlog: Mapping[str, int]) -> Row:
    """What the driver reports, with the CPU of both sides between its marks."""
    options: dict[str, object] = {
        "mode": step.mode,
        "topic": step.topic,
        "size": step.size,
        **pace.options(step.mode),
    }
    options.update(step.options)
    if step.mode == "consume":
        options["n"] = int(backlog.get(step.topic, 0) * DRAIN_SHARE)
    if step.mode in {"produce", "topics", "due"}:
        options.setdefault("window", 10_000)
    row: Row = {"load": processes.load(), "quick": pace.quick}
    if step.mode in {"produce", "topics"}:
        back_memory()
    # What the steps before have left dirty is written now, not on this step's account.
    os.sync()
    own = server.processes()
    command = [*step.command, *(f"{name}={value}" for name, value in options.items())]
    driver = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    timeout_s = 60 + 10 * pace.secs + 2 * pace.due_secs + (2 * pace.patience if step.mode == "topics" else 0)
    row.update(_watch(driver, own, timeout_s))
    if "n" in row and "secs" in row:
        row["rate"] = row["n"] / max(1e-9, row["secs"])
    return row


def back_memory() -> None:
    """Touch as much free memory as a step may fill with page cache, and give it back.

    A virtual machine's memory is backed by its host on the first touch, which costs ten times the copy that caused it:
    whoever runs first would pay for all who come later.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, BACKED_BYTES, flags=flags).close()


def _watch(driver: subprocess.Popen[str], own: list[Identity], timeout_s: float) -> Row:
    """Follows the driver's marks; it is killed when it takes too long."""
    output, errors = driver.stdout, driver.stderr
    assert output is not None
    assert errors is not None
    client = processes.family(driver.pid)
    problems: list[str] = []
    listener = threading.Thread(target=lambda: problems.append(errors.read()), daemon=True)
    listener.start()
    timer = threading.Timer(timeout_s, driver.kill)
    timer.start()
    row: Row = {}
    first: Moment | None = None
    last: Moment | None = None
    try:
        for line in output:
            word, _, rest_of_line = line.strip().partition(" ")
            if word == "begin":
                first = processes.moment(own, client)
            elif word == "end":
                last = processes.moment(own, client)
            elif word == "result":
                row.update(json.loads(rest_of_line))
                break
    finally:
        timer.cancel()
        driver.kill()
        driver.wait()
        output.close()
        listener.join(5)
    if not row or first is None or last is None:
        return {
            "error": ("".join(problems).strip() or "the driver ended without a result, or was too slow")[
                -600:
            ]
        }
    row.update(_costs(first, last, row["n"]))
    return row


def _costs(first: Moment, last: Moment, messages: int) -> Row:
    millions = max(1, messages) / 1e6
    foreign = processes.foreign_cores(first, last)
    return {
        "server_cpu_s_per_m": (last.server.cpu_s - first.server.cpu_s) / millions,
        "client_cpu_s_per_m": (last.client.cpu_s - first.client.cpu_s) / millions,
        "rss_mb": round(last.server.rss_mb, 1),
        "foreign_cores": round(foreign, 2),
        "disturbed": foreign > DISTURBED_CORES,
    }


def label(peer: str, step: Step, session: Session) -> Row:
    """The columns that name a row; two rows with the same ones are two tries of one thing."""
    return {
        "workload": step.workload,
        "peer": peer,
        "variant": step.variant,
        "size": step.size,
        "durability": str(session.durability),
        "tags": sorted(step.tags),
    }
