"""What is left on a broker, as it is told and read: in words, and by nobody who says something else."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill_wire.errors import Refused
from tidemill_wire.leftovers import (
    UNDONE,
    Leftover,
    Undone,
    groups_by_subject,
    has_begun,
    parse_leftovers,
)

COUNTS = dict.fromkeys(UNDONE, 0)
ROW = Leftover(
    "s", (Undone("g", "s#1", COUNTS | {"lag": 1_200, "dead": 3}),), 1, 2, 3, 4_000, ("g", "told.x")
)


def test_what_is_told_is_read() -> None:
    body = {"epoch": 7, "subjects": [ROW.to_map(), Leftover("t").to_map()]}

    assert parse_leftovers(body) == (7, (ROW, Leftover("t")))


def without(row: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != field}


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "",
        {},
        {"subjects": []},
        {"epoch": 1},
        {"epoch": 1, "subjects": {}},
        {"epoch": -1, "subjects": []},
        {"epoch": 1, "subjects": [7]},
        *({"epoch": 1, "subjects": [without(ROW.to_map(), name)]} for name in ROW.to_map()),
        {"epoch": 1, "subjects": [ROW.to_map() | {"begun": [1]}]},
        {"epoch": 1, "subjects": [ROW.to_map() | {"unarchived": -1}]},
        {"epoch": 1, "subjects": [ROW.to_map() | {"undone": [{"group": "g", "partition": "s", "lag": 1}]}]},
    ],
)
def test_what_says_something_else_is_refused(body: object) -> None:
    """Were a part of it passed over, the broker would look emptier than it is."""
    with pytest.raises(Refused):
        parse_leftovers(body)


def test_it_is_said_in_words() -> None:
    assert list(ROW.sentences()) == [
        "g of s#1: 1,200 to consume, 3 dead letters",
        "1 message of s in transactions that nobody has decided",
        "2 messages of s that slaves do not have yet",
        "3 messages of s that no archive has",
    ]
    assert next(ROW.sentences(("lag",))) == "g of s#1: 1,200 to consume"
    assert list(Leftover("s", (Undone("g", "s", COUNTS),), kept=3).sentences()) == []


def test_groups_that_have_never_begun_lack_all_that_is_kept() -> None:
    assert list(ROW.late(["g", "told", "late"])) == [
        "late of s: 4,000 messages that it has not begun with"
    ], "a broadcast consumer of told has begun"
    assert list(Leftover("s").late(["late"])) == []


def test_a_group_has_begun_with_a_broadcast_consumer_of_its_own_and_no_other() -> None:
    assert has_begun("g", {"g"})
    assert has_begun("g", {"g.host-1"})
    assert not has_begun("g", {"g2", "gg.host"})


def test_what_was_found_of_a_subject_is_added_up() -> None:
    more = Leftover("s", (Undone("h", "s", COUNTS),), 10, 20, 30, 40)

    both = ROW.plus(more)

    assert (both.pending, both.hidden, both.unarchived, both.kept) == (11, 22, 33, 4_040)
    assert [one.group for one in both.undone] == ["g", "h"]


def test_groups_are_listed_by_their_subjects() -> None:
    rows = [{"subject": "s", "group": "a"}, {"subject": "s", "group": "b"}, {"subject": "t", "group": "a"}]

    assert groups_by_subject(rows) == {"s": ["a", "b"], "t": ["a"]}
