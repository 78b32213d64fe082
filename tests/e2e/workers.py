"""Real worker processes, and the diary that their handlers keep.

A line of the diary is one write to a file opened for appending: it survives SIGKILL, and the order of the lines is
that of the events, whichever process they are of. A kill can tear the write that it strikes, where a page ends: such
a line has no end mark, and counts as not written.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

from e2e.queues import COMMAND, Queue
from e2e.services import environment

MODULE = """
import asyncio, os, time
from tidemill import Worker

worker = Worker(drain_seconds=float(os.environ.get("DRAIN", "30")))
diary = os.open(os.environ["DIARY"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(word, message):
    line = f"\\n{word} {os.getpid()} {time.monotonic():.6f} {message.attempts} {message.body.decode()} ;\\n"
    os.write(diary, line.encode())


@worker.on("orders", group="workers", concurrency=int(os.environ.get("CONCURRENCY", "50")))
async def handle(message):
    note("began", message)
    await asyncio.sleep(float(os.environ.get("PAUSE", "0.005")))
    note("ended", message)


@worker.acked
def acked(message, context):
    note("acked", message)
"""


class Line(NamedTuple):
    """What happened to a message, in which process, when, and how often the message was given out before."""

    word: str
    pid: int
    at: float
    attempts: int
    body: str


class Workers:
    """Processes of ``tidemill worker`` on one queue and one diary."""

    def __init__(self, folder: Path, queue: Queue, module: str = MODULE) -> None:
        self.folder = folder
        self._path = folder / "diary"
        self._path.touch()
        (folder / "shop.py").write_text(module)
        self._settings = {"TIDEMILL_SERVER": queue.server, "DIARY": str(self._path)}
        self._made: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, **settings: str) -> subprocess.Popen[bytes]:
        """Another one."""
        errors = (self.folder / f"worker-{len(self._made)}.err").open("wb")
        with errors:
            process = subprocess.Popen(
                [*COMMAND, "worker", "shop:worker", *options], cwd=self.folder, stderr=errors,
                stdout=errors, env=environment({**self._settings, **settings}),
            )  # fmt: skip
        self._made.append(process)
        return process

    def errors(self, process: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"worker-{self._made.index(process)}.err").read_text()

    def diary(self, word: str = "") -> list[Line]:
        """All lines, or those with one word."""
        lines: list[Line] = []
        for text in self._path.read_text().splitlines():
            if not text.endswith(" ;"):
                continue
            found, pid, at, attempts, body, _ = text.split(" ")
            if not word or found == word:
                lines.append(Line(found, int(pid), float(at), int(attempts), body))
        return lines

    def close(self) -> None:
        for process in self._made:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
