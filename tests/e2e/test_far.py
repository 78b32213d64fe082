"""A failure that is to come again after longer than a broker waits, with a real queue that is killed meanwhile."""

from __future__ import annotations

import asyncio
import time

import pytest

from e2e.conftest import wait_for_later
from e2e.queues import Queue
from tidemill import Client, ClientSettings
from tidemill.far import Far
from tidemill_wire.fields import DEAD_PROPERTY

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

SETTINGS = ClientSettings(send_timeout_s=30, backoff_max_s=0.2)
DELAY_S = 2.5


async def test_it_comes_again_once_and_not_before_with_its_id_and_its_reason(
    queue_with_later: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Far, "beyond_ms", 0)  # a day is too long for a test
    queue = queue_with_later
    async with Client(queue.server, settings=SETTINGS) as mq:
        receipts = [await mq.send("orders", b"%d" % number, key="k") for number in range(3)]
        async with (
            mq.consume("orders", group="g") as messages,
            mq.consume("orders", group="other") as others,
        ):
            due = time.time() + DELAY_S
            for _ in range(3):
                await (await anext(others)).ack()
                assert await (await anext(messages)).nack(delay=DELAY_S, reason="the bank is closed")
            queue.kill()
            await asyncio.to_thread(queue.start)
            await asyncio.to_thread(wait_for_later, queue)
            found = {}
            for _ in range(3):
                message = await anext(messages)
                found[message.id] = message.body, message.attempts, message.key
                assert time.time() >= due
                known = message.properties[DEAD_PROPERTY]
                assert known["reason"] == "the bank is closed"
                await message.ack()
        why = await mq.why(receipts[0].id)
        print(why)
        groups = {row["group"]: row for row in await mq.groups()}

    assert found == {receipt.id: (b"%d" % number, 1, "k") for number, receipt in enumerate(receipts)}
    assert why is not None
    assert (groups["g"]["lag"], groups["other"]["lag"], groups["other"]["dead"]) == (0, 0, 0)
