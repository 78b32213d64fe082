"""Groups: deliveries are taken, split and put back, and every message is in one place only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_broker.failures import Failure
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.groups import Group
from tidemill_broker.pull_log import SWEEP_FROM, Consumer, Delivery
from tidemill_broker.ranges import merge_ranges, ranges_without


def held_of(*runs: tuple[int, int, int]) -> tuple[Group, Consumer]:
    """A consumer with deliveries of (pull, first, count)."""
    group = Group(1, 1, "billing", 1000, 0, GroupSettings())
    consumer = group.consumers["pod"] = Consumer(1, group, "pod")
    consumer.deliveries = [Delivery(pull, first, count, 0, 99) for pull, first, count in runs]
    group.in_flight = sum(count for _, _, count in runs)
    group.check()
    return group, consumer


def as_runs(deliveries: object) -> list[tuple[int, int, int]]:
    return [(one.pull, one.first, one.count) for one in deliveries]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "first, last, taken, held",
    [
        (10, 14, [(10, 100, 5)], [(20, 50, 5)]),
        (10, 11, [(10, 100, 2)], [(12, 102, 3), (20, 50, 5)]),
        (13, 14, [(13, 103, 2)], [(10, 100, 3), (20, 50, 5)]),
        (12, 12, [(12, 102, 1)], [(10, 100, 2), (13, 103, 2), (20, 50, 5)]),
        (13, 21, [(20, 50, 2), (13, 103, 2)], [(10, 100, 3), (22, 52, 3)]),
        (0, 99, [(20, 50, 5), (10, 100, 5)], []),
        (0, 9, [], [(10, 100, 5), (20, 50, 5)]),
        (15, 19, [], [(10, 100, 5), (20, 50, 5)]),
        (25, 2**63 - 1, [], [(10, 100, 5), (20, 50, 5)]),
    ],
)
def test_range_is_taken_out_of_deliveries_wherever_it_lies(
    first: int, last: int, taken: list[tuple[int, int, int]], held: list[tuple[int, int, int]]
) -> None:
    group, consumer = held_of((10, 100, 5), (20, 50, 5))

    got, left = consumer.take(first, last)

    assert as_runs(got) == taken
    assert as_runs(consumer.held()) == held
    assert all(one in consumer.deliveries for one in left)
    group.check()


def test_what_was_taken_is_not_taken_again() -> None:
    group, consumer = held_of((10, 100, 5))
    consumer.take(11, 12)

    assert as_runs(consumer.take(10, 14)[0]) == [(13, 103, 2), (10, 100, 1)]
    assert consumer.take(10, 14) == ([], [])
    assert group.in_flight == 0
    group.check()


def test_missing_parts_of_a_range_are_named() -> None:
    _, consumer = held_of((10, 100, 5), (20, 50, 5))
    consumer.take(12, 12)

    assert consumer.missing(10, 11) == []
    assert consumer.missing(8, 30) == [8, 9, 12, 12, 15, 19, 25, 30]
    assert consumer.missing(40, 41) == [40, 41]


def test_settled_deliveries_are_swept_and_the_others_stay() -> None:
    count = 3 * SWEEP_FROM
    group, consumer = held_of(*((index, index, 1) for index in range(count)))
    for index in range(count - 1):
        consumer.take(index, index)

    assert len(consumer.deliveries) <= SWEEP_FROM + 1
    assert as_runs(consumer.held()) == [(count - 1, count - 1, 1)]
    assert group.in_flight == 1
    group.check()


def test_failures_are_due_in_the_order_of_their_times() -> None:
    group, _ = held_of()
    for first, due_ms in ((10, 300), (20, 100), (30, 200), (40, 900)):
        group.fail(Failure(first, 2, 1, due_ms))

    assert [failure.first for failure in group.due_failures(300, 10)] == [20, 30, 10]
    assert [failure.first for failure in group.due_failures(300, 2)] == [20, 30]
    assert [failure.first for failure in group.due_failures(99, 10)] == []
    assert group.next_failure() == Failure(20, 2, 1, 100)
    assert group.failed_count() == 8


def test_part_of_a_failure_is_taken_and_the_rest_stays_due() -> None:
    group, _ = held_of()
    group.fail(Failure(10, 5, 3, 100))
    group.take_failed(10, 2)

    assert group.next_failure() == Failure(12, 3, 3, 100)
    group.take_failed(12, 3)
    assert group.next_failure() is None


def test_failure_with_the_same_due_time_as_before_is_due_once() -> None:
    group, _ = held_of()
    for _ in range(3):
        group.fail(Failure(10, 1, 1, 100))
        group.take_failed(10, 1)
    group.fail(Failure(10, 1, 2, 100))

    assert group.due_failures(100, 10) == [Failure(10, 1, 2, 100)]
    assert group.due_failures(100, 10) == [Failure(10, 1, 2, 100)]


def test_group_knows_whether_it_needs_old_messages() -> None:
    group, consumer = held_of((10, 100, 5))
    assert [group.holds_before(sequence) for sequence in (100, 101)] == [False, True]
    consumer.take(0, 99)
    assert not group.holds_before(1000)
    group.fail(Failure(50, 1, 1, 0))
    assert [group.holds_before(sequence) for sequence in (50, 51)] == [False, True]


def test_check_finds_a_message_in_two_places() -> None:
    group, _ = held_of((10, 100, 5))
    group.fail(Failure(104, 1, 1, 0))

    with pytest.raises(AssertionError, match="two places"):
        group.check()


def test_ranges_that_touch_are_one() -> None:
    assert merge_ranges([(7, 3), (0, 2), (10, 1), (2, 1), (20, 1)]) == [0, 2, 7, 10, 20, 20]
    assert merge_ranges([]) == []


@given(st.sets(st.integers(0, 40)), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12))))
def test_what_is_left_of_ranges_is_what_nobody_named(held: set[int], spans: list[tuple[int, int]]) -> None:
    """Named ranges come in any order, overlap, and reach beyond."""
    named = [bound for first, more in spans for bound in (first, first + more)]

    left = ranges_without(merge_ranges([(number, 1) for number in held]), named)

    covered = {number for first, more in spans for number in range(first, first + more + 1)}
    found = [number for at in range(0, len(left), 2) for number in range(left[at], left[at + 1] + 1)]
    assert found == sorted(held - covered)
