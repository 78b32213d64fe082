"""Exclusive consumers where meta allots: all broker groups or none, and nothing is begun without an authorisation."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from samples.towns import QUICK, Town
from tidemill import Client, Worker, blocking
from tidemill.testing import running
from tidemill_wire.commands import Ack, Pull, Yield

ALL = ["g0/a", "g1/a"]


async def send(t: Town, mq: Client, *bodies: str, size: int = 9) -> None:
    """They lie on ``g0``, in this order, in batches of a size; the subject lies on both broker groups."""
    t.realm.route("a", "g0")
    for at in range(0, len(bodies), size):
        await mq.send_many("a", bodies[at : at + size])
    t.realm.route("a", "g0", "g1")


def said(t: Town, kind: type[Any], group: str = "g0") -> list[Any]:
    return [command for command in t.places[group].broker.said if isinstance(command, kind)]


def allot(t: Town, version: int, *partitions: str) -> None:
    t.realm.allotted = {"a": (version, list(partitions))}
    t.realm.changed()


async def heard(t: Town, until: Any) -> None:
    """What meta says now has been heard, and acted upon."""
    count = len(t.realm.beats)
    await until(lambda: len(t.realm.beats) >= count + 2)


async def test_nothing_is_pulled_anywhere_before_meta_allots_it(town, until):
    async with town() as t, t.client() as mq:
        await send(t, mq, "1")
        allot(t, 1)
        async with mq.consume("a", group="g", exclusive=True, name="e") as messages:
            await until(lambda: any(beat["consumes"] for beat in t.realm.beats))
            await heard(t, until)
            assert said(t, Pull) == said(t, Pull, "g1") == []

            allot(t, 2, *ALL)
            message = await anext(messages)
            assert message.body == b"1"
        await until(lambda: said(t, Pull, "g1"))
        for group in ("g0", "g1"):
            assert {pull.allocation for pull in said(t, Pull, group)} == {2}

    told = [row for beat in t.realm.beats for row in beat["consumes"]]
    assert {row["consumption"] for row in told} == {"exclusive"}


async def test_message_in_hand_is_settled_before_its_partition_is_let_go_and_nothing_behind_it_is_begun(
    town, until
):
    async with town() as t, t.client() as mq:
        await send(t, mq, "1", "2", "3")
        allot(t, 1, *ALL)
        async with mq.consume("a", group="g", exclusive=True, name="e") as messages:
            assert (await anext(messages)).body == b"1"
            allot(t, 2)
            await until(lambda: messages.allotment.version("a") == 2)
            await heard(t, until)
            assert said(t, Yield) == []
            assert t.realm.beats[-1]["consumes"][0]["allocation"] < 2

            following = asyncio.ensure_future(anext(messages))
            await until(lambda: t.realm.beats[-1]["consumes"][0]["allocation"] == 2)
            kinds = [type(command) for command in t.places["g0"].broker.said]
            assert kinds.index(Ack) < kinds.index(Yield)
            assert not following.done()

            allot(t, 3, *ALL)
            assert (await following).body == b"2"
            assert (await anext(messages)).body == b"3"


@pytest.mark.parametrize("way", ["loop", "batches", "worker"])
async def test_nothing_is_begun_when_the_authorisation_is_over(town, until, way):
    begun: list[bytes] = []
    gate = asyncio.Event()

    async def loop(messages: Any) -> None:
        async for message in messages:
            begun.append(message.body)
            await gate.wait()

    async def by_batch(messages: Any) -> None:
        async for batch in messages.batches():
            begun.extend(batch.bodies)
            await gate.wait()

    worker = Worker()

    @worker.on("a", group="g", concurrency=3, exclusive=True)
    async def handler(message):
        begun.append(message.body)
        await gate.wait()

    async def scenario(t: Town, first: int) -> None:
        await until(lambda: len(begun) == first)
        t.realm.authorised_ms = 0
        await heard(t, until)
        gate.set()
        await heard(t, until)
        assert len(begun) == first
        t.realm.authorised_ms = 60_000
        await until(lambda: len(begun) == 4)

    async with town() as t, t.client() as mq:
        await send(t, mq, "1", "2", "3", "4", size=1 if way == "batches" else 2)
        allot(t, 1, *ALL)
        if way == "worker":
            async with running(worker, mq):
                await scenario(t, 1)
        else:
            async with mq.consume("a", group="g", exclusive=True, name="e") as messages:
                task = asyncio.ensure_future((loop if way == "loop" else by_batch)(messages))
                await scenario(t, 1)
                task.cancel()

    assert begun == [b"1", b"2", b"3", b"4"]


async def test_worker_lets_go_when_its_handler_has_ended(town, until):
    worker, gate, begun = Worker(), asyncio.Event(), list[bytes]()

    @worker.on("a", group="g", concurrency=3, exclusive=True)
    async def handler(message):
        begun.append(message.body)
        await gate.wait()

    async with town() as t, t.client() as mq:
        await send(t, mq, "1", "2")
        allot(t, 1, *ALL)
        async with running(worker, mq):
            await until(lambda: begun)
            allot(t, 2)
            await heard(t, until)
            assert said(t, Yield) == []
            gate.set()
            await until(lambda: t.realm.beats[-1]["consumes"][0]["allocation"] == 2)
            kinds = [type(command) for command in t.places["g0"].broker.said]
            assert kinds.index(Ack) < kinds.index(Yield)

    assert begun == [b"1"]


async def test_blocking_consumer_asks_before_each_message(town, until):
    """Its thread does not look at the loop within a delivery, else."""
    begun: list[bytes] = []
    gate = threading.Event()

    def consume(mq: blocking.Client) -> None:
        with mq.consume("a", group="g", exclusive=True, name="e") as messages:
            for message in messages:
                begun.append(message.body)
                gate.wait()
                if len(begun) == 3:
                    return

    async with town() as t, t.client() as mq:
        await send(t, mq, "1", "2", "3")
        allot(t, 1, *ALL)
        other = t.client()
        with blocking.Client("m1:7401", settings=other.settings) as sync:
            task = asyncio.ensure_future(asyncio.to_thread(consume, sync))
            await until(lambda: begun)
            t.realm.authorised_ms = 0
            await heard(t, until)
            gate.set()
            await heard(t, until)
            assert begun == [b"1"]
            t.realm.authorised_ms = 60_000
            await task

    assert begun == [b"1", b"2", b"3"]


async def test_patterns_are_pulled_from_as_the_brokers_allow(town, until):
    """Meta allots subjects by their names."""
    async with town() as t, t.client() as mq:
        await send(t, mq, "1")
        async with mq.consume("a*", group="g", exclusive=True, name="e") as messages:
            assert messages.allotment is None
            assert (await anext(messages)).body == b"1"

    assert QUICK.pull_wait_ms == max(pull.wait_ms for pull in said(t, Pull))
