"""Programs of Debian's packages for tests. Most are unpacked only: nothing of the machine is changed, and nobody has to
be root. Installed is what others look for in many places: Java, a browser, what containers are made with.

The packages come from the archive that this machine's apt knows, with apt's own signatures checked, through lists and a
cache of our own. They lie in ``~/.cache/tidemill/tests``, or where ``TIDEMILL_TEST_CACHE`` says; a marker is written
last, so that what was broken off is not used.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

MARKER = ".complete"
DOWNLOAD_SECONDS = 240
OF_THE_MACHINE = ("libc6_", "libc-bin_")
"""Not unpacked: the loader belongs to the machine, and its library with it."""


def is_debian() -> bool:
    """Whether packages can be had."""
    return shutil.which("apt-get") is not None and shutil.which("dpkg") is not None


def install(*packages: str) -> str:
    """For the whole machine, as root; where that failed, what apt said last. Two at a time would refuse each other."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    patient = ["apt-get", "--quiet", "-o", f"DPkg::Lock::Timeout={DOWNLOAD_SECONDS}"]
    wanted = [*patient, "install", "--yes", "--no-install-recommends", *packages]
    said = ""
    with (Path(tempfile.gettempdir()) / "tidemill-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for words in (wanted, [*patient, "update"], wanted):  # lists may be old, or none
            done = subprocess.run(
                words, env=quiet, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
            )
            if done.returncode == 0 and words is wanted:
                return ""
            said = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
    return said


def install_java() -> None:
    """Where a fresh machine has none, and this is root."""
    if shutil.which("java") is None and os.geteuid() == 0 and is_debian():
        said = install("default-jre-headless")
        assert not said, f"apt-get could not install Java: {said}"


def unpacked(name: str, *, alone: bool = False) -> Path:
    """The root folder with a package's files, and with those of all it depends on unless it needs none of them; two
    processes make it once.
    """
    base = os.environ.get("TIDEMILL_TEST_CACHE") or str(Path.home() / ".cache" / "tidemill" / "tests")
    folder = Path(base) / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / MARKER).exists():
            shutil.rmtree(folder / "root", ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=folder) as work:
                for package in _download(name, Path(work), alone):
                    if not package.name.startswith(OF_THE_MACHINE):
                        _run("dpkg", "-x", str(package), str(folder / "root"))
            (folder / MARKER).touch()
    return folder / "root"


def _download(name: str, work: Path, alone: bool) -> list[Path]:
    """The package, with all it depends on as if nothing was installed or without."""
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
    if alone:
        _run("apt-get", *words, "download", name, folder=work / "archives")
    else:
        _run("apt-get", *words, "install", "-y", "-q", "--download-only", "--no-install-recommends", name)
    found = sorted((work / "archives").glob("*.deb"))
    assert found, f"apt brought no {name}"
    return found


def _run(*command: str, folder: Path | None = None) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, stdin=subprocess.DEVNULL, check=False,
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, f"{command[0]} {command[-1]}: {(done.stderr or done.stdout)[-600:]}"
