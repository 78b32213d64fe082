"""Order keys on their way: what ``send`` promises of messages that have one."""

from __future__ import annotations

import asyncio
import random

import pytest

from tidemill import ClientSettings, Refused, Unavailable
from tidemill.backoff import Backoff
from tidemill.flights import Flights
from tidemill.gather import Gather, Signature
from tidemill.parcel import Extras, Partition
from tidemill.testing import Client
from tidemill_wire.batch import Flags
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch
from tidemill_wire.errors import WireError
from tidemill_wire.limits import KEY_BYTES_MAX

KEYED = Extras(order_key="o-1")


class Heard:
    """A waiter that notes what became of its messages."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def stored(self, place: int, part: object) -> None:
        raise AssertionError("nothing is stored here")

    def failed(self, error: Exception) -> None:
        self.errors.append(type(error).__name__)


def gather_of() -> Gather:
    return Gather(Signature(7, Codec.NONE, lambda: 0), 1_000)


def flights_of() -> Flights:
    return Flights(Backoff(0.1, 1.0, random.Random(0)), random.Random(0))


async def test_order_key_arrives_and_marks_its_batch(serve):
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"warm")
        await asyncio.gather(mq.send("a", b"1"), mq.send("a", b"2", order_key="o-1"), mq.send("a", b"3"))
        plain, *keyed = [Batch(batch) for batch in place.broker.subjects["a"].batches]
        seen = []
        async with mq.consume("a", group="g") as messages:
            async for message in messages:
                seen.append((message.body, message.order_key))
                if len(seen) == 4:
                    break

    assert not plain.header.flags & Flags.ORDERED
    assert keyed[-1].header.flags & Flags.ORDERED
    assert seen == [(b"warm", None), (b"1", None), (b"2", "o-1"), (b"3", None)]


@pytest.mark.parametrize("order_key", ["", "k" * (KEY_BYTES_MAX + 1)])
async def test_order_key_beyond_its_limits_never_leaves(order_key):
    async with Client() as mq:
        with pytest.raises(Refused, match="an order key"):
            await mq.send("orders", b"x", order_key=order_key)


# -- one at a time ---------------------------------------------------------------------------------------------


def test_batches_of_order_keys_leave_one_at_a_time():
    gather, flights, waiter = gather_of(), flights_of(), Heard()
    keyed, plain = Partition("keyed"), Partition("plain")
    for partition, extras in ((keyed, KEYED), (plain, None)):
        for _ in range(20):
            gather.add(partition, b"x" * 100, extras, waiter, 0)

    first = flights.depart(gather.take())
    while frame := gather.take():
        assert {batch.partition for batch in frame} == {plain}
    assert keyed in {batch.partition for batch in first.batches}
    flights.land(first)

    assert [batch.partition for batch in gather.take()] == [keyed]


def test_what_waits_behind_a_batch_that_was_given_up_is_given_up_with_it():
    gather, flights, waiter = gather_of(), flights_of(), Heard()
    partition = Partition("keyed")
    for _ in range(20):
        gather.add(partition, b"x" * 100, KEYED, waiter, deadline=100.0)
    flight = flights.depart(gather.take())
    flights.land(flight)
    flight.batches[0].failed(Unavailable("too_slow", "nobody took it"))

    assert gather.take() == []
    behind = gather.expired(now=0.0)

    assert sum(batch.messages for batch in behind) + flight.batches[0].messages == 20
    gather.add(partition, b"later", KEYED, waiter, deadline=100.0)
    assert len(gather.take()) == 1


def test_nothing_newer_leaves_before_what_was_given_up_was_told_so():
    gather, flights, waiter = gather_of(), flights_of(), Heard()
    partition = Partition("keyed")
    gather.add(partition, b"1", KEYED, waiter, deadline=100.0)
    flight = flights.depart(gather.take())
    gather.add(partition, b"2", KEYED, waiter, deadline=100.0)
    flights.land(flight)
    flight.batches[0].failed(Unavailable("too_slow", "nobody took it"))
    gather.add(partition, b"3", KEYED, waiter, deadline=100.0)

    assert gather.take() == []
    assert [parcel.bodies for parcel in gather.expired(now=0.0)] == [[b"2"]]
    assert [Batch(parcel.data).bodies() for parcel in gather.take()] == [[b"3"]]


def test_message_that_can_never_be_stored_holds_up_nobody():
    gather, flights, waiter = gather_of(), flights_of(), Heard()
    partition = Partition("keyed")
    for _ in range(20):
        gather.add(partition, b"x" * 100, KEYED, waiter, deadline=100.0)
    flight = flights.depart(gather.take())
    flights.land(flight)
    flight.batches[0].failed(Refused("message_too_large", "a message of 9 bytes"))

    assert gather.expired(now=0.0) == []
    assert len(gather.take()) == 1


async def test_batch_that_is_refused_for_now_is_not_overtaken(serve):
    """The broker is full for the first batch, and would take the next ones."""
    refusals = iter([WireError("disk_full", "full"), WireError("disk_full", "full")])
    async with serve() as place, place.client(settings=ClientSettings(batch_bytes=300)) as mq:
        place.broker.refuse_batch = lambda _name: next(refusals, None)
        sends = [mq.send("a", b"%d" % number, order_key="o-1") for number in range(40)]
        await asyncio.gather(*sends)
        bodies = [body for batch in place.broker.subjects["a"].batches for body in Batch(batch).bodies()]

    assert bodies == [b"%d" % number for number in range(40)]


async def test_nothing_behind_what_failed_is_stored(serve):
    async with (
        serve() as place,
        place.client(settings=ClientSettings(batch_bytes=300, send_timeout_s=0.3, backoff_max_s=0.05)) as mq,
    ):
        await mq.send("a", b"before", order_key="o-1")
        place.broker.refuse_batch = lambda _name: WireError("disk_full", "full")
        sends = [mq.send("a", b"%d" % number, order_key="o-1") for number in range(40)]
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        place.broker.refuse_batch = lambda _name: None
        await mq.send("a", b"after", order_key="o-1")
        bodies = [body for batch in place.broker.subjects["a"].batches for body in Batch(batch).bodies()]

    assert {type(outcome) for outcome in outcomes} == {Unavailable}
    assert bodies == [b"before", b"after"]
