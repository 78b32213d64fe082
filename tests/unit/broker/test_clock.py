"""Moments: a wall clock that was set between two starts, and groups that begin at a time."""

from __future__ import annotations

from samples.brokers import SUBJECT, TINY, Rig, pulls, spans
from tidemill_wire.commands import Nack


def test_clock_that_was_set_back_prolongs_no_lease_and_no_delay() -> None:
    """Neither at the start that sees it, nor at one that replays it."""
    rig = Rig(TINY)
    rig.fill(6)
    low = pulls(rig.pull(3))[0]
    rig.ask(Nack("g", "c", SUBJECT, [low, low], delay_ms=50))
    rig.now_ms -= 3_600_000
    rig.restart()
    rig.restart()
    rig.wait(TINY.lease_ms + TINY.consumer_gone_ms)

    assert sorted(spans(rig.pull(consumer="d"))) == [(0, 1, 1), (1, 2, 1), (3, 3, 0)]


def test_what_is_held_is_as_old_as_it_was_when_the_clock_is_set_back() -> None:
    """Else it would not die of its age before the time that the wrong clock showed."""
    rig = Rig(TINY)
    rig.fill(1)
    year_ms = 365 * 86_400_000
    rig.now_ms += year_ms
    low = pulls(rig.pull())[0]
    rig.ask(Nack("g", "c", SUBJECT, [low, low], delay_ms=0))
    assert spans(rig.pull(consumer="d")) == [(0, 1, 1)]
    rig.now_ms -= year_ms
    rig.restart()

    (held,) = rig.broker.state.by_name[SUBJECT.encode()].groups.values()
    (delivery,) = rig.broker.state.groups[held].consumers["d"].held()
    assert abs(delivery.since_ms - rig.now_ms) < 60_000


def test_group_that_has_begun_passes_over_nothing_when_the_clock_is_set_back() -> None:
    """It began at a time; what is stored later bears an earlier one."""
    rig = Rig(TINY)
    start = rig.now_ms
    rig.fill(1)
    assert spans(rig.pull(start=start)) == [(0, 1, 0)]
    rig.now_ms -= 3_600_000
    rig.restart()
    rig.fill(2)

    assert (1, 2, 0) in spans(rig.pull(start=start))


def test_group_that_begins_at_a_time_reads_no_run_in_which_all_is_older() -> None:
    rig = Rig(TINY)
    rig.fill(40)
    rig.now_ms += 1000
    rig.send(b"new")
    rig.holds_reads = True

    assert spans(rig.pull(start=rig.now_ms)) == [(40, 1, 0)]
    assert rig.reads == []
