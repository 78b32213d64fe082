"""Sets of numbers as flat lists of first, last, first, last …, both included, growing."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill_wire.ranges import pairs


def merge_ranges(numbers: Sequence[tuple[int, int]]) -> list[int]:
    """(first, count) pairs that do not overlap, as ranges."""
    ranges: list[int] = []
    for first, count in sorted(numbers):
        if ranges and ranges[-1] + 1 == first:
            ranges[-1] = first + count - 1
        else:
            ranges += (first, first + count - 1)
    return ranges


def add_ranges(known: list[int], ranges: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """``known`` with ``ranges`` added, and the (first, count) of what was new."""
    fresh: list[tuple[int, int]] = []
    following = 0
    for first, last in sorted(pairs(ranges)):
        following = max(first, following)
        for start, stop in pairs(known):
            if stop < following or start > last:
                continue
            if start > following:
                fresh.append((following, start - following))
            following = stop + 1
        if following <= last:
            fresh.append((following, last + 1 - following))
            following = last + 1
    spans = [(start, stop + 1 - start) for start, stop in pairs(known)]
    return merge_ranges([*spans, *fresh]), fresh


def covers(known: Sequence[int], first: int, last: int = -1) -> bool:
    """Whether one of the ranges has all from ``first`` to ``last``, or just ``first``."""
    return any(low <= first and max(first, last) <= high for low, high in pairs(known))


def ranges_without(ranges: Sequence[int], named: Sequence[int]) -> list[int]:
    """What of ``ranges`` (in order, without overlaps) is in none of the ranges ``named``, which may be anyhow."""
    left: list[int] = []
    others = sorted(pairs(named), reverse=True)  # the lowest is the last
    for first, last in pairs(ranges):
        following = first
        while others and others[-1][0] <= last:
            begin, end = others[-1]
            if begin > following:
                left += (following, begin - 1)
            following = max(following, end + 1)
            if end > last:
                break  # it may reach into the next range
            others.pop()
        if following <= last:
            left += (following, last)
    return left
