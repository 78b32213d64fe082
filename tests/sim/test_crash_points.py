"""T0: the broker dies at every disk operation, also of its recovery, and keeps what it has answered."""

from __future__ import annotations

import pytest

from sim.crashpoints import enumerate_crashes
from sim.sending import Sending
from sim.weather import Weather

CALM_WRITES = Weather(torn_pages=0.5, ordered_names=True)
STORM = Weather(torn_pages=0.5, ordered_names=False, short_io=0.2)


@pytest.mark.parametrize("weather", [CALM_WRITES, STORM], ids=["ordered", "storm"])
def test_a_broker_that_dies_at_any_operation_keeps_its_answers(weather: Weather) -> None:
    report = enumerate_crashes(Sending, weather=weather, draws=4)

    assert report.problems == []
    assert report.runs > 5 * 300


def test_a_recovery_that_dies_at_any_operation_is_recovered_from() -> None:
    """Two deaths in a row: the second one within recovery, or in the life after it."""
    report = enumerate_crashes(lambda: Sending(), weather=STORM, draws=1, second_stride=29)

    assert report.problems == []
