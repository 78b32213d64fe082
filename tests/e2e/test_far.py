"""A failure that is to come again after longer than a broker waits, with a real queue that is killed meanwhile."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any

import pytest

from e2e.conftest import wait_for_later
from e2e.queues import Queue
from tidemill import Client, ClientSettings
from tidemill.far import Far
from tidemill_wire.fields import DEAD_PROPERTY

pytestmark = pytest.mark.e2e

SETTINGS = ClientSettings(send_timeout_s=30, backoff_max_s=0.2)
DELAY_S = 2.5


async def told(mq: Client, identity: str) -> list[dict[str, Any]]:
    why = await mq.why(identity)
    assert why is not None
    return list(why["groups"])


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
            [kept] = [one for one in await told(mq, receipts[0].id) if one["group"] == "g"]
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
        came = {one["group"]: one for one in await told(mq, receipts[0].id)}
        groups = {row["group"]: row for row in await mq.groups()}

    assert found == {receipt.id: (b"%d" % number, 1, "k") for number, receipt in enumerate(receipts)}
    assert (kept["state"], kept["attempts"]) == ("kept", 1)
    assert datetime.fromisoformat(kept["until"]).timestamp() >= due
    assert "failed once, kept by the delay service" in kept["sentence"]
    assert [one["what"] for one in came["g"]["events"]] == ["pulled", "kept", "redriven", "pulled", "acked"]
    assert (came["g"]["state"], came["other"]["state"]) == ("acked", "acked")
    assert (groups["g"]["lag"], groups["other"]["lag"], groups["other"]["dead"]) == (0, 0, 0)
