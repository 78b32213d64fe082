"""Moving groups, and the ways of consuming that are not shared: at most once, exclusive, broadcast."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tidemill import LeaseLost, Moved, Refused
from tidemill.blocking import Client as BlockingClient
from tidemill.delivery import REVOKED
from tidemill.memory import MemoryBroker
from tidemill.testing import Client as MemoryClient
from tidemill_wire.commands import Ack, Extend, Nack, Pull, Release
from tidemill_wire.fields import broadcast_group, parse_group
from tidemill_wire.kinds import Mode

NAIVE = datetime.now(UTC).replace(tzinfo=None)


async def take(messages, count):
    taken = []
    async for message in messages:
        taken.append(message)
        if len(taken) == count:
            return taken
    return taken


def sequences(taken):
    return [message.sequence for message in taken]


async def test_group_goes_on_where_it_is_told(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"x"] * 10)
        async with mq.consume("a", group="g") as messages:
            await take(messages, 10)
        assert await mq.seek("a", "g", 4, rehearsal=True) == Moved(4, 6, 0, 0, 0)
        assert await mq.seek("a", "g", 4) == Moved(4, 6, 0, 0, 0)
        async with mq.consume("a", group="g") as messages:
            assert sequences(await take(messages, 6)) == [4, 5, 6, 7, 8, 9]
        assert await mq.seek("a", "g", "earliest") == Moved(0, 10, 0, 0, 0)
        assert await mq.seek("a", "g", "latest") == Moved(10, 0, 10, 0, 0)
        assert (await mq.seek("a", "g", datetime.now(UTC) - timedelta(days=1))).sequence == 0


async def test_what_was_pulled_before_a_seek_is_void_and_not_begun_any_more(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"x"] * 10)
        async with mq.consume("a", group="g") as messages:
            first = await anext(messages)
            assert (await mq.seek("a", "g", "earliest")).in_flight == 10
            with pytest.raises(LeaseLost):
                await first.ack()
            with pytest.raises(LeaseLost):
                await first.extend()  # answered behind the question what else is lost
            assert first._delivery.until == REVOKED
            assert sequences(await take(messages, 10)) == list(range(10))
        assert place.group().acked == 10


async def test_seek_of_an_unknown_group_says_so(serve):
    async with serve() as place, place.client() as mq:
        with pytest.raises(Refused, match="not_found"):
            await mq.seek("a", "nobody", "latest")


@pytest.mark.parametrize("to", ["middle", -1, True, 1.5, NAIVE])
async def test_what_is_no_place_is_refused_before_anything_is_asked(serve, to):
    async with serve() as place, place.client() as mq:
        with pytest.raises(ValueError, match="to"):
            await mq.seek("a", "g", to)


async def test_suspended_group_waits_until_it_is_resumed(serve):
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"1")
        async with mq.consume("a", group="g") as messages:
            await anext(messages)
            await mq.suspend("a", "g")
            await mq.send("a", b"2")
            waiting = asyncio.create_task(anext(messages))
            await mq.send("a", b"3")
            assert not waiting.done()
            await mq.resume("a", "g")
            assert (await waiting).body == b"2"


async def test_at_most_once_says_nothing_of_what_it_was_given(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(5)])
        with pytest.raises(ZeroDivisionError):
            async with mq.consume("a", group="g", at_most_once=True) as messages:
                async for message in messages:
                    await message.nack()
                    raise ZeroDivisionError
        await mq.send("a", b"new")
        async with mq.consume("a", group="g", at_most_once=True) as messages:
            assert (await anext(messages)).body == b"new"
        assert not [said for said in place.broker.said if isinstance(said, Ack | Nack | Release)]


async def test_exclusive_consumers_take_turns(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"x"] * 5)
        async with mq.consume("a", group="g", exclusive=True, name="two") as second:
            async with mq.consume("a", group="g", exclusive=True, name="one") as first:
                one, two = asyncio.create_task(anext(first)), asyncio.create_task(anext(second))
                done, _ = await asyncio.wait((one, two), return_when=asyncio.FIRST_COMPLETED)
                assert len(done) == 1
                winner, waiting = (first, two) if one in done else (second, one)
                assert not waiting.done()
                await winner.close()
                assert (await waiting).sequence == 1


async def test_in_order_what_failed_comes_again_before_what_was_pulled_behind_it(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"x"] * 4)
        await mq.send_many("a", [b"x"] * 4)
        seen = []
        async with mq.consume("a", group="g", exclusive=True) as messages:
            async for message in messages:
                seen.append(message.sequence)
                if seen.count(2) == 1 and message.sequence == 2:
                    await message.nack()
                if message.sequence == 7:
                    break
        assert seen == [0, 1, 2, 2, 3, 4, 5, 6, 7]


async def test_in_order_a_new_connection_begins_with_what_was_not_acked(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"x"] * 6)
        async with mq.consume("a", group="g", exclusive=True) as messages:
            for number in range(3):
                message = await anext(messages)
                assert message.sequence == number
                await message.ack()
            place.drop()
            assert sequences(await take(messages, 3)) == [3, 4, 5]


@pytest.mark.parametrize("ended", [False, True])
async def test_in_order_nothing_is_begun_whose_lease_may_be_over(serve, ended):
    """The consumer asks first; it goes on when it still holds the lease, and else waits to be given it again."""
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"x"] * 3)
        async with mq.consume("a", group="g", exclusive=True) as messages:
            first = await anext(messages)
            if ended:
                member = place.group().members[messages.name]
                place.group().due.extend(member.leases.values())
                member.leases.clear()
            first._delivery.until = 0.0
            second = await anext(messages)
            assert second.sequence == (0 if ended else 1)
            assert (second._delivery is first._delivery) is not ended
        assert any(isinstance(said, Extend) for said in place.broker.said)


async def test_broadcast_reaches_every_consumer_by_its_name(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"x"] * 3)
        for name in ("one", "two"):
            async with mq.consume("a", group="g", broadcast=True, name=name) as messages:
                assert sequences(await take(messages, 2)) == [0, 1]
        assert set(place.broker.groups) == {("a", "g.one"), ("a", "g.two")}
        async with mq.consume("a", group="g", broadcast=True, name="one") as messages:
            assert (await anext(messages)).sequence == 2
        pulls = [said for said in place.broker.said if isinstance(said, Pull)]
        assert {(said.mode, said.base) for said in pulls} == {(Mode.BROADCAST, "g")}


async def test_broadcast_and_exclusive_do_not_go_together(serve):
    async with serve() as place, place.client() as mq:
        with pytest.raises(ValueError, match="exclusive"):
            mq.consume("a", group="g", exclusive=True, broadcast=True)


@pytest.mark.parametrize(
    "group, consumer",
    [
        ("g", "pod-1"),
        ("g" * 100, "pod-1"),
        ("g", "p" * 200),
        ("g", "a/b"),
        ("g", "a:b"),
        ("g" * 60, "p" * 40),
    ],
)
def test_group_of_a_broadcast_consumer_is_a_group_name_and_its_own(group, consumer):
    own = broadcast_group(group, consumer)

    assert parse_group(own) == own
    assert own == broadcast_group(group, consumer)
    assert own != broadcast_group(group, consumer + "x")
    assert own.startswith(group[:50])


def test_blocking_client_moves_groups_too():
    broker = MemoryBroker()
    with BlockingClient(make=lambda: MemoryClient(broker)) as mq:
        mq.send_many("a", [b"x"] * 3)
        with mq.consume("a", group="g", exclusive=True) as messages:
            for message in messages:
                if message.sequence == 2:
                    break
        assert mq.seek("a", "g", 1).again == 2
        mq.suspend("a", "g")
        mq.resume("a", "g")
        with mq.consume("a", group="g", exclusive=True) as messages:
            assert next(iter(messages)).sequence == 1
