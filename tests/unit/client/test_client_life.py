"""The loop that a client belongs to, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace

import pytest

from tidemill import BrokerUnreachable, Client, ClientClosed, ClientSettings, blocking, testing
from tidemill.background import Background

SETTINGS = ClientSettings(
    routes_cache=False, send_timeout_s=300.0, close_timeout_s=0.05, backoff_base_s=0.01, backoff_max_s=0.05
)


async def nobody():
    raise BrokerUnreachable("nobody is there")


def lonely() -> Client:
    return Client(fetch=nobody, settings=SETTINGS)


def test_a_client_in_another_event_loop_is_told_so():
    """What it waits for there nobody would ever tell it: the connection, and its answers, are of the first loop."""
    mq = testing.Client()

    async def everything():
        with pytest.raises(ClientClosed, match="belongs to another event loop"):
            await mq.send("a", b"1")
        with pytest.raises(ClientClosed, match="belongs to another event loop"):
            await mq.send_many("a", [b"1"])
        with pytest.raises(ClientClosed, match="belongs to another event loop"):
            async with mq.consume("a", group="g"):
                pass
        with pytest.raises(ClientClosed, match="belongs to another event loop"):
            await mq.close()

    async def first():
        await mq.send("a", b"0")
        found = []
        thread = threading.Thread(target=lambda: found.append(asyncio.run(everything())), daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, 30)
        assert found == [None]
        await mq.send("a", b"2")
        await mq.close()

    asyncio.run(first())
    assert mq.broker.subjects["a"].next_sequence == 2


async def test_a_block_that_is_cancelled_does_not_wait_for_a_broker_that_is_away(caplog):
    """As Ctrl-C does: the send waited for its whole deadline."""
    begun = asyncio.Event()

    async def work():
        async with lonely() as mq:
            begun.set()
            await mq.send("a", b"0")

    task = asyncio.ensure_future(work())
    await begun.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await task


async def test_a_send_without_a_broker_says_once_why_it_waits(caplog, until):
    caplog.set_level(logging.WARNING, "tidemill")
    mq = lonely()
    send = asyncio.ensure_future(mq.send("a", b"0"))
    await until(lambda: mq._router._asked[0] > 0)
    first = mq._router._asked
    await until(lambda: mq._router._asked != first)
    said = [one.getMessage() for one in caplog.records if one.getMessage().startswith("no_broker_yet")]
    assert said == ["no_broker_yet python: nobody is there"]
    mq._hurried = True
    await mq.close()
    with pytest.raises(ClientClosed):
        await send


def test_ctrl_c_in_a_blocking_block_does_not_wait_for_a_broker_that_is_away():
    found = []

    def work():
        with pytest.raises(KeyboardInterrupt), blocking.Client(make=lonely) as mq:
            background, behind = mq._behind()
            asyncio.run_coroutine_threadsafe(behind.send("a", b"0"), background.loop)
            background.run(asyncio.sleep(0))
            raise KeyboardInterrupt
        found.append("left")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)  # a send is tried for five minutes
    assert found == ["left"]


def test_a_call_of_another_thread_ends_when_the_blocking_client_is_closed():
    asked, found = threading.Event(), []

    async def fetch():
        asked.set()
        await asyncio.Event().wait()

    mq = blocking.Client(make=lambda: Client(fetch=fetch, settings=replace(SETTINGS, send_timeout_s=0.05)))

    def ask():
        try:
            mq.groups()
        except ClientClosed as error:
            found.append(str(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    assert asked.wait(30)
    mq.close()
    thread.join(30)
    assert found == ["the client was closed before this call was done"]


def test_what_is_called_after_the_client_was_closed_is_told_so():
    mq = blocking.Client(make=testing.Client)
    mq.send_many("a", [b"0", b"1"])
    with mq.consume("a", group="g") as messages:
        message = next(iter(messages))
        mq.close()
        for call in (message.ack, lambda: mq.send("a", b"1"), lambda: next(messages.batches())):
            with pytest.raises(ClientClosed, match="the client is closed"):
                call()


def test_a_loop_that_was_ended_begins_nothing():
    background = Background()
    background.stop()
    background.stop()
    coroutine = nobody()
    with pytest.raises(ClientClosed, match="the client is closed"):
        background.run(coroutine)
    with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
        coroutine.send(None)
