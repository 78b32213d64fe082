"""Order keys, logical partitions, and the names of partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import cycle, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_wire.errors import Refused
from tidemill_wire.fields import living_subject, parse_partition, parse_stored, parse_subject
from tidemill_wire.filters import parse_pulled_from, parse_subscribed
from tidemill_wire.ordering import Chart, joined, logical_partition, moved
from tidemill_wire.routes import LOGICAL_PARTITIONS, Partition, PartitionSet

TWO = PartitionSet(1, (Partition("g1", "s", ((0, 512),)), Partition("g2", "s", ((512, 1024),))))
THREE = PartitionSet(
    2,
    (
        Partition("g1", "s", ((0, 342),)),
        Partition("g2", "s", ((512, 853),)),
        Partition("g1", "s#1", ((342, 512), (853, 1024))),
    ),
)


def route_of(edges: set[int], owners: list[int]) -> PartitionSet:
    """The ranges between edges, each of one of a few partitions."""
    spans = list(pairwise(sorted(edges | {0, LOGICAL_PARTITIONS})))
    mine = [
        joined(span for span, owner in zip(spans, cycle(owners)) if owner == number) for number in range(4)
    ]
    return PartitionSet(1, tuple(Partition(f"g{n}", "s", ranges) for n, ranges in enumerate(mine) if ranges))


ROUTES = st.builds(
    route_of,
    st.sets(st.integers(1, LOGICAL_PARTITIONS - 1), max_size=9),
    st.lists(st.integers(0, 3), min_size=1, max_size=9),
)


@pytest.mark.parametrize("written", ["o-{}", "{}", "user:{:08d}", "{}@example.org"])
def test_keys_that_are_numbered_are_spread(written: str) -> None:
    """Nobody chooses keys by chance: also those that count up fill all partitions, about evenly."""
    found = Counter(logical_partition(written.format(number)) for number in range(102_400))

    assert len(found) == LOGICAL_PARTITIONS
    assert min(found.values()) > 30
    assert max(found.values()) < 300


@pytest.mark.parametrize("route", [TWO, THREE])
def test_chart_says_what_the_route_says(route: PartitionSet) -> None:
    chart = Chart(route)

    for logical in range(LOGICAL_PARTITIONS):
        assert route.partitions[chart.place(logical)] is route.of(logical)
    assert chart.of("o-1") is route.of(logical_partition("o-1"))


def test_what_moved_is_what_lies_elsewhere() -> None:
    assert moved(TWO, THREE) == {"g1/s#1": {"g1/s": ((342, 512),), "g2/s": ((853, 1024),)}}
    assert moved(THREE, THREE) == {}


@given(ROUTES, ROUTES)
def test_what_moved_is_found_by_ranges_as_one_by_one(before: PartitionSet, after: PartitionSet) -> None:
    found: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for logical in range(LOGICAL_PARTITIONS):
        was, now = before.of(logical).key, after.of(logical).key
        if was != now:
            found.setdefault(now, {}).setdefault(was, []).append((logical, logical + 1))
    assert moved(before, after) == {
        now: {was: joined(spans) for was, spans in parts.items()} for now, parts in found.items()
    }


def test_ranges_hold_what_they_were_made_of() -> None:
    assert joined([(0, 1), (1, 3), (7, 8), (9, 10), (10, 11)]) == ((0, 3), (7, 8), (9, 11))
    assert joined([]) == ()


@pytest.mark.parametrize("name", ["s", "order.paid#1", "order.paid#9999"])
def test_brokers_take_partitions_of_expanded_subjects(name: str) -> None:
    assert parse_stored(name) == parse_partition(name) == parse_pulled_from(name) == name
    assert parse_partition(f"%lane%3%{name}") == f"%lane%3%{name}"
    assert parse_partition(f"%dead%{name}%g") == f"%dead%{name}%g"


@pytest.mark.parametrize(
    "name", ["#1", "s#", "s#0", "s#01", "s#10000", "s#1#2", "s#x", "s #1", f"{'s' * 101}#1", "%s#1", "s#1*"]
)
def test_other_names_with_a_number_are_refused(name: str) -> None:
    for parse in (parse_stored, parse_partition, parse_pulled_from):
        with pytest.raises(Refused, match="invalid_subject"):
            parse(name)


@pytest.mark.parametrize("parse", [parse_subject, parse_subscribed])
def test_users_cannot_name_a_partition(parse: Callable[[str], str]) -> None:
    with pytest.raises(Refused, match="invalid_subject"):
        parse("order.paid#1")


@pytest.mark.parametrize(
    "name",
    ["order.paid", "order.paid#7", "%lane%5%order.paid#7", "%dead%order.paid#7%g", "%dead%order.paid%g"],
)
def test_users_see_the_subject_they_know(name: str) -> None:
    assert living_subject(name) == "order.paid"
