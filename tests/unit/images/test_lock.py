"""The image has what pyproject.toml asks for: every version pinned, every file by its sum. `make lock` writes it."""

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

lock = script("images/lock.py")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIREMENTS = ROOT / "images" / "requirements.lock"
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


def wanted() -> list[Requirement]:
    project = PROJECT["project"]
    extras = [project["optional-dependencies"][extra] for extra in lock.EXTRAS]
    return [Requirement(text) for texts in (project["dependencies"], *extras) for text in texts]


@pytest.mark.parametrize("path", [REQUIREMENTS, TOOLS], ids=lambda path: path.name)
def test_every_pin_has_one_version_and_sums(path: Path) -> None:
    loose = [
        str(pin.requirement)
        for some in pins(path).values()
        for pin in some
        if not re.fullmatch(r"==[^,*]+", str(pin.requirement.specifier)) or pin.sums == 0
    ]

    assert loose == []


@pytest.mark.parametrize("requirement", wanted(), ids=lambda requirement: requirement.name)
def test_what_the_project_asks_for_is_pinned_as_it_asks(requirement: Requirement) -> None:
    some = pins(REQUIREMENTS).get(canonicalize_name(requirement.name), [])

    assert some, f"{requirement.name} is not in the lock: make lock"
    for pin in some:
        assert requirement.specifier.contains(pin.version), (
            f"{pin.requirement} is not {requirement}: make lock"
        )


def test_what_the_build_needs_is_pinned_as_the_project_asks() -> None:
    found = pins(TOOLS)

    for text in [*PROJECT["build-system"]["requires"], "pip"]:
        requirement = Requirement(text)
        (pin,) = found[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin.version), (
            f"{pin.requirement} is not {requirement}: make lock"
        )


def test_what_that_rests_upon_is_pinned_too() -> None:
    """As it is installed here; other Pythons may need more, which the build of the image would miss."""
    missing = {
        name
        for requirement in wanted()
        for name in below(requirement, set())
        if name not in pins(REQUIREMENTS)
    }

    assert missing == set(), "make lock"


def test_nothing_else_is_pinned() -> None:
    """But for what other Pythons or systems need, which says so."""
    needed = {name for requirement in wanted() for name in below(requirement, set())}
    always = {
        name
        for name, some in pins(REQUIREMENTS).items()
        if any(pin.requirement.marker is None for pin in some)
    }

    assert always - needed == set(), "make lock"


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
