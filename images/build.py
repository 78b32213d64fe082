"""Builds an image and writes it as a file that ``ctr -n k8s.io images import`` and ``docker load`` take.

    python3 images/build.py                     # on python:3.13-slim, from a registry
    python3 images/build.py --debootstrap       # on a base made of Debian's packages, where there is no registry
    python3 images/build.py --spark             # what runs archives and replays, instead of the services

Needs root and buildah, and for the latter debootstrap; ``--install`` lets apt-get bring what is missing. What it keeps
(the base, layers, wheels) is in the cache, by the hash of what it was made of; it can be removed at any time. Equal
sources give equal layers: times are those of the commit, or of SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
NOT_NEEDED = (
    "usr/share/doc/*",
    "usr/share/info/*",
    "usr/share/locale/*",
    "usr/share/man/*",
    "var/cache/apt/*",
    "var/cache/debconf/*-old",
    "var/cache/ldconfig/aux-cache",
    "var/lib/apt/lists/*",
    "var/log/*",
    "etc/machine-id",
)
"""Of the base: what nobody reads in a container, and what is different each time."""
BASE_RECIPE = """\
FROM scratch
ADD base.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
CMD ["python3"]
"""
CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
BILL = "opt/tidemill/share/bill-of-materials.cdx.json"
IMAGES_MAX = 150
"""Steps of former builds that are kept, about twenty of each, half a gigabyte; beyond it all of them go."""
LAST_LINES = 40
LINE_CHARS = 110


@dataclass(frozen=True, slots=True)
class Recipe:
    """One of our images."""

    name: str
    file: str
    """Below ``images/``."""
    packages: tuple[str, ...]
    """Of Debian, of which ``--debootstrap`` makes its base."""


SERVICES = Recipe("tidemill", "Dockerfile", ("ca-certificates", "python3", "tzdata"))
SPARK = Recipe("tidemill-spark", "Dockerfile.spark", (*SERVICES.packages, "openjdk-17-jre-headless", "tini"))


class CannotBuild(Exception):
    """One sentence with what to do."""


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog="images/build.py", description="Build the image of all services, or that with Spark."
    )
    arguments.add_argument(
        "--spark", action="store_true", help="the image with Spark instead of that of the services"
    )
    arguments.add_argument("--base", default="python:3.13-slim", help="image with Python >= 3.11 to build on")
    arguments.add_argument(
        "--debootstrap", action="store_true", help=f"make the base of Debian {SUITE} instead"
    )
    arguments.add_argument("--mirror", default=MIRROR, help="of Debian")
    arguments.add_argument(
        "--name", default="", help="default: localhost/tidemill:VERSION, or tidemill-spark"
    )
    arguments.add_argument("--output", default="", help="default: dist/tidemill-VERSION.tar")
    arguments.add_argument("--install", action="store_true", help="let apt-get install what is missing")
    arguments.add_argument("--afresh", action="store_true", help="use no layer of a former build")
    arguments.add_argument("--cache", default="", help="default: $XDG_CACHE_HOME/tidemill/images")
    return arguments


@dataclass(slots=True)
class Workshop:
    """Where things lie, and how steps are shown."""

    cache: Path
    steps: int
    done: int = 0

    @property
    def log(self) -> Path:
        return self.cache / "build.log"

    def step(self, what: str) -> None:
        self.done += 1
        sys.stderr.write(f"[{self.done}/{self.steps}] {what}\n")

    def run(self, command: Sequence[str]) -> str:
        """Its output. The log has it, too; of a failure, its end is shown."""
        begun = time.monotonic()
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            lines: list[str] = []
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    lines.append(line)
                    log.write(line)
                    if "STEP " in line:
                        sys.stderr.write(f"      {line.strip()[:LINE_CHARS]}\n")
        if process.returncode != 0:
            end = "\n".join(self.log.read_text().splitlines()[-LAST_LINES:])
            raise CannotBuild(f"{end}\n{command[0]} failed: what it said is above, all of it in {self.log}")
        if (seconds := time.monotonic() - begun) >= 1:
            sys.stderr.write(f"      {seconds:.0f} s\n")
        return "".join(lines)

    def buildah(self, *words: str) -> str:
        """With storage of its own, so that nothing is mixed with, or left among, the images of this machine."""
        storage = ("--root", str(self.cache / "storage"), "--runroot", str(self.cache / "run"))
        return self.run(["buildah", *storage, *words])


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        build(arguments)
    except CannotBuild as error:
        sys.stderr.write(f"images/build.py: {error}\n")
        return 1
    except subprocess.CalledProcessError as error:
        sys.stderr.write(
            f"images/build.py: {' '.join(error.cmd)} failed: mend what it says above, then try again\n"
        )
        return 1
    return 0


def build(arguments: argparse.Namespace) -> None:
    if os.geteuid() != 0:
        raise CannotBuild("buildah mounts what it builds: run it as root")
    provide(["buildah", *(["debootstrap"] if arguments.debootstrap else ())], install=arguments.install)
    cache = Path(arguments.cache or cache_folder())
    cache.mkdir(parents=True, exist_ok=True)
    workshop = Workshop(cache, 5 if arguments.debootstrap else 3)
    workshop.log.write_text("")
    if len(workshop.buildah("images", "--all", "--quiet").splitlines()) > IMAGES_MAX:
        workshop.buildah("rmi", "--all", "--force")
    recipe = SPARK if arguments.spark else SERVICES
    base = make_base(workshop, recipe, arguments.mirror) if arguments.debootstrap else arguments.base
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    name = arguments.name or f"localhost/{recipe.name}:{version}"
    output = Path(arguments.output or ROOT / "dist" / f"{recipe.name}-{version}.tar").absolute()
    output.parent.mkdir(parents=True, exist_ok=True)

    workshop.step(f"{name} on {base}")
    make_image(workshop, recipe, base, name, version, arguments.afresh)
    workshop.step(f"write {output}")
    unfinished = output.with_name(f"{output.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    workshop.buildah("push", "--quiet", name, f"docker-archive:{unfinished}:{name}")
    unfinished.rename(output)
    workshop.step("its bill of materials")
    bill = output.with_suffix(".cdx.json")
    copy_out(workshop, name, bill)
    sys.stderr.write(f"{name}: {output.stat().st_size / 2**20:.0f} MiB, {bill.name} says of what\n")
    sys.stdout.write(f"{output}\n")


def provide(programs: Sequence[str], *, install: bool) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if not missing:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    if not install or shutil.which("apt-get") is None:
        raise CannotBuild(
            f"{' and '.join(missing)} is missing: install it, as by `{' '.join(command)}`, or --install"
        )
    subprocess.run(["apt-get", "update", "--quiet=2"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "tidemill" / "images"


def make_base(workshop: Workshop, recipe: Recipe, mirror: str) -> str:
    """The name of an image of Debian's Python, and of Java where it is needed, made unless it is there."""
    said = repr((SUITE, recipe.packages, NOT_NEEDED, BASE_RECIPE, mirror))
    name = f"localhost/tidemill-base:{SUITE}-{hashlib.sha256(said.encode()).hexdigest()[:12]}"
    archive = workshop.cache / f"{name.rpartition(':')[2]}.tar"
    workshop.step(f"Debian {SUITE} by debootstrap{' (cached)' if archive.exists() else ''}")
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=workshop.cache) as folder:
            bootstrap(workshop, Path(folder), recipe, mirror, archive)
    workshop.step(name)
    if name not in workshop.buildah("images", "--format", "{{.Name}}:{{.Tag}}"):
        with tempfile.TemporaryDirectory(dir=workshop.cache) as folder:
            os.link(archive, f"{folder}/base.tar")
            Path(folder, "Dockerfile").write_text(BASE_RECIPE)
            workshop.buildah("build", "--quiet", "--timestamp", "0", "--tag", name, folder)
    return name


