"""Real queues: processes with a folder and two ports, and what can be asked of them from outside."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

READY = re.compile(rb"ready tidemill://([^:]+):(\d+) http://([^:]+):(\d+)\n")
BROKER = (sys.executable, "-m", "tidemill_broker")
COMMAND = (sys.executable, "-m", "tidemill.cli")
START_SECONDS = 60.0
STOP_SECONDS = 30.0
METRIC = re.compile(r"^([a-z_]+(?:\{[^}]*\})?) (\d+(?:\.\d+)?)$", re.MULTILINE)


class NotReady(AssertionError):
    """The process ended, or said nothing, instead of becoming ready."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without what a person may have set for queues of their own."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    return {**plain, **(more or {})}


class Queue:
    """One queue on one folder; started, stopped, killed and started again."""

    def __init__(
        self,
        data: Path,
        manifests: Sequence[Path] = (),
        settings: Mapping[str, str] | None = None,
        command: Sequence[str] = BROKER,
    ) -> None:
        self.data = data
        self.host = ""
        self.port = self.http_port = 0
        self.ready_seconds = 0.0
        self._errors = data.with_name(data.name + ".err")
        self._environment = environment(settings)
        files = [part for path in manifests for part in ("-f", str(path))]
        self._command = [*command, "up", "--data", str(data), *files]
        self._process: subprocess.Popen[bytes] | None = None

    # -- life --------------------------------------------------------------------------------------------------

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process and do not wait for it."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        arguments = [*self._command, "--port", str(self.port), "--http-port", str(self.http_port)]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                arguments, stdout=subprocess.PIPE, stderr=errors, env=self._environment
            )
        return self._process

    def start(self) -> Self:
        """Start it and wait until it serves: on any free ports first, then on the same again, so clients find it."""
        began = time.monotonic()
        process = self.launch()
        line = self.wait_line(process, began + START_SECONDS)
        self.ready_seconds = time.monotonic() - began
        found = READY.fullmatch(line)
        if found is None:
            self.close()
            raise NotReady(f"it said {line!r} and {self.errors!r}, exit code {process.returncode}")
        self.host, self.port, self.http_port = found[1].decode(), int(found[2]), int(found[4])
        return self

    def wait_line(self, process: subprocess.Popen[bytes], deadline: float) -> bytes:
        """The first line on standard output; what there is of it when the process ends, or takes too long."""
        assert process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            byte = os.read(process.stdout.fileno(), 1) if readable else b""
            if not byte:
                break
            line += byte
        return line

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait_end()

    def kill(self) -> None:
        """SIGKILL: nothing is said, nothing is written any more."""
        self.signal(signal.SIGKILL)
        self.wait_end()

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait_end(self, seconds: float = STOP_SECONDS) -> int:
        """Until the process has ended; its exit code."""
        assert self._process is not None
        code = self._process.wait(seconds)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def close(self) -> None:
        """Whatever state it is in: no process is left behind."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self.wait_end()

    # -- looking at it -----------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def server(self) -> str:
        """What a client is given."""
        return f"{self.host}:{self.http_port}"

    @property
    def errors(self) -> str:
        """Standard error since the last start."""
        return self._errors.read_text()

    def memory_bytes(self, what: str = "VmRSS") -> int:
        """Resident memory: now (VmRSS) or at most so far (VmHWM)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"^{what}:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def get(self, path: str) -> Any:
        """JSON of the HTTP port."""
        return json.loads(self.get_text(path))

    def get_text(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.server}{path}", timeout=30) as answer:
            return str(answer.read().decode())

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


def wait_until(what: str, holds: Any, seconds: float = 10.0) -> None:
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
