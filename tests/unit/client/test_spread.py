"""Which partition of a subject a message goes to, and what of it may go to another one."""

from __future__ import annotations

import asyncio

from samples.towns import both_up
from tidemill import Unavailable
from tidemill_wire.ordering import Chart, logical_partition
from tidemill_wire.routes import PartitionSet

WIDE = ("g0", "g1", "g0/a#1", "g1/a#2", "g1/a#3")
"""Five partitions on two broker groups."""


async def test_all_partitions_of_a_broker_group_take_turns(town, until):
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", *WIDE)
        await mq.send("a", b"first")
        await both_up(mq, until, "g0", "g1")
        for number in range(49):
            assert (await mq.send("a", b"%d" % number, key="k")).subject == "a"
        counts = [len(t.stored(place[:2], place[3:] or "a")) for place in WIDE]
        assert sum(counts) == 50
        assert min(counts) >= 9


async def test_an_order_key_goes_to_its_partition_and_not_to_the_first_of_the_broker_group(town):
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", *WIDE)
        keys = [f"k{number}" for number in range(40)]
        await asyncio.gather(*(mq.send("a", key.encode(), order_key=key) for key in keys))
        chart = Chart(PartitionSet.from_map(t.realm.routes["a"]))
        for place in WIDE:
            name = place[3:] or "a"
            mine = [key.encode() for key in keys if chart.of(key).key == f"{place[:2]}/{name}"]
            assert t.stored(place[:2], name) == mine
            assert mine


async def test_what_waits_for_a_partition_moves_to_one_of_another_name(town, until):
    """Batches that were sealed bear the name of their partition."""
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0", "g1/a#1")
        await mq.send("a", b"0")
        await both_up(mq, until, "g0", "g1")
        t.places["g0"].broker.refuse_batch = lambda _subject: Unavailable("disk_full", "full")
        sent = [b"%d" % number for number in range(1, 20)]
        for body in sent:
            await mq.send("a", body, key="k")
        for body in sent:
            await mq.send("a", body + b"!")
        stored = t.stored("g0") + t.stored("g1", "a#1")
        assert sorted(stored) == sorted([b"0", *sent, *(body + b"!" for body in sent)])
        assert t.stored("g1") == []


async def test_a_partition_that_joins_later_is_sent_to_as_well(town, until):
    async with town(groups=1) as t, t.client() as mq:
        t.realm.route("a", "g0")
        await mq.send("a", b"0")
        t.realm.route("a", "g0", "g0/a#1", former=[("g0",)])
        await until(lambda: mq._router.atlas.routes["a"].version == 2)
        for number in range(10):
            await mq.send("a", b"%d" % number)
        assert len(t.stored("g0", "a#1")) == 5


async def test_messages_of_an_order_key_lie_in_one_partition_in_their_order(town, until):
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0", "g1")
        keys = [f"k{number}" for number in range(12)]
        sends = [mq.send("a", f"{key}:{at}".encode(), order_key=key) for at in range(10) for key in keys]
        await asyncio.gather(*sends)
        await both_up(mq, until, "g0", "g1")
        for key in keys:
            await mq.send("a", f"{key}:{10}".encode(), order_key=key)
        halves = {"g0": t.stored("g0"), "g1": t.stored("g1")}
        assert all(halves.values())
        for key in keys:
            group = "g0" if logical_partition(key) < 512 else "g1"
            mine = [body for body in halves[group] if body.startswith(f"{key}:".encode())]
            assert mine == [f"{key}:{at}".encode() for at in range(11)]


async def test_an_order_key_waits_for_its_broker_while_others_go_elsewhere(town, until):
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0", "g1")
        key = next(f"k{number}" for number in range(100) if logical_partition(f"k{number}") < 512)
        await mq.send("a", b"0", order_key=key)
        await mq.send("a", b"x")
        await mq.send("a", b"x")
        await both_up(mq, until, "g0", "g1")
        await t.places["g0"].stop()
        await until(lambda: not mq._producer._lanes["g0"].link)
        waits = [asyncio.ensure_future(mq.send("a", b"%d" % number, order_key=key)) for number in (1, 2)]
        await mq.send("a", b"y")
        assert not any(one.done() for one in waits)
        await t.places["g0"].start()
        await asyncio.gather(*waits)
        assert [body for body in t.stored("g0") if body.isdigit()] == [b"0", b"1", b"2"]
        assert b"y" in t.stored("g1")
