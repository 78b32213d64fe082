"""`tidemill subjects` and `tidemill groups` are tables for people and lines of JSON for programs."""

import json

import pytest

from tidemill.cli.session import Output
from tidemill.cli.tables import columns_that_fit, print_fields


def test_subjects_are_a_table(command, queue) -> None:
    queue.rows = [
        {"messages": 1_234_567, "name": "orders", "durability": None, "tags": ["a", "b"]},
        {"messages": 3, "name": "audit", "durability": "high", "tags": []},
    ]
    outcome = command("subjects")
    assert outcome.code == 0
    assert outcome.text.splitlines() == [
        "NAME    DURABILITY   MESSAGES  TAGS",
        "orders  -           1,234,567  a, b",
        "audit   high                3  -",
    ]


def test_groups_are_a_table(command, queue) -> None:
    queue.rows = [{"name": "billing", "subject": "orders", "lag": 0, "suspended": False}]
    assert command("groups").text.splitlines() == [
        "NAME     SUBJECT  LAG  SUSPENDED",
        "billing  orders     0  no",
    ]


def test_as_json_a_row_is_an_object_a_line(command, queue) -> None:
    queue.rows = [{"name": "a", "messages": 1}, {"name": "b", "messages": 2}]
    outcome = command("subjects", "--output", "json")
    assert [json.loads(line) for line in outcome.text.splitlines()] == queue.rows


def test_nothing_is_said_on_standard_error(command) -> None:
    outcome = command("groups")
    assert (outcome.code, outcome.out) == (0, b"")
    assert outcome.err.startswith("There are no groups yet")


@pytest.mark.parametrize(
    "width, shown",
    [
        (80, ["group", "subject", "lag", "paused", "body"]),
        (57, ["group", "subject", "lag", "body"]),
        (48, ["group", "subject", "body"]),
        (12, ["group", "body"]),
    ],
)
def test_a_narrow_terminal_is_shown_fewer_columns_and_whole_words(width: int, shown: list[str]) -> None:
    heads = ["group", "subject", "lag", "paused", "body"]
    cells = [["billing", "order.created", "5", "-", "x" * 60], ["mail", "order.created", "70", "-", "y"]]
    assert [heads[at] for at in columns_that_fit(heads, cells, width)] == shown


def test_numbers_that_are_typed_again_have_no_commas(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"pid": 12345, "first_sequence": 67890, "messages": 12345}, Output.TABLE)
    assert capsys.readouterr().out.split() == [
        "pid",
        "12345",
        "first",
        "sequence",
        "67890",
        "messages",
        "12,345",
    ]
