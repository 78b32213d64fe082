"""Filters as a program sees them: tags, functions, patterns; what is not shown is acked and counted."""

from __future__ import annotations

import pytest

from tidemill import Client
from tidemill.blocking import Client as BlockingClient
from tidemill.errors import Refused
from tidemill.testing import Client as MemoryClient
from tidemill_wire.batch import Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Ack, Nack
from tidemill_wire.ranges import count_of


async def take(messages, count: int) -> list[bytes]:
    found = []
    async for message in messages:
        found.append(message.body)
        if len(found) == count:
            break
    return found


async def send_numbers(mq: Client, subject: str = "a", count: int = 10) -> None:
    """The even ones are of the tag even, those that three divides of the tag three."""
    for number in range(count):
        tags = {name for name, divisor in (("even", 2), ("three", 3)) if number % divisor == 0}
        await mq.send(subject, b"%d" % number, tags=tags)


@pytest.mark.parametrize(
    "tags, match, expected",
    [({"even"}, "any", "02468"), ({"even", "three"}, "any", "0234689"), ({"even", "three"}, "all", "06")],
)
async def test_only_messages_with_the_tags_come(tags, match, expected) -> None:
    async with MemoryClient() as mq:
        await send_numbers(mq)
        async with mq.consume("a", group="g", tags=tags, match=match) as messages:
            assert await take(messages, len(expected)) == [digit.encode() for digit in expected]


async def test_filter_that_says_no_acks_the_message_unseen(serve, until) -> None:
    async with serve() as place:
        mq = place.client()
        await mq.send_many("a", [b"%d" % number for number in range(10)])
        async with mq.consume("a", group="g", filter=lambda message: message.sequence % 2 == 1) as messages:
            assert await take(messages, 5) == [b"1", b"3", b"5", b"7", b"9"]
            await until(lambda: place.group().acked == 9)
            assert messages.statistics["filtered"] == 5
        assert place.group().acked == 10
        assert not [command for command in place.broker.said if isinstance(command, Nack)]
        await mq.close()


async def test_all_filters_of_a_chain_must_say_yes_and_the_first_no_ends_it() -> None:
    asked: list[int] = []

    def small(message) -> bool:
        return message.sequence < 4

    def noted(message) -> bool:
        asked.append(message.sequence)
        return message.sequence != 2

    async with MemoryClient() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(10)])
        async with mq.consume("a", group="g", filter=[small, noted]) as messages:
            assert await take(messages, 3) == [b"0", b"1", b"3"]
    assert asked == [0, 1, 2, 3]


async def test_filter_that_raises_nacks_its_message_and_the_exception_reaches_the_loop(serve, until) -> None:
    def fails(message) -> bool:
        if message.body == b"2":
            raise ValueError("no such customer")
        return True

    async with serve() as place:
        mq = place.client()
        await mq.send_many("a", [b"%d" % number for number in range(5)])
        found = []
        with pytest.raises(ValueError, match="no such customer"):
            async with mq.consume("a", group="g", filter=fails) as messages:
                async for message in messages:
                    found += [message.body]
        assert found == [], "the loop ends at once; what was sifted is given back"
        nacks = [command for command in place.broker.said if isinstance(command, Nack)]
        assert [last - first for first, last in [nack.ranges for nack in nacks]] == [0]
        await until(lambda: not any(member.leases for member in place.group().members.values()))
        assert place.group().acked == 0
        await mq.close()


async def test_texts_are_compared_where_hashes_were_alike(serve, until, monkeypatch) -> None:
    """A broker that takes one tag for another: the client acks what does not match, and counts it."""
    from tidemill import memory

    monkeypatch.setattr(
        memory, "next_wanted", lambda batch, begin, span, wanted: (span[0], span[1] - span[0])
    )
    async with serve() as place:
        mq = place.client()
        await send_numbers(mq)
        async with mq.consume("a", group="g", tags={"even"}) as messages:
            assert await take(messages, 5) == [b"0", b"2", b"4", b"6", b"8"]
            await until(lambda: place.group().acked == 8)
            assert messages.statistics["mismatched"] == 4
        await mq.close()


async def test_batches_hold_only_what_is_shown() -> None:
    async with MemoryClient() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(6)])
        async with mq.consume(
            "a", group="g", filter=lambda message: message.sequence not in (2, 3)
        ) as messages:
            found = []
            async for batch in messages.batches():
                found.append((batch.bodies, batch.sequences, batch.first_sequence))
                if len(found) == 2:
                    break
    assert found == [([b"0", b"1"], [0, 1], 0), ([b"4", b"5"], [4, 5], 4)]


