"""Schedules in the words of Spark's operators mean what ours mean, or are refused."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidemill_operator.desired.crontab import plain_schedule
from tidemill_operator.desired.wanted import SpecError
from tidemill_wire.cron import parse_cron


@pytest.mark.parametrize(
    "ours, theirs",
    [
        ("15 * * * *", "15 * * * *"),
        ("@daily", "0 0 * * *"),
        ("30 2 * * mon-fri", "30 2 * * 1,2,3,4,5"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("*/20 8-10 1 jan,jul *", "0,20,40 8,9,10 1 1,7 *"),
        ("0 0 13 * fri", "0 0 13 * 5"),
        ("0 0 1-31 * fri", "0 0 * * *"),
    ],
)
def test_a_schedule_in_plain_numbers(ours: str, theirs: str) -> None:
    assert plain_schedule(ours) == theirs


def test_days_that_must_be_certain_weekdays_too_are_refused() -> None:
    with pytest.raises(SpecError, match="restrict one of the two"):
        plain_schedule("0 0 */2 * fri")


FIELD = st.sampled_from(("*", "*/2", "1", "1-5", "2,3"))


@given(day=FIELD, month=FIELD, weekday=st.sampled_from(("*", "*/2", "mon", "1-5", "7", "0-6")))
def test_both_are_the_same_days(day: str, month: str, weekday: str) -> None:
    """robfig/cron: when neither of day and weekday is a star, either is enough; else both have to hold."""
    written = f"0 0 {day} {month} {weekday}"
    try:
        theirs = parse_cron(plain_schedule(written))
    except SpecError:
        assume(False)
    ours = parse_cron(written)
    for one in range(1, 32):
        for other in range(7):
            for each in (1, 2, 6):
                assert ours.falls_on(each, one, other) == theirs.falls_on(each, one, other)
