"""Dying at every operation finds what random times never find: bugs of recovery."""

from __future__ import annotations

import pytest

from sim.crashpoints import Death, enumerate_crashes, run_cut
from sim.toy import Bug, Store
from sim.weather import Weather

STORM = Weather(torn_pages=0.5, ordered_names=False, short_io=0.2)


class Logging:
    """Appends and syncs; what was answered must be there, whole, in order, with nothing between."""

    def __init__(self, bug):
        self.bug = bug
        self.tried = []
        self.answered = []
        self.seen = []

    def live(self, life, disk):
        store = Store(disk, self.bug)
        self.seen = list(store.messages)
        for number in range(4):
            body = b"%d/%d " % (life, number) + bytes([65 + number]) * (7 + 900 * number)
            self.tried.append(body)
            store.append(b"M" + body)
            store.sync()
            self.answered.append(body)

    def check(self, disk):
        found = Store(disk, self.bug).messages
        problems = [f"lost {body[:5]!r}" for body in self.answered if body not in found]
        problems += [f"invented {body[:5]!r}" for body in found if body not in self.tried]
        return problems


def test_a_correct_log_survives_every_cut():
    report = enumerate_crashes(lambda: Logging(Bug.NONE), weather=STORM, second_stride=3)

    assert report.problems == []
    assert report.runs > 400


@pytest.mark.parametrize("bug", [Bug.NO_CHECKSUM, Bug.TORN_TAIL_KEPT, Bug.NO_FOLDER_SYNC])
def test_planted_bugs_of_recovery_are_found_and_replayed(bug):
    report = enumerate_crashes(lambda: Logging(bug), weather=STORM, draws=20)

    assert report.problems
    cut, problem = report.problems[0]
    assert problem in run_cut(lambda: Logging(bug), cut, weather=STORM)


def test_every_operation_is_cut_by_both_deaths():
    seen = set()

    class Noting(Logging):
        def live(self, life, disk):
            if life == 1:
                seen.add((disk.disk.crash_at, disk.disk.on_crash.__name__))
            super().live(life, disk)

    report = enumerate_crashes(lambda: Noting(Bug.NONE), weather=Weather(), draws=1)

    for number in range(1, report.operations + 2):
        assert {(number, "kill"), (number, "power_cut")} <= seen
    assert {death.value for death in Death} == {"kill", "power cut"}
