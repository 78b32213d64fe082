"""Real queues: processes with a folder and two ports, and what can be asked of them from outside."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from e2e.services import RealService, environment

READY = re.compile(rb"ready tidemill://(\S+):(\d+) https?://(\S+):(\d+)\n")
BROKER = (sys.executable, "-m", "tidemill_broker")
COMMAND = (sys.executable, "-m", "tidemill.cli")
METRIC = re.compile(r"^([a-z_]+(?:\{[^}]*\})?) (\d+(?:\.\d+)?)$", re.MULTILINE)


class Queue(RealService):
    """One queue on one folder; started, stopped, killed and started again."""

    def __init__(
        self,
        data: Path,
        manifests: Sequence[Path] = (),
        settings: Mapping[str, str] | None = None,
        command: Sequence[str] = BROKER,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(data, settings)
        self.data = data
        self.host = ""
        self.port = self.http_port = 0
        self.ca, self.cert, self.token = "", ("", ""), ""
        """How the test reaches it, when it is locked."""
        files = [part for path in manifests for part in ("-f", str(path))]
        self.command = [*command, "up", "--data", str(data), *files, *options]

    # -- life --------------------------------------------------------------------------------------------------

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process and do not wait for it."""
        return self.spawn([*self.command, "--port", str(self.port), "--http-port", str(self.http_port)])

    def start(self) -> Self:
        """Start it and wait until it serves: on any free ports first, then on the same again, so clients find it."""
        found = self.wait_ready(self.launch(), READY)
        self.host, self.port, self.http_port = found[1].decode(), int(found[2]), int(found[4])
        return self

    # -- looking at it -----------------------------------------------------------------------------------------

    @property
    def server(self) -> str:
        """What a client is given."""
        return f"{self.host}:{self.http_port}"

    def memory_bytes(self, what: str = "VmRSS") -> int:
        """Resident memory: now (VmRSS) or at most so far (VmHWM)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"^{what}:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def get(self, path: str) -> Any:
        """JSON of the HTTP port."""
        return json.loads(self.get_text(path))

    def get_text(self, path: str) -> str:
        with self.open(urllib.request.Request(self.url(path))) as answer:
            return str(answer.read().decode())

    def url(self, path: str) -> str:
        return f"{'https' if self.ca else 'http'}://{self.server}{path}"

    def open(self, request: urllib.request.Request) -> Any:
        """What is answered to a request of somebody who may."""
        context = ssl.create_default_context(cafile=self.ca) if self.ca else None
        if context is not None and self.cert[0]:
            context.load_cert_chain(*self.cert)
        if self.token and not request.has_header("Authorization"):
            request.add_header("Authorization", f"Bearer {self.token}")
        return urllib.request.urlopen(request, timeout=30, context=context)

    def metrics(self) -> dict[str, float]:
        """Every number of the metrics page, by its name and labels."""
        return {name: float(value) for name, value in METRIC.findall(self.get_text("/metrics"))}

    def refused(self) -> dict[str, float]:
        """How many were refused, by reason."""
        label = re.compile(r'tidemill_refused_total\{reason="(\w+)"\}')
        return {found[1]: value for name, value in self.metrics().items() if (found := label.fullmatch(name))}

    def group(self, name: str) -> dict[str, Any]:
        rows: list[dict[str, Any]] = self.get("/v1/groups")
        return next(row for row in rows if row["group"] == name)


def wait_until(what: str, holds: Any, seconds: float = 30.0) -> None:
    """Poll until ``holds()`` is true."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"after {seconds} s still not: {what}"
        time.sleep(0.02)


def run_command(
    *arguments: str, server: str = "", stdin: bytes = b"", seconds: float = 60.0, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The real command line, to its end."""
    more = {"TIDEMILL_SERVER": server} if server else None
    done = subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, env=environment(more), timeout=seconds, cwd=cwd,
        check=False,
    )  # fmt: skip
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
