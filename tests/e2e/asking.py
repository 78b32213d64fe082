"""HTTP as any program speaks it: a request, and its status, answer and head."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from e2e.queues import Queue

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    value: Any
    head: dict[str, str]

    @property
    def code(self) -> str:
        """The name of the error."""
        return str(self.value["error"]["code"])


def post(
    queue: Queue, path: str, body: Any = None, head: dict[str, str] | None = None, seconds: float = 30
) -> Answered:
    """A body that is no bytes is sent as JSON."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    known = JSON if data is not body else {}
    connection = http.client.HTTPConnection(queue.host, queue.http_port, timeout=seconds)
    try:
        connection.request("POST", path, data, {**known, **(head or {})})
        response = connection.getresponse()
        return Answered(response.status, json.loads(response.read()), dict(response.getheaders()))
    finally:
        connection.close()


def send(queue: Queue, subject: str, *texts: str, key: str = "") -> list[dict[str, Any]]:
    """Ids and sequences of messages that were stored."""
    head = {"Idempotency-Key": key} if key else {}
    answered = post(
        queue, f"/v1/subjects/{subject}/messages", {"messages": [{"text": text} for text in texts]}, head
    )
    assert answered.status == 200, answered
    found: list[dict[str, Any]] = answered.value["messages"]
    return found


def receive(queue: Queue, subject: str, group: str = "g", **more: Any) -> list[dict[str, Any]]:
    """Messages; without ``wait_ms`` those that are there now."""
    path = f"/v1/subjects/{subject}/groups/{group}/receive"
    answered = post(queue, path, {"max": 1000, "wait_ms": 0, **more})
    assert answered.status == 200, answered
    found: list[dict[str, Any]] = answered.value["messages"]
    return found


def settle(
    queue: Queue, subject: str, what: str, rows: list[dict[str, Any]], group: str = "g", **more: Any
) -> Answered:
    """``what`` is ack, nack, extend or release."""
    path = f"/v1/subjects/{subject}/groups/{group}/{what}"
    return post(queue, path, {"receipts": [row["receipt"] for row in rows], **more})


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["text"] for row in rows]
