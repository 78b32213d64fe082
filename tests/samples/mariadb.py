"""A real MariaDB for tests: the server of Debian's package, unpacked only, on a socket and no port.

How it comes here is ``debian.py``. Where there is no apt, a ``mariadbd`` on the path will do; without either the test
fails.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from samples.debian import is_debian, unpacked

PACKAGE = "mariadb-server-core"
READY = b"ready for connections"


class MariaDb:
    """A server in a folder; started, stopped, and started again. It asks nobody for a password."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program, self._environment, self._messages = _server()
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "data").mkdir()

    @property
    def socket(self) -> str:
        return f"{self._folder}/socket"

    def start(self) -> None:
        arguments = [
            "--no-defaults", "--user=root", f"--datadir={self._folder}/data", f"--socket={self.socket}",
            "--skip-networking", "--skip-grant-tables", "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=16M", *self._messages,
        ]  # fmt: skip
        self._process = subprocess.Popen(
            [self._program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            cwd=self._folder, env={**os.environ, **self._environment},
        )  # fmt: skip
        assert self._process.stderr is not None
        said: list[bytes] = []
        for line in self._process.stderr:
            said.append(line)
            if READY in line:
                return
        raise AssertionError(f"MariaDB ended: {b''.join(said[-20:]).decode(errors='replace')}")

    def stop(self) -> None:
        """In order: connections are cut. Killed soon after its first start it would find its files half made."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """For the last time."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.communicate()
            self._process = None


@contextmanager
def mariadb() -> Iterator[MariaDb]:
    """A server that runs."""
    with tempfile.TemporaryDirectory(prefix="tidemill-my-") as folder:
        server = MariaDb(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _server() -> tuple[str, Mapping[str, str], list[str]]:
    """The program, its environment, and where its texts are."""
    if not is_debian():
        found = shutil.which("mariadbd")
        assert found is not None, (
            "neither apt-get nor mariadbd is here: install the package of MariaDB's server"
        )
        return found, {}, []
    root = unpacked(PACKAGE)
    libraries = sorted({str(path.parent) for path in root.glob("**/lib/*/lib*.so*")})
    texts = root / "usr/share/mysql"
    more = [f"--lc-messages-dir={texts}", f"--character-sets-dir={texts}/charsets"]
    return str(root / "usr/sbin/mariadbd"), {"LD_LIBRARY_PATH": ":".join(libraries)}, more
