"""The HTTP gateway of a real process: what it answers holds after kill -9, too, and what nobody got comes back."""

from __future__ import annotations

import base64
import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.asking import JSON, post, receive, send, settle, texts
from e2e.conftest import MakeQueue
from e2e.queues import Queue, wait_until
from tidemill import blocking
from tidemill_wire import limits

pytestmark = pytest.mark.e2e

GONE_MS = 300


@pytest.fixture
def hasty(make_queue: MakeQueue) -> Queue:
    """A broker that gives up on consumers of closed connections almost at once."""
    return make_queue(settings={"TIDEMILL_CONSUMER_GONE_MS": str(GONE_MS)}).start()


def wait_longer_than_gone() -> None:
    until = time.monotonic() + 4 * GONE_MS / 1000
    while time.monotonic() < until:
        time.sleep(0.05)


def wait_for_consumer(queue: Queue, group: str) -> None:
    wait_until("somebody pulls", lambda: any(row["group"] == group for row in queue.get("/v1/groups")))


def test_message_comes_back_as_it_was_sent(queue: Queue) -> None:
    message = {
        "text": "ünï",
        "key": "k-1",
        "tags": ["b", "a"],
        "properties": {"n": [1, 2.5, None, {"x": "y"}]},
    }
    sent = post(queue, "/v1/subjects/s/messages", message).value["messages"][0]
    [row] = receive(queue, "s", consumer="ann")

    assert {name: row[name] for name in message} == {**message, "tags": ["a", "b"]}
    assert (row["id"], row["sequence"]) == (sent["id"], sent["sequence"])
    assert base64.b64decode(row["body"]).decode() == "ünï"
    assert row["attempts"] == 0


def test_raw_body_and_bytes_come_back_as_bytes(queue: Queue) -> None:
    raw, head = bytes(range(256)), {"Content-Type": "application/octet-stream", "Tidemill-Key": "k"}
    assert post(queue, "/v1/subjects/s/messages", raw, {**head, "Tidemill-Tags": "a, b"}).status == 200
    body = base64.b64encode(raw).decode()
    assert post(queue, "/v1/subjects/s/messages", {"body": body}).status == 200
    rows = receive(queue, "s")

    assert [row["body"] for row in rows] == [body, body]
    assert all("text" not in row for row in rows)
    assert (rows[0]["key"], rows[0]["tags"]) == ("k", ["a", "b"])


def test_the_context_of_a_trace_goes_from_the_head_into_the_properties(queue: Queue) -> None:
    parent, other = (f"00-{4 * digit}-{2 * digit}-01" for digit in ("0af76519", "b7ad6b71"))
    head = {"traceparent": parent, "tracestate": "shop=1"}
    two = {"messages": [{"text": "1"}, {"text": "2", "properties": {"traceparent": other, "n": 1}}]}
    assert (
        post(queue, "/v1/subjects/s/messages", two, {**head, "Content-Type": "application/json"}).status
        == 200
    )
    assert (
        post(
            queue, "/v1/subjects/s/messages", b"3", {**head, "Content-Type": "application/octet-stream"}
        ).status
        == 200
    )
    wrong = {"traceparent": parent.replace("-01", ""), "Content-Type": "application/json"}
    assert post(queue, "/v1/subjects/s/messages", {"text": "4"}, wrong).status == 200

    assert [row["properties"] for row in receive(queue, "s")] == [
        head,
        {"traceparent": other, "n": 1},
        head,
        {},
    ]


def test_client_and_gateway_meet_in_one_queue(queue: Queue) -> None:
    with blocking.Client(queue.server) as mq:
        mq.send("s", b"from the client", key="k", tags={"t"}, properties={"when": 1})
        [row] = receive(queue, "s", wait_ms=5000)
        assert (row["text"], row["key"], row["tags"]) == ("from the client", "k", ["t"])
        assert settle(queue, "s", "ack", [row]).value == {"count": 1, "lost": []}
        send(queue, "s", "from the gateway")
        with mq.consume("s", group="other", start="earliest") as messages:
            found = iter(messages)
            assert [next(found).body for _ in range(2)] == [b"from the client", b"from the gateway"]


