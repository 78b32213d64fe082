"""A service as a real process: begun, waited for, told to end, killed; no process is left behind."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SETTINGS = "tidemill: settings "
RECOVERED = "tidemill: recovered "
START_SECONDS = 60.0
STOP_SECONDS = 30.0


class NotReady(AssertionError):
    """The process ended, or said nothing, instead of becoming ready."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without what a person may have set for queues of their own."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    return {**plain, **(more or {})}


class RealService:
    """One process after the other on one folder."""

    keeps_errors = False
    """Whether ``errors`` has those of the processes before, too."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.ready_seconds = self._began = 0.0
        self._errors = folder.with_name(folder.name + ".err")
        self._environment = environment(settings)
        self._process: subprocess.Popen[bytes] | None = None

    # -- life --------------------------------------------------------------------------------------------------

    def spawn(self, command: Sequence[str], stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """Start the process and do not wait for it."""
        assert not self.running, "it runs already"
        self._began = time.monotonic()
        with self._errors.open("ab" if self.keeps_errors else "wb") as errors:
            self._process = subprocess.Popen(command, stdout=stdout, stderr=errors, env=self._environment)
        return self._process

    def wait_ready(self, process: subprocess.Popen[bytes], ready: re.Pattern[bytes]) -> re.Match[bytes]:
        """Until it says that it serves."""
        line = self._first_line(process, self._began + START_SECONDS)
        self.ready_seconds = time.monotonic() - self._began
        found = ready.fullmatch(line)
        if found is None:
            self.close()
            raise NotReady(f"it said {line!r} and {self.errors!r}, exit code {process.returncode}")
        return found

    def _first_line(self, process: subprocess.Popen[bytes], deadline: float) -> bytes:
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
    def errors(self) -> str:
        """Standard error, but for what every service tells of its settings and its start."""
        lines = self._errors.read_text().splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith((SETTINGS, RECOVERED)))

    @property
    def settings(self) -> list[str]:
        """What they are, as the services of the process tell it."""
        return [line for line in self._errors.read_text().splitlines() if line.startswith(SETTINGS)]
