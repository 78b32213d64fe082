"""Producer groups are asked what became of transactions that nobody decides."""

from __future__ import annotations

import pytest

from samples.brokers import SUBJECT, Rig
from samples.halves import FIRST, GROUP, commit, done, given, half_of, rollback
from tidemill_broker.settings import BrokerSettings
from tidemill_wire import limits
from tidemill_wire.columns import Batch, split_batches
from tidemill_wire.commands import Failed
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.transacting import Check, Checks, Decide, Verdict

AFTER, AGAIN = limits.CHECK_AFTER_MS, limits.CHECK_INTERVAL_MS
WAIT = 20_000


@pytest.fixture
def rig() -> Rig:
    return Rig(BrokerSettings())


def asked(answer: object) -> list[tuple[int, int, list[bytes]]]:
    """Of each transaction that is asked about: its number, how often it was, and the bodies of its half messages."""
    assert isinstance(answer, Checks), answer
    held = split_batches(answer.batches)
    found, at = [], 0
    for row in answer.rows:
        bodies = [Batch(one.bodies()[0]).bodies() for one in held[at : at + row.batches]]
        found.append((row.transaction, row.checks, [body for some in bodies for body in some]))
        at += row.batches
    assert at == len(held)
    return found


def test_producer_group_is_asked_when_nobody_decides(rig: Rig) -> None:
    done(rig, half_of(b"a", b"b"))
    done(rig, half_of(b"c", index=1, subject="order.paid"))
    rig.wait(AFTER - 10)
    assert rig.ask(Check(GROUP, WAIT)) is None
    waits = rig.correlation
    rig.wait(9)
    assert waits not in rig.answers
    rig.wait(1)

    assert asked(rig.answers.pop(waits)) == [(FIRST, 1, [b"a", b"b", b"c"])]
    done(rig, commit())
    assert given(rig) == [b"a", b"b"]


def test_it_is_asked_again_and_again(rig: Rig) -> None:
    done(rig, half_of(b"a"))
    rig.wait(AFTER)
    assert asked(rig.ask(Check(GROUP, WAIT))) == [(FIRST, 1, [b"a"])]
    done(rig, Decide(FIRST, Verdict.UNKNOWN))
    rig.wait(AGAIN)
    assert asked(rig.ask(Check(GROUP, WAIT))) == [(FIRST, 2, [b"a"])]
    rig.ask(Check(GROUP, WAIT))
    waits = rig.correlation
    rig.wait(WAIT)
    assert asked(rig.answers.pop(waits)) == []


def test_another_producer_group_is_not_asked(rig: Rig) -> None:
    done(rig, half_of(b"a"))
    rig.wait(AFTER)
    assert rig.ask(Check("another", 5)) is None
    rig.wait(5)
    assert asked(rig.answers.pop(rig.correlation)) == []


def test_one_of_several_that_wait_is_asked_and_they_take_turns(rig: Rig) -> None:
    other = rig.connect()
    done(rig, half_of(b"a"))
    rig.ask(Check(GROUP, 60_000))
    first = rig.correlation
    rig.ask(Check(GROUP, 60_000), other)
    second = rig.correlation
    rig.wait(AFTER)
    assert asked(rig.answers.pop(first)) == [(FIRST, 1, [b"a"])]
    assert second not in rig.answers
    rig.wait(AGAIN)
    assert asked(rig.answers.pop(second)) == [(FIRST, 2, [b"a"])]


def test_what_a_lost_connection_was_asked_is_asked_of_the_next_at_once(rig: Rig) -> None:
    other = rig.connect()
    done(rig, half_of(b"a"))
    rig.wait(AFTER)
    assert asked(rig.ask(Check(GROUP, WAIT), other)) == [(FIRST, 1, [b"a"])]
    rig.ask(Check(GROUP, WAIT))
    waits = rig.correlation
    assert waits not in rig.answers
    rig.disconnect(other)

    assert asked(rig.answers.pop(waits)) == [(FIRST, 1, [b"a"])]


def test_who_is_gone_is_not_asked(rig: Rig) -> None:
    other = rig.connect()
    done(rig, half_of(b"a"))
    rig.ask(Check(GROUP, WAIT), other)
    gone = rig.correlation
    rig.disconnect(other)
    rig.wait(AFTER)
    assert gone not in rig.answers
    assert asked(rig.ask(Check(GROUP, WAIT))) == [(FIRST, 1, [b"a"])]


