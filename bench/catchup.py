"""What a slave costs its master while it copies everything: `python -m bench.catchup`

A master alone is written to, with a backlog on its disk; then a slave begins with nothing, and the same goes on while
it catches up; and once more when it has. What is compared is the master's CPU seconds for a million messages and its
rate while the writer sends as fast as it is answered. Goal: catching up costs at most 10 % of the rate.

Where everything shares two cores the slave's own work takes from the master's, so the rate says more about the machine
than about the master; the CPU of the master for a million messages says what is asked of it. ``--nice 19`` leaves the
slave only the cores that nobody else wants, and ``--rate`` sends so many messages a second and not as many as are
answered: then what the master uses is compared at the same work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tidemill import Client

sys.path.insert(0, str(Path(__file__).parent))
from processes import cpu_seconds
from servers import Running, broker_command

GOAL = 0.9
SUBJECT = "catchup"
LOOK_S = 0.2
MIB = 1 << 20
CAUGHT_UP_BYTES = 4 * MIB
BACKLOG_RATE = 60 * MIB
"""So much is written in a second at least, where nothing else is done; how much it was is said."""


def replica(folder: str, name: str, nice: int = 0) -> Running:
    settings = {"TIDEMILL_NAME": name, "TIDEMILL_REPLICATED": "true", "TIDEMILL_DURABILITY": "low"}
    return Running(["nice", "-n", str(nice), *broker_command(folder)], settings)


def post(server: str, path: str, body: object) -> Any:
    request = urllib.request.Request(
        f"http://{server}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def stands(server: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{server}/v1/replication", timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


async def becomes(server: str, role: str) -> None:
    """Until it is that; while it begins, it answers nobody."""
    async with asyncio.timeout(30):
        while True:
            with suppress(urllib.error.URLError, ConnectionError):
                if stands(server)["role"] == role:
                    return
            await asyncio.sleep(LOOK_S)


def data_port(server: str) -> str:
    with urllib.request.urlopen(f"http://{server}/v1/routes", timeout=30) as answer:
        row = json.loads(answer.read())["brokers"][0]
    return f"127.0.0.1:{row['port']}"


class Writer:
    """Sends as fast as it is answered, or at a rate."""

    def __init__(self, mq: Client, size: int) -> None:
        self.sent = 0
        self.rate = 0
        self._mq = mq
        self._pool = [os.urandom(size) for _ in range(1000)]

    async def run(self) -> None:
        due = time.perf_counter()
        while True:
            await self._mq.send_many(SUBJECT, self._pool)
            self.sent += len(self._pool)
            now = time.perf_counter()
            due = max(now, due + len(self._pool) / self.rate) if self.rate else now
            await asyncio.sleep(due - now)


async def phase(
    name: str, writer: Writer, pids: tuple[int, int], seconds: float, caught_up: str = ""
) -> dict[str, Any]:
    """``seconds`` of it, or until the slave of a master has caught up. The master's process id, and the slave's."""
    began, sent, cpus = time.perf_counter(), writer.sent, [cpu_seconds(pid) for pid in pids]
    while time.perf_counter() - began < seconds:
        await asyncio.sleep(LOOK_S)
        if caught_up and await asyncio.to_thread(lag, caught_up) < CAUGHT_UP_BYTES:
            break
    took, messages = time.perf_counter() - began, writer.sent - sent
    used, slaves = (cpu_seconds(pid) - cpu for pid, cpu in zip(pids, cpus, strict=True))
    return {
        "phase": name, "seconds": round(took, 1), "rate": round(messages / took),
        "master_cores": round(used / took, 2), "master_cpu_s_per_million": round(1e6 * used / max(1, messages), 2),
        "slave_cores": round(slaves / took, 2), "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def lag(server: str) -> int:
    """Bytes of the message log that the slave has not said it has."""
    now = stands(server)
    [slave] = [now["slaves"].get("g0-1", {"message": 0})]
    return int(now["ends"]["message"] - slave["message"])


async def measure(options: argparse.Namespace, master: Running, slave: Running) -> dict[str, Any]:
    names, pids = ["g0-0", "g0-1"], (master.pid, slave.pid)
    appointment: dict[str, Any] = {
        "group": "g0", "epoch": 1, "version": 0, "master": "g0-0", "replicas": ["g0-0"], "in_sync": ["g0-0"],
        "addresses": {"g0-0": "127.0.0.1:1"},
    }  # fmt: skip
    post(master.server, "/v1/replication/appointment", appointment)
    await becomes(master.server, "master")
    async with Client(master.server) as mq:
        writer = Writer(mq, options.size)
        await mq.send(SUBJECT, b"first")
        task = asyncio.ensure_future(writer.run())
        await phase("backlog", writer, pids, options.backlog * MIB / BACKLOG_RATE)
        if task.done():
            task.result()
        writer.rate = options.rate
        phases = [await phase("alone", writer, pids, options.seconds)]
        backlog = stands(master.server)["ends"]["message"]
        addresses = {"g0-0": data_port(master.server), "g0-1": "127.0.0.1:1"}
        appointment |= {"version": 1, "replicas": names, "addresses": addresses}
        for one in (master, slave):
            post(one.server, "/v1/replication/appointment", appointment)
        phases.append(await phase("catching up", writer, pids, options.patience, master.server))
        left = lag(master.server)
        phases.append(await phase("following", writer, pids, options.seconds))
        task.cancel()
    ratio = phases[1]["rate"] / phases[0]["rate"]
    return {
        "size": options.size, "backlog_mib": round(backlog / MIB), "left_mib": round(left / MIB), "nice": options.nice,
        "phases": phases,
        "rate_catching_up": round(ratio, 2), "goal": GOAL, "met": ratio >= GOAL,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="what a slave that begins with nothing costs its master")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--backlog", type=int, default=2048, help="MiB on the disk before the slave begins")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument(
        "--nice", type=int, default=0, help="of the slave; 19 leaves it what nobody else wants"
    )
    parser.add_argument("--rate", type=int, default=0, help="messages a second; 0: as many as are answered")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds that it may take to catch up")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        master = stack.enter_context(replica(f"{folder}/g0-0", "g0-0"))
        slave = stack.enter_context(replica(f"{folder}/g0-1", "g0-1", options.nice))
        print(json.dumps(asyncio.run(measure(options, master, slave)), indent=1))


if __name__ == "__main__":
    main()
