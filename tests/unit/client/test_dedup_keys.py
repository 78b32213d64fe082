"""What a dedup key promises a program: stored once within its window, and told so, in one place whatever goes wrong."""

from __future__ import annotations

import asyncio

import pytest

from samples.towns import both_up
from tidemill import ClientSettings, Refused
from tidemill.testing import Client as MemoryClient
from tidemill_wire.columns import Batch
from tidemill_wire.deduplication import digest_of, digests_of
from tidemill_wire.errors import Unavailable
from tidemill_wire.limits import KEY_BYTES_MAX
from tidemill_wire.ordering import Chart
from tidemill_wire.routes import PartitionSet

WIDE = ("g0", "g1", "g0/a#1", "g1/a#2")


def bodies_of(place, subject="a"):
    return [body for batch in place.broker.subjects[subject].batches for body in Batch(batch).bodies()]


def all_stored(town):
    return [
        body
        for place in town.places.values()
        for subject in place.broker.subjects.values()
        for batch in subject.batches
        for body in Batch(batch).bodies()
    ]


async def test_a_second_message_of_a_key_is_not_stored_and_its_receipt_says_where_the_first_is(serve):
    async with serve() as place, place.client() as mq, place.client() as other:
        await mq.send("a", b"before")
        first = await mq.send("a", b"1", dedup_key="o-1")
        again = await other.send("a", b"2", dedup_key="o-1")
        more = await other.send("a", b"3", dedup_key="o-2")
        assert (again.id, again.sequence, again.duplicate) == (first.id, first.sequence, True)
        assert (first.duplicate, more.duplicate, more.sequence) == (False, False, 2)
        assert again.id.endswith("-0")
        assert bodies_of(place) == [b"before", b"1", b"3"]
        batch = Batch(place.broker.subjects["a"].batches[1])
        assert (digests_of(batch), batch.order_keys()) == ([digest_of("o-1")], ["o-1"])


async def test_messages_of_one_turn_with_and_without_keys_share_a_batch_and_each_hears_its_own(serve):
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"0", dedup_key="k0")
        sends = [
            mq.send("a", b"x", dedup_key="k1"),
            mq.send("a", b"plain"),
            mq.send("a", b"y", dedup_key="k0"),
            mq.send("a", b"z", key="k", dedup_key="k1"),
            mq.send("a", b"w", dedup_key="k2", order_key="o"),
        ]
        x, plain, y, z, w = await asyncio.gather(*sends)
        assert [one.sequence for one in (x, plain, y, z, w)] == [1, 2, 0, 1, 3]
        assert [one.duplicate for one in (x, plain, y, z, w)] == [False, False, True, True, False]
        assert z.id == x.id
        assert bodies_of(place) == [b"0", b"x", b"plain", b"w"]


async def test_many_messages_have_a_key_each_or_none(serve):
    async with serve() as place, place.client() as mq:
        keys = [None if number % 10 == 9 else f"k{number % 50}" for number in range(200)]
        receipts = await mq.send_many("a", [b"%d" % number for number in range(200)], dedup_keys=keys)
        stored = bodies_of(place)
        assert len(stored) == 45 + 20
        for number, receipt in enumerate(receipts):
            assert receipt.duplicate == (keys[number] is not None and number >= 50)
            same = number if keys[number] is None else number % 50
            assert stored[receipt.sequence] == b"%d" % same
            assert receipt.id == receipts[same].id


async def test_many_keys_are_told_from_too_few_and_bodies_must_be_a_list(serve):
    async with serve() as place, place.client() as mq:
        with pytest.raises(ValueError, match="1 dedup_keys for 2 bodies"):
            await mq.send_many("a", [b"1", b"2"], dedup_keys=["k"])
        with pytest.raises(TypeError, match="must be a list"):
            await mq.send_many("a", iter([b"1"]), dedup_keys=["k"])
        assert len(await mq.send_many("a", [], dedup_keys=[])) == 0


