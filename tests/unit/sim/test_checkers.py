"""Each checker says yes to an honest history, and no to the one wrong that it is for."""

from __future__ import annotations

import pytest

from sim.checkers import (
    Ack,
    Delivery,
    History,
    Outcome,
    PowerCut,
    Promise,
    Send,
    Terms,
    bodies_unaltered,
    ended,
    everything_settled,
    keys_in_order,
    missing,
    none_after_ack,
    nothing_invented,
    nothing_lost,
    places_not_reused,
    violations,
)
from sim.replicated import GroupTerms

TERMS = Terms({"s": ("g", "h")})
ONE_GROUP = Terms({"s": ("g",)})


def send(history, message, at, outcome=Outcome.OK, promise=Promise.HIGH, key="", place=""):
    operation = history.sending(Send(message, "p", "s", message.encode(), promise, key, at, place=place))
    ended(operation, outcome, at + 0.1)


def deliver(history, message, at, group="g", place="", body=None, subject="s", key="", asked=None):
    whole = message.encode() if body is None else body
    asked_s = at - 0.01 if asked is None else asked
    history.delivered(Delivery(at, asked_s, group, "c", subject, message, place, whole, key))


def ack(history, message, at, group="g", place="", outcome=Outcome.OK):
    operation = history.acking(Ack(group, place, message, at))
    if outcome is not Outcome.PENDING:
        ended(operation, outcome, at + 0.1)


def test_an_honest_history_has_no_violations():
    history = History()
    send(history, "m1", 1, place="0")
    send(history, "m2", 2, outcome=Outcome.UNKNOWN)
    send(history, "m3", 3, outcome=Outcome.FAILED)
    for group in ("g", "h"):
        deliver(history, "m1", 4, group, "0")
        ack(history, "m1", 5, group, "0")
    deliver(history, "m2", 4, "g", "1")

    assert violations(history, TERMS) == []
    assert list(missing(history, TERMS)) == []


def test_an_answered_message_that_misses_one_group_is_lost():
    history = History()
    send(history, "m1", 1)
    deliver(history, "m1", 2, "g")
    ack(history, "m1", 3, "g")

    assert len(nothing_lost(history, TERMS)) == 1
    assert "never reached h" in nothing_lost(history, TERMS)[0]


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.FAILED])
def test_what_was_not_answered_may_be_lost(outcome):
    history = History()
    send(history, "m1", 1, outcome=outcome)

    assert nothing_lost(history, TERMS) == []


@pytest.mark.parametrize(
    "promise, cut_s, lost",
    [
        (Promise.HIGH, 1.2, True),
        (Promise.NORMAL, 1.2, False),
        (Promise.NORMAL, 0.9, True),
        (Promise.NORMAL, 1.0, False),  # The answer was on its way from 1.0 to 1.1: nobody knows when it left.
        (Promise.NORMAL, 1.7, True),
        (Promise.LOW, 1.7, False),
        (Promise.LOW, 0.9, True),
    ],
)
def test_a_power_cut_excuses_what_the_class_says(promise, cut_s, lost):
    history = History()
    send(history, "m1", 1, promise=promise)
    terms = Terms({"s": ("g",)}, [PowerCut(cut_s, "n")], sync_within_s=0.5)

    assert bool(nothing_lost(history, terms)) is lost


def test_what_was_got_and_never_acked_is_unsettled_but_an_unknown_ack_may_have_been_done():
    history = History()
    send(history, "m1", 1)
    deliver(history, "m1", 2)
    assert len(everything_settled(history, ONE_GROUP)) == 1
    ack(history, "m1", 3, outcome=Outcome.FAILED)
    assert len(everything_settled(history, ONE_GROUP)) == 1
    ack(history, "m1", 3, outcome=Outcome.UNKNOWN)

    assert everything_settled(history, ONE_GROUP) == []
    assert nothing_lost(history, ONE_GROUP) == []


