"""Failures that are to come again after days: with the delay service in the queue in memory, and without one."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

from tidemill import Message, Worker, far
from tidemill.routes import Address
from tidemill.testing import Client, MemoryBroker, running
from tidemill.worker import RetryAfter
from tidemill_wire.batch import Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.lanes import lane_name

AT_MS = 1_800_000_000_000
THREE_DAYS = 3 * 86_400.0
THERE = (Address("d0", "memory", 2),)


def client(attempts_max: int = 32) -> Client:
    return Client(MemoryBroker(attempts_max, now_ms=lambda: AT_MS))


async def test_it_comes_again_to_its_group_alone_then_and_not_before_as_a_further_attempt() -> None:
    async with client() as mq, mq.consume("orders", group="g") as messages:
        async with mq.consume("orders", group="other") as others:
            receipt = await mq.send("orders", b"o", key="k", tags={"t"}, properties={"a": 1}, priority=2)
            await (await anext(others)).ack()
            message = await anext(messages)
            assert await message.nack(delay=THREE_DAYS, reason="closed until then")
            await mq.advance(days=2, hours=23, minutes=59)
            group = mq.broker.groups[lane_name("orders", 2), "g"]
            assert (group.in_flight, len(group.due), group.acked) == (0, 0, 1)
            await mq.advance(minutes=1)
            again = await anext(messages)
            assert not mq.broker.groups[lane_name("orders", 2), "other"].due

    assert (again.id, again.body, again.key, again.tags) == (receipt.id, b"o", "k", {"t"})
    assert (again.attempts, again.priority, again.properties) == (1, 2, {"a": 1})


async def test_properties_that_nobody_can_read_come_along_as_they_are() -> None:
    content = Content([b"o"], properties=[b"\xc1"])
    async with client() as mq, mq.consume("orders", group="g") as messages:
        mq.broker.store(build_batch(Origin(b"orders", 7, 1, bytes(16), AT_MS), content))
        message = await anext(messages)
        with pytest.raises(CorruptBatch):
            message.properties  # noqa: B018
        assert await message.nack(delay=THREE_DAYS, reason="closed until then")
        await mq.advance(days=3)
        again = await anext(messages)

    assert (again.body, again.attempts) == (b"o", 1)


async def test_what_fails_so_again_and_again_is_a_dead_letter_when_its_group_allows_no_more() -> None:
    async with client(attempts_max=3) as mq, mq.consume("orders", group="g") as messages:
        await mq.send("orders", b"o")
        for attempts in range(3):
            message = await anext(messages)
            assert message.attempts == attempts
            await message.nack(delay=THREE_DAYS, reason="closed")
            await mq.advance(days=3)
        [letter] = [letter async for letter in mq.dead_letters("orders", "g")]

    assert (letter.attempts, letter.reason) == (3, "closed")


async def test_a_handler_of_a_worker_may_want_to_be_called_in_a_month() -> None:
    worker, seen = Worker(), list[int]()

    @worker.on("orders", group="g")
    async def charge(message: Message) -> None:
        seen.append(message.attempts)
        if not message.attempts:
            raise RetryAfter(timedelta(days=30).total_seconds(), "the bank is closed")

    async with client() as mq, running(worker, mq) as run:
        await mq.send("orders", b"o")
        await run.idle()
        await run.advance(days=29)
        assert seen == [0]
        await run.advance(days=1)
        assert seen == [0, 1]


async def test_nothing_is_acked_before_the_delay_service_has_it() -> None:
    async with client() as mq, mq.consume("orders", group="g") as messages:
        mq._router.atlas.delays = ()
        await mq.send("orders", b"o")
        message = await anext(messages)
        failing = asyncio.create_task(message.nack(delay=THREE_DAYS))
        await asyncio.sleep(0)
        assert mq.broker.groups["orders", "g"].in_flight == 1
        mq._router.atlas.delays = THERE
        assert await failing
        assert mq.broker.groups["orders", "g"].in_flight == 0
        await mq.advance(days=3)
        assert (await anext(messages)).attempts == 1


async def test_without_a_delay_service_it_waits_for_as_long_as_a_broker_can_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(far, "PATIENCE_S", 0.02)
    async with client() as mq, mq.consume("orders", group="g") as messages:
        mq._router.atlas.delays = ()
        await mq.send("orders", b"o")
        with caplog.at_level(logging.WARNING, "tidemill"):
            assert await (await anext(messages)).nack(delay=THREE_DAYS)
        await mq.advance(hours=23)
        assert not mq.broker.groups["orders", "g"].due
        await mq.advance(hours=1)
        assert (await anext(messages)).attempts == 1

    assert "failure_not_kept orders: no delay service has taken it" in caplog.text


async def test_a_delay_beyond_two_years_is_an_error_and_the_message_stays_in_hand() -> None:
    async with client() as mq, mq.consume("orders", group="g") as messages:
        await mq.send("orders", b"o")
        message = await anext(messages)
        with pytest.raises(ValueError, match="is not within 0 and 63158400"):
            await message.nack(delay=732 * 86_400.0)
        assert await message.ack()