def test_what_is_decided_meanwhile_is_not_asked_about(rig: Rig) -> None:
    for number in range(3):
        done(rig, half_of(b"%d" % number, transaction=FIRST + number))
    rig.wait(AFTER)
    done(rig, commit())
    done(rig, rollback(FIRST + 1))

    assert asked(rig.ask(Check(GROUP, WAIT))) == [(FIRST + 2, 1, [b"2"])]


def test_many_transactions_are_asked_about_in_several_answers(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(limits.CHECK_ROWS_MAX + 1):
        done(rig, half_of(b"x", transaction=FIRST + number))
    rig.wait(AFTER)
    assert len(asked(rig.ask(Check(GROUP, WAIT)))) == limits.CHECK_ROWS_MAX
    assert len(asked(rig.ask(Check(GROUP, WAIT)))) == 1

    monkeypatch.setattr(limits, "CHECK_BYTES", 1)
    rig.wait(AGAIN)
    assert len(asked(rig.ask(Check(GROUP, WAIT)))) == 1


def test_half_messages_of_a_restart_are_asked_about(rig: Rig) -> None:
    done(rig, half_of(b"a"))
    rig.restart()
    rig.wait(AFTER)
    assert asked(rig.ask(Check(GROUP, WAIT))) == [(FIRST, 1, [b"a"])]


def test_broker_that_stops_tells_who_waits(rig: Rig) -> None:
    rig.ask(Check(GROUP, WAIT))
    waits = rig.correlation
    rig.broker.drain()
    rig.pump()

    assert isinstance(rig.answers.pop(waits), Failed)
    assert isinstance(rig.ask(Check(GROUP, WAIT)), Failed)
    assert isinstance(rig.ask(half_of(b"x")), Failed)
    assert SUBJECT.encode() not in rig.broker.state.by_name


def test_who_may_not_send_to_all_subjects_of_a_transaction_is_not_asked_about_it(rig: Rig) -> None:
    """And nobody who may is kept from it by whoever waits before."""
    done(rig, half_of(b"a"))
    done(rig, half_of(b"b", index=1, subject="order.paid"))
    stranger, half = rig.connect(), rig.connect()
    rig.ask(Check(GROUP, 60_000, may=lambda _subject: False), stranger)
    rig.ask(Check(GROUP, 60_000, may=lambda subject: subject == SUBJECT), half)
    rig.ask(Check(GROUP, 60_000, may=lambda subject: subject in (SUBJECT, "order.paid")))
    entitled = rig.correlation
    rig.wait(AFTER)

    assert asked(rig.answers.pop(entitled)) == [(FIRST, 1, [b"a", b"b"])]
    rig.wait(60_000)
    assert [asked(rig.answers.pop(number)) for number in (entitled - 2, entitled - 1)] == [[], []]


def test_connection_with_too_many_waiting_checks_is_refused_more(
    monkeypatch: pytest.MonkeyPatch, rig: Rig
) -> None:
    monkeypatch.setattr(limits, "CORRELATIONS_MAX", 2)
    assert [rig.ask(Check(GROUP, WAIT)), rig.ask(Check("another", WAIT))] == [None, None]
    assert rig.refused(Check(GROUP, WAIT)) == KIND_BY_NAME["too_many_requests"].number

    rig.wait(WAIT)

    assert rig.ask(Check(GROUP, WAIT)) is None, "those that were answered do not count"
    done(rig, half_of(b"a"))
    rig.wait(AFTER)
    assert [rig.ask(Check("another", WAIT)), rig.ask(Check("third", WAIT))][0] is None


def test_what_was_decided_is_not_noted_of_a_connection_for_as_long_as_it_lives(rig: Rig) -> None:
    """A producer's connection lives for months, and is asked about some transaction every day."""
    noted = rig.broker._checking.asked
    for number in range(FIRST, FIRST + 30):
        done(rig, half_of(b"a", transaction=number))
        rig.wait(AFTER)
        assert [row[0] for row in asked(rig.ask(Check(GROUP, WAIT)))] == [number]
        done(rig, commit(number))

    assert sum(map(len, noted.values())) <= 2
