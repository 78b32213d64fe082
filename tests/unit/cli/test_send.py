"""`tidemill send` stores what it is given and prints the ids."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidemill.cli import lines as lines_module
from tidemill.cli.lines import chunks_of_lines
from tidemill_wire.limits import MESSAGE_BYTES_MAX


def test_a_body_on_the_command_line_is_sent(command, queue) -> None:
    outcome = command("send", "orders", "hello")
    assert (outcome.code, outcome.text, outcome.err) == (0, "id-0\n", "")
    assert queue.messages[0].body == b"hello"


def test_standard_input_is_sent_as_one_message(command, queue) -> None:
    command("send", "orders", stdin=b"a\nb\n\xff")
    assert [message.body for message in queue.messages] == [b"a\nb\n\xff"]


def test_an_empty_body_is_a_message(command, queue) -> None:
    assert command("send", "orders", "").code == 0
    assert queue.messages[0].body == b""


def test_a_dedup_key_is_sent_along_with_one_message_and_a_duplicate_is_said(command, queue) -> None:
    command("send", "orders", "x", "--dedup-key", "o-1")
    known = command("send", "orders", "x", "--dedup-key", "known", "--output", "json")
    assert [message.dedup_key for message in queue.messages] == ["o-1", "known"]
    assert json.loads(known.text)["duplicate"] is True


def test_a_dedup_key_for_many_lines_is_refused(command, queue) -> None:
    outcome = command("send", "orders", "--lines", "-", "--dedup-key", "o-1", stdin=b"a\nb\n")
    assert outcome.code == 2
    assert "--dedup-key names one message" in outcome.err
    assert queue.messages == []


def test_key_tags_and_properties_are_sent_along(command, queue) -> None:
    command("send", "orders", "x", "--key", "o-1", "--tag", "a", "--tag", "b", "--property", "k=v=w")
    message = queue.messages[0]
    assert (message.key, message.tags, message.properties) == ("o-1", {"a", "b"}, {"k": "v=w"})


def test_a_priority_is_sent_along_with_one_message_and_with_lines(command, queue) -> None:
    command("send", "orders", "x", "--priority", "7")
    command("send", "orders", "--lines", "-", "--priority", "3", stdin=b"a\nb\n")
    assert [message.priority for message in queue.messages] == [7, 3, 3]


def test_as_json_a_receipt_is_an_object(command) -> None:
    outcome = command("send", "orders", "x", "--output", "json")
    assert json.loads(outcome.text) == {"id": "id-0", "subject": "orders", "sequence": 0}


def test_a_file_is_sent_as_it_is(command, queue, tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b"a\nb\n")
    command("send", "orders", "--file", str(path))
    assert queue.messages[0].body == b"a\nb\n"


def test_every_line_of_a_file_is_a_message(command, queue, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\n\nc\r\nlast")
    outcome = command("send", "orders", "--lines", str(path))
    assert [message.body for message in queue.messages] == [b"a", b"", b"c\r", b"last"]
    assert outcome.text.split() == ["id-0", "id-1", "id-2", "id-3"]


def test_lines_may_come_from_standard_input(command, queue) -> None:
    command("send", "orders", "--lines", "-", stdin=b"a\nb\n")
    assert [message.body for message in queue.messages] == [b"a", b"b"]


def test_order_key_is_sent_along(command, queue) -> None:
    command("send", "orders", "x", "--order-key", "o-1")
    command("send", "orders", "--lines", "-", "--order-key", "o-2", stdin=b"a\nb\n")
    assert [message.order_key for message in queue.messages] == ["o-1", "o-2", "o-2"]


def test_key_tags_and_properties_are_for_every_line(command, queue) -> None:
    command("send", "orders", "--lines", "-", "--tag", "a", "--key", "k", stdin=b"a\nb\n")
    assert [(message.body, message.key, message.tags) for message in queue.messages] == [
        (b"a", "k", {"a"}),
        (b"b", "k", {"a"}),
    ]


def test_many_lines_are_sent_in_bounded_chunks(command, queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "CHUNK_LINES", 2)
    outcome = command("send", "orders", "--lines", "-", stdin=b"a\nb\nc\nd\ne\n")
    assert len(outcome.text.splitlines()) == len(queue.messages) == 5


def test_lines_of_a_pipe_are_sent_as_they_come() -> None:
    async def follow() -> None:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as source:
            chunks = chunks_of_lines(source)
            os.write(writing, b"a\nb")
            assert await anext(chunks) == [b"a"]
            os.write(writing, b"c\nlast")
            assert await anext(chunks) == [b"bc"]
            os.close(writing)
            assert [chunk async for chunk in chunks] == [[b"last"]]

    asyncio.run(follow())


def test_a_line_over_the_largest_message_is_refused_by_its_number(command, queue) -> None:
    outcome = command(
        "send", "orders", "--lines", "-", stdin=b"a\n" + b"x" * (MESSAGE_BYTES_MAX + 1) + b"\nb\n"
    )
    assert outcome.code == 1
    assert outcome.err.startswith(f"tidemill: line 2 is over {MESSAGE_BYTES_MAX} bytes")


def test_a_body_over_the_largest_message_is_refused_before_it_is_sent(command, queue, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(MESSAGE_BYTES_MAX + 1))
    outcome = command("send", "orders", "--file", str(path))
    assert outcome.code == 1
    assert f"over {MESSAGE_BYTES_MAX} bytes" in outcome.err
    assert queue.messages == []


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("orders",), "nothing to send"),
        (("orders", "x", "--file", "y"), "exclude each other"),
        (("orders", "x", "--property", "novalue"), "write NAME=VALUE"),
        (("orders", "x", "--priority", "8"), "'8' is no priority: use a whole number from 0"),
        (("orders", "x", "--priority", "high"), "--priority"),
        (("orders", "--file", "/nowhere/at/all"), "cannot be read (No such file or directory)"),
        (("%dead%orders%g", "x"), "such names are tidemill's own"),
        (("o" * 101, "x"), "(101 characters)' is no subject name"),
        (("a subject", "x"), "use 1 to 100 characters of A-Z a-z 0-9 . _ -"),
        (("orders", "x", "--output", "xml"), "--output"),
        ((), "Missing argument"),
    ],
)
def test_a_wrong_command_is_one_sentence_and_exit_code_two(command, queue, arguments, said: str) -> None:
    outcome = command("send", *arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert queue.messages == []


def test_a_delay_or_a_time_is_sent_along_with_one_message_and_with_lines(command, queue) -> None:
    command("send", "orders", "x", "--delay", "1h30m")
    command("send", "orders", "--lines", "-", "--at", "2027-01-01T09:00+08:00", stdin=b"a\nb\n")
    moment = datetime(2027, 1, 1, 1, tzinfo=UTC)
    assert [message.delay for message in queue.messages] == [timedelta(minutes=90), None, None]
    assert [message.at for message in queue.messages] == [None, moment, moment]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--delay", "soon"], "is no duration: write one such as 30s, 90m, 1h30m or 7d"),
        (["--delay", "90"], "is no duration"),
        (["--at", "tomorrow"], "is no time: write one such as 2027-01-01T09:00+08:00"),
        (["--at", "2027-01-01T09:00"], "has no time zone: write it behind the time"),
        (["--delay", "1s", "--at", "2027-01-01T09:00Z"], "exclude each other: give one of them"),
    ],
)
def test_what_is_no_time_is_said_before_anything_is_connected(command, queue, options, sentence) -> None:
    outcome = command("send", "orders", "x", *options)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert queue.messages == []


def test_a_rule_is_sent_along_with_its_message(command, queue) -> None:
    rule = ["--cron", "0 9 * * mon-fri", "--time-zone", "Europe/Berlin", "--missed", "all"]
    command("send", "reports", "x", *rule, "--timer-key", "report")
    [message] = queue.messages
    assert (message.cron, message.time_zone, message.missed) == ("0 9 * * mon-fri", "Europe/Berlin", "all")
    assert message.timer_key == "report"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--cron", "0 9 * *", "--timer-key", "r"], "is no cron expression: write minute, hour"),
        (["--cron", "@daily"], "add --timer-key"),
        (
            ["--cron", "@daily", "--timer-key", "r", "--time-zone", "Nowhere"],
            "there is no time zone 'Nowhere'",
        ),
        (["--cron", "@daily", "--timer-key", "r", "--missed", "some"], "write once, all or none"),
        (["--cron", "@daily", "--timer-key", "r", "--delay", "1s"], "leave out delay and at"),
        (["--missed", "all"], "give cron, too"),
        (["--cron", "0 0 30 feb *", "--timer-key", "r"], "is never: no year has such a day"),
    ],
)
def test_a_mistake_in_a_rule_is_said_before_anything_is_connected(command, queue, options, sentence) -> None:
    outcome = command("send", "reports", "x", *options)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert queue.messages == []


def test_a_rule_is_of_one_message_and_not_of_lines(command, queue) -> None:
    outcome = command(
        "send", "reports", "--lines", "-", "--cron", "@daily", "--timer-key", "r", stdin=b"a\nb\n"
    )
    assert outcome.code == 2
    assert "--cron is of one message" in outcome.err
