"""The next time of a cron expression, against an oracle that goes minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_wire.cron import Cron, Offset, next_after, parse_cron

ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago",
    "Atlantic/Azores", "Pacific/Apia", "Africa/Casablanca",
)  # fmt: skip
TURNS = (
    datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC), datetime(2026, 3, 8, tzinfo=UTC),
    datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 4, 4, tzinfo=UTC), datetime(2026, 10, 3, tzinfo=UTC),
    datetime(2026, 4, 5, tzinfo=UTC), datetime(2026, 9, 6, tzinfo=UTC), datetime(2011, 12, 30, tzinfo=UTC),
    datetime(2026, 7, 1, tzinfo=UTC), datetime(2028, 2, 28, tzinfo=UTC), datetime(2026, 12, 31, tzinfo=UTC),
)  # fmt: skip
"""Days on which clocks of one of these zones are turned, and some on which none is."""
WINDOW_MINUTES = 3 * 1440


def offset_of(zone: str) -> Offset:
    found = ZoneInfo(zone)
    return lambda second: int(
        (datetime.fromtimestamp(second, found).utcoffset() or timedelta()).total_seconds()
    )


def matches(cron: Cron, wall: datetime) -> bool:
    on_day = cron.falls_on(wall.month, wall.day, wall.isoweekday() % 7)
    return on_day and wall.hour in cron.hours and wall.minute in cron.minutes


def slowly(cron: Cron, after: datetime, zone: ZoneInfo) -> datetime | None:
    """Minute by minute; what was skipped since the minute before is looked at, too."""
    minute = after.replace(second=0, microsecond=0)
    wall = minute.astimezone(zone).replace(tzinfo=None)
    for _ in range(WINDOW_MINUTES):
        minute += timedelta(minutes=1)
        local = minute.astimezone(zone)
        before, wall = wall, local.replace(tzinfo=None, fold=0)
        if matches(cron, wall) and (cron.hourly or not local.fold):
            return minute
        skipped = before + timedelta(minutes=1)
        while skipped < wall and not cron.hourly:
            if matches(cron, skipped):
                return minute
            skipped += timedelta(minutes=1)
    return None


def fields(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    spans = st.tuples(number, number).map(lambda pair: "{}-{}".format(*sorted(pair)))
    steps = st.tuples(st.one_of(st.just("*"), spans), st.integers(1, most + 1)).map(
        lambda pair: "{}/{}".format(*pair)
    )
    one = st.one_of(number.map(str), spans, steps)
    return st.one_of(st.just("*"), st.lists(one, min_size=1, max_size=3).map(",".join))


EXPRESSIONS = st.tuples(
    fields(0, 59), st.one_of(fields(0, 23), st.just("2"), st.just("*")), st.one_of(st.just("*"), fields(1, 31)),
    st.one_of(st.just("*"), st.just("*"), fields(1, 12)), st.one_of(st.just("*"), fields(0, 7)),
).map(" ".join)  # fmt: skip


@given(EXPRESSIONS, st.sampled_from(ZONES), st.sampled_from(TURNS), st.integers(-2 * 86_400, 2 * 86_400))
def test_the_next_time_is_the_first_minute_that_matches(
    text: str, zone: str, turn: datetime, shift: int
) -> None:
    cron, after = parse_cron(text), turn + timedelta(seconds=shift)
    found = next_after(cron, int(after.timestamp()), offset_of(zone))
    wanted = slowly(cron, after, ZoneInfo(zone))
    if wanted is None:
        assert found is None or found > after.timestamp() + 60 * WINDOW_MINUTES - 60
    else:
        assert found == int(wanted.timestamp())


@pytest.mark.parametrize(
    ("text", "zone", "after", "wanted"),
    [
        ("0 9 * * mon-fri", "Europe/Berlin", "2026-11-20T08:00:00Z", "2026-11-23T08:00:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
        ("30 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"),
        ("30 * * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
        ("0 0 13 * fri", "UTC", "2026-11-01T00:00:00Z", "2026-11-06T00:00:00Z"),
        ("0 0 29 feb *", "UTC", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"),
        ("@weekly", "UTC", "2026-11-19T00:00:00Z", "2026-11-22T00:00:00Z"),
        ("0 0 * * sat-sun", "UTC", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"),
        ("5/20 0 * * 7", "UTC", "2026-11-22T00:05:00Z", "2026-11-22T00:25:00Z"),
    ],
)
def test_times_that_people_ask_about(text: str, zone: str, after: str, wanted: str) -> None:
    found = next_after(parse_cron(text), int(datetime.fromisoformat(after).timestamp()), offset_of(zone))
    assert found == int(datetime.fromisoformat(wanted).timestamp())


def test_a_day_that_never_is_has_no_next_time() -> None:
    assert next_after(parse_cron("0 0 30 feb *"), 0, lambda _second: 0) is None


@pytest.mark.parametrize(
    "text",
    ["", "0 9 * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * foo *", "* * * * fri-mon", "*/0 * * * *",
     "1,, * * * *", "@often", "-1 * * * *", "٣ * * * *", "* * * * * *"],
)  # fmt: skip
def test_what_is_no_expression_is_told_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is no cron expression: "):
        parse_cron(text)
