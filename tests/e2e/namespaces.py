"""Machines of their own, as far as the network goes: namespaces around a router, and what is cut between them.

    broker ── veth ──┐
    broker ── veth ──┤ router ── veth ── clients
    meta   ── veth ──┘

Everything is made inside of namespaces, addresses included, so the machine's own network is as it was; and everything
goes with them. That needs root.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Self

import pytest

from e2e.metas import READY, Meta
from e2e.queues import BROKER, Queue

CLONE_NEWNET = 0x40000000
FOLDER = Path("/run/netns")


class Cut(Enum):
    """What becomes of the packets of one machine. On the way they are dropped without a word."""

    LINK = "its link is down"
    UNHEARD = "nobody hears it"
    DEAF = "it hears nobody"


def need_namespaces() -> None:
    """Skip where nobody may make them; there must be a place where this is tested, so not in CI."""
    why = "" if os.geteuid() == 0 else "network namespaces need root"
    if not why and shutil.which("ip") is None:
        why = "network namespaces need the command ip"
    if why and os.environ.get("CI") == "true":
        pytest.fail(why)
    if why:
        pytest.skip(why)


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, check=False, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


class Network:
    """See the module. Names hold this process's id: two runs on one machine do not meet."""

    def __init__(self, names: Sequence[str]) -> None:
        self._router = self._namespace("router")
        self._numbers = {name: number for number, name in enumerate(names, 1)}

    def start(self) -> Self:
        for name in ("router", *self._numbers):
            run("ip", "netns", "add", self._namespace(name))
        run(*self.inside("router"), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for name, number in self._numbers.items():
            ours, theirs = self._namespace(name), self._router
            near, far = "wire", f"wire-{number}"
            peer = ("peer", "name", far, "netns", theirs)
            run("ip", "link", "add", "name", near, "netns", ours, "type", "veth", *peer)
            run("ip", "-n", ours, "address", "add", f"{self.address(name)}/24", "dev", near)
            run("ip", "-n", theirs, "address", "add", f"10.213.{number}.1/24", "dev", far)
            for where, link in ((ours, "lo"), (ours, near), (theirs, far)):
                run("ip", "-n", where, "link", "set", link, "up")
            run("ip", "-n", ours, "route", "add", "default", "via", f"10.213.{number}.1")
        return self

    def close(self) -> None:
        """Also when it was not made to the end."""
        for name in (*self._numbers, "router"):
            if (FOLDER / self._namespace(name)).exists():
                run("ip", "netns", "delete", self._namespace(name))

    def address(self, name: str) -> str:
        return f"10.213.{self._numbers[name]}.2"

    def inside(self, name: str) -> tuple[str, ...]:
        """The beginning of a command that runs there, as a process of its own."""
        return "ip", "netns", "exec", self._namespace(name)

    @contextmanager
    def visit(self, name: str) -> Iterator[None]:
        """What this thread opens meanwhile, it opens there."""
        with (
            Path("/proc/thread-self/ns/net").open() as home,
            (FOLDER / self._namespace(name)).open() as there,
        ):
            enter(there.fileno())
            try:
                yield
            finally:
                enter(home.fileno())

    def cut(self, name: str, how: Cut) -> None:
        self._change(name, how, down=True)

    def heal(self, name: str, how: Cut) -> None:
        self._change(name, how, down=False)

    def _change(self, name: str, how: Cut, *, down: bool) -> None:
        if how is Cut.LINK:
            link = f"wire-{self._numbers[name]}"
            run("ip", "-n", self._router, "link", "set", link, "down" if down else "up")
            return
        which = "from" if how is Cut.UNHEARD else "to"
        rule = ("ip", "-n", self._router, "rule", "add" if down else "delete")
        run(*rule, which, self.address(name), "blackhole")

    def _namespace(self, name: str) -> str:
        return f"tidemill-{os.getpid()}-{name}"


def enter(namespace: int) -> None:
    """This thread, and no other."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class FarMeta(Meta):
    """Meta on a machine of its own."""

    def __init__(self, network: Network, folder: Path) -> None:
        super().__init__(folder)
        self._network = network

    def start(self) -> Self:
        command = [
            *self._network.inside("meta"), sys.executable, "-m", "tidemill_meta", *self._where,
            "--host", self._network.address("meta"), "--port", str(self.port),
        ]  # fmt: skip
        self.port = int(self.wait_ready(self.spawn(command), READY)[2])
        return self

    @property
    def server(self) -> str:
        return f"{self._network.address('meta')}:{self.port}"

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        with self._network.visit("clients"):
            return super().ask(method, path, body)


class FarQueue(Queue):
    """A broker on a machine of its own, which has its name."""

    def __init__(self, network: Network, data: Path, meta: Meta) -> None:
        known = {"TIDEMILL_NAME": data.name, "TIDEMILL_REPLICATED": "true", "TIDEMILL_META": meta.server}
        inside, host = (*network.inside(data.name), *BROKER), network.address(data.name)
        super().__init__(data, settings=known, command=inside, options=("--host", host))
        self._network = network

    def get_text(self, path: str) -> str:
        with self._network.visit(self.data.name):
            return super().get_text(path)


GROUPS = {"g0": ("g0-0", "g0-1"), "g1": ("g1-0",)}


class Machines:
    """A cluster: meta, two broker groups and a place for clients, each on a machine of its own."""

    def __init__(self, folder: Path) -> None:
        names = [name for group in GROUPS.values() for name in group]
        self.network = Network(["meta", "clients", *names])
        self.meta = FarMeta(self.network, folder / "meta")
        self._folder = folder
        self._names = names
        self.queues: dict[str, FarQueue] = {}

    def start(self) -> Self:
        self.network.start()
        self.meta.start()
        for name in self._names:
            self.queues[name] = FarQueue(self.network, self._folder / name, self.meta)
            self.queues[name].start()
        return self

    def group(self, name: str) -> dict[str, Any]:
        """A broker group, as meta sees it."""
        rows: list[dict[str, Any]] = self.meta.get("/v1/brokers")
        return next((row for row in rows if row["group"] == name), {"in_sync": [], "master": "", "epoch": 0})

    def get_masters(self, path: str) -> list[dict[str, Any]]:
        """Rows of the HTTP ports of all masters."""
        masters = [self.queues[self.group(name)["master"]] for name in GROUPS]
        return [row for master in masters for row in master.get(path)]

    def close(self) -> None:
        with ExitStack() as all_of_them:  # each one, whatever becomes of the others; the network last
            all_of_them.callback(self.network.close)
            for service in (self.meta, *self.queues.values()):
                all_of_them.callback(service.close)
