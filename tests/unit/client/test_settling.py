"""What becomes of messages: acks, nacks, releases and leases."""

from __future__ import annotations

import asyncio

import pytest

from tidemill import ClientSettings, LeaseLost
from tidemill.delivery import DOUBTFUL, Delivery
from tidemill.settler import BrokerSettler
from tidemill_wire.commands import Ack, Extend, Nack, Pull, Release


async def take(messages, count):
    taken = []
    async for message in messages:
        taken.append(message)
        if len(taken) == count:
            return taken
    return taken


async def test_an_exception_nacks_the_current_message_with_its_reason(serve):
    async with serve() as place:
        async with place.client() as mq:
            await mq.send_many("a", [b"0", b"1", b"2"])
            with pytest.raises(ZeroDivisionError):
                async with mq.consume("a", group="g") as messages:
                    async for message in messages:
                        if message.sequence == 1:
                            raise ZeroDivisionError("boom")
            nacks = [said for said in place.broker.said if isinstance(said, Nack)]
            assert [(nack.ranges, nack.reason) for nack in nacks] == [([1, 1], "ZeroDivisionError: boom")]
            assert place.group().acked == 1
            async with mq.consume("a", group="g") as messages:
                again = {message.sequence: message.attempts for message in await take(messages, 2)}
            assert again == {1: 1, 2: 0}


async def test_a_cancelled_handler_gives_its_message_back_and_costs_no_attempt(serve):
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"0")
        begun = asyncio.Event()

        async def handle() -> None:
            async with mq.consume("a", group="g") as messages:
                async for _ in messages:
                    begun.set()
                    await asyncio.Event().wait()

        task = asyncio.ensure_future(handle())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        async with mq.consume("a", group="g") as messages:
            assert (await anext(messages)).attempts == 0


async def test_an_awaited_ack_is_known_to_the_broker_when_it_returns(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"0", b"1"])
        async with mq.consume("a", group="g") as messages:
            async for message in messages:
                await message.ack()
                await message.ack()
                assert place.group().acked == message.sequence + 1
                if message.sequence == 1:
                    break
        assert place.group().acked == 2
        ended = dict.fromkeys(("waiting", "lost", "corrupt", "filtered", "mismatched", "adopted"), 0)
        assert messages.statistics == {"received": 2, **ended}


async def test_a_nacked_message_comes_again_and_the_others_are_acked(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"0", b"1", b"2"])
        seen = []
        async with mq.consume("a", group="g") as messages:
            async for message in messages:
                seen.append((message.sequence, message.attempts))
                if message.sequence == 1 and message.attempts == 0:
                    await message.nack(delay=0, reason="not now")
                if len(seen) == 4:
                    break
        assert seen == [(0, 0), (1, 0), (2, 0), (1, 1)]
        assert place.group().acked == 3


@pytest.mark.parametrize("delay", [-1, 10**9])
async def test_a_delay_that_no_broker_takes_is_refused_here(serve, delay):
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"0")
        async with mq.consume("a", group="g") as messages:
            with pytest.raises(ValueError, match="delay"):
                await (await anext(messages)).nack(delay=delay)


async def test_of_a_batch_single_messages_may_be_settled_by_hand(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(10)])
        async with mq.consume("a", group="g") as messages:
            batch = await anext(messages.batches())
            await batch[3].nack(delay=0)
            await batch[5].ack()
            await batch.ack()
            assert place.group().acked == 9
            assert (await anext(messages)).sequence == 3


async def test_an_exception_nacks_the_whole_batch_in_hand(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(10)])
        with pytest.raises(RuntimeError):
            async with mq.consume("a", group="g") as messages:
                async for batch in messages.batches():
                    await batch[0].ack()
                    raise RuntimeError("no")
        assert place.group().acked == 1
        assert sorted(attempts for _, attempts in place.group().due) == [1] * 9


async def test_what_was_pulled_and_not_begun_is_released_on_leaving(serve):
    async with serve() as place:
        async with place.client() as mq:
            for _ in range(10):
                await mq.send_many("a", [b"x"] * 20)
            async with mq.consume("a", group="g") as messages:
                await anext(messages)
            held = [member.leases for member in place.group().members.values()]
            assert held == [{}]
            assert any(isinstance(said, Release) for said in place.broker.said)
            assert all(attempts == 0 for _, attempts in place.group().due)
            assert place.group().acked == 1


