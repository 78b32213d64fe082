"""Meta under the load of a large cluster: many simulated brokers and clients, real replicas in processes of their own.

``python bench/meta.py`` starts meta on SQLite; ``--replicas 3`` starts three on a PostgreSQL of its own. Brokers
heartbeat each second, clients as often as they are told, which is each ten seconds and for one of five, a consumer in
order, each two; every client has a watch stream. What is measured: the time of each request as its sender sees it, the
processor time of each replica, and how long a change takes to all streams.

The senders are one process, which takes a tenth of a core. How late its own loop is stands in each phase's ``late``,
and so long a request may have waited here, not in meta; what else the machine does stands in ``others_cores`` and
``load``. On a machine that others use, run it before them, as root; where the kernel groups
processes by session, ``nice`` is not enough: ``setsid sh -c 'echo -12 > /proc/self/autogroup; exec python meta.py'``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from processes import cpu_seconds
from servers import Running

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


LOOK_SECONDS = 0.01


def replica(folder: str, database: str) -> Running:
    """A replica of meta."""
    where = ["--database", database] if database else ["--data", folder]
    return Running([sys.executable, "-m", "tidemill_meta", *where, "--port", "0"])


class Times:
    """How long requests took, by what they were, in one phase."""

    def __init__(self) -> None:
        self.by_name: defaultdict[str, list[float]] = defaultdict(list)
        self.failed: defaultdict[str, int] = defaultdict(int)

    def rows(self) -> Iterator[dict[str, Any]]:
        for name, times in sorted(self.by_name.items()):
            ordered = sorted(times)
            yield {
                "request": name,
                "count": len(ordered),
                "failed": self.failed[name],
                **{f"p{part}_ms": round(1000 * at(ordered, part / 100), 1) for part in (50, 99)},
                "max_ms": round(1000 * ordered[-1], 1),
            }


def at(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


class Line:
    """One keep-alive connection, one request at a time."""

    def __init__(self, port: int, bench: Bench) -> None:
        self._port = port
        self._bench = bench
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, name: str, path: str, body: object) -> dict[str, Any]:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        assert self._reader is not None
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: m\r\nContent-Length: {len(data)}\r\n\r\n"
        began = time.perf_counter()
        self._writer.write(head.encode() + data)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", answer)
        assert length is not None, answer
        text = await self._reader.readexactly(int(length[1]))
        times = self._bench.times
        times.by_name[name].append(time.perf_counter() - began)
        if b" 200 " not in answer[:20]:
            times.failed[name] += 1
            self._bench.problem = self._bench.problem or text.decode()[:300]
        found: dict[str, Any] = json.loads(text)
        return found

    async def watch(self, interest: object) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        data = json.dumps(interest).encode()
        writer.write(
            f"POST /v1/watch HTTP/1.1\r\nHost: m\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
        )
        mark = b""
        while chunk := await reader.read(1 << 16):
            self._bench.stream_bytes += len(chunk)
            mark = self._bench.mark
            if mark and mark in chunk:
                self._bench.seen.append(time.perf_counter())
                if len(self._bench.seen) == self._bench.options.clients:
                    self._bench.all_seen.set()


class Bench:
    """All brokers and clients."""

    def __init__(self, options: argparse.Namespace, ports: list[int]) -> None:
        self.options = options
        self.ports = ports
        self.times = Times()
        self.mark = b""
        self.seen: list[float] = []
        self.all_seen = asyncio.Event()
        self.stream_bytes = 0
        self.problem = ""
        self.late: list[float] = []
        self._chance = random.Random(1)

    def port(self, number: int) -> int:
        return self.ports[number % len(self.ports)]

    async def look_how_late(self) -> None:
        """How long this process lets a request wait that is answered already."""
        while True:
            due = time.perf_counter() + LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
            self.late.append(max(0.0, time.perf_counter() - due))

    async def broker(self, number: int) -> None:
        group, name = f"g{number // 2}", f"g{number // 2}-{number % 2}"
        line = Line(self.port(number), self)
        await asyncio.sleep(self._chance.random() * 5 + 2 * (number % 2))
        addresses = {"data": f"{name}:7400", "control": f"{name}:7401"}
        registered = {"group": group, "name": name, "addresses": addresses, "boot": 1}
        answer = await line.post("register", "/v1/brokers", registered)
        due = time.perf_counter()
        sent = 0
        while True:
            sent += 100
            beat = {
                "group": group, "name": name, "boot": 1, "epoch": answer["epoch"],
                "positions": {"messages": sent, "actions": sent}, "load": 0.3, "state": "RW",
                "role": "master" if answer["master"] == name else "slave",
            }  # fmt: skip
            said = await line.post("broker heartbeat", "/v1/brokers/heartbeat", beat)
            answer = (
                said if "epoch" in said else answer
            )  # refused: counted, and tried again with the next beat
            due = max(due + 1, time.perf_counter())
            await asyncio.sleep(due - time.perf_counter())

    async def client(self, number: int) -> None:
        each = self.options.subjects // self.options.clients
        subjects = [f"s{number * each + one}" for one in range(each)]
        ordered = number % 5 == 0
        consumes = [
            {
                "subject": subjects[0], "group": f"team{number % 7}",
                "consumption": "ordered" if ordered else "shared", "allocation": 0,
            }
        ]  # fmt: skip
        line = Line(self.port(number), self)
        await asyncio.sleep(8 + self._chance.random() * self.options.ramp)
        known, name = 0, "client registers"
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Line(self.port(number + 1), self).watch({"subjects": subjects}))
            while True:
                beat = {"client": f"c{number}", "produces": subjects, "consumes": consumes, "known": known}
                answer = await line.post(name, "/v1/clients/heartbeat", beat)
                if answer.get("refused") or "error" in answer:
                    self.problem = self.problem or json.dumps(answer)[:300]
                known, name = answer.get("revision", 0), "client heartbeat"
                for row, said in zip(consumes, answer.get("consumes", ()), strict=False):
                    row["allocation"] = said.get("allocation", 0)
                await asyncio.sleep(answer.get("beat_ms", 1000) / 1000)

    async def change_seen(self) -> float:
        """A broker group becomes read-only: until every stream has said so."""
        self.seen.clear()
        self.mark = b'"name":"g0-0","host":"g0-0","port":7400,"state":"R"'
        line = Line(self.ports[0], self)
        began = time.perf_counter()
        await line.post("state", "/v1/groups/g0/state", {"state": "R"})
        async with asyncio.timeout(20):
            await self.all_seen.wait()
        self.mark = b""
        return max(self.seen) - began


def machine_seconds() -> float:
    """Processor time that anybody on the machine has used since it was started."""
    user, low, system, _idle, _waiting, interrupts, soft = map(
        int, Path("/proc/stat").read_text().split()[1:8]
    )
    return (user + low + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def taken_for_dead(port: int) -> int:
    """Broker groups that were without a master, though nobody stopped one: its heartbeats were not heard."""
    with urlopen(f"http://127.0.0.1:{port}/v1/brokers") as answer:
        groups = json.load(answer)
    return sum(group["epoch"] != 1 or group["master"] == "" or group["problem"] != "" for group in groups)


async def measured(options: argparse.Namespace, ports: list[int], pids: list[int]) -> dict[str, Any]:
    bench = Bench(options, ports)
    report: dict[str, Any] = {"replicas": len(ports), "brokers": options.brokers, "clients": options.clients,
                              "subjects": options.subjects, "phases": []}  # fmt: skip

    async def phase(name: str, seconds: float) -> None:
        bench.times, bench.late = Times(), []
        before, began = [cpu_seconds(pid) for pid in pids], time.perf_counter()
        mine, all_of_it = time.process_time(), machine_seconds()
        await asyncio.sleep(seconds)
        took = time.perf_counter() - began
        used = [(cpu_seconds(pid) - was) / took for pid, was in zip(pids, before, strict=True)]
        here = (time.process_time() - mine) / took
        late = sorted(bench.late)
        report["phases"].append(
            {
                "phase": name, "seconds": round(took), "cores": [round(one, 2) for one in used],
                "bench_cores": round(here, 2),
                "others_cores": round((machine_seconds() - all_of_it) / took - here - sum(used), 2),
                "load": round(os.getloadavg()[0], 1),
                "late": {f"p{part}_ms": round(1000 * at(late, part / 100), 1) for part in (50, 99, 100)},
                "requests": list(bench.times.rows()),
            }
        )  # fmt: skip

    async with asyncio.TaskGroup() as tasks:
        work = [tasks.create_task(bench.broker(number)) for number in range(options.brokers)]
        work += [tasks.create_task(bench.client(number)) for number in range(options.clients)]
        work.append(tasks.create_task(bench.look_how_late()))
        await phase("brokers and clients register", 8 + options.ramp + 2)
        await phase("steady", options.seconds)
        report["change_seen_by_all_ms"] = round(1000 * await bench.change_seen())
        report["taken_for_dead"] = await asyncio.to_thread(taken_for_dead, ports[0])
        for task in work:
            task.cancel()
    report["problem"] = bench.problem
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=1, help="more than one: on a PostgreSQL of its own")
    parser.add_argument("--brokers", type=int, default=300)
    parser.add_argument("--clients", type=int, default=2000)
    parser.add_argument("--subjects", type=int, default=10_000)
    parser.add_argument("--ramp", type=float, default=30.0, help="seconds within which the clients come")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the steady phase")
    options = parser.parse_args()
    with ExitStack() as stack:
        database = ""
        if options.replicas > 1:
            from samples.postgres import postgres

            database = stack.enter_context(postgres()).url("meta")
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        started = [
            stack.enter_context(replica(f"{folder}/{number}", database)) for number in range(options.replicas)
        ]
        ports = [int(one.server.rpartition(":")[2]) for one in started]
        pids = [one.pid for one in started]
        report = asyncio.run(measured(options, ports, pids))
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
