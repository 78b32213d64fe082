"""When a broker is avoided, and whose turn it is meanwhile."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from tidemill.parcel import Partition
from tidemill.spread import Spread, Standing
from tidemill.steadiness import FIRST_S, MAX_S, SLOW_S, Steadiness

QUICK_S = SLOW_S / 2


def test_failures_double_the_time_and_a_quick_answer_ends_them():
    steadiness, now, waits = Steadiness(), 0.0, []
    for _ in range(10):
        steadiness.failed(now)
        waits.append(steadiness.until - now)
        now = steadiness.until
    assert waits[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert waits[-1] == MAX_S
    steadiness.answered(now, now + QUICK_S)
    steadiness.failed(now + 1)
    assert steadiness.until == now + 1 + FIRST_S


def test_what_goes_wrong_while_it_is_avoided_prolongs_nothing():
    steadiness = Steadiness()
    steadiness.failed(0.0)
    for step in range(5):
        steadiness.failed(step * FIRST_S / 5)
    assert steadiness.until == FIRST_S


def test_a_slow_answer_counts_as_a_failure_and_one_from_before_counts_as_nothing():
    steadiness = Steadiness()
    steadiness.answered(0.0, 2 * SLOW_S)
    assert steadiness.until > 2 * SLOW_S
    steadiness.answered(0.0, 10.0)  # asked in the same outage
    steadiness.answered(0.0, 0.1)
    assert not steadiness.steady
    steadiness.answered(9.0, 9.1)
    assert steadiness.steady


@given(st.lists(st.tuples(st.sampled_from("fqs"), st.floats(0.0, 40.0)), max_size=40))
def test_it_is_never_avoided_for_longer_than_the_bound_and_always_tried_again(steps):
    steadiness, now = Steadiness(), 0.0
    for kind, wait in steps:
        now += wait
        if kind == "f":
            steadiness.failed(now)
        else:
            took = QUICK_S if kind == "q" else 2 * SLOW_S
            steadiness.answered(now - took, now)
        assert steadiness.until - now <= MAX_S
        assert steadiness.until <= now + MAX_S
    later = max(now, steadiness.until) + 1
    steadiness.answered(later, later + QUICK_S)
    assert steadiness.steady


def partition_in(standing: Standing) -> Partition:
    partition = Partition("a")
    partition.lane = SimpleNamespace(standing=standing)
    return partition


@given(st.lists(st.sampled_from(list(Standing)), min_size=1, max_size=6), st.integers(0, 5))
def test_turns_go_round_among_the_best_and_nobody_else(standings, start):
    partitions = [partition_in(standing) for standing in standings]
    current: dict = {}
    spread = Spread("a", partitions, current, start)
    best = [one for one in partitions if one.lane.standing is max(standings)]
    turns = []
    for _ in range(3 * len(best)):
        turns.append(current["a"])
        spread.turn()
    assert {turns.count(one) for one in best} == {3}
    assert set(map(id, turns)) == set(map(id, best))


def test_who_is_worse_off_is_relieved_by_who_is_better_and_not_by_who_is_alike():
    away, steady = partition_in(Standing.AWAY), partition_in(Standing.STEADY)
    spread = Spread("a", [away, steady], {})
    assert spread.better_than(away) is steady
    assert spread.better_than(steady) is None
    assert away.spread is spread
    spread.become([away])
    assert away.spread is None
