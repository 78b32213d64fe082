"""What the builds of the images look at: every room, and little else."""

from __future__ import annotations

from pathlib import Path

import pytest

from samples.scripts import ROOT
from tidy import tree

IGNORED = sorted((ROOT / "images").glob("*.dockerignore"), key=str)


@pytest.mark.parametrize("path", IGNORED, ids=lambda path: path.stem)
def test_every_room_is_in_the_image(path: Path) -> None:
    """Also that of Spark, of which no service runs anything: all images have one wheel, and a wheel is whole."""
    lines = path.read_text().splitlines()
    folders = {line[1:] for line in lines if line.startswith("!") and "/tidemill" in line}

    assert "*" in lines
    assert folders == {f"{folder}/{package}" for folder, package in tree.rooms(tree.files()).items()}


@pytest.mark.parametrize("path", IGNORED, ids=lambda path: path.stem)
def test_what_the_build_copies_is_there_to_copy(path: Path) -> None:
    lines = path.read_text().splitlines()

    assert [line for line in lines if line.startswith("!") and not (ROOT / line[1:]).exists()] == []
