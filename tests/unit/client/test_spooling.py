"""What the spool file promises."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from samples.towns import QUICK
from tidemill import BrokerUnreachable, ClientSettings, Refused, spooler
from tidemill.encode import encode_single
from tidemill.errors import CorruptBatch
from tidemill.spool import RECORD, Spool
from tidemill.testing import Client, MemoryBroker
from tidemill_wire.columns import Batch
from tidemill_wire.errors import Unavailable
from tidemill_wire.ordering import logical_partition

AT_MS = 1_800_000_000_000
SETTINGS = ClientSettings(spool_after_s=0.01, backoff_base_s=0.01, backoff_max_s=0.05)


def spooling(broker: MemoryBroker, folder: Path) -> Client:
    return Client(broker, settings=replace(SETTINGS, spool_path=folder / "spool"))


def batch(number: int, name: bytes = b"a") -> bytes:
    return encode_single(name.ljust(8, b"\0"), len(name), (7, number, bytes(16), 0), b"%d" % number)


def bodies_of(place, subject):
    return [body for stored in place.broker.subjects[subject].batches for body in Batch(stored).bodies()]


async def test_without_a_broker_messages_are_spooled_and_sent_when_one_is_back(serve, tmp_path, until):
    async with serve() as place:
        await place.stop()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            first = await mq.send("a", b"0", key="k")
            many = await mq.send_many("a", [b"1", b"2"])
            assert (first.spooled, first.sequence, many.spooled) == (True, -1, True)
            assert first.id == f"{first.id[:32]}-0"
            await place.start()
            await until(lambda: mq._producer.link)
            last = await mq.send("a", b"3")
            assert (last.spooled, last.sequence) == (False, 3)
        assert bodies_of(place, "a") == [b"0", b"1", b"2", b"3"]
        assert (tmp_path / "spool").stat().st_size == 24


async def test_what_was_in_flight_when_the_broker_left_is_spooled_and_not_stored_twice(
    serve, tmp_path, until
):
    async with serve() as place, place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
        await mq.send("a", b"0")
        place.broker.answers = False
        send = asyncio.ensure_future(mq.send("a", b"1"))
        await until(lambda: place.broker.subjects["a"].next_sequence >= 2)
        await place.stop()
        assert (await send).spooled
        place.broker.answers = True
        await place.start()
        await until(lambda: mq._producer.link)
        await mq.send("a", b"2")
        assert bodies_of(place, "a") == [b"0", b"1", b"2"]


async def test_what_is_for_later_is_spooled_too_and_due_at_the_time_that_was_meant(tmp_path):
    """By the process that sent it, and by the next one that opens the spool."""
    broker = MemoryBroker(now_ms=lambda: AT_MS)
    for life in range(2):
        mq = spooling(broker, tmp_path)
        mq._router.atlas.delays = ()
        async with mq:
            receipt = await mq.send("a", b"%d" % life, delay=7200)
            many = await mq.send_many("a", [b"%d+" % life], delay=7200)
            assert (receipt.spooled, receipt.sequence, many.spooled) == (True, -1, True)
            assert not (await mq.send("b", b"now")).spooled
    assert (tmp_path / "spool.to.%later").stat().st_size > 24
    mq = spooling(broker, tmp_path)
    await mq.advance(hours=1)
    async with mq, mq.consume("a", group="g") as messages:
        await mq.send("b", b"opens it")
        await mq.send("a", b"3", delay=7200)  # behind what was spooled
        await mq.advance(minutes=59)
        assert "a" not in broker.subjects or not broker.subjects["a"].next_sequence
        await mq.advance(minutes=1)
        found = [await anext(messages) for _ in range(4)]
        await mq.advance(hours=1)
        last = await anext(messages)

    assert sorted(one.body for one in found) == [b"0", b"0+", b"1", b"1+"]
    assert {one.stored_at.timestamp() * 1000 for one in found} == {AT_MS + 7_200_000}
    assert last.body == b"3"
    assert (tmp_path / "spool.to.%later").stat().st_size == 24


async def test_the_spool_outlives_its_process(serve, tmp_path):
    async with serve() as place:
        await place.stop()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            for number in range(20):
                await mq.send("a", b"%d" % number)
        with (tmp_path / "spool").open("ab") as file:
            file.write(RECORD.pack(1000, 1) + b"torn")
        await place.start()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            await mq.send("a", b"20")
        assert bodies_of(place, "a") == [b"%d" % number for number in range(21)]


async def test_a_spool_that_is_full_lets_sends_fail_at_their_deadline(serve, tmp_path):
    settings = ClientSettings(spool_after_s=0.01, send_timeout_s=0.1, spool_bytes_max=500)
    async with serve() as place:
        await place.stop()
        async with place.client(settings=settings, spool=tmp_path / "spool") as mq:
            with pytest.raises(BrokerUnreachable):
                await mq.send("a", b"x" * 1000)
        await place.start()


async def test_a_replay_goes_on_when_the_broker_cannot_take_it_at_first(serve, tmp_path, until):
    async with serve() as place:
        await place.stop()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            await mq.send("a", b"0")
            left = [Unavailable("disk_full", "full")] * 2
            place.broker.refuse_batch = lambda _subject: left.pop() if left else None
            await place.start()
            await until(lambda: mq._producer.link)
            await mq.send("a", b"1")
        assert bodies_of(place, "a") == [b"0", b"1"]


async def test_a_replay_that_is_to_wait_for_a_quota_looks_again_before_that_is_over(
    serve, tmp_path, until, monkeypatch
):
    """The quota may be lifted, or made larger, long before."""
    monkeypatch.setattr(spooler, "WAIT_S_MAX", 0.05)
    async with serve() as place:
        await place.stop()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            assert (await mq.send("a", b"0")).spooled
            left = [Unavailable("over_quota", "used up", 3_600_000)]
            place.broker.refuse_batch = lambda _subject: left.pop() if left else None
            await place.start()
            await until(lambda: (tmp_path / "spool").stat().st_size == 24)
        assert bodies_of(place, "a") == [b"0"]


async def test_a_spooled_batch_that_is_refused_for_good_is_set_aside(serve, tmp_path, until):
    async with serve() as place:
        await place.stop()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            await mq.send("bad", b"0")
            await mq.send("good", b"1")
            place.broker.refuse_batch = lambda name: (
                Refused("unknown_subject", "no") if name == "bad" else None
            )
            await place.start()
            await until(lambda: mq._producer.link)
            await mq.send("good", b"2")
        assert bodies_of(place, "good") == [b"1", b"2"]
        refused = (tmp_path / "spool.refused").read_bytes()
        assert Batch(refused[RECORD.size :]).bodies() == [b"0"]


async def test_two_clients_cannot_have_one_spool(serve, tmp_path):
    async with serve() as place, place.client(spool=tmp_path / "spool"):
        with pytest.raises(Refused, match="in use"):
            async with place.client(spool=tmp_path / "spool"):
                pass


def test_a_spool_returns_what_was_not_sent_in_its_order(tmp_path):
    spool = Spool(tmp_path / "spool", 10_000)
    assert spool.empty
    assert spool.append([batch(number) for number in range(3)])
    first, position = spool.read(1)
    assert first == [batch(0)]
    spool.sent(position)
    spool.close()
    spool = Spool(tmp_path / "spool", 10_000)
    rest, position = spool.read(10_000)
    assert rest == [batch(1), batch(2)]
    spool.sent(position)
    assert spool.empty
    spool.close()


def test_a_torn_tail_of_any_length_is_cut(tmp_path):
    path = tmp_path / "spool"
    spool = Spool(path, 10_000)
    spool.append([batch(0), batch(1)])
    spool.close()
    whole = path.read_bytes()
    second = len(whole) - len(batch(1)) - RECORD.size
    for length in range(second, len(whole)):
        path.write_bytes(whole[:length])
        spool = Spool(path, 10_000)
        assert spool.read(10_000)[0] == [batch(0)]
        spool.close()


def test_a_spool_whose_middle_went_bad_is_not_read_over(tmp_path):
    path = tmp_path / "spool"
    spool = Spool(path, 10_000)
    spool.append([batch(0), batch(1)])
    file = os.open(path, os.O_RDWR)
    os.pwrite(file, b"?", 60)
    os.close(file)
    with pytest.raises(CorruptBatch, match="start again"):
        spool.read(10_000)
    spool.close()


def test_a_file_that_is_no_spool_is_left_alone(tmp_path):
    path = tmp_path / "spool"
    path.write_bytes(b"something else entirely, which somebody needs")
    with pytest.raises(Refused, match="no spool"):
        Spool(path, 10_000)
    assert path.read_bytes().startswith(b"something else")


async def test_a_broker_that_keeps_an_answer_to_itself_is_dialled_again(serve, tmp_path, until):
    """It answers pings, so its connection lives on; what it was sent out of the spool waits no longer than a send."""
    settings = replace(SETTINGS, send_timeout_s=1.0)
    async with serve() as place:
        await place.stop()
        async with place.client(settings=settings, spool=tmp_path / "spool") as mq:
            assert (await mq.send("a", b"0")).spooled
            place.broker.silent = True
            await place.start()
            await until(lambda: place.broker.subjects.get("a"))
            place.broker.silent = False
            await until(lambda: (tmp_path / "spool").stat().st_size == 24)
        assert bodies_of(place, "a") == [b"0"]


@asynccontextmanager
async def torn(town, folder, until):
    """Of a spooled frame without a route ``a`` is stored at one broker group, which refuses ``b`` for now: the town,
    that group, and the other one.
    """
    settings = replace(QUICK, spool_after_s=0.05)
    async with town(creates=("g0", "g1")) as t, t.client(settings, spool=folder / "spool") as mq:
        t.realm.away = True
        assert (await mq.send("a", b"once")).spooled
        assert (await mq.send("b", b"refused")).spooled
        refusals = []

        def refuse(subject):
            if subject == "b":
                refusals.append(Unavailable("read_only", "subject 'b' takes no messages now"))
                return refusals[-1]
            return None

        for place in t.places.values():
            place.broker.refuse_batch = refuse
        t.realm.away = False
        await until(lambda: refusals and t.stored("g0") + t.stored("g1"))
        [mine] = [group for group in t.places if t.stored(group)]
        [other] = set(t.places) - {mine}
        yield t, mine, other
        await until(lambda: (folder / "spool").stat().st_size == 24)


def take_all(t):
    for place in t.places.values():
        place.broker.refuse_batch = lambda _subject: None


@pytest.mark.parametrize("stopping", [False, True])
async def test_of_a_spooled_frame_only_what_was_refused_goes_to_another_broker_group(
    town, tmp_path, until, stopping
):
    """Also when the one that has the rest refuses everything since, without a look at what it has."""
    async with torn(town, tmp_path, until) as (t, mine, other):
        broker = t.places[mine].broker
        broker.stopping = stopping
        await until(lambda: broker.turned_away or not stopping)
        await t.places[mine].stop()
        take_all(t)
        await until(lambda: t.stored(other, "b"))
        assert (t.stored(mine), t.stored(mine, "b")) == ([b"once"], [])
        assert (t.stored(other), t.stored(other, "b")) == ([], [b"refused"])
        await t.places[mine].start()


async def test_of_a_spooled_frame_what_was_refused_at_first_and_may_be_stored_since_stays(
    town, tmp_path, until
):
    async with torn(town, tmp_path, until) as (t, mine, other):
        broker = t.places[mine].broker
        broker.silent = True
        take_all(t)
        await until(lambda: t.stored(mine, "b"))
        broker.silent = False
        await t.places[mine].stop()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until(lambda: t.stored(other, "b")), 0.3)
        await t.places[mine].start()
        await until(lambda: (tmp_path / "spool").stat().st_size == 24)
        assert (t.stored(mine), t.stored(mine, "b")) == ([b"once"], [b"refused"])
        assert (t.stored(other), t.stored(other, "b")) == ([], [])


def keys_of(logical):
    return [key for key in map(str, range(200)) if logical_partition(key) in logical]


async def test_what_was_spooled_without_a_route_goes_where_its_order_keys_lie(town, tmp_path, until):
    """Also what lies behind it in the file, and has none; and what the same process sends then."""
    settings = replace(QUICK, spool_after_s=0.05)
    low, high = keys_of(range(512))[0], keys_of(range(512, 1024))[0]
    async with town(creates=("g0", "g1")) as t, t.client(settings, spool=tmp_path / "spool") as mq:
        t.realm.away = True
        sent = [
            mq.send("a", b"low", order_key=low),
            mq.send("a", b"high", order_key=high),
            mq.send("b", b"any"),
        ]
        assert all(receipt.spooled for receipt in await asyncio.gather(*sent))
        t.realm.route("a", "g0/a", "g1/a")
        t.realm.away = False
        await until(lambda: (tmp_path / "spool").stat().st_size == 24)
        await until(lambda: t.stored("g0") and t.stored("g1"))
        assert (t.stored("g0"), t.stored("g1")) == ([b"low"], [b"high"])
        await until(lambda: t.stored("g0", "b") or t.stored("g1", "b"))
        await mq.send("a", b"more", order_key=high)
        assert t.stored("g1") == [b"high", b"more"]


async def test_what_was_spooled_without_a_route_is_stored_in_a_partition_that_is_looked_at(
    town, tmp_path, until
):
    settings = replace(QUICK, spool_after_s=0.05)
    async with town(creates=("g0", "g1")) as t, t.client(settings, spool=tmp_path / "spool") as mq:
        t.realm.away = True
        assert (await mq.send("a", b"any")).spooled
        t.realm.route("a", "g0/a#1", "g1/a#2")
        t.realm.away = False
        await until(lambda: t.stored("g0", "a#1") or t.stored("g1", "a#2"))
        await until(lambda: (tmp_path / "spool").stat().st_size == 24)
        assert t.stored("g0") == t.stored("g1") == []
