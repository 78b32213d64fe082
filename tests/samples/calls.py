"""How much Python did: the same on every machine, and however busy it is."""

from __future__ import annotations

import sys
from collections.abc import Callable


def calls_of(work: Callable[[], object]) -> int:
    """Calls of Python functions."""
    seen = [0]

    def count(_frame: object, event: str, _arg: object) -> None:
        seen[0] += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen[0]