@pytest.mark.parametrize("key", ["", "x" * (KEY_BYTES_MAX + 1)])
async def test_a_key_beyond_its_limits_is_refused_before_anything_is_sent(serve, key):
    async with serve() as place, place.client() as mq:
        with pytest.raises(Refused, match="dedup key"):
            await mq.send("a", b"1", dedup_key=key)
        with pytest.raises(Refused, match="dedup key"):
            await mq.send_many("a", [b"1"], dedup_keys=[key])
        assert place.broker.subjects == {}


async def test_a_key_goes_to_its_partition_whoever_sends_it(town, until):
    async with town(groups=2) as t, t.client() as mq, t.client() as other:
        t.realm.route("a", *WIDE)
        keys = [f"k{number}" for number in range(40)]
        first = await asyncio.gather(*(mq.send("a", key.encode(), dedup_key=key) for key in keys))
        again = await asyncio.gather(*(other.send("a", key.encode(), dedup_key=key) for key in keys))
        assert [one.id for one in again] == [one.id for one in first]
        assert sorted(all_stored(t)) == sorted(key.encode() for key in keys)
        chart = Chart(PartitionSet.from_map(t.realm.routes["a"]))
        for place in WIDE:
            name = place[3:] or "a"
            mine = {key.encode() for key in keys if chart.of(key).key == f"{place[:2]}/{name}"}
            assert set(t.stored(place[:2], name)) == mine
            assert mine


@pytest.mark.parametrize("strategy", ["Strict", "BestTried"])
async def test_a_key_waits_for_its_partition_and_goes_nowhere_else(town, until, strategy):
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0", "g1", strategy=strategy)
        chart = Chart(PartitionSet.from_map(t.realm.routes["a"]))
        key = next(f"k{number}" for number in range(100) if chart.of(f"k{number}").group == "g0")
        await mq.send("a", b"0", dedup_key=key)
        await asyncio.gather(*(mq.send("a", b"x") for _ in range(4)))
        await both_up(mq, until, "g0", "g1")
        full = t.places["g0"].broker
        full.refuse_batch = lambda _subject: Unavailable("disk_full", "full")
        again = asyncio.ensure_future(mq.send("a", b"1", dedup_key=key))
        for number in range(20):
            await mq.send("a", b"more-%d" % number)
        assert not again.done()
        full.refuse_batch = lambda _subject: None
        assert (await again).duplicate
        assert b"1" not in all_stored(t)


async def test_an_answer_that_got_lost_is_asked_for_again_and_says_the_same(serve, until):
    gathering = ClientSettings(linger_ms=5, backoff_max_s=0.05)  # else the first message would leave alone
    async with serve() as place, place.client(settings=gathering) as mq, place.client() as other:
        await other.send("a", b"0", dedup_key="k")
        await mq.send("a", b"warm")
        place.broker.answers = False
        sends = asyncio.ensure_future(mq.send_many("a", [b"1", b"2"], dedup_keys=["k", "l"]))
        await until(lambda: len(bodies_of(place)) == 3)
        place.broker.answers = True
        place.drop()
        known, fresh = await sends
        assert (known.duplicate, known.sequence, fresh.duplicate, fresh.sequence) == (True, 0, False, 2)
        assert bodies_of(place) == [b"0", b"warm", b"2"]


async def test_a_subject_in_memory_knows_keys_for_its_window_and_in_all_priorities():
    async with MemoryClient() as mq:
        first = await mq.send("a", b"1", dedup_key="k", priority=3)
        assert (await mq.send("a", b"2", dedup_key="k")).id == first.id
        assert not (await mq.send("b", b"2", dedup_key="k")).duplicate
        mq.broker.dedup_keys["a"].window_s = 0
        assert not (await mq.send("a", b"3", dedup_key="k")).duplicate
        async with mq.consume("a", group="g") as messages:
            assert [(await anext(messages)).body for _ in range(2)] == [b"1", b"3"]


async def test_a_receipt_without_a_key_is_no_duplicate(serve):
    async with serve() as place, place.client() as mq:
        receipts = await mq.send_many("a", [b"1", b"2"])
        assert not any(receipt.duplicate for receipt in (*receipts, await mq.send("a", b"3")))
