"""The images have what pyproject.toml asks for: every version pinned, every file by its sum. `make lock` writes it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from samples.scripts import ROOT, script
from tidemill_operator.desired.kubeflow import SPARK_VERSION

lock = script("images/lock.py")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIREMENTS = ROOT / "images" / "requirements.lock"
SPARK = ROOT / "images" / "spark.lock"
LOCKS = {REQUIREMENTS: lock.EXTRAS, SPARK: lock.SPARK_EXTRAS}
TOOLS = ROOT / "images" / "tools.lock"
SUM = re.compile(r"--hash=sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Pin:
    requirement: Requirement
    sums: int

    @property
    def version(self) -> str:
        return str(self.requirement.specifier).removeprefix("==")


def pins(path: Path) -> dict[str, list[Pin]]:
    """By name; one name has several where Pythons differ."""
    found: dict[str, list[Pin]] = {}
    for entry in (
        re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    ):
        requirement = Requirement(entry.partition("--hash")[0].strip())
        pin = Pin(requirement, len(SUM.findall(entry)))
        found.setdefault(canonicalize_name(requirement.name), []).append(pin)
    return found


def wanted(path: Path) -> list[Requirement]:
    return [Requirement(text) for text in lock.wanted(PROJECT, LOCKS[path])]


ASKED = [(path, requirement) for path in LOCKS for requirement in wanted(path)]


@pytest.mark.parametrize("path", [*LOCKS, TOOLS], ids=lambda path: path.name)
def test_every_pin_has_one_version_and_sums(path: Path) -> None:
    loose = [
        str(pin.requirement)
        for some in pins(path).values()
        for pin in some
        if not re.fullmatch(r"==[^,*]+", str(pin.requirement.specifier)) or pin.sums == 0
    ]

    assert loose == []


@pytest.mark.parametrize("path, requirement", ASKED, ids=lambda one: one.name)
def test_what_the_project_asks_for_is_pinned_as_it_asks(path: Path, requirement: Requirement) -> None:
    some = pins(path).get(canonicalize_name(requirement.name), [])

    assert some, f"{requirement.name} is not in the lock: make lock"
    for pin in some:
        assert requirement.specifier.contains(pin.version), (
            f"{pin.requirement} is not {requirement}: make lock"
        )


def test_what_the_build_needs_is_pinned_as_the_project_asks() -> None:
    found = pins(TOOLS)

    for text in [*PROJECT["build-system"]["requires"], *lock.BUILDERS]:
        requirement = Requirement(text)
        (pin,) = found[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin.version), (
            f"{pin.requirement} is not {requirement}: make lock"
        )


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_what_that_rests_upon_is_pinned_too(path: Path) -> None:
    """As it is installed here; other Pythons may need more, which the build of the image would miss."""
    missing = {
        name for requirement in wanted(path) for name in below(requirement, set()) if name not in pins(path)
    }

    assert missing == set(), "make lock"


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_nothing_else_is_pinned(path: Path) -> None:
    """But for what other Pythons or systems need, which says so."""
    needed = {name for requirement in wanted(path) for name in below(requirement, set())}
    always = {
        name for name, some in pins(path).items() if any(pin.requirement.marker is None for pin in some)
    }

    assert always - needed == set(), "make lock"


def test_the_operator_tells_spark_the_version_that_the_image_has() -> None:
    (pin,) = pins(SPARK)["pyspark"]

    assert pin.version == SPARK_VERSION
    assert Requirement(lock.SPARK).specifier.contains(pin.version)


def below(requirement: Requirement, seen: set[tuple[str, frozenset[str]]]) -> Iterator[str]:
    name = canonicalize_name(requirement.name)
    key = (name, frozenset(requirement.extras))
    if key in seen:
        return
    seen.add(key)
    yield name
    try:
        needed = distribution(name).requires or []
    except PackageNotFoundError:
        return
    for text in needed:
        one = Requirement(text)
        if one.marker is None or any(
            one.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)
        ):
            yield from below(one, seen)
