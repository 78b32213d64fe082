"""When to wait awake: it pays, it is kept; it does not, it is given up for ever longer."""

from __future__ import annotations

import pytest

from tidemill_wire.limits import VIGIL_LOOKS_MAX
from tidemill_wire.vigil import LONGEST, RESTED_WAITS_LEAST, RESTED_WAITS_MAX, TRIED_WAITS, WORTH, Mood, Vigil

SHORT = WORTH / 2
LONG = LONGEST * 3


class Waits:
    """A vigil and its clock."""

    def __init__(self) -> None:
        self.vigil = Vigil()
        self.now = 1.0

    def wait(self, seconds: float, times: int = 1) -> int:
        """How many of these waits were begun awake."""
        awake = 0
        for _ in range(times):
            awake += self.vigil.began(self.now)
            self.now += seconds
            self.vigil.ended(self.now)
        return awake

    def in_mood(self, mood: Mood) -> Waits:
        if mood is Mood.AWAKE:
            self.wait(SHORT, TRIED_WAITS)
        if mood is Mood.RESTING:
            self.wait(LONG, TRIED_WAITS)
        assert self.vigil.mood is mood
        return self


@pytest.mark.parametrize(
    ("mood", "seconds", "times", "then"),
    [
        (Mood.TRYING, SHORT, TRIED_WAITS - 1, Mood.TRYING),
        (Mood.TRYING, SHORT, TRIED_WAITS, Mood.AWAKE),
        (Mood.TRYING, LONG, TRIED_WAITS - 1, Mood.TRYING),
        (Mood.TRYING, LONG, TRIED_WAITS, Mood.RESTING),
        (Mood.AWAKE, SHORT, 1000, Mood.AWAKE),
        (Mood.AWAKE, LONG, 1, Mood.AWAKE),
        (Mood.AWAKE, LONG, TRIED_WAITS, Mood.RESTING),
        (Mood.RESTING, LONG, RESTED_WAITS_LEAST - 1, Mood.RESTING),
        (Mood.RESTING, SHORT, RESTED_WAITS_LEAST - 1, Mood.RESTING),
        (Mood.RESTING, SHORT, RESTED_WAITS_LEAST, Mood.TRYING),
        (Mood.RESTING, LONG, RESTED_WAITS_LEAST, Mood.TRYING),
    ],
)
def test_each_mood_and_what_ends_it(mood: Mood, seconds: float, times: int, then: Mood) -> None:
    waits = Waits().in_mood(mood)
    waits.wait(seconds, times)
    assert waits.vigil.mood is then


def test_waits_that_are_long_for_ever_cost_ever_less() -> None:
    """The bound of the module: what was burnt in vain is a vanishing part of the waits."""
    waits = Waits()
    first = waits.wait(LONG, 10_000)
    later = waits.wait(LONG, 100_000)
    assert 0 < later <= 8 * TRIED_WAITS
    assert first <= 8 * TRIED_WAITS
    assert later / 100_000 < 2 * TRIED_WAITS / RESTED_WAITS_MAX


def test_rest_is_short_again_after_a_vigil_that_paid() -> None:
    waits = Waits()
    waits.wait(LONG, 10_000)
    waits.wait(SHORT, RESTED_WAITS_MAX + TRIED_WAITS)
    assert waits.vigil.mood is Mood.AWAKE
    waits.in_mood(Mood.AWAKE).wait(LONG, TRIED_WAITS)
    assert waits.vigil.mood is Mood.RESTING
    waits.wait(SHORT, RESTED_WAITS_LEAST)
    assert waits.vigil.mood is Mood.TRYING


def test_looks_end_with_the_wait_with_the_time_and_with_their_number() -> None:
    vigil = Vigil()
    assert vigil.began(1.0)
    assert vigil.look(1.0)
    assert not vigil.look(1.001)
    vigil.began(2.0)
    vigil.ended(2.0)
    assert not vigil.look(2.0)
    vigil.began(3.0)
    assert sum(vigil.look(3.0) for _ in range(2 * VIGIL_LOOKS_MAX)) == VIGIL_LOOKS_MAX - 1


def test_what_comes_unawaited_is_no_wait() -> None:
    waits = Waits()
    for _ in range(2 * TRIED_WAITS):
        waits.vigil.ended(waits.now)
    assert waits.vigil.mood is Mood.TRYING


def test_one_that_is_switched_off_never_begins() -> None:
    vigil = Vigil(enabled=False)
    assert not any(vigil.began(now) for now in range(10 * RESTED_WAITS_LEAST))
    vigil.ended(0.0)
    assert vigil.mood is Mood.RESTING
