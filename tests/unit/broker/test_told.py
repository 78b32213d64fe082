"""What a master hears of meta first: before that it takes no messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidemill_broker.attendance import BrokerAttendance
from tidemill_broker.gate import Told
from tidemill_ledger.attendance import Identity
from tidemill_wire.asking import MetaRefused, Request
from tidemill_wire.replication import Ends, Stood

MASTER = Stood("g1-0", "master", 2, 5, 2, Ends(80, 90), Ends(80, 90), "g1-0")
WISHING = Stood("g1-0", "master", 2, 5, 2, Ends(80, 90), Ends(80, 90), "g1-0", ("g1-0", "g1-1"))
NEWS: dict[str, Any] = {
    "group": "g1", "epoch": 2, "master": "g1-0", "replicas": ["g1-0", "g1-1"], "in_sync": ["g1-0"],
    "version": 5, "lease_ms": 0, "addresses": {}, "declared": 7, "state": "RW",
}  # fmt: skip
DECLARED: dict[str, Any] = {"revision": 9, "declarations": [], "read_only": ["bills"]}


def beating(stood: Stood = MASTER) -> BrokerAttendance:
    """Registered, and its heartbeat is under way."""
    attendance = BrokerAttendance(Identity("g1", "g1-0", 7, "a:7400", "a:7401", "f1"))
    attendance.beat(stood)
    attendance.answered(200, {})
    return attendance


def listening() -> BrokerAttendance:
    """It has asked for what was declared."""
    attendance = beating()
    assert isinstance(attendance.answered(200, NEWS), Request)
    return attendance


def test_a_master_is_told_once_even_if_there_is_nothing_to_tell() -> None:
    """It takes nothing before."""
    attendance = beating()

    assert attendance.answered(200, {**NEWS, "declared": 0, "state": "R"}) == Told(0, "R")
    assert attendance.answered(200, None) is None
    attendance.beat(MASTER)
    assert attendance.answered(200, {**NEWS, "declared": 0, "state": "R"}) is None


def test_a_master_is_told_before_it_says_what_it_wishes_which_may_be_refused() -> None:
    attendance = beating(WISHING)
    assert isinstance(attendance.answered(200, NEWS), Request)
    assert isinstance(attendance.answered(200, DECLARED), Told)

    wish = attendance.answered(200, None)

    assert isinstance(wish, Request)
    assert wish.path == "/v1/groups/g1/in-sync"


def test_a_meta_that_does_not_know_of_the_mastership_has_not_told_the_master() -> None:
    """What the master before it has obeyed may be news to that replica."""
    attendance = beating()
    assert attendance.answered(200, {**NEWS, "epoch": 1}) is None

    attendance.beat(MASTER)

    assert isinstance(attendance.answered(200, NEWS), Request)


def test_what_is_older_than_was_announced_is_not_believed() -> None:
    """One address may stand for several replicas of meta."""
    attendance = listening()
    with pytest.raises(MetaRefused, match="behind"):
        attendance.answered(200, {**DECLARED, "revision": 6})

    attendance.beat(MASTER)

    assert isinstance(attendance.answered(200, NEWS), Request)


def test_what_meta_declares_in_the_words_of_a_later_version_is_complained_of() -> None:
    """It takes messages, though it was not told all: else it would wait for its own next version."""
    attendance = listening()
    assert attendance.answered(200, {**DECLARED, "declarations": [{"kind": "Tide"}]}) == Told()

    with pytest.raises(MetaRefused, match="invalid_manifest"):
        attendance.answered(200, None)


def test_what_it_cannot_read_holds_up_neither_its_wish_nor_what_its_group_may_take() -> None:
    """Else one slave that is away would hold up all that is sent, until the broker is upgraded."""
    attendance = beating(WISHING)
    attendance.answered(200, NEWS)
    attendance.answered(200, DECLARED)
    attendance.answered(200, None)
    assert attendance.answered(200, {}) is None
    unreadable = {**DECLARED, "revision": 11, "declarations": [{"kind": "Tide"}]}

    for told in (replace(Told(9, "R"), read_only=frozenset({"bills"})), None):
        attendance.beat(WISHING)
        attendance.answered(200, {**NEWS, "declared": 11, "state": "R"})
        due = attendance.answered(200, unreadable)
        if told is not None:
            assert due == told
            due = attendance.answered(200, None)
        assert isinstance(due, Request)
        assert due.path == "/v1/groups/g1/in-sync"
        with pytest.raises(MetaRefused, match="invalid_manifest"):
            attendance.answered(200, {})
