"""What tests say to a queue beside the browser: over HTTP, as any program may."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from typing import Any

from e2e.queues import Queue


def post(queue: Queue, path: str, body: object = None) -> Any:
    data = json.dumps({} if body is None else body).encode()
    head = {"Content-Type": "application/json"}
    with queue.open(urllib.request.Request(queue.url(path), data, head)) as answer:
        return json.loads(answer.read())


def send(queue: Queue, subject: str, *texts: str, **more: Any) -> list[str]:
    """The ids."""
    messages = [{"text": text, **more} for text in texts]
    said = post(queue, f"/v1/subjects/{subject}/messages", {"messages": messages})
    return [one["id"] for one in said["messages"]]


def receive(queue: Queue, subject: str, group: str, most: int, consumer: str = "worker-1") -> list[str]:
    """Receipts."""
    asked = {"max": most, "wait_ms": 1000, "consumer": consumer}
    said = post(queue, f"/v1/subjects/{subject}/groups/{group}/receive", asked)
    return [one["receipt"] for one in said["messages"]]


def settle(queue: Queue, subject: str, group: str, what: str, receipts: Sequence[str], **more: Any) -> None:
    post(queue, f"/v1/subjects/{subject}/groups/{group}/{what}", {"receipts": list(receipts), **more})


def bury(queue: Queue, subject: str, group: str, *reasons: str, **more: Any) -> None:
    """A dead letter for each reason."""
    send(queue, subject, *(f"of {number}" for number in range(len(reasons))), **more)
    for receipt, reason in zip(receive(queue, subject, group, len(reasons)), reasons, strict=True):
        settle(
            queue, subject, group, "nack", [receipt], reject=True, reason=reason, error=reason.split(":")[0]
        )


def group_of(queue: Queue, subject: str, group: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = queue.get("/v1/groups")
    [found] = [row for row in rows if (row["subject"], row["group"]) == (subject, group)]
    return found
