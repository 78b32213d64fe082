"""An hour with more messages than the wheel has room for is loaded in pages: none is lost, early, late or too large."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.delays import HOUR_MS, NOW_MS, SMALL, DelayRig
from tidemill_host.machine import Read, Unread

TICK_MS = SMALL.tick_ms
PAGE = 0
"""The token of a read of an hour's index."""


def bodies(rig: DelayRig) -> list[bytes]:
    return [body for _, _, body in rig.arrived]


def until_a_page_is_read(rig: DelayRig) -> Read:
    """Time passes until the disk is asked for the next part of an hour; all else it reads at once."""
    rig.holds_reads = True
    while not (pages := [read for read in rig.reads if read.token == PAGE]):
        rig.load()
        rig.pump()
        if not rig.reads:
            rig.wait(TICK_MS)
    rig.reads = [read for read in rig.reads if read.token != PAGE]
    rig.holds_reads = False
    rig.load()
    return pages[0]


@pytest.mark.parametrize("read", [False, True])
def test_what_comes_for_the_loaded_part_of_an_hour_as_more_of_it_is_read_is_in_time(read: bool) -> None:
    """Whatever becomes of that read: the disk may refuse it."""
    rig = DelayRig(replace(SMALL, wheel_messages=8, checkpoint_events=1000))
    start = NOW_MS + 2 * HOUR_MS
    for number in range(40):
        rig.send([b"%d" % number], start + 5_000 * number)
    rig.wait(2 * HOUR_MS)
    page = until_a_page_is_read(rig)
    rig.send([b"soon"], due := rig.now_ms + TICK_MS)
    assert due < rig.delay.nearing.high_ms(start)
    rig.wait(2 * TICK_MS)
    assert bodies(rig)[-1] == b"soon"
    rig.send([b"later"], rig.now_ms + TICK_MS)
    rig.delay.loaded(PAGE, rig.files.answer(page) if read else Unread(page.slice, "EIO"), rig.now_ms)
    rig.pump()
    rig.wait(2 * HOUR_MS)

    assert sorted(bodies(rig)) == sorted([b"soon", b"later", *(b"%d" % number for number in range(40))])
    assert rig.delay.state.waiting == 0


def set_back(rig: DelayRig) -> None:
    """A clock that ran hours ahead, long enough to close hours, is right again; the hours until then are closed."""
    rig.now_ms = NOW_MS + 4 * HOUR_MS
    rig.restart()
    for _ in range(2 * SMALL.checkpoint_events):
        rig.send([b"x"], rig.now_ms + 100)
        rig.wait(HOUR_MS // SMALL.checkpoint_events)
    assert rig.delay.state.closed_ms >= NOW_MS + 5 * HOUR_MS
    rig.now_ms = NOW_MS
    rig.arrived.clear()


@pytest.mark.parametrize("old", [False, True])
def test_what_waits_for_closed_hours_is_loaded_as_there_is_room_and_comes_in_time(old: bool) -> None:
    """``old``: among much that is due before the first open hour are some that were due before there were clocks."""
    rig = DelayRig(replace(SMALL, wheel_messages=20))
    set_back(rig)
    rig.restart()
    due = {b"%d" % number: NOW_MS + 60_000 + 37_000 * number % (4 * HOUR_MS) for number in range(300)}
    if old:
        due |= {b"old": 1, b"older": 0, b"oldest": -(10**12)}
    rig.away = True
    for body, at in due.items():
        rig.send([body], at)
        assert rig.delay.wheel.size <= 20
    rig.restart()
    assert 10 <= rig.delay.wheel.size + rig.delay.due <= 20
    rig.away = False
    rig.restart()
    while rig.now_ms < NOW_MS + 5 * HOUR_MS:
        rig.wait(10_000)
        assert rig.delay.wheel.size <= 20

    assert sorted(bodies(rig)) == sorted(due)
    assert all(0 <= at - max(due[body], NOW_MS) <= TICK_MS for at, _, body in rig.arrived)
