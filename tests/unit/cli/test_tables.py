"""`tidemill subjects` and `tidemill groups` are tables for people and lines of JSON for programs."""

import json


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
