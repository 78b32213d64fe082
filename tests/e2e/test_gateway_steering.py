"""Whole groups over HTTP: filters, ways to consume, positions and dead letters, as on the data port."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.asking import Answered, post, receive, send, settle, texts
from e2e.queues import Queue, wait_until
from tidemill import blocking

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

    refused = steer(queue, "receive", {})
    assert (refused.code, refused.status) == ("wrong_consumption", 409), "the group is in order by now"
    assert steer(queue, "receive", {"consumer": "any"}).code == "wrong_consumption"


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
        ("dead/purge", {"reason": "no", "all": True}),
        ("dead/purge", {"all": True, "rehearsal": True}),
        ("dead/redrive", {"ids": ["7"]}),
        ("dead/redrive", {"from": "noon"}),
        ("dead/redrive", {"reason": 1}),
        ("receive", {"broadcast": True}),
        ("receive", {"broadcast": True, "exclusive": True, "consumer": "ann"}),
        ("receive", {"subjects": "s"}),
        ("receive", {"subjects": [1]}),
        ("nack", {"receipts": ["x"], "error": 1}),
    ],
)
def test_what_is_not_right_is_refused(shared_queue: Queue, verb: str, body: Any) -> None:
    assert steer(shared_queue, verb, body).code == "malformed_request"


@pytest.mark.parametrize(
    "verb, body", [("seek", {"to": 1}), ("suspend", None), ("dead/purge", {"all": True})]
)
def test_group_that_is_not_there_is_not_found(shared_queue: Queue, verb: str, body: Any) -> None:
    assert steer(shared_queue, verb, body, "nobody").code == "not_found"


def test_pattern_and_several_subjects_are_received_together_and_settled_below_their_own(queue: Queue) -> None:
    for subject in ("order.paid", "order.sent", "bill", "other"):
        send(queue, subject, subject)
    rows: list[dict[str, Any]] = []
    while some := receive(queue, "order.*", subjects=["bill", "order.paid"]):
        rows += some
    assert sorted(texts(rows)) == ["bill", "order.paid", "order.sent"]
    for row in rows:
        assert settle(queue, row["subject"], "ack", [row]).value == {"count": 1, "lost": []}
    send(queue, "order.late", "late")
    [late] = receive(queue, "order.*", wait_ms=5000)
    assert (late["subject"], late["text"]) == ("order.late", "late")
    assert settle(queue, "order.paid", "ack", [late]).code == "lease_lost"
    assert settle(queue, "order.late", "ack", [late]).status == 200
    assert post(queue, "/v1/subjects/a*b/groups/g/receive", {}).code == "invalid_subject"
    assert post(queue, "/v1/subjects/a/groups/g/receive", {"subjects": ["a b"]}).code == "invalid_subject"
    assert post(queue, "/v1/subjects/a*/groups/g/ack", {"receipts": ["x"]}).code == "invalid_subject"


def test_each_consumer_of_a_broadcast_is_given_all_and_goes_on_where_it_was(queue: Queue) -> None:
    send(queue, "s", "a", "b")
    path = "/v1/subjects/s/groups/g/receive"
    for name in ("ann", "bob"):
        body = {"broadcast": True, "consumer": name, "wait_ms": 5000, "max": 1}
        answered = post(queue, path, body)
        assert (answered.status, answered.value["group"]) == (200, f"g.{name}")
        assert texts(answered.value["messages"]) == ["a"]
        own = answered.value["group"]
        assert settle(queue, "s", "ack", answered.value["messages"], own).status == 200
        assert texts(post(queue, path, body).value["messages"]) == ["b"]
    with (
        blocking.Client(queue.server) as mq,
        mq.consume("s", group="g", broadcast=True, name="eve") as messages,
    ):
        assert next(iter(messages)).body == b"a"
    rows = {row["group"] for row in queue.get("/v1/groups") if row["subject"] == "s"}
    assert rows == {"g.ann", "g.bob", "g.eve"}


def test_messages_of_an_order_key_come_in_their_order_and_say_it(queue: Queue) -> None:
    rows = [{"text": "1", "order_key": "o"}, {"text": "2", "order_key": "o"}, {"text": "3"}]
    assert post(queue, "/v1/subjects/s/messages", {"messages": rows}).status == 200
    head = {"Content-Type": "application/octet-stream", "Tidemill-Order-Key": "p"}
    assert post(queue, "/v1/subjects/s/messages", b"4", head).status == 200

    given = receive(queue, "s", exclusive=True, consumer="ann", wait_ms=5000)
    given += receive(queue, "s", exclusive=True, consumer="ann")
    assert [(row["text"], row["order_key"]) for row in given] == [
        ("1", "o"),
        ("2", "o"),
        ("3", None),
        ("4", "p"),
    ]
    with blocking.Client(queue.server) as mq, mq.consume("s", group="h") as messages:
        assert [(next(iter(messages)).order_key) for _ in range(2)] == ["o", "o"]
    for wrong in ("", "ü" * 600, 1):
        answered = post(queue, "/v1/subjects/s/messages", {"text": "x", "order_key": wrong})
        assert answered.code == "malformed_request"


def test_mistakes_are_told_apart_by_type_and_place_and_settled_by_what_they_are_like(queue: Queue) -> None:
    sent = send(queue, "s", "a", "b", "c", "d")
    for row, reason, place in zip(
        receive(queue, "s"), ("no 1", "no 2", "no 3", "never"), ("x.py:1 in f", "x.py:9 in f", "y.py:1 in f", ""),
        strict=True,
    ):  # fmt: skip
        more = {"error": "ValueError", "place": place} if place else {}
        assert settle(queue, "s", "nack", [row], reason=reason, reject=True, **more).status == 200
    wait_until("they are buried", lambda: queue.group("g")["dead"] == 4)
    errors = queue.get("/v1/subjects/s/groups/g/dead")["errors"]
    by_place = {one["place"]: one for one in errors if one["error"] == "ValueError"}
    assert sorted(one["messages"] for one in by_place.values()) == [1, 2]
    fingerprint = next(one["fingerprint"] for one in errors if one["messages"] == 2)

    def settled(verb: str, **like: Any) -> int:
        answered = steer(queue, f"dead/{verb}", like)
        assert answered.status == 200, answered
        return int(answered.value["count"])

    assert settled("purge", reason="no ", rehearsal=True) == 3
    assert settled("purge", fingerprint=fingerprint, reason="no 1") == 1
    assert settled("redrive", reason="no ", rehearsal=True) == 2
    assert settled("redrive", to="2000-01-01T00:00:00Z") == 0
    assert settled("redrive", ids=[sent[1]["id"], sent[3]["id"].upper(), sent[0]["id"]]) == 2
    assert sorted(texts(receive(queue, "s", wait_ms=5000))) == ["b", "d"]
    assert settled("purge", **{"from": "2000-01-01T00:00:00Z"}) == 1
    assert queue.group("g")["dead"] == 0
