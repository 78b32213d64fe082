"""The image, really built on a base of Debian's packages, and run as strictly as Kubernetes would."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from cluster.cache import base
from cluster.conftest import need_nodes
from cluster.containers import USER, Container
from cluster.plane import free_ports
from cluster.prerequisites import provide
from samples.scripts import ROOT, script

pytestmark = [pytest.mark.real_cluster, pytest.mark.timeout(1_800)]  # it has to be built

NAME = "localhost/tidemill:tests"
SIZE_MIB_MAX = 400
PROGRAMS = {"cc", "gcc", "g++", "c++", "clang", "ld", "as", "make", "pip", "pip3"}
PACKAGES = {"pip", "ensurepip", "setuptools", "wheel", "hatchling"}
HEALTH = ("python", "-I", "/opt/tidemill/share/health.py")
NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Image:
    archive: Path
    root: Path
    """Unpacked, and mounted: nothing in it may be written."""

    @property
    def config(self) -> dict[str, Any]:
        return self._described["config"]  # type: ignore[no-any-return]

    @property
    def layers(self) -> list[str]:
        return self._described["rootfs"]["diff_ids"]  # type: ignore[no-any-return]

    @property
    def _described(self) -> dict[str, Any]:
        with tarfile.open(self.archive) as archive:
            manifest = json.loads(read(archive, "manifest.json"))
            return json.loads(read(archive, manifest[0]["Config"]))  # type: ignore[no-any-return]


def read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    assert member is not None
    return member.read()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    need_nodes()
    provide(print)
    cache, archive = base() / "images", tmp_path_factory.mktemp("image") / "tidemill.tar"
    options = ["--debootstrap", "--install", "--cache", str(cache), "--name", NAME, "--output", str(archive)]
    subprocess.run([sys.executable, str(ROOT / "images/build.py"), *options], check=True)
    buildah = ["buildah", "--root", str(cache / "storage"), "--runroot", str(cache / "run")]
    container = said([*buildah, "from", "--pull-never", NAME])
    try:
        yield Image(archive, Path(said([*buildah, "mount", container])))
    finally:
        said([*buildah, "rm", container])


def said(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


Make: TypeAlias = Callable[..., Container]


@pytest.fixture
def make(image: Image, tmp_path: Path) -> Iterator[Make]:
    made: list[Container] = []

    def container(*command: str, **settings: str) -> Container:
        made.append(Container(tmp_path, image.root, f"c{next(NUMBERS)}", command, settings))
        return made[-1]

    yield container
    for one in made:
        one.close()


def test_meta_and_a_broker_serve_without_root_and_end_cleanly(make: Make) -> None:
    meta = make("python", "-m", "tidemill_meta", "--port", "0", TIDEMILL_META_NAME="meta")
    meta.start()
    server = meta.ready().rpartition("http://")[2]
    settings = {"TIDEMILL_NAME": "g0-0", "TIDEMILL_REPLICATED": "true", "TIDEMILL_META": server}
    broker = make("python", "-m", "tidemill_broker", "up", "--port", "0", "--http-port", "0", **settings)
    broker.start()
    broker.ready()

    sent = make("tidemill", "send", "hello", "first message", TIDEMILL_SERVER=server).run()
    consuming = (
        "tidemill",
        "consume",
        "hello",
        "--group",
        "g",
        "--from",
        "earliest",
        "--count",
        "1",
        "--timeout",
        "30",
    )
    consumed = make(*consuming, TIDEMILL_SERVER=server).run()

    assert sent[0] == 0, sent[1]
    assert consumed[0] == 0, consumed[1]
    assert "first message" in consumed[1]
    for service in (broker, meta):
        service.terminate()
        assert service.end() == 0, service.said


def test_health_is_that_of_the_service_the_container_is_for(make: Make) -> None:
    data, control = free_ports(2)
    broker = make("python", "-m", "tidemill_broker", "up", "--port", str(data), "--http-port", str(control))
    broker.start()
    broker.ready()

    assert broker.execute(*HEALTH).returncode == 0


def test_it_runs_as_nobody_and_can_write_only_its_data(make: Make) -> None:
    attempt = (
        "import os; print(os.getuid()); [open(p, 'w') for p in ('/data/x', '/tmp/x', '/opt/tidemill/x')]"
    )

    code, text = make("python", "-c", attempt).run()

    assert code == 1
    assert str(USER) in text
    assert "OSError: [Errno 30] Read-only file system: '/opt/tidemill/x'" in text


def test_nothing_in_it_builds_or_installs(image: Image) -> None:
    programs = {path.name for folder in ("bin", "usr/bin", "usr/local/bin", "opt/tidemill/bin") for path in
                (image.root / folder).iterdir()}  # fmt: skip
    packages = {path.name for path in image.root.glob("*/**/python3*/*") if path.is_dir()}
    packages |= {path.name for path in image.root.glob("*/**/*-packages/*")}

    assert "python3" in programs
    assert "tidemill" in programs & packages
    assert (programs & PROGRAMS, packages & PACKAGES) == (set(), set())


def test_it_says_what_it_is(image: Image) -> None:
    config = image.config

    assert config["User"] == f"{USER}:{USER}"
    assert config["Healthcheck"]["Test"] == ["CMD", *HEALTH]
    labels = {
        name.rpartition(".")[2]: value
        for name, value in config["Labels"].items()
        if ".opencontainers." in name
    }
    assert (labels["title"], labels["licenses"]) == ("tidemill", "Apache-2.0")
    assert re.fullmatch(r"[0-9a-f]{40}(-changed)?", labels["revision"])
    assert image.archive.stat().st_size < SIZE_MIB_MAX * 2**20


def test_its_bill_names_what_is_pinned(image: Image) -> None:
    bill = json.loads(image.archive.with_suffix(".cdx.json").read_text())
    listed = {one["purl"].partition("@")[0]: one["version"] for one in bill["components"]}
    pinned = dict(
        re.findall(r"^([\w.-]+)==([^ ;]+)", (ROOT / "images/requirements.lock").read_text(), re.MULTILINE)
    )

    assert listed["pkg:pypi/aiohttp"] == pinned["aiohttp"]
    assert "pkg:deb/debian/libc6" in listed
    assert bill["metadata"]["component"]["version"] == listed["pkg:pypi/tidemill"]


def test_equal_sources_are_equal_layers(image: Image, tmp_path: Path) -> None:
    """Built once more with nothing kept but the base and what was downloaded. Layers have the sums of their bytes."""
    build = script("images/build.py")
    again = tmp_path / "again.tar"
    cache = base() / "images"

    build.main(["--debootstrap", "--cache", str(cache), "--name", NAME, "--output", str(again), "--afresh"])

    assert Image(again, image.root).layers == image.layers
