"""The table of metrics, the page that is made of it, histograms, and who has a name among many."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tidemill_wire.metrics.of_brokers import BROKERS
from tidemill_wire.metrics.page import Page
from tidemill_wire.metrics.powers import Powers
from tidemill_wire.metrics.prominent import Prominent
from tidemill_wire.metrics.reference import EVERYTHING, reference
from tidemill_wire.metrics.words import counter, gauge, table_of

ROOT = Path(__file__).parents[3]


def test_the_page_of_metrics_is_what_the_table_says() -> None:
    assert (ROOT / "docs/metrics.md").read_text() == reference(), "make charts"


def test_every_label_has_a_bound() -> None:
    assert [label for metric in EVERYTHING.values() for label in metric.labels if not label.bound] == []


def test_a_name_is_in_the_table_once() -> None:
    with pytest.raises(AssertionError, match="sends_total"):
        table_of([counter("sends_total", "sends", "Sends")], [counter("sends_total", "sends", "Sends")])


def test_a_counter_is_called_total_and_nothing_else_is() -> None:
    for wrong in (("sends", counter), ("held_total", gauge)):
        with pytest.raises(AssertionError, match=wrong[0]):
            wrong[1](wrong[0], "", "What")


def test_a_page_has_each_family_in_one_piece_and_escapes_labels() -> None:
    page = Page(BROKERS, "tidemill_")
    page.put("group_paused", 1, 'a"b', "g\\1")
    page.put("connections", 3)
    page.put("group_paused", True, "c", "g")
    page.put("survey_seconds", 0.25)

    assert page.to_bytes().decode().splitlines() == [
        "# HELP tidemill_group_paused 1 while the group is paused; of `other` how many are",
        "# TYPE tidemill_group_paused gauge",
        'tidemill_group_paused{subject="a\\"b",group="g\\\\1"} 1',
        'tidemill_group_paused{subject="c",group="g"} 1',
        "# HELP tidemill_connections Open connections",
        "# TYPE tidemill_connections gauge",
        "tidemill_connections 3",
        "# HELP tidemill_survey_seconds How long the last look at all subjects and groups took, pauses and all",
        "# TYPE tidemill_survey_seconds gauge",
        "tidemill_survey_seconds 0.25",
    ]


def test_a_page_takes_nothing_that_is_not_in_the_table() -> None:
    page = Page(BROKERS, "tidemill_")

    with pytest.raises(KeyError):
        page.put("temperature", 20)
    with pytest.raises(AssertionError, match="group_paused"):
        page.put("group_paused", 1, "a subject alone")


def test_a_value_is_in_the_first_bucket_that_is_not_below_it() -> None:
    powers = Powers(1, 4)
    for value in (1, 2, 3, 4, 5, 8, 9, 1000):
        powers.add(value)
    powers.add(2, 10)

    assert list(powers.buckets()) == [("1", 1), ("2", 12), ("4", 14), ("8", 16), ("+Inf", 18)]
    assert (powers.count, powers.total) == (18, 1 + 2 + 3 + 4 + 5 + 8 + 9 + 1000 + 20)


def test_a_share_of_the_values_is_below_the_bound_of_its_bucket() -> None:
    powers = Powers(0.001, 4)
    assert powers.quantile(0.99) is None
    powers.add(0.001, 98)
    powers.add(0.003)
    assert powers.quantile(0.5) == powers.quantile(98 / 99) == 0.001
    assert powers.quantile(0.99) == powers.quantile(1) == 0.004
    powers.add(9.0, 10)
    assert powers.quantile(0.99) is None, "it is above all bounds"


def test_of_many_the_heaviest_have_names_and_two_of_equal_weight_do_not_take_turns() -> None:
    prominent: Prominent[str] = Prominent(4, 1)
    weights: dict[str, tuple[float, ...]] = {name: (weight,) for weight, name in enumerate("fedcba")}
    assert prominent.choose(weights) == set("abcd")

    weights["e"] = (2.5,)
    assert prominent.choose(weights) == set("abcd"), "it is not among the heaviest two"
    weights["e"] = (9,)
    assert prominent.choose(weights) == set("eabc")


def test_what_the_others_counted_neither_falls_nor_jumps_when_names_change() -> None:
    prominent: Prominent[str] = Prominent(1, 1)
    counts = {"a": 100, "b": 10, "c": 5}
    others: list[int] = []
    for heaviest in ("a", "b", "b", "c", "a"):
        for name, before in list(counts.items()):
            counts[name] = before + 1
            prominent.count(name, (before + 1,))
        others.append(prominent.others[0])
        prominent.choose({name: (float(name == heaviest),) for name in counts})

    assert others[0] == 101 + 11 + 6, "who had no name yet was one of the others"
    assert [after - before for before, after in pairwise(others)] == [2, 2, 2, 2]


def test_who_is_gone_is_forgotten_and_counts_anew_when_it_is_back() -> None:
    prominent: Prominent[str] = Prominent(1, 1)
    prominent.count("a", (7,))
    prominent.count("b", (1,))
    prominent.choose({"b": (1.0,)})
    prominent.count("a", (3,))

    assert prominent.others == [7 + 1 + 3]
