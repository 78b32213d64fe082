"""T0: a clock that ran hours ahead and was set back makes nothing early, nothing late, and nothing lost."""

from __future__ import annotations

from samples.brokers import empty_disk
from sim.backwards import Backwards
from sim.crashpoints import enumerate_crashes
from sim.delaying import STORM


def test_hours_that_a_wrong_clock_closed_hold_up_nothing_and_let_nothing_go_early() -> None:
    """Without a death, and the hours are closed indeed."""
    experiment, disk = Backwards(), empty_disk()
    for life in (1, 2):
        experiment.live(life, disk.mount())
        disk.kill()
    assert experiment._closed > 0
    assert experiment.check(disk.mount()) == []


def test_it_is_so_wherever_the_service_dies() -> None:
    report = enumerate_crashes(Backwards, weather=STORM, draws=1)

    assert report.problems == []
    assert report.runs > 100
