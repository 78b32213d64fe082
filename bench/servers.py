"""A server of ours for one measurement: started on free ports, timed until it is ready, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

LOW = {"TIDEMILL_DURABILITY": "low"}
"""Page cache durability: what is measured is not the disk."""


def broker_command(folder: str | Path, *manifests: Path) -> list[str]:
    files = [part for manifest in manifests for part in ("-f", str(manifest))]
    up = ["-m", "tidemill_broker", "up", *files, "--port", "0", "--http-port", "0", "--data", str(folder)]
    return [sys.executable, *up]


class Running:
    """A process that said it is ready, and where its HTTP port is. Leaving the block asks it to end."""

    def __init__(self, command: Sequence[str], settings: dict[str, str] | None = None) -> None:
        began = time.perf_counter()
        environment = {**os.environ, **(settings or {})}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        self.server = self._process.stdout.readline().rpartition("http://")[2].strip()
        self.seconds = time.perf_counter() - began
        self.pid = self._process.pid
        assert self.server, "the server did not start; its complaint is above"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(signal.SIGTERM)

    def end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.communicate()
