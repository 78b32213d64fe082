"""`tidemill top` says rates of two looks, and fits terminals of any width."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.pictures import SYSTEM, consumer_group, picture, with_groups, with_nodes, with_numbers
from tidemill.cli.picture import Picture, pace_of
from tidemill.cli.screen import drains, paced, rows, screen

IN = "tidemill_messages_in_total"


def looks() -> tuple[Picture, Picture]:
    """Ten seconds in which 500 messages came and 200 were acknowledged."""
    before = with_numbers("g0-0", with_groups(consumer_group(lag=100, acked=0), at_s=90.0), **{IN: 1_000.0})
    now = with_numbers("g0-0", with_groups(consumer_group(lag=400, acked=200)), **{IN: 1_500.0})
    return now, before


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40, 20, 10])
def test_no_line_is_longer_than_the_terminal_is_wide(width: int) -> None:
    lines = screen(*looks(), width)
    assert max(map(len, lines)) <= width
    assert any(line.startswith("g0-0") for line in lines)
    assert any(line.startswith("bil") for line in lines)


def test_wide_terminal_has_all_columns_and_a_narrow_one_the_most_important() -> None:
    wide, narrow = ("\n".join(screen(*looks(), width)) for width in (200, 30))
    assert "CONSUMERS" in wide
    assert "MEMORY" in wide
    assert "CONSUMERS" not in narrow
    assert "LAG" in narrow


def test_low_terminal_shows_the_groups_with_most_to_do_and_how_many_are_left() -> None:
    many = with_groups(*(consumer_group(f"g{number}", lag=number) for number in range(30)))
    lines = screen(many, None, 80, 20)
    assert len(lines) <= 20
    assert any(line.startswith("g29 ") for line in lines)
    assert lines[-1].endswith("more groups")


def test_rates_are_those_of_the_time_between_two_looks() -> None:
    now, before = looks()
    [group] = rows(now, before)["groups"]
    assert (group["arrives_per_s"], group["handled_per_s"], group["drains_in_s"]) == (50.0, 20.0, None)
    assert rows(now, before)["brokers"][0]["in_per_s"] == 50.0
    assert rows(now, None)["brokers"][0]["in_per_s"] is None


def test_process_that_was_started_again_has_no_rate() -> None:
    now, before = looks()
    other = with_nodes({"g0-0": {"system": SYSTEM._replace(pid=99)}}, before)
    assert rows(now, other)["brokers"][0]["in_per_s"] is None


def test_whoever_does_not_answer_is_said_to_be_silent() -> None:
    lines = screen(with_nodes({"g1-1": {"system": None}, "g1-0": {"alive": False}}), None, 100)
    assert any(line.split()[:2] == ["g1-1", "silent"] for line in lines)
    assert any(line.split()[:2] == ["g1-0", "away"] for line in lines)
    assert "2 away" in lines[0]


def test_backlog_drains_at_the_difference_of_the_rates() -> None:
    before = {**consumer_group(lag=1_000), "brokers": ["g0"]}
    now = {**consumer_group(lag=900, acked=150), "brokers": ["g0"]}
    pace = pace_of(before, now, 10.0)
    assert pace is not None
    assert (pace.arrives, pace.handled, pace.drains_in_s) == (5.0, 15.0, 90.0)
    assert drains(paced(pace)) == "90 s"
    assert pace_of(now, before, 10.0) is None
    assert pace_of({**before, "brokers": ["g0", "g1"]}, now, 10.0) is None


def test_empty_group_is_drained_already() -> None:
    row = {**consumer_group(), "brokers": ["g0"]}
    assert drains(paced(pace_of(row, row, 1.0))) == "0 s"
    assert drains(paced(None)) == "-"


def test_picture_without_groups_has_a_screen() -> None:
    assert screen(replace(picture(), nodes=[]), None, 80)
