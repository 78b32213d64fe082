"""The files of the working tree, as git sees them: tracked, and new but not ignored."""

from __future__ import annotations

import ast
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
PACKAGE = re.compile(r"([^/]+)/(tidemill(?:_\w+)?)/")
NO_ROOMS = {"tests", "bench", "charts", "docs"}


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file. ``path`` is relative to the root, with ``/``."""

    path: str
    text: str
    tree: ast.Module

    @property
    def folder(self) -> str:
        return PurePosixPath(self.path).parts[0]

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    def at(self, node: ast.AST) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}"


def parse(path: str, text: str) -> Source:
    return Source(path, text, ast.parse(text, filename=path))


@cache
def files() -> tuple[str, ...]:
    """Paths of all files, sorted. A file that was deleted but not committed is left out."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return tuple(sorted(path for path in set(listing.stdout.split("\0")) if path and (ROOT / path).is_file()))


@cache
def sources() -> tuple[Source, ...]:
    return tuple(parse(path, text) for path, text in texts() if path.endswith(".py"))


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Path and content of every file that is text."""
    found: list[tuple[str, str]] = []
    for path in files():
        content = (ROOT / path).read_bytes()
        if b"\0" not in content:
            found.append((path, content.decode(errors="replace")))
    return tuple(found)


def rooms(paths: tuple[str, ...]) -> dict[str, str]:
    """Folder and package of every room. The folders are the truth that the lists are compared with."""
    found = {match[1]: match[2] for path in paths if (match := PACKAGE.match(path))}
    return {folder: package for folder, package in sorted(found.items()) if folder not in NO_ROOMS}
