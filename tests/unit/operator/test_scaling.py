"""How long a group needs to drain, and how many consumers it should have: every case of the rule in scaling.py."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill_operator.scaling import Course, Figures, Wanted, figures_of, of_nobody


def course(*looks: tuple[float, int, int, int]) -> Course:
    """Time, undone, handled, consumers."""
    made = Course()
    for look in looks:
        made.look(Figures(*look))
    return made


def row(**other: Any) -> dict[str, Any]:
    given = {
        "group": "billing", "subject": "orders", "lag": 5, "in_flight": 3, "failed": 2, "dead": 1, "acked": 100,
        "consumers": 4,
    }  # fmt: skip
    return given | other


def test_brokers_and_partitions_are_added_up_and_consumers_are_counted_once() -> None:
    rows = [
        row(),
        row(subject="orders#1", consumers=3),
        row(group="other", lag=1_000),
        row(subject="orders.eu", lag=1_000),
    ]

    assert figures_of(rows, "orders", "billing", 7.0) == Figures(7.0, 20, 202, 4)
    assert figures_of(rows, "orders", "nobody", 7.0) is None


def test_first_look_knows_no_rates_and_keeps_who_is_there() -> None:
    first = course((0.0, 500, 0, 3)).advice(Wanted())
    assert (first.arrives, first.handled, first.drains_in_s, first.replicas) == (None, None, None, 3)
    assert first.is_active

    assert course((0.0, 500, 0, 0)).advice(Wanted()).replicas == 1, "one has to begin"
    idle = course((0.0, 0, 900, 0)).advice(Wanted())
    assert (idle.replicas, idle.is_active) == (0, False)


def test_a_backlog_drains_by_what_is_handled_more_than_arrives() -> None:
    """100 a second arrive, 4 consumers handle 200: 1,000 that are undone are gone in 10 s."""
    advice = course((0.0, 2_000, 0, 4), (10.0, 1_000, 2_000, 4)).advice(Wanted(20.0))

    assert (advice.arrives, advice.handled, advice.drains_in_s) == (100.0, 200.0, 10.0)
    assert advice.replicas == 3, "50 a second each: 100 that arrive, and 1,000 in 20 s, are 150"


def test_a_backlog_that_grows_never_drains_and_wants_more_consumers_up_to_the_bound() -> None:
    grown = course((0.0, 0, 0, 2), (10.0, 9_000, 1_000, 2))

    advice = grown.advice(Wanted(60.0, most=1_000))
    assert advice.drains_in_s is None
    assert advice.replicas == 23, "1,000 a second arrive, 150 are behind, one can 50"
    assert grown.advice(Wanted(60.0, most=5)).replicas == 5
    assert grown.advice(Wanted(3_600.0, least=40)).replicas == 40


def test_what_a_consumer_can_is_remembered_from_when_there_was_something_to_do() -> None:
    """Later 20 consumers handle what comes, 100 a second: that is not all they can."""
    busy = [(0.0, 10_000, 0, 4), (10.0, 8_000, 2_000, 4), (20.0, 0, 10_000, 20)]
    calm = [(30.0, 0, 11_000, 20), (40.0, 0, 12_000, 20)]

    advice = course(*busy, *calm).advice(Wanted())

    assert (advice.arrives, advice.drains_in_s, advice.replicas) == (100.0, 0.0, 2)


def test_nobody_is_needed_when_nothing_comes_and_nothing_is_left() -> None:
    advice = course((0.0, 100, 0, 2), (10.0, 0, 100, 2), (20.0, 0, 100, 2)).advice(Wanted())
    assert (advice.replicas, advice.is_active) == (0, False)

    still = course((0.0, 100, 0, 2), (10.0, 100, 0, 2)).advice(Wanted())
    assert (still.replicas, still.drains_in_s, still.is_active) == (2, None, True), (
        "nobody has handled anything"
    )


def test_looks_that_are_too_near_say_nothing_and_a_broker_that_comes_or_goes_begins_anew() -> None:
    near = course((0.0, 10, 0, 1), (1.0, 0, 10, 1))
    assert near.advice(Wanted()).handled is None
    many = course((0.0, 1_000, 0, 1), *((at / 10, 1_000 - at, at, 1) for at in range(1, 100)))
    assert many.advice(Wanted()).handled == pytest.approx(10.0)

    gone = course((0.0, 0, 1_000, 1), (10.0, 0, 2_000, 1), (20.0, 0, 500, 1))
    assert gone.advice(Wanted()).handled is None


def test_looks_at_each_second_tell_of_the_last_seconds_and_not_of_all_that_ever_was() -> None:
    quiet = [(float(at), 0, 0, 2) for at in range(100)]
    burst = [(100.0 + at, 0, 50 * at, 2) for at in range(11)]
    advice = course(*quiet, *burst).advice(Wanted())
    assert advice.arrives == pytest.approx(50.0)


def test_until_it_is_known_what_one_can_there_is_one_for_so_many_that_wait() -> None:
    assert course((0.0, 950, 0, 1)).advice(Wanted(undone_each=100)).replicas == 10
    assert course((0.0, 950, 0, 12)).advice(Wanted(undone_each=100)).replicas == 12
    still = course((0.0, 950, 0, 1), (10.0, 950, 0, 1)).advice(Wanted(undone_each=100))
    assert still.replicas == 10, "nobody has handled anything"
    known = course((0.0, 950, 0, 1), (10.0, 450, 500, 1)).advice(Wanted(undone_each=100))
    assert known.replicas == 1, "50 a second are enough for 450 in a minute"


def test_where_nothing_is_undone_and_nothing_comes_there_are_as_many_as_are_wanted_at_rest() -> None:
    rest = course((0.0, 0, 0, 3), (10.0, 0, 0, 3))
    assert rest.advice(Wanted()).replicas == 0, "three who have never had anything to do are not needed"
    assert rest.advice(Wanted(least=2)).replicas == 2
    assert rest.advice(Wanted(least=2, idle=0)).replicas == 0
    assert of_nobody(Wanted(least=2, idle=0)).replicas == 0
    some = course((0.0, 9, 0, 1), (10.0, 1, 1_000_000, 1)).advice(Wanted(least=0, idle=0))
    assert some.replicas == 1, "as long as anything is undone somebody has to be there"
