"""A consumer by the batch."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from tidemill.delivery import Delivery
from tidemill.hands import Who
from tidemill.message import MessageBatch


class Deliveries(Protocol):
    """What a consumer is to whoever takes all of a delivery."""

    async def next_delivery(self, who: Who, *, whole: bool = False) -> Delivery:
        """Ack what is in hand, and take the next in hand."""
        ...


class Batches:
    """Iterates over a consumer by the batch; a whole batch is acked when the next one is asked for."""

    def __init__(self, consumer: Deliveries) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Batches:
        return self

    def __anext__(self) -> Coroutine[Any, Any, MessageBatch]:
        return self._following(asyncio.current_task())

    async def _following(self, who: Who) -> MessageBatch:
        return MessageBatch(await self._consumer.next_delivery(who, whole=True))
