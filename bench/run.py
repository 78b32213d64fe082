"""tidemill beside its peers, one command: `python bench/run.py [--peers kafka,nats] [--only a,c] [--quick]`.

First everything is installed, with the network. Then the program starts itself again in a network of its own where
only loopback exists, and measures there: no server of it can be reached from elsewhere, no port is taken already.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import cache
import measure
import processes
import start
import table
from measure import QUICK, Gate, Pace, Row
from peers.base import INSIDE, Peer, Server, Session, Step
from peers.debian import RabbitMQ, Redis
from peers.kafka import Kafka
from peers.nats import Nats
from peers.rocketmq import RocketMQ
from peers.tidemill import Tidemill
from results import Results, default_file

PEERS: tuple[type[Peer], ...] = (Kafka, RocketMQ, Nats, RabbitMQ, Redis, Tidemill)
FAILURES = (OSError, RuntimeError, subprocess.SubprocessError, cache.CannotInstall)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run.py", description="tidemill beside its peers, one table.")
    names = ",".join(peer.name for peer in PEERS)
    parser.add_argument("--peers", default=names, help=f"which to run, of {names}")
    parser.add_argument(
        "--only", default="a,b,c,d,e,f,g,h,r,t", help="which workloads to run; see bench/README.md"
    )
    parser.add_argument(
        "--quick", action="store_true", help="seconds instead of minutes: does it run at all?"
    )
    parser.add_argument("--secs", type=float, help="seconds that a step is measured")
    parser.add_argument(
        "--results", type=Path, help="the file to add to; default bench/results/<date>-<commit>.json"
    )
    parser.add_argument(
        "--data", type=Path, default=cache.root() / "data", help="where the servers keep their data"
    )
    parser.add_argument(
        "--gate", type=float, default=60.0, help="seconds to wait, in all, for others to be quiet"
    )
    parser.add_argument("--install", action="store_true", help="download and build only")
    parser.add_argument("--table", action="store_true", help="print the table of the results file only")
    arguments = parser.parse_args(words)
    if unknown := set(arguments.peers.split(",")) - set(names.split(",")):
        parser.error(f"no such peers: {', '.join(sorted(unknown))}")
    return arguments


def main() -> int:
    arguments = parse(sys.argv[1:])
    file = arguments.results or default_file("-quick" if arguments.quick else "")
    if arguments.table:
        print(table.render(Results(file)))
        return 0
    chosen = [peer(arguments.data) for peer in PEERS if peer.name in arguments.peers.split(",")]
    able = install(chosen)
    if arguments.install:
        return 0 if len(able) == len(chosen) else 1
    if not os.environ.get(INSIDE):
        go_inside()
    # An ordinary end, so that the servers are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    results = Results(file)
    results.began(sys.argv[1:])
    run = Run(results, pace(arguments), Gate(arguments.gate), arguments.only.split(","))
    for peer in able:
        results.peers[peer.name] = peer.version()
        run.peer(peer)
        shutil.rmtree(peer.folder, ignore_errors=True)
        if isinstance(peer, Tidemill) and "h" in run.only:
            run.starts(arguments.data, start.GIB / 50 if arguments.quick else start.GIB)
    results.save()
    text = table.render(results)
    file.with_suffix(".md").write_text(text + "\n")
    print(f"\n{text}\n\n{file}")
    return 0


def pace(arguments: argparse.Namespace) -> Pace:
    chosen = QUICK if arguments.quick else Pace()
    return replace(chosen, secs=arguments.secs) if arguments.secs else chosen


def install(chosen: list[Peer]) -> list[Peer]:
    """Those of the peers that can be had here; why the others cannot is said."""
    able: list[Peer] = []
    for peer in chosen:
        try:
            peer.install()
        except FAILURES as error:
            print(f"{peer.name} is left out: {error}", flush=True)
        else:
            able.append(peer)
    return able


def go_inside() -> NoReturn:
    """Runs this program again with a network and mounts of its own; a plain user needs user namespaces for that."""
    words = ["unshare", "--net", "--mount"]
    if os.geteuid() != 0:
        words.append("--map-root-user")
    up = 'ip link set lo up && exec "$@"'
    command = [*words, "sh", "-c", up, "sh", sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]]
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})


class Run:
    def __init__(self, results: Results, pace_: Pace, gate: Gate, only: list[str]) -> None:
        self.results = results
        self.pace = pace_
        self.gate = gate
        self.only = only
        self.began = time.monotonic()

    def peer(self, peer: Peer) -> None:
        for session in peer.sessions():
            if not self.wanted(peer.steps(session)) and "h" not in self.only:
                continue
            try:
                server = peer.start(session)
            except FAILURES as error:
                self.say(peer.name, f"did not start, {session.durability}: {error}")
                continue
            try:
                self.session(peer, session, server)
            finally:
                server.stop()

    def wanted(self, steps: list[Step]) -> list[Step]:
        """The chosen steps, and with a drain the one that makes its backlog."""
        chosen = [step for step in steps if step.workload in self.only or step.workload[0] in self.only]
        drained = {step.topic for step in chosen if step.mode == "consume"}
        return [
            step for step in steps if step in chosen or (step.mode == "produce" and step.topic in drained)
        ]

    def session(self, peer: Peer, session: Session, server: Server) -> None:
        rest = measure.rest(server, self.pace.settle)
        if "h" in self.only:
            variant = session.label or "start and rest"
            named = {"workload": "h", "peer": peer.name, "variant": variant, "size": 0, "tags": []}
            self.add({**named, "durability": str(session.durability), **rest})
        backlog: dict[str, int] = {}
        for step in self.wanted(peer.steps(session)):
            row = measure.label(peer.name, step, session)
            if step.mode == "consume" and not backlog.get(step.topic):
                self.add({**row, "error": "nothing to drain"})
                continue
            if not processes.identify(server.processes()[0].pid):
                self.add({**row, "error": f"the server is gone: {server.tail()}"})
                continue
            self.gate.wait(server)
            row.update(measure.run(step, server, self.pace, backlog))
            if step.mode == "produce":
                backlog[step.topic] = int(row.get("n", 0) - row.get("errors", 0))
            self.add(row)

    def starts(self, folder: Path, gib: float) -> None:
        """How soon tidemill is ready on a log of that size."""
        named = {"workload": "h", "peer": Tidemill.name, "size": 0, "tags": [], "durability": "page cache"}
        for what, seconds in start.measure(folder, gib):
            self.add({**named, "variant": f"start, {what}", "startup_s": round(seconds, 2)})

    def add(self, row: Row) -> None:
        self.results.add(row)
        shown = ("rate", "p50_ms", "p99_ms", "server_cpu_s_per_m", "client_cpu_s_per_m", "rss_mb", "foreign_cores",
                 "startup_s", "first_touch_s", "errors", "error")  # fmt: skip
        figures = " ".join(f"{name}={table.short(row[name])}" for name in shown if row.get(name))
        what = f"{row['workload']} {row['variant']} {row['size']} B, {row['durability']}"
        self.say(row["peer"], f"{what}: {figures}")

    def say(self, peer: str, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.0f} s] {peer:9} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
