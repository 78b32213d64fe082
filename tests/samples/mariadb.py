"""A real MariaDB for tests: the server of Debian's package, unpacked only, on a socket and no port.

The packages come from the archive that this machine's apt knows, with apt's own signatures checked, through lists and a
cache of our own. They lie in ``~/.cache/tidemill/tests``, or where ``TIDEMILL_TEST_CACHE`` says; a marker is written
last, so that what was broken off is not used. Where there is no apt, a ``mariadbd`` on the path will do; without either
the test fails.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PACKAGE = "mariadb-server-core"
MARKER = ".complete"
READY = b"ready for connections"
DOWNLOAD_SECONDS = 240
OF_THE_MACHINE = ("libc6_", "libc-bin_")
"""Not unpacked: the loader belongs to the machine, and its library with it."""


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
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        found = shutil.which("mariadbd")
        assert found is not None, (
            "neither apt-get nor mariadbd is here: install the package of MariaDB's server"
        )
        return found, {}, []
    root = _unpacked() / "root"
    libraries = sorted({str(path.parent) for path in root.glob("**/lib/*/lib*.so*")})
    texts = root / "usr/share/mysql"
    more = [f"--lc-messages-dir={texts}", f"--character-sets-dir={texts}/charsets"]
    return str(root / "usr/sbin/mariadbd"), {"LD_LIBRARY_PATH": ":".join(libraries)}, more


def _unpacked() -> Path:
    """The folder with the packages' files; two processes make it once."""
    base = os.environ.get("TIDEMILL_TEST_CACHE") or str(Path.home() / ".cache" / "tidemill" / "tests")
    folder = Path(base) / PACKAGE
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / MARKER).exists():
            shutil.rmtree(folder / "root", ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=folder) as work:
                for package in _download(Path(work)):
                    if not package.name.startswith(OF_THE_MACHINE):
                        _run("dpkg", "-x", str(package), str(folder / "root"))
            (folder / MARKER).touch()
    return folder


def _download(work: Path) -> list[Path]:
    """The package with all it depends on, as if nothing was installed."""
    for part in ("lists/partial", "archives/partial"):
        (work / part).mkdir(parents=True)
    (work / "status").touch()
    options = {
        "Dir::State::lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work,
        "Dir::Cache::archives": work / "archives",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
        "Acquire::Check-Valid-Until": "false",  # a mirror may be a frozen copy; signatures are checked
        "Binary::apt-get::APT::Keep-Downloaded-Packages": "true",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    _run("apt-get", *words, "update")
    _run("apt-get", *words, "install", "-y", "-q", "--download-only", "--no-install-recommends", PACKAGE)
    found = sorted((work / "archives").glob("*.deb"))
    assert found, f"apt brought no {PACKAGE}"
    return found


def _run(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, stdin=subprocess.DEVNULL, check=False
    )  # fmt: skip
    assert done.returncode == 0, f"{command[0]} {command[-1]}: {(done.stderr or done.stdout)[-600:]}"