def test_a_pull_after_an_answered_ack_does_not_bring_it_again():
    history = History()
    send(history, "m1", 1)
    deliver(history, "m1", 2, place="0")
    ack(history, "m1", 3, place="0")
    deliver(history, "m1", 4, place="0", asked=2.5)
    assert none_after_ack(history, ONE_GROUP) == []
    deliver(history, "m1", 5, place="0", group="h")
    assert none_after_ack(history, ONE_GROUP) == []
    deliver(history, "m1", 5, place="0")

    assert len(none_after_ack(history, ONE_GROUP)) == 1


def test_an_ack_without_an_answer_promises_nothing_and_a_cut_excuses_a_fresh_one():
    history = History()
    send(history, "m1", 1)
    ack(history, "m1", 3, outcome=Outcome.UNKNOWN)
    deliver(history, "m1", 5)
    assert none_after_ack(history, ONE_GROUP) == []
    ack(history, "m1", 5.1)
    deliver(history, "m1", 6)

    assert len(none_after_ack(history, ONE_GROUP)) == 1
    assert none_after_ack(history, Terms({"s": ("g",)}, [PowerCut(5.3, "n")])) == []


def test_inventions_are_found():
    history = History()
    send(history, "m1", 1)
    send(history, "m2", 1, outcome=Outcome.FAILED)
    deliver(history, "nobody's", 2)
    deliver(history, "m2", 2)
    deliver(history, "m1", 2, subject="other")
    deliver(history, "m1", 2, group="stranger")
    deliver(history, "m1", 0.5)

    assert [problem.split(":")[0] for problem in nothing_invented(history, ONE_GROUP)] == [
        "invented",
        "invented",
        "misrouted",
        "misrouted",
        "invented",
    ]


@pytest.mark.parametrize("body", [b"m", b"m1x", b"", b"M1"])
def test_the_whole_body_is_compared(body):
    history = History()
    send(history, "m1", 1)
    deliver(history, "m1", 2, body=body)

    assert len(bodies_unaltered(history, ONE_GROUP)) == 1


def test_a_changed_key_is_an_alteration():
    history = History()
    send(history, "m1", 1, key="k")
    deliver(history, "m1", 2, key="l")

    assert len(bodies_unaltered(history, ONE_GROUP)) == 1


def test_a_place_that_was_answered_holds_nothing_else_afterwards():
    history = History()
    send(history, "m1", 1, place="7")
    send(history, "m2", 1, place="8")
    deliver(history, "m2", 1.05, place="7", asked=1.0)
    assert places_not_reused(history, ONE_GROUP) == []
    deliver(history, "m2", 3, place="7")

    assert len(places_not_reused(history, ONE_GROUP)) == 1


def test_keys_are_in_order_by_first_delivery_of_sends_that_did_not_overlap():
    history = History()
    send(history, "m1", 1, key="k")
    send(history, "m2", 2, key="k")
    send(history, "m3", 2.05, key="k")
    send(history, "n1", 0.5, key="other")
    for message in ("m1", "m3", "m2", "m1", "n1"):
        deliver(history, message, 5, key="k")
    assert keys_in_order(history, ONE_GROUP) == []

    other = History()
    send(other, "m1", 1, key="k")
    send(other, "m2", 2, key="k")
    deliver(other, "m2", 5, key="k")
    deliver(other, "m1", 6, key="k")
    assert len(keys_in_order(other, ONE_GROUP)) == 1


def test_a_workload_that_repeats_itself_is_refused():
    history = History()
    send(history, "m1", 1)

    with pytest.raises(ValueError, match="sent twice"):
        send(history, "m1", 2)
    with pytest.raises(ValueError, match="ended already"):
        ended(history.sends["m1"], Outcome.OK, 3)


@pytest.mark.parametrize(("invoked_s", "lost"), [(2.0, False), (2.5, True)])
def test_a_master_that_knows_of_no_other_replica_promises_what_a_broker_alone_does(invoked_s, lost):
    """From the moment on in which it hears of one, a power cut of one machine excuses nothing."""
    history = History()
    send(history, "m1", invoked_s, promise=Promise.NORMAL)
    terms = GroupTerms({"s": ("g",)}, lone=[(PowerCut(2.55, "a"), 2.2), (PowerCut(2.55, "b"), -1.0)])

    assert bool(nothing_lost(history, terms)) is lost
