"""The last good routes, on the disk: a client that begins while nobody says routes goes by them.

Replaced as a whole, so that a reader finds the old ones or the new ones. Of what is no such file nothing is used: it is
said once, and written anew with the next routes.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from tidemill.atlas import Atlas

BYTES_MAX = 64 * 1024 * 1024

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
        """Keep this instead."""
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(data)
            fresh.replace(self._path)
            self._failed = False
        except OSError as error:
            if not self._failed:  # said once, until it is written again
                self._failed = True
                log.warning("routes_not_cached %s: %s", self._path, error.strerror or error)


def packed(atlas: Atlas) -> bytes:
    """A atlas as it is kept."""
    return json.dumps(atlas.to_map(), separators=(",", ":")).encode()
