"""A worker on groups that are consumed in other ways than shared: in order, at most once, broadcast."""

from __future__ import annotations

import asyncio
import threading

import pytest

from samples.handling import counts
from tidemill import Worker
from tidemill.testing import Client, running
from tidemill.worker import HandlerTimeout


async def test_group_in_order_is_handled_one_after_the_other_also_what_fails():
    worker = Worker()
    running_now, order = set(), []

    @worker.on("a", group="g", concurrency=10, exclusive=True, retry_after=0.01)
    async def handler(message):
        assert not running_now
        running_now.add(message.body)
        await asyncio.sleep(0)
        order.append((message.body, message.attempts))
        running_now.discard(message.body)
        if message.body == b"1" and message.attempts < 2:
            raise ValueError

    async with Client() as mq, running(worker, mq) as run:
        await mq.send_many("a", [b"0", b"1", b"2", b"3"])
        while len(order) < 6:
            await run.idle()
    assert order == [(b"0", 0), (b"1", 0), (b"1", 1), (b"1", 2), (b"2", 0), (b"3", 0)]


async def test_thread_that_takes_too_long_holds_up_what_is_in_order():
    worker = Worker()
    gate, late, busy, order = threading.Event(), asyncio.Event(), set(), []

    @worker.on("a", group="g", concurrency=10, exclusive=True, timeout=0.3, retry_after=0)
    def handler(message):
        assert not busy
        busy.add(message.body)
        order.append(message.body)
        if len(order) == 1:
            gate.wait(10)
        busy.discard(message.body)

    @worker.error
    def failed(message, context, error):
        assert isinstance(error, HandlerTimeout)
        late.set()

    async with Client() as mq, running(worker, mq) as run:
        await mq.send_many("a", [b"0", b"1"])
        await late.wait()
        await mq.send("a", b"2")
        assert order == [b"0"]
        gate.set()
        await run.idle()
    assert order == [b"0", b"0", b"1", b"2"]


async def test_at_most_once_is_not_tried_again():
    worker = Worker()
    seen = []

    @worker.on("a", group="g", at_most_once=True)
    async def handler(message):
        seen.append(message.body)
        raise ValueError

    async with Client() as mq, running(worker, mq) as run:
        await mq.send("a", b"0")
        await run.idle()
    assert (seen, counts(worker)) == ([b"0"], {"failed": 1})


def test_broadcast_needs_a_name_that_stays():
    worker = Worker()
    with pytest.raises(ValueError, match="name that stays"):
        worker.on("a", group="g", broadcast=True)(print)
    worker.on("a", group="g", broadcast=True, name="here")(lambda message: None)
    assert worker.handlers[0].subscription.of_consumer("here").group == "g.here"
