"""T0: the broker dies at every disk operation, also of its recovery, and keeps what it has answered."""

from __future__ import annotations

import pytest

from sim.burying import Burying
from sim.crashpoints import enumerate_crashes
from sim.delaying import Delaying
from sim.halving import Halving
from sim.renewing import Renewing
from sim.seeking import Seeking
from sim.sending import STORM, Sending
from sim.weather import Weather

pytestmark = pytest.mark.timeout(900)  # all there is to try takes long beside other tests

ORDERED = Weather(torn_pages=0.5)


@pytest.mark.parametrize("weather", [ORDERED, STORM], ids=["ordered", "storm"])
def test_a_broker_that_dies_at_any_operation_keeps_its_answers(weather: Weather) -> None:
    report = enumerate_crashes(Sending, weather=weather, draws=3)

    assert report.problems == []
    assert report.runs > 500


def test_a_seek_is_kept_and_what_it_made_void_stays_void_wherever_the_broker_dies() -> None:
    report = enumerate_crashes(Seeking, weather=STORM, draws=2)

    assert report.problems == []
    assert report.runs > 200


def test_a_lease_that_is_over_is_not_renewed_and_one_that_was_renewed_holds_wherever_the_broker_dies() -> (
    None
):
    report = enumerate_crashes(Renewing, weather=STORM, draws=2)

    assert report.problems == []
    assert report.runs > 200


def test_a_copy_whose_failure_the_power_took_waits_beside_no_message() -> None:
    report = enumerate_crashes(Burying, weather=STORM, draws=3)

    assert report.problems == []
    assert report.runs > 200


def test_a_transaction_is_there_as_a_whole_or_not_at_all_wherever_the_broker_dies() -> None:
    report = enumerate_crashes(Halving, weather=STORM, draws=2)

    assert report.problems == []
    assert report.runs > 200


def test_a_transaction_is_there_as_a_whole_or_not_at_all_when_the_broker_dies_twice() -> None:
    report = enumerate_crashes(Halving, weather=STORM, draws=1, second_stride=61)

    assert report.problems == []


def test_a_delay_service_that_dies_at_any_operation_delivers_what_it_has_answered_once_and_in_time() -> None:
    report = enumerate_crashes(Delaying, weather=STORM, draws=2)

    assert report.problems == []
    assert report.runs > 500


def test_a_delay_service_that_dies_twice_delivers_what_it_has_answered_once_and_in_time() -> None:
    report = enumerate_crashes(Delaying, weather=STORM, draws=1, second_stride=73)

    assert report.problems == []


def test_a_recovery_that_dies_at_any_operation_is_recovered_from() -> None:
    """Two deaths in a row: the second one at the beginning of recovery, within it, or in the life after it."""
    report = enumerate_crashes(Sending, weather=STORM, draws=1, second_stride=101)

    assert report.problems == []
