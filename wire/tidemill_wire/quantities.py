"""Sizes as Kubernetes writes them: 50Gi, 200M, 4k."""

from __future__ import annotations

import re

UNITS: dict[str, int] = {
    unit: base ** (power + 1)
    for base, letters, suffix in ((1000, "kMGTPE", ""), (1024, "KMGTPE", "i"))
    for power, unit in enumerate(f"{letter}{suffix}" for letter in letters)
}
SIZE_PATTERN = "[0-9]{1,19}([kMGTPE]|[KMGTPE]i)?"
SIZE = re.compile(r"([0-9]{1,19})([kMGTPE]|[KMGTPE]i)?")
SIZE_MAX = 1 << 62
"""4Ei. The API server cuts what does not fit 63 bits in silence, so sizes end well before."""


def bytes_of(written: str) -> int | None:
    """What a size means, or None when it is none."""
    matched = SIZE.fullmatch(written)
    return int(matched[1]) * UNITS.get(matched[2] or "", 1) if matched is not None else None


def written_size(size_bytes: int) -> str:
    """The shortest way to write it."""
    exact = [unit for unit, factor in UNITS.items() if size_bytes and size_bytes % factor == 0]
    best = max(exact, key=lambda unit: UNITS[unit], default="")
    return f"{size_bytes // UNITS.get(best, 1)}{best}"
