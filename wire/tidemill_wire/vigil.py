"""Whether to wait awake for what comes next: one end of a conversation, without its clock and its loop.

A thread that sleeps until the kernel wakes it answers 20 to 60 µs later than one that keeps looking, more on a virtual
machine, and pays for falling asleep and waking up. Where the next request, or the answer, comes within less than that,
looking for it costs less than sleeping. Where it does not, looking burns a core for nothing, so each wait is timed, and
a vigil that does not pay is given up for a long while.

    state      event                                          next
    TRYING     TRIED_WAITS waits, on average short enough     AWAKE
    TRYING     TRIED_WAITS waits, on average too long         RESTING
    AWAKE      the running average has become too long        RESTING
    RESTING    as many waits as the rest is long              TRYING

While resting nobody looks; while trying and awake at most ``VIGIL_US`` of a wait are spent awake. Each try that
fails doubles the rest behind it, so what a vigil burns in vain is bounded: ``TRIED_WAITS`` times that, soon only once
in ``RESTED_WAITS_MAX`` waits.
"""

from __future__ import annotations

from enum import Enum

from tidemill_wire.limits import VIGIL_LOOKS_MAX, VIGIL_US, VIGIL_WORTH_US

TRIED_WAITS = 32
RESTED_WAITS_LEAST = 128
RESTED_WAITS_MAX = 1 << 14
LONGEST, WORTH = VIGIL_US / 1e6, VIGIL_WORTH_US / 1e6
WEIGHT = 1 / 32
"""Of one wait in the average: a single long one does not end a vigil that pays."""


class Mood(Enum):
    """What is made of the next wait."""

    TRYING = "trying"
    AWAKE = "awake"
    RESTING = "resting"


class Vigil:
    """See the module. Times are seconds of any clock that is fine enough."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.mood = Mood.TRYING if enabled else Mood.RESTING
        self._enabled = enabled
        self._since = 0.0
        self._waiting = False
        self._looks = 0
        self._waits = 0
        self._average = 0.0
        self._rest = RESTED_WAITS_LEAST

    def began(self, now: float) -> bool:
        """A wait begins: whether to look for its end."""
        if not self._enabled:
            return False
        self._since, self._waiting, self._looks = now, True, 0
        return self.mood is not Mood.RESTING

    def look(self, now: float) -> bool:
        """What was waited for has not come yet, or ``ended`` was called: whether to look again.

        The number of looks is bounded too: on a clock that stands still no wait would ever be too long.
        """
        self._looks += 1
        return self._waiting and now - self._since < LONGEST and self._looks < VIGIL_LOOKS_MAX

    def ended(self, now: float) -> None:
        """What was waited for has come, looked for or not."""
        if not self._waiting:
            return
        self._waiting = False
        self._waits += 1
        if self.mood is Mood.RESTING:
            if self._waits >= self._rest:
                self._rest = min(2 * self._rest, RESTED_WAITS_MAX)
                self._become(Mood.TRYING)
            return
        took = min(now - self._since, LONGEST)
        self._average += (took - self._average) * (1 / self._waits if self._waits <= TRIED_WAITS else WEIGHT)
        if self._waits >= TRIED_WAITS:
            worth = self._average <= WORTH
            if not worth:
                self._become(Mood.RESTING)
            elif self.mood is Mood.TRYING:
                self.mood = Mood.AWAKE
                self._rest = RESTED_WAITS_LEAST

    def _become(self, mood: Mood) -> None:
        self.mood, self._waits, self._average = mood, 0, 0.0
