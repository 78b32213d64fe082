"""What the build of the image looks at: every room, and little else."""

from __future__ import annotations

from samples.scripts import ROOT
from tidy import tree


def test_every_room_is_in_the_image() -> None:
    """Also that of Spark, of which no service runs anything: all images have one wheel, and a wheel is whole."""
    lines = (ROOT / "images/Dockerfile.dockerignore").read_text().splitlines()
    folders = {line[1:] for line in lines if line.startswith("!") and "/tidemill" in line}

    assert "*" in lines
    assert folders == {f"{folder}/{package}" for folder, package in tree.rooms(tree.files()).items()}


def test_what_the_build_copies_is_there_to_copy() -> None:
    lines = (ROOT / "images/Dockerfile.dockerignore").read_text().splitlines()

    assert [line for line in lines if line.startswith("!") and not (ROOT / line[1:]).exists()] == []
