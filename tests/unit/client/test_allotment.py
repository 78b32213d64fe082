"""What meta allots to a consumer of several subjects."""

from __future__ import annotations

import pytest

from tidemill.allotment import Allotment, Share
from tidemill.tenure import Moment

AT = Moment(100.0, 1_780_000_000.0)


class Clock:
    """The time, as a test sets it."""

    def __init__(self) -> None:
        self.now = AT

    def __call__(self) -> Moment:
        return self.now


def row(subject: str, *partitions: str, version: int = 3) -> dict[str, object]:
    return {
        "subject": subject, "group": "g", "consumer": "c", "strategy": "exclusive", "allocation": version,
        "partitions": list(partitions), "authorised_ms": 9000,
    }  # fmt: skip


@pytest.fixture
def allotment() -> Allotment:
    made = Allotment(Clock())
    made.answered(AT, row("a", "g1/a", "g2/a#1"))
    made.answered(AT, row("b", "g1/b", version=7))
    return made


def test_partitions_are_pulled_from_by_their_broker_groups_and_versions(allotment: Allotment) -> None:
    assert allotment.ours() == {"g1": {"a": 3, "b": 7}, "g2": {"a#1": 3}}
    assert not allotment.awaited
    assert (allotment.applied("a"), allotment.applied("b"), allotment.applied("c")) == (3, 7, 0)


def test_what_is_pulled_from_is_ours_and_goes_by_the_version_of_its_own_subject(allotment: Allotment) -> None:
    share = Share("g1", allotment, lambda: None)

    assert share.of(("a", "b")) == {"a": 3, "b": 7}
    assert share.of(("a", "c")) == {"a": 3}
    assert Share("g3", allotment, lambda: None).of(("a",)) == {}


def test_before_meta_has_allotted_anything_all_is_pulled_from_without_a_version() -> None:
    assert Share("g1", Allotment(Clock()), lambda: None).of(("a", "b")) == {"a": 0, "b": 0}


@pytest.mark.parametrize("name", ["a#1", "%lane%5%a#1", "%dead%a#1%g"])
def test_lanes_and_dead_letters_go_with_their_partition(allotment: Allotment, name: str) -> None:
    assert allotment.is_ours("g2", name)
    assert allotment.may_begin("g2", name)
    assert not allotment.is_ours("g1", name)


def test_consumer_that_has_just_begun_asks_again_soon() -> None:
    allotment = Allotment(Clock())
    before = allotment.awaited

    allotment.answered(AT, row("a", version=0))

    assert (before, allotment.awaited) == (False, True)


def test_without_an_answer_all_is_ours() -> None:
    """A broker that is asked itself allots nothing: its lock says who is given messages."""
    nothing = Allotment(Clock())

    assert nothing.is_ours("g1", "a")
    assert nothing.may_begin("g1", "a")
    assert nothing.authorised
    assert nothing.ours() == {}


def test_nothing_is_begun_beyond_the_authorisation_and_it_stays_ours() -> None:
    clock = Clock()
    allotment = Allotment(clock)
    allotment.answered(AT, row("a", "g1/a"))
    clock.now = AT.later(9.0)

    assert allotment.is_ours("g1", "a")
    assert not allotment.may_begin("g1", "a")
    assert not allotment.authorised
    assert allotment.ours() == {"g1": {"a": 3}}


def test_what_is_taken_away_is_let_go_once_and_told(allotment: Allotment) -> None:
    told: list[int] = []
    allotment.listeners.append(lambda: told.append(allotment.applied("a")))
    allotment.answered(AT.later(1), row("a", "g1/a", version=4))

    assert allotment.leaving() == [("g2", "a#1")]
    assert allotment.drained("g2", "a#1")
    assert not allotment.drained("g2", "a#1")
    allotment.yielded("g2", "a#1")

    assert told == [3, 4]


def test_group_that_is_shared_is_an_error_and_other_rows_say_nothing(allotment: Allotment) -> None:
    allotment.answered(AT, {"subject": "x"})
    assert allotment.error is None

    allotment.answered(AT, {"subject": "x", "group": "g", "consumer": "c", "strategy": "shared"})

    assert allotment.error is not None
    assert str(allotment.error).startswith("group 'g' of 'x' is shared, and this asks for it in order")
