"""A real cluster on one machine: `tidemill up --brokers N --slaves M`, and the processes below it."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from e2e.queues import COMMAND, Queue, wait_until

READY = re.compile(rb"ready https?://(\S+):(\d+)\n")
FOLDER = re.compile(r"--data\0[^\0]*/([^/\0]+)\0")


class Cluster(Queue):
    """One cluster on one folder, without delay groups unless its options say so. ``http_port`` is meta's."""

    def __init__(
        self,
        data: Path,
        brokers: int,
        slaves: int,
        manifests: Sequence[Path] = (),
        settings: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        counts = ("--brokers", str(brokers), "--slaves", str(slaves), "--delays", "0")
        super().__init__(data, manifests, settings, COMMAND, (*counts, *options))
        self.seen: set[int] = set()

    def start(self) -> Self:
        found = self.wait_ready(self.launch(), READY)
        self.host, self.http_port = found[1].decode(), int(found[2])
        return self

    def children(self) -> dict[str, int]:
        """The processes below it, by the names of their folders."""
        found: dict[str, int] = {}
        for pid in map(int, Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()):
            with suppress(OSError):
                if (named := FOLDER.search(Path(f"/proc/{pid}/cmdline").read_text())) is not None:
                    found[named[1]] = pid
        self.seen |= set(found.values())
        return found

    def post(self, path: str, body: object) -> Any:
        """What meta answers to JSON; what it refuses is an ``HTTPError``."""
        request = urllib.request.Request(self.url(path), json.dumps(body).encode())
        with self.open(request) as answer:
            return json.loads(answer.read())

    def expand(self, subject: str, **asked: object) -> list[dict[str, Any]]:
        """More partitions; all of them, when order keys have moved."""
        version = self.get(f"/v1/subjects/{subject}/route")["version"]
        self.post(f"/v1/subjects/{subject}/expand", {**asked, "version": version})
        self.wait_moved(subject)
        found: list[dict[str, Any]] = self.get(f"/v1/subjects/{subject}/route")["partitions"]
        return found

    def wait_moved(self, subject: str) -> None:
        """Until none of its order keys move."""
        path = f"/v1/subjects/{subject}/route"
        wait_until("order keys have moved", lambda: "moving" not in self.get(path), 60)

    def group(self, name: str) -> dict[str, Any]:
        """A broker group, as meta sees it."""
        rows: list[dict[str, Any]] = self.get("/v1/brokers")
        return next(row for row in rows if row["group"] == name)

    def get_masters(self, path: str) -> list[dict[str, Any]]:
        """Rows of the HTTP ports of all masters."""
        found: list[dict[str, Any]] = []
        for group in self.get("/v1/brokers"):
            master = next(one for one in group["brokers"] if one["name"] == group["master"])
            with urllib.request.urlopen(
                f"http://{master['addresses']['control']}{path}", timeout=30
            ) as answer:
                found += json.loads(answer.read())
        return found

    def left(self) -> set[int]:
        """Those of its processes that were ever seen and are there."""
        return {pid for pid in self.seen if is_there(pid)}

    def close(self) -> None:
        super().close()
        for pid in self.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