async def test_what_was_sifted_and_not_begun_is_given_back(serve) -> None:
    async with serve() as place:
        mq = place.client()
        await mq.send_many("a", [b"%d" % number for number in range(10)])
        async with mq.consume("a", group="g", filter=lambda message: message.sequence != 4) as messages:
            assert await take(messages, 2) == [b"0", b"1"]
        assert not any(member.leases for member in place.group().members.values())
        acked = [command.ranges for command in place.broker.said if isinstance(command, Ack)]
        assert (
            sum(
                last - first + 1
                for ranges in acked
                for first, last in [ranges[at : at + 2] for at in range(0, len(ranges), 2)]
            )
            == 3
        )
        assert sorted(sequence for sequence, _ in place.group().due) == [2, 3, 5, 6, 7, 8, 9]
        await mq.close()


async def test_pattern_takes_subjects_that_are_there_and_those_that_come() -> None:
    async with MemoryClient() as mq:
        await mq.send("order.created", b"1")
        await mq.send("customer.created", b"2")
        async with mq.consume("order.*", group="g") as messages:
            assert await take(messages, 1) == [b"1"]
            await mq.send("order.paid", b"3")
            assert await take(messages, 1) == [b"3"]


async def test_another_filter_of_a_group_in_use_is_refused() -> None:
    async with MemoryClient() as mq:
        await mq.send("a", b"1", tags={"vip"})
        async with mq.consume("a", group="g", tags={"vip"}) as messages:
            assert await take(messages, 1) == [b"1"]
            async with mq.consume("a", group="g", tags={"eu"}) as others:
                with pytest.raises(Refused, match="filter_conflict"):
                    await take(others, 1)


async def test_wrong_arguments_say_what_is_wrong() -> None:
    async with MemoryClient() as mq:
        for arguments, error, sentence in (
            ({"tags": "vip"}, TypeError, "give a set of texts"),
            ({"match": "some"}, ValueError, "neither any nor all"),
            ({"filter": ["vip"]}, TypeError, "function of a message"),
            ({"tags": [f"t{number}" for number in range(11)]}, Refused, "10 are allowed"),
            ({"tags": [""]}, Refused, "bytes long"),
        ):
            with pytest.raises(error, match=sentence):
                mq.consume("a", group="g", **arguments)
        with pytest.raises(Refused, match="invalid_subject"):
            mq.consume("%dead*", group="g")


def test_blocking_client_takes_the_same_arguments(monkeypatch) -> None:
    broker = MemoryClient().broker
    monkeypatch.setattr("tidemill.blocking.client.Client", lambda *_, **__: MemoryClient(broker))
    with BlockingClient() as mq:
        for number in range(6):
            mq.send("a", b"%d" % number, tags={"even"} if number % 2 == 0 else {"odd"})
        with mq.consume(
            "a", group="g", tags={"even"}, filter=lambda message: message.sequence > 0
        ) as messages:
            found = []
            for message in messages:
                found.append(message.body)
                if len(found) == 2:
                    break
    assert found == [b"2", b"4"]


class Asks:
    async def __call__(self, message):
        return False


async def never(message):
    return False


@pytest.mark.parametrize("filter_", [never, Asks(), [lambda _message: True, never]])
async def test_an_async_filter_is_refused(serve, filter_):
    """What it returns is a coroutine, which is true: everything would pass."""
    async with serve() as place, place.client() as mq:
        with pytest.raises(TypeError, match="cannot be async"):
            mq.consume("a", group="g", filter=filter_)


async def test_an_async_filter_behind_a_lambda_is_a_failure(serve):
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"0")
        with pytest.raises(TypeError, match="cannot be async"):
            says = Asks()
            async with mq.consume("a", group="g", filter=[lambda message: says(message)]) as messages:  # noqa: PLW0108 - it is what is tested
                await anext(messages)
        assert place.group().acked == 0


@pytest.mark.parametrize("packed", [b"\xc1", b"\x81\x90\x01", b"\x07", b"\x81\x01\x02"])
async def test_message_whose_properties_nobody_can_read_fails_alone(serve, until, packed: bytes) -> None:
    """A filter asks for them. Those beside it in its batch have nothing to do with it."""
    content = Content([b"0", b"1", b"2"], properties=[b"", packed, b""])
    origin = Origin(b"a", 7, 1, bytes(16), 1_700_000_000_000)
    async with serve() as place:
        mq = place.client()
        await mq.send("a", b"first")
        place.broker.store(build_batch(origin, content))
        async with mq.consume("a", group="g", filter=lambda message: message.properties == {}) as messages:
            assert await take(messages, 3) == [b"first", b"0", b"2"]
            await until(lambda: [command for command in place.broker.said if isinstance(command, Nack)])
        [nack] = [command for command in place.broker.said if isinstance(command, Nack)]
        assert nack.reason.startswith("undecodable: the properties of message")
        assert count_of(nack.ranges) == 1
        await mq.close()
