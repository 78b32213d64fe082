"""What the services of a cluster show each other: the first line of a file. Every line of it is believed.

So it is changed without a stop: the new one is added below everywhere, then put first everywhere, then stands alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection

from tidemill_host.log import warning
from tidemill_wire.access import digest_of
from tidemill_wire.errors import TidemillError

LOOK_SECONDS = 1.0
CHARS_MIN = 32
"""As many as 24 random bytes have; fewer could be guessed."""


class SecretProblem(TidemillError):
    """A file that cannot be used; the sentence says which, and why."""


class ClusterSecret:
    """See the module. A change that cannot be used leaves what was there before."""

    def __init__(self, place: str, seconds: Callable[[], float] = time.monotonic) -> None:
        self._place = place
        self._seconds = seconds
        self._looked = seconds()
        self._stamp = _stamp(place)
        self._tokens = _read(place)
        self._digests = frozenset(map(digest_of, self._tokens))

    def shown(self) -> str:
        """To others."""
        self._look()
        return self._tokens[0]

    def digests(self) -> Collection[str]:
        """Of what is believed."""
        self._look()
        return self._digests

    def _look(self) -> None:
        now = self._seconds()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        stamp = _stamp(self._place)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._tokens = _read(self._place)
        except SecretProblem as error:
            warning("secret_unusable", f"{error}; what was there before is used on")
            return
        self._digests = frozenset(map(digest_of, self._tokens))


def _stamp(place: str) -> tuple[int, int, int] | None:
    try:
        seen = os.stat(place)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def _read(place: str) -> list[str]:
    try:
        with open(place, encoding="ascii") as file:
            tokens = [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SecretProblem(f"the cluster's token cannot be read from {place} ({error})") from None
    if not tokens or min(map(len, tokens)) < CHARS_MIN:
        raise SecretProblem(
            f"{place} holds no token of {CHARS_MIN} characters or more: write a random one into it, as of "
            "`openssl rand -hex 32`"
        )
    return tokens
