"""Where a delay service in a cluster brings what is due, as meta's answers say it."""

from __future__ import annotations

import pytest

from tidemill_delay.doors.finding import gone_of, groups_of, rows_of, ways_of
from tidemill_wire.errors import WireError


def route(*partitions: str) -> dict[str, object]:
    """``g1/a#1`` is a further partition of the subject ``a``, on ``g1``."""
    named = [one.partition("/") for one in partitions]
    return {"subject": "a", "partitions": [{"group": group, "name": name or "a"} for group, _, name in named]}


def test_a_subject_is_brought_to_its_own_partitions_that_take_messages_now() -> None:
    assert groups_of(route("g0", "g1", "g2/a#1"), ["g0", "g1", "g2"]) == ["g0", "g1"]
    assert groups_of(route("g0", "g1"), ["g1"]) == ["g1"]


def test_when_none_takes_messages_now_they_are_waited_for() -> None:
    assert groups_of(route("g0", "g1"), []) == ["g0", "g1"]


def test_an_answer_that_is_none_is_an_error_and_no_empty_list() -> None:
    assert rows_of({"brokers": [{"group": "g0"}, 7]}, "brokers") == [{"group": "g0"}]
    for answer in (None, [], {"brokers": "none"}):
        with pytest.raises(ValueError, match="no list of brokers"):
            rows_of(answer, "brokers")


def test_order_keys_go_by_all_versions_of_the_route_the_newest_last() -> None:
    def version(number: int, *ends: int) -> dict[str, object]:
        edges = [0, *ends]
        rows = [
            {"group": f"g{index}", "name": "a", "ranges": [[edges[index], end]]}
            for index, end in enumerate(ends)
        ]
        return {"version": number, "partitions": rows}

    ways = ways_of({"subject": "a", **version(2, 512, 1024), "former": [version(1, 1024)]}, ["g1"])
    assert [[one.group for one in route.partitions] for route in ways.sets] == [["g0"], ["g0", "g1"]]
    assert ways.listed == {"g1"}
    with pytest.raises(WireError, match="a partition has a group"):
        ways_of({"version": 1, "partitions": [{}], "former": []}, [])


def test_subjects_that_meta_calls_unknown_are_gone_and_those_that_it_denies_are_not() -> None:
    refused = [{"subject": "a", "code": "unknown_subject"}, {"subject": "b", "code": "no_broker_group"}]
    assert gone_of({"routes": [], "refused": refused}) == ["a"]
