"""What a peer is: something that can be installed, started on an empty folder, driven step by step, and stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import cache
import processes
from processes import Identity

INSIDE = "TIDEMILL_BENCH_INSIDE"
"""Set where run.py has given the run a network and mounts of its own."""
JVM_SERVER = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
JVM_CLIENT = (
    "-Xms512m", "-Xmx2g", "-XX:+UseG1GC",
    "--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)  # fmt: skip


class Durability(StrEnum):
    """What an answer to a producer promises."""

    PAGE_CACHE = "page cache"
    FSYNC = "fsync"


@dataclass(frozen=True, slots=True)
class Session:
    """One life of a server, from an empty folder to its end."""

    durability: Durability
    label: str = ""


REPLICATED = Session(Durability.PAGE_CACHE, "two replicas")
"""Two servers have each message in their page caches before its producer is answered."""


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement: a driver that is run once against a server that is up."""

    workload: str
    variant: str
    size: int
    command: tuple[str, ...]
    mode: str
    topic: str
    options: Mapping[str, object] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    """`ack`: the product acknowledges single messages. `python`: a Python client. `log`: a plain log."""


class Server:
    """The processes of a peer. The helpers (name server, port mapper) are ended with it, and not measured."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.ready_s = 0.0
        self._began = time.monotonic()
        self._measured: list[int] = []
        self._helpers: list[int] = []
        self._seen: set[Identity] = set()

    def spawn(
        self,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        *,
        helper: bool = False,
    ) -> subprocess.Popen[bytes]:
        # A session of its own, so that an interrupt at the terminal leaves the ending to us.
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                [str(word) for word in command],
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self._helpers if helper else self._measured).append(started.pid)
        self.processes()
        return started

    def wait_for_text(self, text: str, timeout_s: float = 90.0, times: int = 1) -> None:
        limit = time.monotonic() + timeout_s
        while self.log.read_text(errors="replace").count(text) < times:
            if time.monotonic() > limit or not all(map(processes.identify, self._measured)):
                raise cache.CannotInstall(f"no {text!r} in the log: {self.tail()}")
            time.sleep(0.02)

    def restart_clock(self) -> None:
        """Called right before the first process that belongs to the start-up time."""
        self._began = time.monotonic()

    def ready(self) -> None:
        self.ready_s = time.monotonic() - self._began

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-800:] if self.log.exists() else "nothing"

    def processes(self) -> list[Identity]:
        """Those that are measured, with all their children."""
        found = [identity for pid in self._measured for identity in processes.family(pid)]
        self._seen.update(found)
        for pid in self._helpers:
            self._seen.update(processes.family(pid))
        return found

    def stop(self) -> None:
        self.processes()
        for root in (*self._measured, *self._helpers):
            processes.end([identity for identity in self._seen if identity.pid == root])
        # What outlived its parents, if anything.
        processes.end(sorted(self._seen, key=lambda identity: identity.started), grace_s=2.0)


class Peer(ABC):
    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.name

    def install(self) -> None:
        """Downloads and builds what is missing; raises CannotInstall."""
        self.folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def version(self) -> str: ...

    def sessions(self) -> list[Session]:
        return [Session(durability) for durability in Durability]

    @abstractmethod
    def launch(self, server: Server, session: Session) -> None:
        """Starts the processes and returns when they serve."""

    @abstractmethod
    def steps(self, session: Session) -> list[Step]:
        """What is measured while the server lives, in this order."""

    def start(self, session: Session) -> Server:
        """Starts on an empty folder."""
        self.empty()
        server = Server(self.folder / "server.log")
        try:
            self.launch(server, session)
            server.ready()
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            raise cache.CannotInstall(f"{error}; its log: {server.tail()}") from error
        finally:
            if not server.ready_s:
                server.stop()
        return server

    def empty(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def java(self, peer: str, *sources: str) -> tuple[str, ...]:
        """The command of a Java driver, but for its options; the first source is the driver."""
        return ("java", *JVM_CLIENT, "-cp", cache.classes(peer, *sources), "Bench", f"peer={sources[0]}")

    def python(self, driver: str) -> tuple[str, ...]:
        return (str(cache.python()), str(cache.DRIVERS / f"{driver}_driver.py"))


def python_steps(
    client: str, command: tuple[str, ...], *, tags: str, sync: bool = True, **options: object
) -> list[Step]:
    """What a Python client of a peer gets: the workloads f-*."""
    found: list[Step] = []
    every = frozenset(["python", *tags.split()])
    for size in (1024, 100):
        base = Step("f-produce", client, size, command, "produce", f"{client}-{size}", options, every)
        found += [base, replace(base, workload="f-consume", mode="consume")]
    if sync:
        found.append(Step("f-sync", client, 1024, command, "sync", f"{client}-sync", options, every))
    return found
