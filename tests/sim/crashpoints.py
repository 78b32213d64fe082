"""T0: die at every disk operation of a synchronous piece of work, recover, and check. No loop, thousands a second.

An ``Experiment`` is made anew for each run. ``live(life, disk)`` is called with life 1; the process or the power dies
inside the operation under test; ``live(2, …)`` recovers and goes on, and may itself be cut; the last life always runs
to its end, and ``check`` tells what is wrong. What the experiment believes to be answered it keeps in itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from sim.disk import Mount, SimDisk
from sim.life import SimCrash
from sim.weather import Weather

OPERATIONS_MAX = 100_000


class Death(Enum):
    POWER_CUT = "power cut"
    KILL = "kill"


class Experiment(Protocol):
    """One world without time."""

    def live(self, life: int, disk: Mount) -> None: ...

    def check(self, disk: Mount) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a run dies. ``second`` is the operation of the second life, 0 when that one is spared."""

    first: int
    second: int
    death: Death
    draw: int
    """Which draw of what the cut leaves."""


@dataclass(slots=True)
class Report:
    runs: int = 0
    operations: int = 0
    """Of the undisturbed first life."""
    problems: list[tuple[Cut, str]] = field(default_factory=list)


def enumerate_crashes(
    make: Callable[[], Experiment],
    *,
    weather: Weather,
    draws: int = 4,
    second_stride: int = 0,
    seed: str = "t0",
) -> Report:
    """Every operation of life 1, both deaths, ``draws`` leftovers of a power cut; of life 2 every nth, if asked."""
    report = Report(operations=operations_of(make, weather, seed))
    for cut in all_cuts(report.operations, draws, second_stride):
        report.runs += 1
        report.problems.extend((cut, problem) for problem in run_cut(make, cut, weather=weather, seed=seed))
    return report


def run_cut(make: Callable[[], Experiment], cut: Cut, *, weather: Weather, seed: str = "t0") -> list[str]:
    """One run: also the way to replay one line of a report."""
    disk = SimDisk(random.Random(f"{seed}/{cut.first}/{cut.second}/{cut.death.value}/{cut.draw}"), weather)
    disk.on_crash = disk.power_cut if cut.death is Death.POWER_CUT else disk.kill
    experiment = make()
    life = 0
    for operation in (cut.first, cut.second):
        if operation:
            life += 1
            if not _dies(experiment, life, disk, operation):
                disk.on_crash()  # It got through: the same death, with nothing under way.
    try:
        experiment.live(life + 1, disk.mount())
        return experiment.check(disk.mount())
    except Exception as error:
        return [f"recovery failed: {type(error).__name__}: {error}"]


def _dies(experiment: Experiment, life: int, disk: SimDisk, operation: int) -> bool:
    disk.crash_at = disk.operations + operation
    try:
        experiment.live(life, disk.mount())
    except SimCrash:
        return True
    return False


def operations_of(make: Callable[[], Experiment], weather: Weather, seed: str = "t0") -> int:
    """Disk operations of an undisturbed first life."""
    disk = SimDisk(random.Random(f"{seed}/calm"), weather)
    make().live(1, disk.mount())
    if disk.operations > OPERATIONS_MAX:
        raise ValueError(f"{disk.operations} operations are too many to enumerate")
    return disk.operations


def all_cuts(operations: int, draws: int, second_stride: int = 0) -> Iterator[Cut]:
    """Every cut there is to try."""
    # One more than the work has: the run in which all was done and answered, and then the power went.
    for first in range(1, operations + 2):
        seconds = [0, *range(1, operations + 1, second_stride)] if second_stride else [0]
        for second in seconds:
            yield Cut(first, second, Death.KILL, 0)
            for draw in range(draws):
                yield Cut(first, second, Death.POWER_CUT, draw)


def first_problem(make: Callable[[], Experiment], weather: Weather, draws: int) -> str:
    """Of all single deaths, the first that breaks a promise; empty when none does."""
    for cut in all_cuts(operations_of(make, weather), draws):
        problems = run_cut(make, cut, weather=weather)
        if problems:
            return f"{cut}: {problems[0]}"
    return ""