def bootstrap(workshop: Workshop, folder: Path, recipe: Recipe, mirror: str, archive: Path) -> None:
    root = folder / "root"
    included = f"--include={','.join(recipe.packages)}"
    workshop.run(["debootstrap", "--variant=minbase", included, SUITE, str(root), mirror])
    for pattern in NOT_NEEDED:
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    unfinished = folder / "base.tar"
    same = ["--numeric-owner", "--sort=name", "--mtime=@0", "--one-file-system"]
    workshop.run(["tar", "-C", str(root), *same, "-cf", str(unfinished), "."])
    unfinished.rename(archive)


def make_image(workshop: Workshop, recipe: Recipe, base: str, name: str, version: str, afresh: bool) -> None:
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or "0"
    created = datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    stated = {
        "BASE": base,
        "VERSION": version,
        "REVISION": revision(),
        "CREATED": created,
        "SOURCE_DATE_EPOCH": epoch,
    }
    words = ["--layers", *(["--no-cache"] if afresh else [])]
    words += ["--format", "docker", "--isolation", "chroot", "--network", "host", "--timestamp", epoch]
    words += [word for key, value in stated.items() for word in ("--build-arg", f"{key}={value}")]
    words += [word for key, path in secrets().items() for word in ("--secret", f"id={key},src={path}")]
    words += ["--ignorefile", str(ROOT / "images" / f"{recipe.file}.dockerignore")]
    words += ["--file", str(ROOT / "images" / recipe.file), "--tag", name, str(ROOT)]
    workshop.buildah("build", *words)


def secrets() -> dict[str, str]:
    """What this machine needs to reach its index of packages, if anything."""
    found = {"pip.conf": os.environ.get("PIP_CONFIG_FILE", "/etc/pip.conf")}
    found["certificates"] = next((os.environ[name] for name in CERTIFICATES if name in os.environ), "")
    return {key: path for key, path in found.items() if path and os.path.isfile(path)}


def copy_out(workshop: Workshop, name: str, bill: Path) -> None:
    container = workshop.buildah("from", "--pull-never", name).strip()
    try:
        mounted = workshop.buildah("mount", container).strip()
        shutil.copyfile(f"{mounted}/{BILL}", bill)
    finally:
        workshop.buildah("rm", container)


def revision() -> str:
    changed = git("status", "--porcelain")
    return (git("rev-parse", "HEAD") or "unknown") + ("-changed" if changed else "")


def git(*words: str) -> str:
    """What git says; nothing where there is none, as in an unpacked archive."""
    command = ["git", "-c", "safe.directory=*", *words]
    try:
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
