"""A message as a plain value: for handlers without an event loop, in threads and in other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemill.message import Seen


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """The same names as ``Message`` has, without what settles it."""

    id: str
    subject: str
    sequence: int
    body: bytes
    key: str | None
    tags: frozenset[str]
    properties: Mapping[str, Any]
    attempts: int
    stored_at: datetime
    created_at: datetime
    order_key: str | None = None

    @classmethod
    def of(cls, message: Seen) -> PlainMessage:
        """All of it, looked up now."""
        return cls(
            message.id, message.subject, message.sequence, bytes(message.body), message.key, message.tags,
            message.properties, message.attempts, message.stored_at, message.created_at,
            message.order_key,
        )  # fmt: skip
