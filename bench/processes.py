"""What the kernel says of processes: their CPU, memory and identity, and what the rest of the machine does.

A process is named by its id *and* its start time, so that ending one never hits a stranger that got the same id.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROCESS_CLOCK = 2
"""What the lowest bits of a clock's number say when the rest are the inverted number of a process (Linux)."""


@dataclass(frozen=True, slots=True)
class Identity:
    pid: int
    started: int
    """Ticks after boot, from /proc/<pid>/stat."""


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_s: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class Moment:
    """One reading of the machine; two of them make a measurement."""

    at_s: float
    busy_s: float
    server: Usage
    client: Usage


def _stat(pid: int) -> list[str]:
    """The fields after the command's name, from the third on; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def identify(pid: int) -> Identity | None:
    fields = _stat(pid)
    return Identity(pid, int(fields[19])) if fields and fields[0] != "Z" else None


def family(pid: int) -> list[Identity]:
    """The process and all that descend from it, it first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[Identity] = []
    todo = [pid]
    while todo:
        one = todo.pop(0)
        if identity := identify(one):
            found.append(identity)
        todo.extend(children.get(one, []))
    return found


def usage(processes: Iterable[Identity]) -> Usage:
    cpu_s = 0.0
    rss_mb = 0.0
    for process in processes:
        fields = _stat(process.pid)
        if fields and int(fields[19]) == process.started:
            cpu_s += (int(fields[11]) + int(fields[12])) / TICKS
            rss_mb += int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return Usage(cpu_s, rss_mb)


def cpu_seconds(pid: int) -> float:
    """User and system time of one process, which runs, to the nanosecond: /proc counts in hundredths."""
    try:
        return time.clock_gettime(~pid << 3 | PROCESS_CLOCK)
    except OSError as error:
        raise ProcessLookupError(f"process {pid} is gone: its CPU seconds cannot be read") from error


def end(processes: list[Identity], grace_s: float = 15.0) -> None:
    """Asks the first, their parent, to end; who is left after the grace is killed. No other process is hit."""
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        left = [process for process in processes if identify(process.pid) == process]
        for process in left[:1] if number == signal.SIGTERM else left:
            _signal(process, number)
        limit = time.monotonic() + wait_s
        while time.monotonic() < limit and any(identify(process.pid) == process for process in left):
            _reap(left)
            time.sleep(0.05)


def _signal(process: Identity, number: signal.Signals) -> None:
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        pass  # It ended between the look and the signal.


def _reap(processes: list[Identity]) -> None:
    """Our own children stay as zombies until they are waited for; others are init's business."""
    for process in processes:
        try:
            os.waitpid(process.pid, os.WNOHANG)
        except ChildProcessError:
            pass


def busy_s() -> float:
    """CPU seconds that all processes of the machine used since boot."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(fields[:3]) + sum(fields[5:8])) / TICKS


def load() -> float:
    return os.getloadavg()[0]


def moment(server: Iterable[Identity], client: Iterable[Identity]) -> Moment:
    return Moment(time.monotonic(), busy_s(), usage(server), usage(client))


def foreign_cores(first: Moment, last: Moment) -> float:
    """Cores that others used meanwhile: neither the measured server nor its client."""
    own_s = last.server.cpu_s - first.server.cpu_s + last.client.cpu_s - first.client.cpu_s
    return max(0.0, (last.busy_s - first.busy_s - own_s) / max(0.01, last.at_s - first.at_s))


def wait_for_port(port: int, timeout_s: float = 60.0) -> None:
    limit = time.monotonic() + timeout_s
    while time.monotonic() < limit:
        with socket.socket() as connection:
            connection.settimeout(1.0)
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError(f"nobody listens on port {port} after {timeout_s:.0f} s")
