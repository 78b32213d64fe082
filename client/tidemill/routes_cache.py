"""The last good routes, on the disk: a client that begins while nobody says routes goes by them.

Replaced as a whole, so that a reader finds the old ones or the new ones. Of what is no such file nothing is used: it is
said once, and written anew with the next routes. Processes of one server share a file: what it has of subjects that
this one does not name, it keeps.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from tidemill.atlas import Atlas

BYTES_MAX = 64 * 1024 * 1024
ROUTES_MAX = 10_000
"""Kept of other processes' subjects, or a file would grow for ever."""
CACHE_VARIABLE = "XDG_CACHE_HOME"
NAME_CHARS_MAX = 80

log = logging.getLogger("tidemill")


class RoutesCache:
    """See the module. Blocking: what is written, is written in a thread."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._failed = False

    def load(self) -> Atlas:
        """What is kept; an empty atlas if nothing is."""
        try:
            if self._path.stat().st_size > BYTES_MAX:
                raise ValueError(f"it has more than {BYTES_MAX} bytes")
            return Atlas.from_map(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return Atlas()
        except (OSError, ValueError, RecursionError) as error:
            log.warning("routes_cache_ignored %s: %s", self._path, " ".join(str(error).split())[:200])
            return Atlas()

    def save(self, data: bytes) -> None:
        """Keep this, and what is there of other subjects."""
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.write_bytes(self._with_others(data))
            fresh.replace(self._path)
            self._failed = False
        except OSError as error:
            if not self._failed:  # said once, until it is written again
                self._failed = True
                log.warning("routes_not_cached %s: %s", self._path, error.strerror or error)

    def _with_others(self, data: bytes) -> bytes:
        kept = self.load()
        if not kept.routes:
            return data
        mine = Atlas.from_map(json.loads(data))
        others = {name: one for name, one in kept.routes.items() if name not in mine.routes}
        mine.routes = {**dict(list(others.items())[-ROUTES_MAX:]), **mine.routes}
        return packed(mine)


def default_path(places: Sequence[tuple[str, int]]) -> Path | None:
    """Where the routes of a server are kept by default: in the user's folder of caches, if there is one to write to."""
    try:
        folder = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache")
    except RuntimeError:  # nobody's process has no home
        return None
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return None
    server = ",".join(sorted(f"{host}:{port}" for host, port in places))
    name = re.sub(r"[^A-Za-z0-9.-]", "_", server)[:NAME_CHARS_MAX]
    return folder / "tidemill" / f"routes-{name}-{sha256(server.encode()).hexdigest()[:8]}.json"


def packed(atlas: Atlas) -> bytes:
    """A atlas as it is kept."""
    return json.dumps(atlas.to_map(), separators=(",", ":")).encode()
