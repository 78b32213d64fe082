"""How the brokers of a consumer divide its inbox."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.shares import CERTAIN, Shares


def test_one_broker_has_all_of_it():
    shares = Shares()
    shares.join("a")
    shares.answered("a", 100, 0)
    assert shares.of("a") == 1.0


def test_room_goes_where_the_backlog_is_and_comes_back():
    shares = Shares()
    for broker in "ab":
        shares.join(broker)
    assert shares.of("a") == shares.of("b") == 0.5
    for _ in range(6):
        shares.answered("a", 100, 100)
        shares.answered("b", 100, 0)
    assert shares.of("a") > 0.8
    assert shares.of("b") >= CERTAIN / 2
    for _ in range(6):
        shares.answered("b", 10, 10)
    assert shares.of("b") == pytest.approx(0.5, abs=0.01)
    shares.rest("a")
    assert shares.of("b") > 0.8


@given(
    st.integers(2, 6),
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 1000), st.integers(0, 2000), st.booleans()), max_size=50
    ),
)
def test_together_they_are_one_and_each_has_its_certain_part(count, answers):
    shares = Shares()
    for broker in range(count):
        shares.join(broker)
    for broker, asked, given_, rests in answers:
        shares.answered(broker % count, asked, given_)
        if rests:
            shares.rest(broker % count)
    parts = [shares.of(broker) for broker in range(count)]
    assert sum(parts) == pytest.approx(1.0)
    assert min(parts) >= CERTAIN / count - 1e-9