def test_acked_is_gone_and_its_receipt_is_of_no_lease(queue: Queue) -> None:
    send(queue, "s", "a", "b", "c")
    rows = receive(queue, "s")
    assert settle(queue, "s", "ack", rows[:2]).value == {"count": 2, "lost": []}
    again = settle(queue, "s", "ack", rows)

    assert (again.status, again.code) == (409, "lease_lost")
    assert (again.value["count"], again.value["lost"]) == (1, [row["receipt"] for row in rows[:2]])
    assert queue.group("g")["acked"] == 3
    assert receive(queue, "s") == []


def test_nack_counts_an_attempt_and_release_does_not(queue: Queue) -> None:
    send(queue, "s", "a", "b")
    rows = receive(queue, "s", consumer="ann")
    assert settle(queue, "s", "nack", rows[:1], delay_ms=0, reason="no paper").status == 200
    assert settle(queue, "s", "release", rows[1:]).status == 200

    again = sorted((row["text"], row["attempts"]) for row in receive(queue, "s", consumer="bob"))
    assert again == [("a", 1), ("b", 0)]


def test_nack_with_a_delay_comes_back_after_it_and_not_before(queue: Queue) -> None:
    send(queue, "s", "a")
    rows = receive(queue, "s")
    began = time.monotonic()
    assert settle(queue, "s", "nack", rows, delay_ms=700).status == 200
    assert receive(queue, "s") == []
    assert texts(receive(queue, "s", wait_ms=5000)) == ["a"]
    assert time.monotonic() - began >= 0.7


def test_lease_needs_no_connection_and_is_renewed_by_extend(hasty: Queue) -> None:
    """The broker would take the messages of a closed connection away after ``GONE_MS``."""
    send(hasty, "s", "a")
    rows = receive(hasty, "s", consumer="ann")
    wait_longer_than_gone()

    assert receive(hasty, "s", consumer="bob") == []
    assert settle(hasty, "s", "extend", rows).value == {"count": 1, "lost": []}
    assert settle(hasty, "s", "ack", rows).value == {"count": 1, "lost": []}


def test_lease_outlives_a_killed_broker_and_its_ack_is_taken(hasty: Queue) -> None:
    send(hasty, "s", "a", "b")
    rows = receive(hasty, "s", consumer="ann")
    hasty.kill()
    hasty.start()
    wait_longer_than_gone()

    assert receive(hasty, "s", consumer="bob") == []
    assert settle(hasty, "s", "ack", rows).value == {"count": 2, "lost": []}


def test_lease_that_ends_gives_the_message_to_somebody_else(make_queue: MakeQueue) -> None:
    queue = make_queue(settings={"TIDEMILL_LEASE_MS": "500"}).start()
    send(queue, "s", "a")
    rows = receive(queue, "s", consumer="ann")
    [row] = receive(queue, "s", consumer="bob", wait_ms=10_000)

    assert (row["text"], row["attempts"]) == ("a", 1)
    assert settle(queue, "s", "ack", rows).code == "lease_lost"


def test_answered_survives_kill_after_kill_and_acked_never_comes_again(queue: Queue) -> None:
    stored: dict[str, int] = {}
    acked: set[str] = set()
    for life in range(3):
        for number in range(10):
            text = f"{life}/{number}"
            stored[text] = send(queue, "s", text)[0]["sequence"]
        rows = receive(queue, "s", consumer=f"c{life}", max=7)
        assert not acked & set(texts(rows))
        assert settle(queue, "s", "ack", rows).status == 200
        acked |= set(texts(rows))
        queue.kill()
        queue.start()
    rows = receive(queue, "s", group="audit")

    assert {row["text"]: row["sequence"] for row in rows} == stored
    assert set(texts(receive(queue, "s"))) == stored.keys() - acked


def test_request_with_a_key_is_stored_once_also_after_a_kill(queue: Queue) -> None:
    first = send(queue, "s", "a", "b", key="order-1")
    send(queue, "s", "c")
    assert send(queue, "s", "a", "b", key="order-1") == first
    queue.kill()
    queue.start()

    assert send(queue, "s", "a", "b", key="order-1") == first
    assert send(queue, "s", "d", key="order-2") != first
    assert texts(receive(queue, "s")) == ["a", "b", "c", "d"]


