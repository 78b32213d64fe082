"""Which Python files below a folder have changed: by looking, because that works everywhere and needs no package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias

LEFT_OUT = {"__pycache__", "node_modules", "site-packages"}

Seen: TypeAlias = Mapping[str, tuple[int, int]]
"""Time of change and size of each file, by its path."""


def look(folder: str) -> Seen:
    """The files there are. Folders with a dot in front, environments and caches are left out."""
    seen: dict[str, tuple[int, int]] = {}
    for here, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in LEFT_OUT and not name.startswith(".")]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(here, name)
                try:
                    status = os.stat(path)
                except OSError:
                    continue  # an editor is replacing it, or nobody can read it: seen when it is there
                seen[os.path.relpath(path, folder)] = status.st_mtime_ns, status.st_size
    return seen


def changed(before: Seen, after: Seen) -> list[str]:
    """Files that are new, different or gone."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
