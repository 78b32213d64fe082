"""What ``send``, ``send_many`` and ``send_each`` promise."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator

import pytest

from tidemill import (
    BrokerUnreachable,
    ClientClosed,
    ClientSettings,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from tidemill_wire.columns import Batch
from tidemill_wire.errors import WireError
from tidemill_wire.limits import (
    KEY_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    TAG_BYTES_MAX,
    TAGS_MAX,
)


def bodies_of(place, subject):
    return [body for batch in place.broker.subjects[subject].batches for body in Batch(batch).bodies()]


async def test_a_message_is_stored_with_all_that_belongs_to_it(serve):
    async with serve() as place, place.client() as mq:
        receipt = await mq.send("a", "täxt", key="k", tags={"vip", "eu"}, properties={"n": 1})
        batch = Batch(place.broker.subjects["a"].batches[0])
    assert (receipt.subject, receipt.sequence, receipt.spooled) == ("a", 0, False)
    assert receipt.id == batch.message_id(0)
    assert batch.bodies() == ["täxt".encode()]
    assert (batch.keys(), batch.tags(), batch.properties()) == (["k"], [["eu", "vip"]], [b"\x81\xa1n\x01"])


async def test_messages_with_and_without_extras_share_a_batch(serve):
    async with serve() as place, place.client() as mq:
        sends = [
            mq.send("a", b"0"),
            mq.send("a", b"1"),
            mq.send("a", b"2", key="k"),
            mq.send("a", b"3"),
            mq.send("a", b"4", tags={"t"}),
        ]
        receipts = await asyncio.gather(*sends)
        last = Batch(place.broker.subjects["a"].batches[-1])
    assert [receipt.sequence for receipt in receipts] == [0, 1, 2, 3, 4]
    assert last.keys() == ["", "", "k", "", ""]
    assert last.tags() == [[], [], [], [], ["t"]]


async def test_sends_of_one_turn_are_few_batches(serve):
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"warm")
        await asyncio.gather(*(mq.send("a", b"x") for _ in range(500)))
        assert len(place.broker.subjects["a"].batches) == 3
        assert place.broker.subjects["a"].next_sequence == 501


async def test_with_a_linger_sends_wait_for_each_other(serve):
    async with serve() as place, place.client(settings=ClientSettings(linger_ms=5)) as mq:
        await asyncio.gather(mq.send("a", b"1"), mq.send("a", b"2"))
        assert len(place.broker.subjects["a"].batches) == 1


@pytest.mark.parametrize("how", ["list", "tuple", "generator", "async generator"])
async def test_many_messages_keep_their_order_whatever_they_come_in(serve, how):
    bodies = [b"%d" % number for number in range(20_000)]

    async def one_by_one() -> AsyncIterator[bytes]:
        for body in bodies:
            yield body

    given = {
        "list": bodies,
        "tuple": tuple(bodies),
        "generator": iter(bodies),
        "async generator": one_by_one(),
    }
    async with serve() as place, place.client(settings=ClientSettings(batch_bytes=100_000)) as mq:
        receipts = await mq.send_many("a", given[how])
        assert bodies_of(place, "a") == bodies
        assert len(place.broker.subjects["a"].batches) > 10
    assert len(receipts) == 20_000
    assert [receipt.sequence for receipt in receipts] == list(range(20_000))
    assert receipts[-1].id == receipts.last_id
    assert receipts[5:7][1].sequence == 6
    assert len(bodies) == 20_000


async def test_nothing_is_sent_for_no_messages(serve):
    async with serve() as place, place.client() as mq:
        assert len(await mq.send_many("a", [])) == 0
        assert len(await mq.send_each([])) == 0
        assert not place.broker.subjects


async def test_many_subjects_travel_together_and_receipts_are_in_order(serve):
    pairs = [(f"s{number % 700}", b"%d" % number) for number in range(2_000)]
    async with serve() as place, place.client() as mq:
        receipts = await mq.send_each(pairs)
        assert bodies_of(place, "s0") == [b"0", b"700", b"1400"]
    assert [receipt.subject for receipt in receipts] == [subject for subject, _ in pairs]
    assert [receipt.sequence for receipt in receipts] == [number // 700 for number in range(2_000)]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
async def test_bodies_may_be_compressed(serve, codec):
    async with serve() as place, place.client(settings=ClientSettings(compression=codec)) as mq:
        await mq.send_many("a", [b"x" * 100] * 1000)
        batch = Batch(place.broker.subjects["a"].batches[0])
        assert batch.header.length < 10_000
        assert batch.bodies() == [b"x" * 100] * 1000


@pytest.mark.parametrize(
    "subject, options, name",
    [
        ("a", {"body": b"x" * (MESSAGE_BYTES_MAX + 1)}, "message_too_large"),
        ("a", {"key": "ä" * (KEY_BYTES_MAX // 2 + 1)}, "limit_exceeded"),
        ("a", {"tags": {str(number) for number in range(TAGS_MAX + 1)}}, "limit_exceeded"),
        ("a", {"tags": {"x" * (TAG_BYTES_MAX + 1)}}, "limit_exceeded"),
        ("a", {"properties": {"x": "x" * PROPERTIES_BYTES_MAX}}, "limit_exceeded"),
        ("%dead%a%g", {}, "invalid_subject"),
        ("", {}, "invalid_subject"),
    ],
)
async def test_what_is_over_a_limit_is_refused_before_it_is_sent(serve, subject, options, name):
    async with serve() as place, place.client() as mq:
        with pytest.raises(Refused, match=name):
            await mq.send(subject, options.pop("body", b"x"), **options)
        assert not place.broker.peers or not place.broker.subjects


@pytest.mark.parametrize(
    "properties",
    [{1: "a"}, {"seats": {(1, 2): "taken"}}, {"a": [{"b": ({None: 1},)}]}, {"a": {b"b": 1}}],
)
async def test_keys_of_properties_are_texts_at_every_depth(serve, properties):
    """Others some clients cannot read, and a broker could not copy with what else its message had."""
    async with serve() as place, place.client() as mq:
        with pytest.raises(TypeError, match="give texts as keys, at every depth"):
            await mq.send("a", b"x", properties=properties)
        assert not place.broker.peers or not place.broker.subjects


async def test_a_wrong_subject_among_many_stops_none_before_it(serve):
    async with serve() as place, place.client() as mq:
        with pytest.raises(Refused, match="invalid_subject"):
            await mq.send_each([("good", b"1"), ("b ad", b"2")])
        await mq.send("other", b"3")
        assert bodies_of(place, "good") == [b"1"]


async def test_a_batch_that_is_refused_for_good_fails_its_sender_only(serve):
    async with serve() as place, place.client() as mq:
        place.broker.refuse_batch = lambda subject: (
            Refused("unknown_subject", "no") if subject == "bad" else None
        )
        good, bad = await asyncio.gather(mq.send("good", b"1"), mq.send("bad", b"2"), return_exceptions=True)
    assert good.sequence == 0
    assert isinstance(bad, Refused)
    assert bad.kind.name == "unknown_subject"


async def test_a_batch_that_cannot_be_taken_now_is_tried_again(serve):
    async with serve() as place, place.client() as mq:
        full: deque[WireError] = deque([Unavailable("disk_full", "full")] * 3)
        place.broker.refuse_batch = lambda _subject: full.popleft() if full else None
        receipts = await asyncio.gather(*(mq.send("a", b"%d" % number) for number in range(5)))
        assert sorted(bodies_of(place, "a")) == [b"0", b"1", b"2", b"3", b"4"]
    assert sorted(receipt.sequence for receipt in receipts) == [0, 1, 2, 3, 4]


async def test_a_refused_batch_that_a_later_one_overtook_is_not_taken_for_a_repetition(serve):
    """Broker and client agree on numbers: the broker answers a number below its last as stored."""
    async with serve() as place, place.client(settings=ClientSettings(backoff_base_s=0.01)) as mq:
        await mq.send("a", b"warm")
        answers: deque[WireError | None] = deque([Unavailable("disk_full", "full"), None])
        place.broker.refuse_batch = lambda _subject: answers.popleft() if answers else None
        first = asyncio.ensure_future(mq.send("a", b"first"))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(mq.send("a", b"second"))
        receipts = await asyncio.gather(first, second)
        assert sorted(bodies_of(place, "a")) == [b"first", b"second", b"warm"]
    assert sorted(receipt.sequence for receipt in receipts) == [1, 2]


async def test_what_cannot_be_taken_until_the_deadline_fails_with_the_reason(serve):
    settings = ClientSettings(send_timeout_s=0.05, backoff_base_s=0.01)
    async with serve() as place, place.client(settings=settings) as mq:
        place.broker.refuse_batch = lambda _subject: Unavailable("disk_full", "full")
        with pytest.raises(Unavailable, match="disk_full"):
            await mq.send("a", b"x")


async def test_an_answer_lost_with_the_connection_does_not_store_twice(serve, until):
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"0")
        place.broker.answers = False
        sends = [asyncio.ensure_future(mq.send("a", b"%d" % number)) for number in range(1, 20)]
        await until(lambda: place.broker.subjects["a"].next_sequence >= 20)
        place.broker.answers = True
        place.drop()
        receipts = await asyncio.gather(*sends)
        assert bodies_of(place, "a") == [b"%d" % number for number in range(20)]
    assert [receipt.sequence for receipt in receipts] == list(range(1, 20))


async def test_sends_wait_for_a_broker_that_is_away(serve):
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"0")
        await place.stop()
        send = asyncio.ensure_future(mq.send("a", b"1"))
        await asyncio.sleep(0)
        await place.start()
        assert (await send).sequence == 1


async def test_without_a_broker_a_send_fails_and_says_that_nothing_is_stored(serve):
    async with serve() as place:
        await place.stop()
        async with place.client(settings=ClientSettings(send_timeout_s=0.05)) as mq:
            with pytest.raises(BrokerUnreachable, match="not stored"):
                await mq.send("a", b"x")
        await place.start()


async def test_without_an_answer_a_send_fails_and_says_that_nobody_knows(serve):
    async with serve() as place, place.client(settings=ClientSettings(send_timeout_s=0.05)) as mq:
        await mq.send("a", b"0")
        place.broker.answers = False
        with pytest.raises(OutcomeUnknown, match="may be stored"):
            await mq.send("a", b"x")
        place.broker.answers = True
        place.drop()
        await mq.send("a", b"z")


async def test_a_broker_that_is_silent_is_left(serve, until):
    """Nothing but pings would tell: the connection stays, and answers nothing."""
    async with serve() as place, place.client(settings=ClientSettings(dead_peer_s=0.1)) as mq:
        await mq.send("a", b"0")
        place.broker.answers = False
        send = asyncio.ensure_future(mq.send("a", b"1"))
        first = next(iter(place.broker.peers))
        await until(lambda: first not in place.broker.peers)
        place.broker.answers = True
        assert (await send).sequence == 1


async def test_memory_is_bounded_and_senders_wait_for_room(serve, until):
    settings = ClientSettings(memory_bytes_max=100_000, batch_bytes=10_000)
    async with serve() as place, place.client(settings=settings) as mq:
        await mq.send("c", b"0")
        place.broker.answers = False
        send = asyncio.ensure_future(mq.send_many("a", iter([b"x" * 1000] * 50_000)))
        single = [asyncio.ensure_future(mq.send("b", b"y")) for _ in range(3)]
        await until(lambda: "a" in place.broker.subjects)
        assert mq._producer is not None
        assert mq._producer.budget.held < 120_000
        place.broker.answers = True
        place.drop()
        assert len(await send) == 50_000
        await asyncio.gather(*single)


async def test_closing_waits_for_what_was_sent(serve):
    async with serve() as place:
        async with place.client() as mq:
            sends = [asyncio.ensure_future(mq.send("a", b"x")) for _ in range(10)]
            await asyncio.sleep(0)
        assert [(await send).sequence for send in sends] == list(range(10))
        with pytest.raises(ClientClosed):
            await mq.send("a", b"x")
        with pytest.raises(ClientClosed):
            await mq.send_many("a", [b"x"])


async def test_a_cancelled_send_harms_no_other(serve):
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"0")
        gone = asyncio.ensure_future(mq.send("a", b"1"))
        stays = asyncio.ensure_future(mq.send("a", b"2"))
        await asyncio.sleep(0)
        gone.cancel()
        assert (await stays).sequence == 2


@pytest.mark.parametrize("body", [5, 0, True, None, {1: 2}, [1, 2, 3], range(4), 1.5])
async def test_what_is_no_body_is_not_sent_as_zeros(serve, body):
    """``bytes(5)`` is five zeros, and ``bytes([1, 2])`` two bytes that nobody meant."""
    async with serve() as place, place.client() as mq:
        what = f"a body is bytes or a text, not {type(body).__name__}: json.dumps"
        with pytest.raises(TypeError, match=re.escape(what)):
            await mq.send("a", body)
        with pytest.raises(TypeError, match=re.escape(what)):
            await mq.send_many("a", [b"fine", body])
        with pytest.raises(TypeError, match=re.escape(what)):
            await mq.send_each([("a", b"fine"), ("a", body)])
        assert "a" not in place.broker.subjects


@pytest.mark.parametrize("body", [b"abc", "abc", bytearray(b"abc"), memoryview(b"abc")])
async def test_one_body_is_not_many(serve, body):
    async with serve() as place, place.client() as mq:
        with pytest.raises(TypeError, match="takes many bodies, and this is one"):
            await mq.send_many("a", body)
        await mq.send("a", body)
        assert bodies_of(place, "a") == [b"abc"]
