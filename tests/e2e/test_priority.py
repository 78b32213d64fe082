"""Priorities through every door of a real process: command line, client and HTTP; and over a kill -9."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.asking import post, receive, settle, texts
from e2e.queues import Queue, run_command, wait_until
from tidemill import blocking
from tidemill_wire.lanes import first_of_lane

pytestmark = pytest.mark.e2e


def run(queue: Queue, *arguments: str) -> list[str]:
    done = run_command(*arguments, server=queue.server)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.splitlines()


def send(queue: Queue, text: str, priority: int, head: dict[str, str] | None = None) -> dict[str, Any]:
    answered = post(queue, "/v1/subjects/s/messages", {"text": text, "priority": priority}, head)
    assert answered.status == 200, answered
    [row] = answered.value["messages"]
    return dict(row)


def test_the_command_line_sends_with_a_priority_and_is_given_the_highest_first(queue: Queue) -> None:
    run(queue, "send", "s", "plain")
    run(queue, "send", "s", "urgent", "--priority", "7")
    lines = run(queue, "consume", "s", "--group", "g", "--count", "2", "--output", "json")

    assert [(row["body"], row["priority"]) for row in map(json.loads, lines)] == [("urgent", 7), ("plain", 0)]
    refused = run_command("send", "s", "x", "--priority", "8", server=queue.server)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert "use a whole number from 0, which is the default, to 7" in refused.stderr


def test_one_priority_is_for_all_messages_of_an_http_request(queue: Queue) -> None:
    send(queue, "plain", 0)
    many = {"messages": [{"text": "a"}, {"text": "b"}], "priority": 3}
    assert post(queue, "/v1/subjects/s/messages", many).status == 200
    raw = {"Content-Type": "application/octet-stream", "Tidemill-Priority": "6"}
    assert post(queue, "/v1/subjects/s/messages", b"raw", raw).status == 200
    rows = [receive(queue, "s") for _ in range(3)]

    assert [texts(part) for part in rows] == [["raw"], ["a", "b"], ["plain"]]
    assert [{(row["subject"], row["priority"]) for row in part} for part in rows] == [
        {("s", 6)}, {("s", 3)}, {("s", 0)},
    ]  # fmt: skip
    assert settle(queue, "s", "ack", [row for part in rows for row in part]).value == {"count": 4, "lost": []}
    assert (queue.group("g")["acked"], queue.group("g")["lag"]) == (4, 0)


@pytest.mark.parametrize("priority", [8, -1, 1.5, "7", None, True])
def test_another_priority_is_refused_by_its_name_over_http(queue: Queue, priority: object) -> None:
    answered = post(queue, "/v1/subjects/s/messages", {"text": "x", "priority": priority})
    assert (answered.status, answered.code) == (400, "invalid_priority")
    head = {"Content-Type": "application/octet-stream", "Tidemill-Priority": f"{priority}".ljust(2, "x")}
    assert post(queue, "/v1/subjects/s/messages", b"x", head).code == "invalid_priority"


def test_a_redriven_message_keeps_its_priority_and_is_settled_over_http(queue: Queue) -> None:
    sent = send(queue, "urgent", 5)
    with blocking.Client(queue.server) as mq:
        with mq.consume("s", group="g") as messages:
            message = next(iter(messages))
            assert (message.priority, message.sequence) == (5, first_of_lane(5))
            message.nack(reject=True, reason="not here")
        letters = mq.dead_letters("s", "g")
        wait_until("it is buried", lambda: list(mq.dead_letters("s", "g")))
        [letter] = list(letters)
        assert (letter.message.priority, letter.id) == (5, sent["id"])
        assert letters.redrive() == 1

    [row] = receive(queue, "s", wait_ms=5000)
    assert (row["subject"], row["priority"], row["text"]) == ("s", 5, "urgent")
    assert settle(queue, "s", "ack", [row]).value == {"count": 1, "lost": []}


def test_lanes_are_as_they_were_after_a_kill(queue: Queue) -> None:
    """Sent, given out and acked before it: what was not acked comes again, the highest first."""
    with blocking.Client(queue.server) as mq:
        for number in range(20):
            mq.send("s", b"%d" % number, priority=number % 4)
    first = receive(queue, "s", consumer="ann", max=3)
    assert texts(first) == ["3", "7", "11"]
    assert settle(queue, "s", "ack", first).status == 200
    queue.kill()
    queue.start()
    found: list[str] = []
    while part := receive(queue, "s", consumer="ann"):
        found += texts(part)
        assert settle(queue, "s", "ack", part).status == 200

    wanted = [str(number) for priority in (3, 2, 1, 0) for number in range(priority, 20, 4)]
    assert sorted(found, key=int) == sorted(set(wanted) - {"3", "7", "11"}, key=int)
    assert found[:2] == ["15", "19"]
    stored = run(queue, "browse", "s", "--output", "json")
    assert [json.loads(line)["body"] for line in stored] == [
        str(number) for priority in range(4) for number in range(priority, 20, 4)
    ]


def test_why_says_where_a_message_stands_in_its_lane(queue: Queue) -> None:
    send(queue, "first", 2)
    sent = send(queue, "second", 2)
    receive(queue, "s", max=1)

    [standing] = queue.get(f"/v1/messages/{sent['id']}/why")["groups"]
    assert (standing["state"], standing["ahead"]) == ("waiting", 0)
    assert queue.get(f"/v1/messages/{sent['id']}")["priority"] == 2
