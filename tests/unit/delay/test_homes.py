"""Messages for later without order keys: what may be at a broker group stays with it, whatever is said meanwhile."""

from __future__ import annotations

import pytest

from samples.between import DUE, ONE, TWO, BetweenRig, version
from samples.delays import NOW_MS, SUBJECT
from tidemill_delay.courier import SILENT_MS
from tidemill_delay.routing import home_of
from tidemill_wire.errors import Unavailable

COUNT = 12


def sent(rig: BetweenRig, count: int = COUNT) -> None:
    """So many messages, each its own batch."""
    for number in range(count):
        rig.send([b"%d" % number], DUE)


def everything_once(rig: BetweenRig, count: int = COUNT) -> bool:
    return rig.once and len(rig.stored) == count and rig.delay.state.waiting == 0


def test_they_are_spread_over_the_broker_groups() -> None:
    rig = BetweenRig(TWO)
    sent(rig, 40)
    rig.wait(2_000)

    assert everything_once(rig, 40)
    assert min(sum(place.startswith(group) for place, _, _ in rig.stored) for group in ("g0", "g1")) >= 8


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("arrived", [False, True])
def test_what_may_be_at_a_broker_group_waits_for_its_next_master(restarts: bool, arrived: bool) -> None:
    """A failover: its answers are lost, then nobody takes anything there, and the other one would."""
    rig = BetweenRig(TWO)
    sent(rig)
    rig.deaf_to, rig.cut = {"g0"}, set() if arrived else {"g0"}
    rig.wait(1_100)
    rig.lose("g0")
    rig.cut, rig.shut, rig.deaf_to = {"g0"}, {"g0"}, set()
    rig.tell(TWO)
    if restarts:
        rig.restart()
    rig.wait(5_000)
    assert rig.once
    rig.cut, rig.shut = set(), set()
    rig.meet()
    rig.wait(2_000)

    assert everything_once(rig)


def test_what_was_not_sent_goes_to_who_takes_it_now() -> None:
    rig = BetweenRig(TWO)
    sent(rig)
    rig.cut = rig.shut = {"g0"}
    rig.lose("g0")
    rig.tell(TWO)
    rig.wait(2_000)

    assert everything_once(rig)
    assert {place for place, _, _ in rig.stored} == {f"g1/{SUBJECT}"}


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_broker_group_says_that_it_does_not_have_goes_to_another_one(restarts: bool) -> None:
    rig = BetweenRig(TWO)
    sent(rig)
    rig.cut = {"g0"}
    rig.wait(1_100)
    rig.lose("g0")
    rig.rigs["g0"].broker.intake.refusal = Unavailable("disk_full", "nothing is free")
    rig.cut, rig.shut = set(), {"g0"}
    if restarts:
        rig.restart()
    else:
        rig.meet()
    rig.wait(3_000)

    assert everything_once(rig)
    assert {place for place, _, _ in rig.stored} == {f"g1/{SUBJECT}"}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_broker_group_that_is_forgotten_is_asked_for_nothing(restarts: bool) -> None:
    rig = BetweenRig(TWO)
    sent(rig)
    rig.cut = {"g0"}
    rig.wait(1_100)
    rig.lose("g0")
    rig.listed, rig.shut = ("g1",), {"g0"}
    rig.tell(TWO)
    if restarts:
        rig.restart()
    rig.wait(3_000)

    assert everything_once(rig)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("met", [False, True])
def test_a_broker_group_may_be_forgotten_while_its_connection_seems_to_be_there(
    closed: bool, met: bool
) -> None:
    """Its machine lost power, so nobody closes the connection; what was on its way goes to the others when it is given
    up, also to one that was not there before.
    """
    rig = BetweenRig(ONE)
    if not met:
        rig.cut = {"g1"}
        rig.restart()
    sent(rig)
    rig.cut = {"g0", *rig.cut}
    rig.wait(1_100)
    assert rig.asked["g0"]
    rig.listed = ("g1",)
    rig.tell(version(2, b=1024))
    rig.wait(1_000)
    assert rig.stored == []
    if closed:
        rig.lose("g0")
    else:
        rig.wait(SILENT_MS)
    if not met:
        rig.cut = {"g0"}
        rig.meet()

    assert everything_once(rig)
    assert {place for place, _, _ in rig.stored} == {f"g1/{SUBJECT}"}


def test_two_delay_groups_that_were_given_the_same_batches_bring_them_to_the_same_brokers() -> None:
    """Who repeats a request may meet another delay group than before: there was none when it was made first."""
    one = BetweenRig(TWO)
    other = BetweenRig(TWO, rigs=one.rigs)
    other.send_as(99, [b"x" * 300], NOW_MS + 200_000)  # so all that follows lies at other places
    sent(one)
    for number in range(COUNT):
        other.send_as(number + 1, [b"%d" % number], DUE)
    one.wait(2_000)
    other.wait(2_000)

    assert len(one.stored) == COUNT
    assert other.stored == []
    assert other.delay.state.waiting == 1


def test_a_broker_group_more_takes_its_share_and_nothing_else_moves() -> None:
    before, after = ["g0", "g1"], ["g0", "g1", "g2"]
    ids = [number.to_bytes(16, "big") for number in range(300)]
    moved = [one for one in ids if home_of(one, before) != home_of(one, after)]

    assert {home_of(one, after) for one in moved} == {"g2"}
    assert 60 < len(moved) < 140
