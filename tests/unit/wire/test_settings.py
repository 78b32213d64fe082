"""What an environment says of a service becomes fields of its settings, or a sentence that says what to write."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidemill_wire.settings import SettingsError, read_fields, settings_line


@dataclass(frozen=True)
class MillSettings:
    name: str = "mill"
    open_gate: bool = True
    wheel_count: int = 3


def read(**environment: str) -> MillSettings:
    return MillSettings(**read_fields(MillSettings, "MILL_", 100, environment))


def test_what_the_environment_names_is_read_as_the_type_of_its_default() -> None:
    settings = read(MILL_NAME="", MILL_OPEN_GATE="False", MILL_WHEEL_COUNT="100", OTHER="1")

    assert settings == MillSettings("", False, 100)


def test_what_it_does_not_name_has_its_default() -> None:
    assert read() == MillSettings()


@pytest.mark.parametrize("written", ["0", "-1", "101", "1.5", "5s", "", "²", "1_0"])
def test_a_number_that_cannot_be_is_refused_in_a_sentence(written: str) -> None:
    with pytest.raises(
        SettingsError, match=r"MILL_WHEEL_COUNT is .*: write a whole number above zero, without a unit"
    ):
        read(MILL_WHEEL_COUNT=written)


@pytest.mark.parametrize("written", ["yes", "1", ""])
def test_a_switch_is_true_or_false(written: str) -> None:
    with pytest.raises(SettingsError, match=r"MILL_OPEN_GATE is .*: write true or false"):
        read(MILL_OPEN_GATE=written)


def test_settings_are_told_with_their_names_and_values() -> None:
    told = settings_line("broker", MillSettings('a "b"', False, 7))

    assert told == r'settings service=broker name="a \"b\"" open_gate=false wheel_count=7'
