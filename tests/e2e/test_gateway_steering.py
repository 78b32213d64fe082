"""Whole groups over HTTP: filters, ways to consume, positions and dead letters, as on the data port."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.asking import Answered, post, receive, send, settle, texts
from e2e.queues import Queue, wait_until

pytestmark = pytest.mark.e2e


def steer(queue: Queue, verb: str, body: Any = None, group: str = "g") -> Answered:
    return post(queue, f"/v1/subjects/s/groups/{group}/{verb}", body)


def reject(queue: Queue, rows: list[dict[str, Any]]) -> None:
    receipts = [row["receipt"] for row in rows]
    assert steer(queue, "nack", {"receipts": receipts, "reason": "no use", "reject": True}).status == 200
    wait_until("they are buried", lambda: queue.group("g")["dead"] == len(rows))


def test_redriven_message_looks_as_it_did_and_can_be_settled(queue: Queue) -> None:
    sent = send(queue, "s", "a", "b", "c")
    rows = receive(queue, "s")
    assert steer(queue, "dead/redrive", {"all": True}).value == {"count": 0}
    reject(queue, rows)
    assert steer(queue, "dead/purge", {"sequences": [2, 2]}).value == {"count": 1}
    assert steer(queue, "dead/redrive", {"all": True}).value == {"count": 2}
    assert steer(queue, "dead/redrive", {"all": True}).value == {"count": 0}

    first, second = again = receive(queue, "s")
    assert [(row["id"], row["subject"], row["sequence"]) for row in again] == [
        (row["id"], "s", row["sequence"]) for row in sent[:2]
    ]
    assert settle(queue, "s", "ack", [first]).value == {"count": 1, "lost": []}
    assert settle(queue, "s", "extend", [second]).value == {"count": 1, "lost": []}
    assert settle(queue, "s", "nack", [second], delay_ms=0).value == {"count": 1, "lost": []}
    [third] = receive(queue, "s", wait_ms=5000)
    assert (third["id"], third["attempts"]) == (second["id"], 1)
    new = send(queue, "s", "d")
    rows = receive(queue, "s", wait_ms=5000)
    assert [row["id"] for row in rows] == [new[0]["id"]]
    assert settle(queue, "s", "ack", [third, *rows]).value == {"count": 2, "lost": []}
    row = queue.group("g")
    assert [row[name] for name in ("lag", "in_flight", "failed", "dead", "acked")] == [0, 0, 0, 0, 3]


def test_group_is_given_only_the_tags_it_asks_for(queue: Queue) -> None:
    messages = [{"text": "a", "tags": ["x"]}, {"text": "b", "tags": ["y"]}, {"text": "c", "tags": ["x", "y"]}]
    assert post(queue, "/v1/subjects/s/messages", {"messages": messages}).status == 200

    assert texts(receive(queue, "s", "any", tags=["x"])) == ["a", "c"]
    assert texts(receive(queue, "s", "all", tags=["x", "y"], match="all")) == ["c"]
    assert steer(queue, "receive", {"match": "some"}).code == "malformed_request"


def test_at_most_once_is_given_without_receipts_and_never_again(queue: Queue) -> None:
    send(queue, "s", "a")
    [row] = receive(queue, "s", at_most_once=True)
    assert "receipt" not in row
    assert (queue.group("g")["acked"], queue.group("g")["in_flight"]) == (1, 0)
    assert receive(queue, "s") == []


def test_exclusive_group_waits_for_who_holds_it(queue: Queue) -> None:
    send(queue, "s", "a", "b")
    [first] = receive(queue, "s", consumer="ann", exclusive=True, max=1, wait_ms=5000)
    assert receive(queue, "s", consumer="bob", exclusive=True) == []
    assert steer(queue, "receive", {"tags": ["x"], "consumer": "bob"}).code == "filter_conflict"
    assert settle(queue, "s", "nack", [first], delay_ms=0).status == 200
    assert texts(receive(queue, "s", consumer="ann", exclusive=True, wait_ms=5000)) == ["a", "b"]
    assert steer(queue, "receive", {"exclusive": "yes"}).code == "malformed_request"


def test_receive_in_order_without_a_name_is_refused(queue: Queue) -> None:
    """Those without a name are one consumer, so two programs would hold messages of the group at once."""
    refused = steer(queue, "receive", {"exclusive": True})
    assert (refused.code, refused.status) == ("malformed_request", 400)
    assert receive(queue, "s", consumer="ann", exclusive=True, wait_ms=0) == []

    assert steer(queue, "receive", {}).code == "malformed_request", "the group is in order by now"
    assert steer(queue, "receive", {"consumer": "any"}).code == "malformed_request"


def test_group_is_moved_suspended_and_resumed(queue: Queue) -> None:
    send(queue, "s", "a", "b", "c")
    rows = receive(queue, "s")
    told = {"sequence": 1, "again": 2, "skipped": 0, "in_flight": 3, "failed": 0}
    assert steer(queue, "seek", {"to": 1, "rehearsal": True}).value == told
    assert steer(queue, "seek", {"to": 1}).value == told
    assert settle(queue, "s", "ack", rows).code == "lease_lost"
    assert steer(queue, "suspend").value == {"suspended": True}
    assert receive(queue, "s") == []
    assert steer(queue, "resume", {}).value == {"suspended": False}
    assert texts(receive(queue, "s")) == ["b", "c"]
    for to, sequence in (
        ("latest", 3),
        ("earliest", 0),
        ("2999-01-01T00:00:00Z", 3),
        ("1969-01-01T00:00:00Z", 0),
    ):
        assert steer(queue, "seek", {"to": to}).value["sequence"] == sequence


@pytest.mark.parametrize(
    "verb, body",
    [
        ("seek", {}),
        ("seek", {"to": "noon"}),
        ("seek", {"to": -1}),
        ("seek", {"to": True}),
        ("seek", {"to": 1, "how": "fast"}),
        ("suspend", {"to": 1}),
        ("dead/redrive", {}),
        ("dead/redrive", {"sequences": []}),
        ("dead/purge", {"sequences": [-1]}),
        ("dead/purge", {"sequences": [1], "all": True}),
    ],
)
def test_what_is_not_right_is_refused(shared_queue: Queue, verb: str, body: Any) -> None:
    assert steer(shared_queue, verb, body).code == "malformed_request"


@pytest.mark.parametrize(
    "verb, body", [("seek", {"to": 1}), ("suspend", None), ("dead/purge", {"all": True})]
)
def test_group_that_is_not_there_is_not_found(shared_queue: Queue, verb: str, body: Any) -> None:
    assert steer(shared_queue, verb, body, "nobody").code == "not_found"
