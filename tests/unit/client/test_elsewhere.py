"""A failure whose broker is away goes with its whole message to another broker of the subject."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from samples.towns import QUICK, both_up
from tidemill import LeaseLost
from tidemill_wire.columns import Batch
from tidemill_wire.commands import Ack, Adopt, Nack

HASTY = replace(QUICK, spool_after_s=0.02, close_timeout_s=0.2)


def adopted(town, group):
    return [said for said in town.places[group].broker.said if isinstance(said, Adopt)]


async def take_of(t, messages, group):
    """The first message that a broker group gives."""
    async for message in messages:
        if message.body in t.stored(group):
            return message
    raise AssertionError(group)


async def test_a_failure_goes_to_another_broker_with_all_of_its_message_and_is_acked_at_its_own(town, until):
    async with town(groups=2) as t, t.client(HASTY) as mq:
        t.realm.route("a", "g0", "g1")
        for place in t.places.values():
            place.broker.patient = True
        sent = await mq.send_many("a", [b"%d" % number for number in range(8)])
        receipt = await mq.send("a", b"whole", key="key", tags={"t"}, properties={"p": [1]})
        assert len(sent) == 8
        await both_up(mq, until, "g0", "g1")
        group, other = ("g0", "g1") if b"whole" in t.stored("g0") else ("g1", "g0")
        async with mq.consume("a", group="g", name="c") as messages:
            async for message in messages:
                if message.body == b"whole":
                    break
            await until(lambda: all(puller.settler.link for puller in messages._brokers))
            await t.places[group].stop()
            await until(lambda: any(puller.settler.link is None for puller in messages._brokers))
            assert await message.nack(delay=7, reason="no amount") is True
            [command] = adopted(t, other)
            assert (command.group, command.subject, command.attempts) == ("g", "a", 0)
            assert (command.delay_ms, command.reason) == (7_000, "no amount")
            batch = Batch(bytearray(command.batch))
            batch.check()
            assert (batch.bodies(), batch.keys(), batch.origins()) == ([b"whole"], ["key"], [receipt.id])
            assert [list(tags) for tags in batch.tags()] == [["t"]]
            assert messages.statistics["adopted"] == 1
            t.places[group].broker.said.clear()
            await t.places[group].start()
            await until(lambda: [one for one in t.places[group].broker.said if isinstance(one, Ack)])
            assert not [one for one in t.places[group].broker.said if isinstance(one, Nack)]


async def test_a_failure_of_the_only_broker_waits_for_it(town, until):
    async with town(groups=1) as t, t.client(HASTY) as mq:
        t.realm.route("a", "g0")
        t.places["g0"].broker.patient = True
        await mq.send("a", b"0")
        async with mq.consume("a", group="g", name="c") as messages:
            message = await anext(messages)
            await t.places["g0"].stop()
            nack = asyncio.ensure_future(message.nack(delay=0, reason="not now"))
            await asyncio.sleep(0)
            t.places["g0"].broker.said.clear()
            await t.places["g0"].start()
            assert await nack is True
            assert [one.reason for one in t.places["g0"].broker.said if isinstance(one, Nack)] == ["not now"]


async def test_a_failure_that_may_have_been_heard_stays_with_its_broker(town, until):
    async with town(groups=2) as t, t.client(HASTY) as mq:
        t.realm.route("a", "g0", "g1")
        for place in t.places.values():
            place.broker.patient = True
        await mq.send("a", b"0")
        await both_up(mq, until, "g0", "g1")
        await mq.send("a", b"1")
        async with mq.consume("a", group="g", name="c") as messages:
            message = await take_of(t, messages, "g0")
            await until(lambda: all(puller.settler.link for puller in messages._brokers))
            place = t.places["g0"]
            place.broker.answers = False
            nack = asyncio.ensure_future(message.nack(reason="heard"))
            await until(lambda: [one for one in place.broker.said if isinstance(one, Nack)])
            await place.stop()
            await until(lambda: any(one.settler._impatient for one in messages._brokers))
            assert adopted(t, "g1") == []
            assert not nack.done()
            place.broker.answers = True
            await place.start()
            with pytest.raises(LeaseLost):  # it was heard, and is so the second time
                await nack


async def test_a_failure_that_another_broker_refuses_is_told_to_its_own(town, until, caplog):
    async with town(groups=2) as t, t.client(HASTY) as mq:
        t.realm.route("a", "g0", "g1")
        for place in t.places.values():
            place.broker.patient = True
        await mq.send("a", b"0")
        await both_up(mq, until, "g0", "g1")
        await mq.send("a", b"1")
        t.places["g1"].broker.adopts = False
        async with mq.consume("a", group="g", name="c") as messages:
            message = await take_of(t, messages, "g0")
            await until(lambda: all(puller.settler.link for puller in messages._brokers))
            await t.places["g0"].stop()
            await until(lambda: any(puller.settler.link is None for puller in messages._brokers))
            nack = asyncio.ensure_future(message.nack(reason="mine"))
            await until(lambda: adopted(t, "g1"))
            await until(lambda: "failure_not_adopted" in caplog.text)
            await t.places["g0"].start()
            assert await nack is True
            assert [one.reason for one in t.places["g0"].broker.said if isinstance(one, Nack)] == ["mine"]
