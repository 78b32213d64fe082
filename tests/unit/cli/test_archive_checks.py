"""An archive is in trouble while the last of its runs that ended has failed."""

from __future__ import annotations

import pytest

from samples.pictures import archive
from tidemill.cli.archive_checks import ERROR_CHARS, failures


@pytest.mark.parametrize(
    ("states", "fails"),
    [
        ((), False),
        (("Running",), False),
        (("Succeeded",), False),
        (("Failed",), True),
        (("Failed", "Running"), True),
        (("Failed", "Succeeded"), False),
        (("Succeeded", "Failed"), True),
        (("Failed", "Succeeded", "Running"), False),
    ],
)
def test_it_is_in_trouble_from_a_run_that_failed_to_one_that_is_well(
    states: tuple[str, ...], *, fails: bool
) -> None:
    found = list(failures([archive(*states)]))
    assert [one.about for one in found] == ["archive lake"] * fails


def test_one_that_has_ended_is_nobodys_trouble() -> None:
    assert not list(failures([archive("Failed", state="Ended")]))


def test_it_is_said_which_run_of_what_and_no_more_than_fits() -> None:
    [found] = failures([archive("Succeeded", "Failed")])
    assert found.what == "its last run, run-2, failed: OSError: no room"
    wordy = archive("Failed")
    wordy["runs"][0]["error"] = "a\n  b" * 1_000
    [found] = failures([wordy])
    assert "\n" not in found.what
    assert len(found.what) < ERROR_CHARS + 60
    del wordy["runs"][0]["error"]
    [found] = failures([wordy])
    assert found.what == "its last run, run-1, failed"


def test_each_of_several_is_said() -> None:
    several = [archive("Failed", name=name) for name in ("one", "two")] + [archive("Succeeded", name="three")]
    assert [one.about for one in failures(several)] == ["archive one", "archive two"]


def test_run_that_is_lost_is_found_with_when_it_was_last_heard() -> None:
    row = archive("Succeeded", "Lost")
    row["runs"][-1]["heard_at"] = 1_795_000_000_000
    [found] = failures([row])
    assert "is lost: its driver was last heard of at 2026-11-18 11:06:40 UTC" in found.what
