"""How busy a broker counts as."""

from __future__ import annotations

import pytest

from tidemill_broker.load import Load
from tidemill_broker.settings import parse_labels, read_settings
from tidemill_wire.settings import SettingsError

SECOND_MS = 1000


def after(load: Load, rate: int, seconds: int, start_s: int = 0) -> float:
    """Of a broker that stores so many bytes each second."""
    measured = 0.0
    for second in range(start_s, start_s + seconds + 1):
        measured = load.measured(rate * second, 1_780_000_000_000 + second * SECOND_MS)
    return measured


def test_load_is_the_part_of_what_it_can_do() -> None:
    assert after(Load(1_000_000), 250_000, 60) == pytest.approx(0.25, abs=0.01)
    assert after(Load(1_000_000), 9_000_000, 60) == 1.0


def test_a_log_that_was_there_before_is_no_load() -> None:
    assert Load(1000).measured(10**12, 5) == 0.0


def test_a_moment_of_much_traffic_is_smoothed_away() -> None:
    load = Load(1_000_000)
    load.measured(0, 0)

    assert load.measured(1_000_000, SECOND_MS) < 0.15
    assert load.measured(1_000_000, 60 * SECOND_MS) < 0.01


def test_a_clock_that_is_set_back_and_a_log_that_was_cut_are_measured_from_there() -> None:
    load = Load(1000)
    load.measured(500, 10_000)

    assert load.measured(900, 5_000) == 0.0
    assert load.measured(100, 6_000) == 0.0
    assert load.measured(600, 7_000) > 0.0


def test_labels_are_read_from_the_environment() -> None:
    settings = read_settings({"TIDEMILL_LABELS": "zone=a, disk=ssd"})

    assert parse_labels(settings.labels) == (("disk", "ssd"), ("zone", "a"))
    assert parse_labels("") == ()


@pytest.mark.parametrize("text", ["zone", "zone=", "=a", "zone=a,zone=b", "zone=" + "a" * 64, "z\x00=a"])
def test_labels_that_cannot_be_refuse_the_start(text: str) -> None:
    with pytest.raises(SettingsError, match="LABELS has"):
        read_settings({"TIDEMILL_LABELS": text})