async def test_acks_gather_while_pulls_follow_each_other(serve, until):
    async with serve() as place:
        async with place.client(settings=ClientSettings(ack_linger_ms=60_000)) as mq:
            async with mq.consume("a", group="g") as messages:
                for number in range(3):
                    await mq.send("a", b"%d" % number)
                    await anext(messages)
                assert not [said for said in place.broker.said if isinstance(said, Ack)]
                assert len([said for said in place.broker.said if isinstance(said, Pull)]) > 3
            await until(lambda: place.group().acked == 3)
        assert len([said for said in place.broker.said if isinstance(said, Ack)]) == 1


async def test_acks_leave_soon_though_nothing_is_pulled(serve, until):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"0", b"1"])
        async with mq.consume("a", group="g") as messages:
            await take(messages, 2)
            await until(lambda: place.group().acked >= 1)


async def test_an_ack_whose_lease_is_gone_says_so(serve):
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"0")
        async with mq.consume("a", group="g") as messages:
            message = await anext(messages)
            place.group().members[messages.name].leases.clear()
            with pytest.raises(LeaseLost):
                await message.extend()
            with pytest.raises(LeaseLost):
                await message.ack()
            assert messages.statistics["lost"] == 2


async def test_leases_are_renewed_while_the_consumer_lives(serve, monkeypatch, until):
    monkeypatch.setattr("tidemill.memory.LEASE_MS", 30)
    async with serve() as place:
        async with place.client() as mq:
            await mq.send_many("a", [b"0", b"1", b"2"])
            async with mq.consume("a", group="g") as messages:
                await anext(messages)
                await (await anext(messages)).ack()
                await until(lambda: any(isinstance(said, Extend) for said in place.broker.said))
    extended = next(said for said in place.broker.said if isinstance(said, Extend))
    assert extended.ranges in ([0, 2], [1, 2], [2, 2], [0, 0, 2, 2])


async def test_a_corrupt_batch_is_nacked_and_the_loop_goes_on(serve, until):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"bad" * 100] * 3)
        await mq.send("a", b"good")
        stored = place.broker.subjects["a"].batches
        stored[0] = stored[0][:-20] + b"?" * 20
        async with mq.consume("a", group="g") as messages:
            assert (await anext(messages)).body == b"good"
            await until(lambda: messages.statistics["corrupt"] >= 3)


@pytest.mark.parametrize("place", [8, 15, 31])
async def test_a_batch_whose_stamp_is_damaged_is_not_taken_for_other_messages(serve, until, place):
    """Its first sequence says which of its messages are granted: they would be acked without having been seen."""
    async with serve() as site, site.client() as mq:
        await mq.send_many("a", [b"bad"] * 10)
        await mq.send("a", b"good")
        stored = site.broker.subjects["a"].batches
        stored[0] = stored[0][:place] + bytes([stored[0][place] ^ 1]) + stored[0][place + 1 :]
        async with mq.consume("a", group="g") as messages:
            await until(lambda: messages.statistics["corrupt"] >= 10)
            assert site.group().acked == 0


async def test_a_renewal_that_waits_for_a_broker_keeps_nothing_of_a_group_in_order():
    """Kept, it would be given out neither here nor elsewhere until its lease ends, and what is behind it would."""
    settler = BrokerSettler("g", "c", ClientSettings())
    settler.ordered = True
    delivery = Delivery("a", 0, 100, (memoryview(b""), 0, 3))
    delivery.settler = settler
    settler.outstanding[delivery] = None
    settler.renew()

    settler.begin_anew()

    assert settler.held() == []


async def test_what_is_given_back_while_its_broker_is_asked_is_asked_for_no_more(serve, monkeypatch):
    """There is nothing left to name: the broker would refuse that as no command at all, and a worker end by it."""
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"0")
        async with mq.consume("a", group="g") as messages:
            delivery = (await messages.take())._delivery
            delivery.until = DOUBTFUL
            asked: list[list[int]] = []

            async def extend(_subject: str, ranges: list[int]) -> None:
                assert not asked
                asked.append(ranges)
                delivery.settle(0, 0)

            monkeypatch.setattr(delivery.settler, "extend", extend)

            assert await messages._rest_of(delivery, 0) is None
            assert asked == [[0, 0]]
