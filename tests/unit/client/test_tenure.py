"""Which partitions are a consumer's own, until when, and how they are let go."""

from __future__ import annotations

import pytest

from tidemill.tenure import Moment, Tenure

AT = Moment(100.0, 1_780_000_000.0)


def tenure(*partitions: str, version: int = 1) -> Tenure:
    """Authorised for nine seconds."""
    made = Tenure()
    made.answered(AT, version, partitions, 9.0)
    return made


def test_nothing_is_begun_before_an_answer() -> None:
    assert not Tenure().may_begin("p", AT)
    assert Tenure().to_pull(AT) == {}


def test_what_is_named_is_begun_until_the_authorisation_is_over() -> None:
    mine = tenure("p")

    assert mine.may_begin("p", AT.later(8.9))
    assert not mine.may_begin("q", AT)
    assert not mine.may_begin("p", AT.later(9.0))
    assert mine.to_pull(AT.later(9.0)) == {}


@pytest.mark.parametrize(
    ("steady", "wall", "allowed"),
    [(1.0, 3600.0, False), (1.0, -3600.0, True), (9.0, -3600.0, False), (0.0, 9.0, False)],
    ids=["set forward, or slept", "set back", "set back, and over", "slept"],
)
def test_both_clocks_have_to_agree(steady: float, wall: float, allowed: bool) -> None:
    """A machine that sleeps stops its steady clock; a wall clock may be set anywhere."""
    assert tenure("p").may_begin("p", Moment(AT.steady + steady, AT.wall + wall)) is allowed


def test_time_counts_from_when_the_heartbeat_was_sent_and_the_last_one_counts() -> None:
    mine = tenure("p")
    mine.answered(AT.later(3.0), 1, ["p"], 9.0)
    assert mine.may_begin("p", AT.later(11.9))

    mine.answered(AT.later(2.0), 1, ["p"], 9.0)

    assert mine.may_begin("p", AT.later(11.9))


def test_shorter_authorisation_counts_when_it_is_the_newest() -> None:
    mine = tenure("p")
    mine.answered(AT.later(1.0), 1, ["p"], 2.0)

    assert not mine.may_begin("p", AT.later(3.0))


def test_wall_clock_that_was_set_back_does_not_lengthen_anything() -> None:
    mine = tenure("p")
    back = Moment(AT.steady + 1, AT.wall - 3600)
    mine.answered(back, 1, ["p"], 9.0)

    assert mine.may_begin("p", back.later(8.9))
    assert not mine.may_begin("p", back.later(9.0))


def test_partition_that_is_taken_is_drained_then_yielded_then_told() -> None:
    mine = tenure("p", "q", version=3)
    assert mine.applied == 3
    mine.answered(AT.later(1), 4, ["q"], 9.0)

    assert mine.leaving == ["p"]
    assert not mine.may_begin("p", AT.later(1))
    assert mine.to_pull(AT.later(1)) == {"q": 4}
    assert mine.applied == 3
    assert mine.drained("p")
    assert not mine.drained("p")
    assert (mine.leaving, mine.applied) == ([], 3)
    mine.yielded("p")

    assert mine.applied == 4
    assert mine.held == {"q"}


def test_partition_that_comes_back_before_it_was_yielded_is_kept() -> None:
    mine = tenure("p", version=3)
    mine.answered(AT, 4, [], 9.0)
    mine.answered(AT, 5, ["p"], 9.0)

    assert mine.may_begin("p", AT)
    assert not mine.drained("p")
    assert mine.applied == 5


def test_partition_that_comes_back_while_it_is_yielded_is_let_go_first() -> None:
    mine = tenure("p", version=3)
    mine.answered(AT, 4, [], 9.0)
    mine.drained("p")
    mine.answered(AT, 5, ["p"], 9.0)
    assert not mine.may_begin("p", AT)

    mine.yielded("p")
    mine.answered(AT.later(1), 5, ["p"], 9.0)

    assert mine.to_pull(AT.later(1)) == {"p": 5}


def test_answer_of_an_earlier_version_is_ignored() -> None:
    mine = tenure("q", version=4)
    mine.answered(AT.later(1), 3, ["p"], 9.0)

    assert mine.held == {"q"}
    assert not mine.may_begin("q", AT.later(9.5))


def test_broker_that_knows_better_is_believed() -> None:
    mine = tenure("p", version=4)
    mine.outdated("p")

    assert not mine.may_begin("p", AT)
    assert mine.leaving == ["p"]
    mine.answered(AT.later(1), 4, ["p"], 9.0)
    assert not mine.may_begin("p", AT.later(1))
    mine.answered(AT.later(2), 6, ["p"], 9.0)
    assert mine.may_begin("p", AT.later(2))


def test_yield_that_nobody_asked_for_says_nothing() -> None:
    mine = tenure("p")
    mine.yielded("p")
    mine.yielded("q")
    mine.outdated("q")

    assert mine.held == {"p"}


def test_lapse_is_counted_for_what_was_in_hand() -> None:
    """In between the partition may have been another's, although both answers name it."""
    mine = tenure("p")
    mine.answered(AT.later(8), 1, ["p"], 9.0)
    assert mine.lapses == 0

    mine.answered(AT.later(20), 3, ["p"], 9.0)

    assert mine.lapses == 1
    assert mine.may_begin("p", AT.later(20))
