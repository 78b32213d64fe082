"""Who is ready: every row of the table in readiness.py."""

from __future__ import annotations

from samples.replicas import Group
from tidemill_ledger.readiness import why_not_ready
from tidemill_wire.replication import Handover


def group_of_two() -> Group:
    group = Group("a", "b")
    group.appoint(1, "a", ["a", "b"])
    return group


def why(group: Group, name: str) -> str:
    return why_not_ready(group[name].machine)


def test_who_was_told_nothing_is_not_ready() -> None:
    group = Group("a", "b")

    assert why(group, "a") == "a waits to be told what it is in its group"


def test_a_master_that_works_and_a_slave_that_could_take_over_are_ready() -> None:
    group = group_of_two()

    assert (why(group, "a"), why(group, "b")) == ("", "")


def test_a_master_that_hands_over_is_not_ready() -> None:
    group = group_of_two()
    group["a"].say(Handover("b"))

    assert why(group, "a") == "a takes no work now"


def test_a_slave_that_is_cut_off_or_not_in_sync_is_not_ready() -> None:
    group = group_of_two()
    group.unlink("b")
    assert why(group, "b") == "b has no connection to its master a"

    other = Group("a", "b")
    other.appoint(1, "a", ["a"])
    assert why(other, "b") == "b is not in sync with a yet"
