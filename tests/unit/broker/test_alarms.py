"""What ends next, among much that was moved or is over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill_broker.alarms import LEAST, Alarms

STEPS = st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 100)), max_size=60)


@given(STEPS)
def test_first_is_the_earliest_that_counts(steps: list[tuple[int, int | None]]) -> None:
    ends: dict[int, int] = {}
    alarms = Alarms[int](lambda at_ms, thing: ends.get(thing) == at_ms)
    for thing, at_ms in steps:
        if at_ms is None:
            ends.pop(thing, None)
        else:
            ends[thing] = at_ms
            alarms.set(at_ms, thing)
        first = alarms.first()
        assert (first is None) == (not ends)
        assert first is None or (first[0], ends[first[1]]) == (min(ends.values()), first[0])


def test_of_two_that_end_at_once_the_first_one_set_comes_first() -> None:
    there = {"b", "a"}
    alarms = Alarms[str](lambda _, thing: thing in there)
    alarms.set(5, "b")
    alarms.set(5, "a")

    assert alarms.first() == (5, "b")
    there.remove("b")
    assert alarms.first() == (5, "a")


def test_what_is_left_behind_one_that_stays_is_thrown_away() -> None:
    ends = {"long": 1}
    alarms = Alarms[str](lambda at_ms, thing: ends.get(thing) == at_ms)
    alarms.set(1, "long")
    for at_ms in range(2, 100 * LEAST):
        ends["moved"] = at_ms
        alarms.set(at_ms, "moved")

    assert len(alarms) <= LEAST
    assert alarms.first() == (1, "long")


def test_what_counts_is_kept_however_much_it_is() -> None:
    alarms = Alarms[int](lambda _at_ms, _thing: True)
    for number in range(3 * LEAST):
        alarms.set(number, number)

    assert len(alarms) == 3 * LEAST
