"""Ranges against Python's sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill_broker.ranges import add_ranges, merge_ranges
from tidemill_wire.ranges import count_of, pairs

NUMBERS = st.sets(st.integers(0, 60))
ANY_RANGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 15)).map(lambda one: (one[0], one[0] + one[1])), max_size=6
)


def members(ranges: list[int]) -> set[int]:
    return {number for first, last in pairs(ranges) for number in range(first, last + 1)}


def of(numbers: set[int]) -> list[int]:
    return merge_ranges([(number, 1) for number in numbers])


@given(NUMBERS)
def test_merged_ranges_are_the_fewest_that_hold_the_numbers(numbers: set[int]) -> None:
    ranges = of(numbers)

    assert members(ranges) == numbers
    assert count_of(ranges) == len(numbers)
    assert all(following > last + 1 for last, following in zip(ranges[1::2], ranges[2::2], strict=False))


@given(NUMBERS, ANY_RANGES)
def test_added_ranges_are_a_union_and_what_is_new_is_the_difference(
    numbers: set[int], ranges: list[tuple[int, int]]
) -> None:
    """Ranges from outside may overlap, repeat and come in any order."""
    flat = [bound for one in ranges for bound in one]
    known, fresh = add_ranges(of(numbers), flat)

    assert members(known) == numbers | members(flat)
    assert known == of(members(known)), "as few as can be"
    spans = [set(range(first, first + count)) for first, count in fresh]
    assert set().union(*spans) == members(flat) - numbers
    assert sum(map(len, spans)) == len(members(flat) - numbers), "nothing is new twice"
    assert all(spans)
