"""Which slaves are behind: how long ago a master had what its slave has now.

A master's positions are remembered for a while. A slave that has as much as its master had at a moment was caught up
then; the latest such moment says how far it is behind, in time, whatever the load is.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

SAMPLE_MS = 500
SAMPLES_MAX = 64


@dataclass(slots=True)
class _Course:
    """A master's positions in one epoch: when each was first heard of."""

    epoch: int
    since_ms: int
    times: list[int] = field(default_factory=list[int])
    messages: list[int] = field(default_factory=list[int])
    actions: list[int] = field(default_factory=list[int])


class Lagging:
    """The courses of all masters."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}

    def led(self, group: str, epoch: int, positions: tuple[int, int], now_ms: int) -> None:
        """A master said how far it is."""
        course = self._courses.get(group)
        if course is None or course.epoch != epoch:
            course = self._courses[group] = _Course(epoch, now_ms)
        if course.times and now_ms - course.times[-1] < SAMPLE_MS:
            return
        course.times.append(now_ms)
        course.messages.append(max(positions[0], course.messages[-1] if course.messages else 0))
        course.actions.append(max(positions[1], course.actions[-1] if course.actions else 0))
        for samples in (course.times, course.messages, course.actions):
            del samples[:-SAMPLES_MAX]

    def behind_ms(self, group: str, positions: tuple[int, int], now_ms: int) -> int:
        """For how long a slave has not had what its master had; 0 when that is not known."""
        course = self._courses.get(group)
        if course is None or not course.times:
            return 0
        reached = min(bisect_right(course.messages, positions[0]), bisect_right(course.actions, positions[1]))
        if reached == len(course.times):
            return 0
        # The first sample that the slave has not reached: it was caught up until then at the earliest.
        return max(0, now_ms - course.times[reached])

    def forget(self, groups: frozenset[str]) -> None:
        """Keep only these."""
        for group in [group for group in self._courses if group not in groups]:
            del self._courses[group]
