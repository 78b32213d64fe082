"""Processes of one cluster: each with a log, and a file that says which one it is, so that anybody can end them.

*Bound* ones end with the thread that began them, however that ends: the kernel kills them. A cluster that is to outlive
the command that brought it up has unbound ones. The file holds the process's id and the tick at which it began; a
number that another process has got since is not taken for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

GRACE_SECONDS = 4.0
"""All of them together: what they would still do is for nobody."""
KILLED_SECONDS = 60.0
"""A process that the disk holds back dies when that lets go."""
LOG_LINES = 12


class Ended(AssertionError):
    """A process that should run does not."""


class Programs:
    """See the module. Names are those of the files."""

    def __init__(self, folder: Path, bound: bool) -> None:
        self._logs, self._ids = folder / "log", folder / "processes"
        self._bound = bound
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str | Path], more: Mapping[str, str] | None = None) -> None:
        for folder in (self._logs, self._ids):
            folder.mkdir(parents=True, exist_ok=True)
        words = [str(word) for word in command]
        if self._bound:
            words = ["setpriv", "--pdeathsig", "KILL", *words]
        with (self._logs / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **(more or {})},
                start_new_session=True,
            )  # fmt: skip
        self._children[name] = child
        (self._ids / name).write_text(f"{child.pid} {beginning(child.pid)}")

    def names(self) -> list[str]:
        """Of all that were started here and not stopped, by whomever, the newest first."""
        files = list(self._ids.iterdir()) if self._ids.exists() else []
        return [file.name for file in sorted(files, key=lambda file: file.stat().st_mtime_ns, reverse=True)]

    def pid(self, name: str) -> int | None:
        """Of a process that runs."""
        if (child := self._children.get(name)) is not None:
            child.poll()  # or it would be there for ever, as a zombie
        try:
            number, began = (self._ids / name).read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        return int(number) if beginning(int(number)) == began else None

    def check(self, *names: str) -> None:
        for name in names:
            if self.pid(name) is None:
                raise Ended(f"{name} ended: {self.said(name)}")

    def said(self, name: str) -> str:
        """The end of its log."""
        path = self._logs / f"{name}.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return " / ".join(lines[-LOG_LINES:])

    def stop(self, *names: str, number: int = signal.SIGTERM) -> None:
        """Tell them to end, and see to it."""
        self._tell(names, number)
        deadline = time.monotonic() + GRACE_SECONDS
        if not self.wait_gone(names, deadline):
            self._tell(names, signal.SIGKILL)
            assert self.wait_gone(names, deadline + KILLED_SECONDS), f"{names}: one outlives a SIGKILL"
        for name in names:
            (self._ids / name).unlink(missing_ok=True)
            if (child := self._children.pop(name, None)) is not None:
                child.wait()

    def _tell(self, names: Sequence[str], number: int) -> None:
        for name in names:
            if (pid := self.pid(name)) is not None:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass  # it ended meanwhile

    def wait_gone(self, names: Sequence[str], deadline: float) -> bool:
        while any(self.pid(name) is not None for name in names):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True


def beginning(pid: int) -> str:
    """The tick at which a process began; nothing when there is none, or only what its parent has to be told of it."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if words[0] in {"Z", "X"} else words[19]


def wait_until(
    what: str, holds: Callable[[], object], seconds: float, check: Callable[[], None] = lambda: None
) -> None:
    """Poll until it holds; ``check`` says at once when it never will."""
    deadline = time.monotonic() + seconds
    while not holds():
        check()
        assert time.monotonic() < deadline, f"after {seconds:.0f} s still not: {what}"
        time.sleep(0.05)
