"""Ranges as commands and records hold them: first, last, first, last …, both included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill_wire import limits


def pairs(ranges: Sequence[int]) -> list[tuple[int, int]]:
    """The (first, last) of each range."""
    bounds = iter(ranges)
    return list(zip(bounds, bounds, strict=True))


def portions(ranges: Sequence[int]) -> Iterator[Sequence[int]]:
    """As many at a time as one command, or one record, may hold: a million of them fit none."""
    size = 2 * limits.RANGES_MAX
    for at in range(0, len(ranges), size):
        yield ranges[at : at + size]


def apart(ranges: list[int]) -> list[int]:
    """The same numbers, in ranges that grow and do not overlap: who goes through them comes to each number once."""
    if all(before < after for before, after in zip(ranges[1::2], ranges[2::2], strict=False)):
        return ranges
    found: list[int] = []
    for first, last in sorted(pairs(ranges)):
        if found and first <= found[-1]:
            found[-1] = max(found[-1], last)
        else:
            found += (first, last)
    return found


def count_of(ranges: Sequence[int]) -> int:
    """How many numbers there are."""
    return sum(last + 1 - first for first, last in pairs(ranges))
