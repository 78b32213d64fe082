"""Calls that are cut off at whichever await: what nobody saw is acked by nobody, and nothing stays behind."""

from __future__ import annotations

import asyncio

import pytest

from tidemill import consumer
from tidemill.testing import Client, MemoryBroker

PATIENCE_S = 30


async def test_a_timeout_around_the_next_message_loses_none(monkeypatch):
    """A loop that is busy lets others in between two messages, and may be cut off there."""
    monkeypatch.setattr(consumer, "BREATHE_S", 0.0)
    seen, cut = [], 0
    async with Client() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(100)])
        async with mq.consume("a", group="g") as messages:
            while len(seen) < 100:
                try:
                    async with asyncio.timeout(0 if cut <= len(seen) else PATIENCE_S):
                        message = await anext(messages)
                except TimeoutError:
                    cut += 1
                    continue
                seen.append(int(message.body))
    assert seen == list(range(100))
    assert cut > 90


async def test_a_loop_that_is_cut_off_acks_only_what_it_saw(monkeypatch):
    monkeypatch.setattr(consumer, "BREATHE_S", 0.0)
    broker, seen = MemoryBroker(), []
    async with Client(broker) as mq:
        await mq.send_many("a", [b"x"] * 100)
        while len(seen) < 100:
            async with mq.consume("a", group="g") as messages:
                seen.append((await anext(messages)).sequence)
                try:
                    async with asyncio.timeout(0):
                        async for message in messages:
                            seen += [message.sequence]
                except TimeoutError:
                    continue
        await mq.close()
    assert sorted(seen) == list(range(100))
    [group] = broker.groups.values()
    assert (group.acked, group.in_flight) == (100, 0)


@pytest.mark.parametrize("way", ["messages", "batches", "take"])
async def test_who_is_cut_off_while_the_broker_is_asked_finds_the_message_there(way, monkeypatch):
    """A group in order asks whether the lease still runs, and the answer may take its time."""
    async with Client() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(4)])
        async with mq.consume("a", group="g") as messages:
            first = await messages.take() if way == "take" else await anext(messages)
            asked, gate = asyncio.Event(), asyncio.Event()

            async def slow(_delivery):
                asked.set()
                await gate.wait()
                return True

            monkeypatch.setattr(messages, "_may_begin", slow)
            if first._delivery.count > 1:
                first._delivery.until = 0.0
            ask = {"messages": messages.__anext__, "take": messages.take}.get(
                way, messages.batches().__anext__
            )
            asking = asyncio.ensure_future(ask())
            await asked.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            gate.set()
            found = await ask()
            assert b"1" in [bytes(one.body) for one in (found if way == "batches" else [found])]


@pytest.mark.parametrize("turns", range(24))
async def test_a_send_that_is_cut_off_leaves_no_memory_taken(turns):
    """At each turn of the loop: what it holds of the bound, nobody else could have."""
    async with Client() as mq:
        for start in (lambda: mq.send("a", b"x" * 1000), lambda: mq.send_many("a", [b"x" * 1000] * 10)):
            sending = asyncio.ensure_future(start())
            for _ in range(turns):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
        await mq.send("a", b"last")
        producer = mq._producer
        assert producer is not None
        await producer.drain()
        assert producer.budget.held == 0
