"""`tidemill consume` writes messages out before it acknowledges them, and stops when it is told to."""

import json
import signal

import pytest


def test_bodies_are_written_one_a_line(command, queue) -> None:
    queue.add("orders", b"a")
    queue.add("orders", b"\xff")
    outcome = command("consume", "orders", "--count", "2")
    assert (outcome.code, outcome.out, outcome.err) == (0, b"a\n\xff\n", "")


def test_a_line_is_out_before_its_message_is_acknowledged(command, queue) -> None:
    for body in (b"a", b"b", b"c"):
        queue.add("orders", body)
    command("consume", "orders", "--count", "3")
    assert queue.acknowledged == [(0, b"a\n"), (1, b"a\nb\n"), (2, b"a\nb\nc\n")]


def test_no_more_than_count_is_taken(command, queue) -> None:
    for body in (b"a", b"b", b"c"):
        queue.add("orders", body)
    assert command("consume", "orders", "-n", "2").text == "a\nb\n"
    assert [sequence for sequence, _ in queue.acknowledged] == [0, 1]


def test_as_json_a_message_is_an_object(command, queue) -> None:
    queue.add(
        "orders", "é".encode(), key="o-1", tags=frozenset({"b", "a"}), properties={"k": "v"}, attempts=2
    )
    assert json.loads(command("consume", "orders", "--count", "1", "--output", "json").text) == {
        "id": "id-0",
        "subject": "orders",
        "sequence": 0,
        "body": "é",
        "key": "o-1",
        "tags": ["a", "b"],
        "properties": {"k": "v"},
        "priority": 0,
        "attempts": 2,
        "stored_at": "2026-09-01T00:00:00.123Z",
    }


def test_as_json_a_body_that_is_no_text_is_base64(command, queue) -> None:
    queue.add("orders", b"\xff\x00")
    outcome = command("consume", "orders", "--count", "1", "--output", "json")
    assert json.loads(outcome.text)["body"] == {"base64": "/wA="}


def test_several_subjects_a_group_and_a_start_are_asked_for(command, queue) -> None:
    queue.add("b", b"x")
    command("consume", "a", "b", "--group", "billing", "--from", "2026-09-01", "--count", "1")
    assert queue.consumed == {
        "subjects": ["a", "b"],
        "group": "billing",
        "start": 1_788_220_800_000,
        "tags": (),
        "match": "any",
        "name": None,
        "exclusive": False,
        "broadcast": False,
        "at_most_once": False,
    }


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (("--exclusive",), {"exclusive": True}),
        (("--broadcast", "--name", "screen-1"), {"broadcast": True, "name": "screen-1"}),
        (("--at-most-once",), {"at_most_once": True}),
        (("--exclusive", "--at-most-once"), {"exclusive": True, "at_most_once": True}),
    ],
)
def test_a_way_to_consume_is_asked_for(command, queue, options, asked) -> None:
    plain = {"exclusive": False, "broadcast": False, "at_most_once": False, "name": None}
    command("consume", "orders", *options, "--timeout", "0")
    assert {name: queue.consumed[name] for name in plain} == plain | asked


@pytest.mark.parametrize("word", ["earliest", "latest"])
def test_a_start_may_be_a_word(command, queue, word: str) -> None:
    command("consume", "a", "--from", word, "--timeout", "0")
    assert queue.consumed["start"] == word


def test_too_few_messages_in_time_are_a_failure(command, queue) -> None:
    queue.add("orders", b"a")
    outcome = command("consume", "orders", "--count", "2", "--timeout", "0.01")
    assert (outcome.code, outcome.text) == (1, "a\n")
    assert outcome.err == "tidemill: 1 of 2 messages came within 0.01 s: wait longer, or ask for fewer\n"
    assert [sequence for sequence, _ in queue.acknowledged] == [0]


def test_without_a_count_the_end_of_the_time_is_a_success(command, queue) -> None:
    queue.add("orders", b"a")
    assert command("consume", "orders", "--timeout", "0.01").code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_is_a_success(command, queue, number: signal.Signals) -> None:
    queue.add("orders", b"a")
    queue.signal_when_empty = number
    outcome = command("consume", "orders", "--count", "5")
    assert (outcome.code, outcome.text, outcome.err) == (0, "a\n", "")
    assert [sequence for sequence, _ in queue.acknowledged] == [0]


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), "Missing argument"),
        (("%x",), "such names are tidemill's own"),
        (("orders", "--group", "a b"), "is no group name"),
        (("orders", "--from", "yesterday"), "write earliest, latest, or a time such as"),
        (("orders", "--from", "2026-02-30"), "is no place to start"),
        (("orders", "--count", "0"), "--count"),
        (("orders", "--timeout", "-1"), "--timeout"),
        (("orders", "--exclusive", "--broadcast"), "exclude each other: give one of them"),
        (("orders", "--name", "a b"), "is no consumer name"),
    ],
)
def test_a_wrong_command_is_one_sentence_and_exit_code_two(command, queue, arguments, said: str) -> None:
    outcome = command("consume", *arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert queue.consumed == {}
