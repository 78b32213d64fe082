"""tidemill itself, one more peer: `tidemill up` as a process of its own, driven by the public Python client."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import cache
from peers.base import REPLICATED, Durability, Peer, Server, Session, Step

TOPICS = 5000
MANY = Session(Durability.PAGE_CACHE, "5,000 subjects declared")
TWICE = Session(Durability.PAGE_CACHE, "10,000 subjects declared")
COUNTS = {MANY: TOPICS, TWICE: 2 * TOPICS}
DELAY_LEVELS = {Durability.PAGE_CACHE: "normal", Durability.FSYNC: "high"}
LEVELS = {Durability.PAGE_CACHE: "low", Durability.FSYNC: "high"}
SUBJECT = """\
---
apiVersion: tidemill.dev/v1alpha1
kind: Subject
metadata: {{name: {name}}}
spec: {{config: [{{name: durability, value: {level}}}]}}
"""


def program() -> Path:
    """The command of the environment that runs us, or what $TIDEMILL names."""
    named = os.environ.get("TIDEMILL")
    beside = Path(sys.executable).with_name("tidemill")
    found = named or (str(beside) if beside.exists() else shutil.which("tidemill"))
    if not found:
        raise cache.CannotInstall("no `tidemill` beside this Python; install the project, or set $TIDEMILL")
    return Path(found)


class Tidemill(Peer):
    name = "tidemill"
    port = 0

    def install(self) -> None:
        super().install()
        program()

    def version(self) -> str:
        question = "import importlib.metadata as m; print(m.version('tidemill'))"
        return cache.run(program().with_name("python"), "-c", question).strip()

    def sessions(self) -> list[Session]:
        return [*super().sessions(), MANY, TWICE, REPLICATED]

    def launch(self, server: Server, session: Session) -> None:
        manifest = self.folder / "subjects.yaml"
        names = self._subjects(session)
        manifest.write_text("".join(SUBJECT.format(name=name, level=self._level(session)) for name in names))
        server.restart_clock()
        server.spawn(
            (
                program(),
                "up",
                "--data",
                self.folder / "data",
                "--port",
                "0",
                "--http-port",
                "0",
                "-f",
                manifest,
                *(("--brokers", "1", "--slaves", "1") if session == REPLICATED else ()),
            ),
            {"TIDEMILL_DELAY_DURABILITY": DELAY_LEVELS[session.durability]},
        )
        server.wait_for_text("ready ")
        ready = re.search(r"ready (?:tidemill://\S+ )?http://\S+?:(\d+)", server.log.read_text())
        if ready is None:
            raise cache.CannotInstall(f"no ports in the ready line: {server.tail()}")
        self.port = int(ready[1])
        if session == REPLICATED:
            self._wait_in_sync()

    def _wait_in_sync(self) -> None:
        """Until the slave is one of those that answers wait for."""
        status = (program(), "status", "--server", f"127.0.0.1:{self.port}", "--output", "json")
        limit = time.monotonic() + 30
        while time.monotonic() < limit:
            said = subprocess.run(status, capture_output=True, text=True, check=False, timeout=30)
            brokers = json.loads(said.stdout)["brokers"] if said.stdout.startswith("{") else []
            if len(brokers) == 2 and all(broker["in_sync"] for broker in brokers):
                return
            time.sleep(0.1)
        raise cache.CannotInstall(f"the slave did not come into sync: {said.stdout}{said.stderr}")

    @staticmethod
    def _level(session: Session) -> str:
        return "normal" if session == REPLICATED else LEVELS[session.durability]

    @staticmethod
    def _subjects(session: Session) -> Iterable[str]:
        if session in COUNTS:
            return [f"many{number}" for number in range(COUNTS[session])]
        logs = [f"{kind}-{size}" for kind in ("log", "each", "later") for size in (1024, 100)]
        return [*logs, *(f"{log}-warm" for log in logs), "sync", "e2e", "due"]

    def steps(self, session: Session) -> list[Step]:
        if session == TWICE:
            return []  # what it costs to have them
        driver = (
            str(program().with_name("python")),
            str(cache.DRIVERS / "tidemill_driver.py"),
            f"port={self.port}",
        )
        tags = frozenset({"ack", "python"})
        send = Step(
            "a", "send_many of 500", 1024, driver, "produce", "log", {"batch": 500, "tasks": 16}, tags
        )
        if session == REPLICATED:
            return [replace(send, workload="r", size=size, topic=f"log-{size}") for size in (1024, 100)]
        if session == MANY:
            return [
                replace(
                    send, workload="g", variant="send_each", size=100, mode="topics", topic="many", options={}
                )
            ]
        found: list[Step] = []
        for size in (1024, 100):
            many = replace(send, size=size, topic=f"log-{size}")
            each = replace(
                many, variant="send", topic=f"each-{size}", options={"how": "each", "window": 10_000}
            )
            if session.durability is Durability.FSYNC:
                found.append(replace(many, workload="b"))
            else:
                found += [
                    many,
                    each,
                    replace(many, workload="c", variant="batches, acked", mode="consume", options={}),
                ]
        found.append(replace(send, workload="d", variant="send", mode="sync", topic="sync", options={}))
        if session.durability is Durability.PAGE_CACHE:
            later = replace(
                send,
                workload="t-produce",
                variant="send_many of 500",
                options={**send.options, "later": 7200},
            )
            found += [replace(later, size=size, topic=f"later-{size}") for size in (1024, 100)]
            found.append(
                replace(
                    send, workload="t-due", variant="send_many of 50", mode="due", topic="due", options={}
                )
            )
            found.append(replace(send, workload="e", variant="send", mode="e2e", topic="e2e", options={}))
        return found
