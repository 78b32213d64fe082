"""Timers over HTTP: found, listed, cancelled, given another time; and messages that recur."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from e2e.asking import Answered, post, receive, texts
from e2e.conftest import wait_for_later
from e2e.queues import Queue, wait_until

pytestmark = pytest.mark.e2e

MESSAGES, TIMERS = "/v1/subjects/s/messages", "/v1/subjects/s/timers"


def get(queue: Queue, path: str, **asked: object) -> Any:
    """What is answered, an error included."""
    url = f"http://{queue.server}{path}"
    try:
        with urllib.request.urlopen(
            f"{url}?{urllib.parse.urlencode(asked)}" if asked else url, timeout=30
        ) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return json.loads(error.read())


def kept(queue: Queue, body: Any, head: dict[str, str] | None = None) -> list[dict[str, Any]]:
    answered = post(queue, MESSAGES, body, head)
    assert answered.status == 200, answered
    rows: list[dict[str, Any]] = answered.value["messages"]
    return rows


def changed(answered: Answered) -> tuple[int, int]:
    assert answered.status == 200, answered
    return answered.value["changed"], answered.value["gone"]


def all_pages(queue: Queue, **asked: object) -> list[dict[str, Any]]:
    rows, after = list[dict[str, Any]](), None
    while True:
        page = get(queue, TIMERS, **asked, **({} if after is None else {"after": after}))
        rows += page["timers"]
        after = page["after"]
        if after is None:
            return rows


def test_what_waits_is_listed_shown_cancelled_and_moved_by_key_and_by_id(queue_with_later: Queue) -> None:
    queue = queue_with_later
    rows = [{"text": f"{n}", "timer_key": f"order-{n}", "delay": f"{n + 1}h"} for n in range(5)]
    sent = kept(queue, {"messages": rows})
    [raw] = kept(
        queue,
        b"raw",
        {
            "Content-Type": "application/octet-stream",
            "Tidemill-Timer-Key": "bill-1",
            "Tidemill-Delay": "1d",
        },
    )

    assert [row["id"] for row in all_pages(queue, limit=2)] == [row["id"] for row in (*sent, raw)]
    assert [row["timer_key"] for row in all_pages(queue, prefix="bill")] == ["bill-1"]
    assert [row["id"] for row in all_pages(queue, timer_key="order-3")] == [sent[3]["id"]]
    soon = (datetime.now(UTC) + timedelta(hours=2.5)).isoformat(timespec="seconds")
    assert [row["timer_key"] for row in all_pages(queue, to=soon)] == ["order-0", "order-1"]
    assert [row["timer_key"] for row in all_pages(queue, **{"from": soon, "prefix": "order-"})] == [
        "order-2", "order-3", "order-4",
    ]  # fmt: skip
    assert all_pages(queue, recurring="true") == []
    shown = get(queue, f"/v1/timers/{sent[2]['id']}")
    assert (shown["text"], shown["timer_key"], shown["due"]) == ("2", "order-2", sent[2]["due"])

    assert changed(post(queue, f"{TIMERS}/cancel", {"timer_key": "order-0"})) == (1, 0)
    assert changed(post(queue, f"{TIMERS}/cancel", {"timer_key": "order-0"})) == (0, 0)
    for _ in range(2):  # who says it twice is told the same
        assert changed(post(queue, f"/v1/timers/{sent[1]['id']}/cancel")) == (1, 0)
    assert get(queue, f"/v1/timers/{sent[1]['id']}")["error"]["code"] == "not_found"
    assert changed(post(queue, f"/v1/timers/{sent[2]['id']}/reschedule", {"delay": 0})) == (1, 0)
    [row] = receive(queue, "s", wait_ms=20_000)
    assert (row["id"], row["text"]) == (sent[2]["id"], "2")
    assert changed(post(queue, f"/v1/timers/{sent[2]['id']}/cancel")) == (0, 1)
    assert changed(post(queue, f"{TIMERS}/reschedule", {"timer_key": "order-3", "delay": "2d"})) == (1, 0)

    queue.kill()
    wait_for_later(queue.start())
    assert [row["timer_key"] for row in all_pages(queue)] == ["order-4", "bill-1", "order-3"]


def test_what_recurs_is_listed_as_such_and_ends_with_its_timer_key(queue_with_later: Queue) -> None:
    queue = queue_with_later
    report = {
        "text": "daily", "cron": "0 9 * * mon-fri", "time_zone": "Europe/Berlin", "missed": "none",
        "timer_key": "report", "key": "k",
    }  # fmt: skip
    [sent] = kept(queue, report)
    kept(queue, {"text": "once", "timer_key": "once", "delay": "1d"})

    [row] = all_pages(queue, recurring="true")
    assert (row["id"], row["due"], row["timer_key"]) == (sent["id"], sent["due"], "report")
    assert row["cron"] == "0 9 * * mon-fri Europe/Berlin"
    assert [row["timer_key"] for row in all_pages(queue, recurring="false")] == ["once"]
    assert changed(post(queue, f"{TIMERS}/reschedule", {"timer_key": "report", "delay": 0})) == (1, 0)
    assert texts(receive(queue, "s", wait_ms=20_000)) == ["daily"]
    wait_until("its broker has answered", lambda: len(all_pages(queue, recurring="true")) == 1)
    [follower] = all_pages(queue, recurring="true")
    assert follower["id"] != sent["id"]
    assert changed(post(queue, f"{TIMERS}/cancel", {"timer_key": "report"})) == (1, 1)
    assert all_pages(queue, recurring="true") == []


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (MESSAGES, {"text": "", "timer_key": "k"}, "malformed_request"),
        (MESSAGES, {"text": "", "cron": "@daily"}, "malformed_request"),
        (MESSAGES, {"text": "", "cron": "@dayly", "timer_key": "k"}, "malformed_request"),
        (MESSAGES, {"text": "", "cron": "0 0 31 feb *", "timer_key": "k"}, "malformed_request"),
        (
            MESSAGES,
            {"text": "", "cron": "@daily", "timer_key": "k", "time_zone": "Nowhere/Land"},
            "malformed_request",
        ),
        (MESSAGES, {"messages": [{"text": "", "cron": "@daily", "timer_key": "k"}]}, "malformed_request"),
        (f"{TIMERS}/cancel", {}, "malformed_request"),
        (f"{TIMERS}/cancel", {"timer_key": ""}, "malformed_request"),
        (f"{TIMERS}/reschedule", {"timer_key": "k"}, "malformed_request"),
        (f"{TIMERS}/reschedule", {"timer_key": "k", "delay": "800d"}, "limit_exceeded"),
        ("/v1/timers/order-17/cancel", None, "malformed_request"),
        ("/v1/subjects/a%20b/timers/cancel", {"timer_key": "k"}, "invalid_subject"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(shared_queue: Queue, path: str, body: Any, code: str) -> None:
    answered = post(shared_queue, path, body)
    assert (answered.status, answered.code) == (400, code)


def test_a_broker_without_a_delay_service_says_so_and_not_that_there_is_none(shared_queue: Queue) -> None:
    identity = f"{'0' * 32}-0"
    for answered in (
        post(shared_queue, f"{TIMERS}/cancel", {"timer_key": "k"}),
        post(shared_queue, f"/v1/timers/{identity}/reschedule", {"delay": 1}),
    ):
        assert (answered.status, answered.code) == (503, "no_delay_service")
    assert get(shared_queue, TIMERS)["error"]["code"] == "no_delay_service"
    assert get(shared_queue, f"/v1/timers/{identity}")["error"]["code"] == "no_delay_service"
