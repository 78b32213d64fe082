"""Messages for later over HTTP: kept by the delay service beside the broker, and given out at their time, once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from e2e.asking import Answered, post, receive, send, texts
from e2e.conftest import wait_for_later
from e2e.queues import Queue

pytestmark = pytest.mark.e2e

MESSAGES = "/v1/subjects/s/messages"


def kept(queue: Queue, body: Any, head: dict[str, str] | None = None) -> list[dict[str, Any]]:
    answered = post(queue, MESSAGES, body, head)
    assert answered.status == 200, answered
    rows: list[dict[str, Any]] = answered.value["messages"]
    return rows


def given(queue: Queue, count: int) -> list[dict[str, Any]]:
    """So many messages, each with when it came, at the earliest."""
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        found = receive(queue, "s", wait_ms=20_000)
        rows += [{**row, "came": datetime.now(UTC)} for row in found]
    return rows


def test_messages_come_at_their_time_and_not_before_with_all_that_belongs_to_them(
    queue_with_later: Queue,
) -> None:
    [tide] = kept(
        queue_with_later,
        {
            "text": "tide", "key": "k", "tags": ["t"], "properties": {"a": 1}, "priority": 3, "order_key": "o",
            "delay": 0.7,
        },
    )  # fmt: skip
    soon = datetime.now(UTC) + timedelta(seconds=1.5)
    several = {"messages": [{"text": "now"}, {"text": "soon", "at": soon.isoformat(timespec="milliseconds")}]}
    now, later = kept(queue_with_later, several)
    [raw] = kept(
        queue_with_later, b"raw", {"Content-Type": "application/octet-stream", "Tidemill-Delay": "300ms"}
    )
    rows = {row["text"]: row for row in given(queue_with_later, 4)}

    assert {text: row["id"] for text, row in rows.items()} == {
        "tide": tide["id"], "now": now["id"], "soon": later["id"], "raw": raw["id"],
    }  # fmt: skip
    for text, sent in (("tide", tide), ("soon", later), ("raw", raw)):
        assert datetime.fromisoformat(sent["due"]) <= rows[text]["came"]
    assert abs(datetime.fromisoformat(later["due"]) - soon) <= timedelta(milliseconds=1)
    wanted = {"key": "k", "tags": ["t"], "properties": {"a": 1}, "priority": 3, "order_key": "o"}
    assert {name: rows["tide"][name] for name in wanted} == wanted


def test_what_is_past_comes_at_once(queue_with_later: Queue) -> None:
    kept(queue_with_later, {"text": "past", "at": "2020-01-01T00:00:00+08:00"})
    assert texts(given(queue_with_later, 1)) == ["past"]


def test_a_request_that_is_repeated_is_kept_once_and_survives_a_kill(queue_with_later: Queue) -> None:
    first = kept(queue_with_later, {"text": "once", "delay": "3s"}, {"Idempotency-Key": "k-1"})
    second = kept(queue_with_later, {"text": "once", "delay": "3s"}, {"Idempotency-Key": "k-1"})
    queue_with_later.kill()
    wait_for_later(queue_with_later.start())
    third = kept(queue_with_later, {"text": "once", "delay": "3s"}, {"Idempotency-Key": "k-1"})
    [row] = given(queue_with_later, 1)

    assert {row["id"], second[0]["id"], third[0]["id"]} == {first[0]["id"]}
    assert row["came"] >= datetime.fromisoformat(first[0]["due"])
    send(queue_with_later, "s", "last")
    assert texts(given(queue_with_later, 1)) == ["last"]


def test_a_broker_without_a_delay_service_says_so(queue: Queue) -> None:
    answered: Answered = post(queue, MESSAGES, {"text": "x", "delay": 5})

    assert (answered.status, answered.code) == (503, "no_delay_service")
    assert answered.value["error"]["retryable"] is True
    assert post(queue, MESSAGES, {"text": "x"}).status == 200
