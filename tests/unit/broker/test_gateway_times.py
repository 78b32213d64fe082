"""When messages that come over HTTP are to be given out: what is understood, and what is refused by its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_broker.doors.gateway_times import When, deltas_of, parse_whens
from tidemill_host.clock import timestamp
from tidemill_host.refusals import HttpRefused
from tidemill_wire.limits import DELAY_MS_MAX

NOW_MS = 1_800_000_000_000
NOW = "2027-01-15T08:00:00Z"


def deltas(value: dict[str, Any], default: When | None = None) -> list[int] | None:
    return deltas_of(parse_whens(value, default), NOW_MS)


@pytest.mark.parametrize(
    ("said", "delta_ms"),
    [
        ({"delay": 90}, 90_000),
        ({"delay": 0}, 0),
        ({"delay": 0.0001}, 1),
        ({"delay": "90m"}, 5_400_000),
        ({"delay": "1h30m"}, 5_400_000),
        ({"delay": "1.5s500ms"}, 2_000),
        ({"delay": "731d"}, DELAY_MS_MAX),
        ({"delay": DELAY_MS_MAX / 1000}, DELAY_MS_MAX),
        ({"at": "2027-01-15T08:00:01Z"}, 1_000),
        ({"at": "2027-01-15T17:00:00+08:00"}, 3_600_000),
        ({"at": "2027-01-14T08:00:00Z"}, 0),
        ({"at": "0001-01-01T00:00:00+23:59"}, 0),
        ({"at": "2029-01-15T08:00:00Z"}, DELAY_MS_MAX),
    ],
)
def test_a_delay_and_a_time_are_understood_alone_and_for_all_of_a_request(
    said: dict[str, Any], delta_ms: int
) -> None:
    assert deltas(said) == [delta_ms]
    assert deltas({"messages": [{}, {}], **said}) == [delta_ms, delta_ms]
    assert deltas({"messages": [{}, said]}) == [0, delta_ms]


def test_a_message_speaks_before_its_request_and_that_before_its_head() -> None:
    head = When(delay_ms=1)
    assert deltas({}, head) == [1]
    assert deltas({"messages": [{"delay": 3}, {}], "delay": 2}, head) == [3000, 2000]
    assert deltas({"messages": [{}, {}]}) is None


@pytest.mark.parametrize(
    ("said", "code", "sentence"),
    [
        ({"delay": 1, "at": NOW}, "malformed_request", "delay and {}at are both given"),
        ({"delay": -1}, "malformed_request", "no number of seconds"),
        ({"delay": True}, "malformed_request", "no number of seconds"),
        ({"delay": None}, "malformed_request", "no number of seconds"),
        ({"delay": "soon"}, "malformed_request", "no duration such as 90m"),
        ({"delay": "90"}, "malformed_request", "no duration such as 90m"),
        ({"delay": ""}, "malformed_request", "no duration such as 90m"),
        ({"delay": "٣m"}, "malformed_request", "no duration such as 90m"),
        ({"delay": 10**400}, "limit_exceeded", "delay is longer than 731 days, which is the limit"),
        ({"delay": "9" * 400 + "d"}, "limit_exceeded", "longer than 731 days"),
        ({"delay": "732d"}, "limit_exceeded", "longer than 731 days"),
        ({"at": "2027-01-01T09:00:00"}, "malformed_request", "no time with its offset"),
        ({"at": "2027-02-30T09:00:00Z"}, "malformed_request", "no time with its offset"),
        ({"at": 1_800_000_000}, "malformed_request", "no time with its offset"),
        ({"at": "2029-01-15T08:00:00.001Z"}, "limit_exceeded", "more than 731 days ahead"),
    ],
)
def test_what_is_no_time_is_refused_with_its_name_and_place(
    said: dict[str, Any], code: str, sentence: str
) -> None:
    for value, place in ((said, ""), ({"messages": [{}, said]}, "messages[1].")):
        with pytest.raises(HttpRefused) as refused:
            deltas(value)
        assert refused.value.code == code
        assert sentence.format(place) in refused.value.detail
        if "ahead" not in sentence:
            assert refused.value.detail.startswith((f"{place}delay", f"{place}at"))


@given(st.integers(0, DELAY_MS_MAX), st.integers(0, DELAY_MS_MAX))
def test_a_time_that_was_told_is_the_time_that_is_meant(after_ms: int, before_ms: int) -> None:
    at = timestamp(NOW_MS + after_ms)
    assert deltas({"at": at}) == [after_ms]
    assert deltas_of(parse_whens({"at": at}, None), NOW_MS + after_ms + before_ms) == [0]