def test_messages_of_a_poll_whose_client_left_go_to_the_next_at_once(queue: Queue) -> None:
    body = json.dumps({"wait_ms": 30_000, "consumer": "ann"}).encode()
    head = f"POST /v1/subjects/s/groups/g/receive HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection((queue.host, queue.http_port)) as peer:
        peer.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        wait_for_consumer(queue, "g")
    send(queue, "s", "a")
    began = time.monotonic()
    [row] = receive(queue, "s", consumer="bob", wait_ms=10_000)

    assert (row["text"], row["attempts"]) == ("a", 0)
    assert time.monotonic() - began < 5


def test_poll_that_waits_is_told_that_the_broker_stops(queue: Queue) -> None:
    path = "/v1/subjects/s/groups/g/receive"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post, queue, path, {"wait_ms": 30_000})
        wait_for_consumer(queue, "g")
        queue.signal(signal.SIGTERM)
        answered = waiting.result(20)

    assert (answered.status, answered.code) == (503, "shutting_down")
    assert answered.value["error"]["retryable"] is True
    assert int(answered.head["Retry-After"]) >= 1
    assert queue.wait_end() == 0
    assert queue.errors == ""


REFUSED = {
    "a name nobody may have": ("/v1/subjects/a%20b/messages", {"text": "x"}, 400, "invalid_subject"),
    "a group nobody may have": ("/v1/subjects/s/groups/a%2Fb/receive", {}, 400, "invalid_group"),
    "a consumer nobody may have": (
        "/v1/subjects/s/groups/g/receive",
        {"consumer": "a b"},
        400,
        "invalid_consumer",
    ),
    "a key too long": ("/v1/subjects/s/messages", {"text": "x", "key": "k" * 1025}, 400, "limit_exceeded"),
    "a delay and a time": (
        "/v1/subjects/s/messages",
        {"text": "x", "delay": 5, "at": "2027-01-01T09:00:00Z"},
        400,
        "malformed_request",
    ),
    "too far ahead": ("/v1/subjects/s/messages", {"text": "x", "delay": "800d"}, 400, "limit_exceeded"),
    "an unknown field": ("/v1/subjects/s/messages", {"text": "x", "colour": 1}, 400, "malformed_request"),
    "broken JSON": ("/v1/subjects/s/messages", b'{"text": ', 400, "malformed_request"),
    "too deep": ("/v1/subjects/s/messages", b'{"a":' * 100_000, 400, "malformed_request"),
    "a receipt of nobody": ("/v1/subjects/s/groups/g/ack", {"receipts": ["x"]}, 409, "lease_lost"),
    "behind a question mark": ("/v1/subjects/s/messages?a=b", {"text": "x"}, 400, "malformed_request"),
    "much JSON": (
        "/v1/subjects/s/messages",
        b"[" + b"[]," * limits.HTTP_JSON_BYTES_MAX,
        413,
        "body_too_large",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_the_error_and_what_to_do(shared_queue: Queue, name: str) -> None:
    path, body, status, code = REFUSED[name]
    answered = post(shared_queue, path, body, JSON)

    assert (answered.status, answered.code) == (status, code)
    assert answered.value["error"]["detail"]
    assert answered.value["error"]["advice"]
    assert answered.value["error"]["retryable"] is False
    assert shared_queue.errors == ""


def test_body_that_announces_too_much_is_refused_unread(shared_queue: Queue) -> None:
    head = (
        "POST /v1/subjects/s/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 17000000\r\n"
        "Expect: 100-continue\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    with socket.create_connection((shared_queue.host, shared_queue.http_port), timeout=20) as peer:
        peer.sendall(head.encode())
        assert peer.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_form_as_curl_sends_it_is_refused_with_what_to_send(shared_queue: Queue) -> None:
    head = {"Content-Type": "application/x-www-form-urlencoded"}
    answered = post(shared_queue, "/v1/subjects/s/messages", b"text=x", head)

    assert (answered.status, answered.code) == (415, "unsupported_media_type")
    assert "application/json" in answered.value["error"]["advice"]
