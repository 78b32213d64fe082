"""What was asked of meta is looked at afterwards, and a quarrel is not fought at full speed."""

from __future__ import annotations

import pytest

from tidemill_operator.asking import PAUSE_MS, TIMES_MAX, Asked
from tidemill_operator.refusals import Failure
from tidemill_operator.store import Key

ORDERS = Key("Subject", "shop", "orders")
OTHER = Key("Subject", "shop", "other")


def test_what_is_seen_next_began_after_what_was_asked() -> None:
    asked = Asked()
    assert asked.since_s(ORDERS) == 0
    asked.note(ORDERS, 7.5)
    assert asked.since_s(ORDERS) == 7.5
    assert asked.since_s(OTHER) == 0
    asked.settle(ORDERS)
    assert asked.since_s(ORDERS) == 0


def test_who_asks_in_each_pass_is_left_alone_for_a_while_and_may_then_ask_again() -> None:
    asked = Asked()
    for number in range(TIMES_MAX):
        asked.check(ORDERS)
        asked.note(ORDERS, float(number))
    asked.check(OTHER)
    with pytest.raises(Failure) as raised:
        asked.check(ORDERS)
    assert (raised.value.kind, raised.value.after_ms) == ("passing", PAUSE_MS)
    asked.check(ORDERS)


def test_who_has_nothing_to_ask_for_in_between_does_not_quarrel() -> None:
    asked = Asked()
    for number in range(3 * TIMES_MAX):
        asked.check(ORDERS)
        asked.note(ORDERS, float(number))
        if number % 2:
            asked.settle(ORDERS)
