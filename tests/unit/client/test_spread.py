"""Which partition of a subject a message goes to, and what of it may go to another one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from samples.realms import row_of
from samples.towns import QUICK, both_up
from tidemill import Unavailable
from tidemill.spread import Standing
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


# -- subjects whose order is only tried ------------------------------------------------------------------------


def keys_of(group: str, *route: str) -> list[str]:
    """Order keys that lie on a broker group."""
    chart = Chart(PartitionSet.from_map(row_of("a", [route])))
    return [key for key in (f"k{number}" for number in range(60)) if chart.of(key).group == group]


async def test_an_order_key_that_is_only_tried_goes_elsewhere_when_its_broker_is_away(town, until, caplog):
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0", "g1/a#1", strategy="BestTried")
        key = keys_of("g0", "g0", "g1/a#1")[0]
        await mq.send("a", b"0", order_key=key)
        await mq.send("a", b"x")
        await both_up(mq, until, "g0", "g1")
        assert mq.unordered == 0
        await t.places["g0"].stop()
        await until(lambda: not mq._producer._lanes["g0"].link)
        for number in (1, 2, 3):
            await mq.send("a", b"%d" % number, order_key=key)
        assert [body for body in t.stored("g1", "a#1") if body.isdigit()] == [b"1", b"2", b"3"]
        assert mq.unordered == 3
        assert [one.getMessage() for one in caplog.records if "order_given_up" in one.message] == [
            "order_given_up a: its order keys of g0 go elsewhere meanwhile"
        ]
        await t.places["g0"].start()
        await until(lambda: mq._producer._lanes["g0"].standing is Standing.STEADY)
        await mq.send("a", b"4", order_key=key)
        assert t.stored("g0")[-1] == b"4"
        assert mq.unordered == 3


async def test_what_waited_in_order_moves_when_the_broker_fails_and_is_counted(town, until):
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0", "g1", strategy="BestTried")
        keys = keys_of("g0", "g0", "g1")[:3]
        await mq.send("a", b"0", order_key=keys[0])
        await mq.send("a", b"x")
        await both_up(mq, until, "g0", "g1")
        t.places["g0"].broker.refuse_batch = lambda _subject: Unavailable("read_only", "no more")
        sends = [mq.send("a", f"{key}-{at}".encode(), order_key=key) for at in range(5) for key in keys]
        await asyncio.gather(*sends)
        assert mq.unordered == 15
        moved = [body.decode() for body in t.stored("g1") if body != b"x"]
        for key in keys:
            assert [body for body in moved if body.startswith(f"{key}-")] == [
                f"{key}-{at}" for at in range(5)
            ]


async def test_a_strict_order_key_never_goes_elsewhere(town, until):
    async with town(groups=2) as t, t.client(replace(QUICK, send_timeout_s=0.3)) as mq:
        t.realm.route("a", "g0", "g1", strategy="Strict")
        key = keys_of("g0", "g0", "g1")[0]
        await mq.send("a", b"0", order_key=key)
        await mq.send("a", b"x")
        await mq.send("a", b"x")
        await both_up(mq, until, "g0", "g1")
        t.places["g0"].broker.refuse_batch = lambda _subject: Unavailable("read_only", "no more")
        outcomes = await asyncio.gather(
            *(mq.send("a", b"no", order_key=key) for _ in range(3)), return_exceptions=True
        )
        assert {type(one) for one in outcomes} == {Unavailable}
        assert b"no" not in t.stored("g0") + t.stored("g1")
        assert mq.unordered == 0


async def test_nothing_is_out_of_order_when_only_the_first_connection_takes_its_time(town):
    """Whoever is connected first must not attract the keys of the other."""
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("warm", "g1")
        t.realm.route("a", "g0", "g1", strategy="BestTried")
        await mq.send("warm", b"")
        keys = keys_of("g0", "g0", "g1")
        await asyncio.gather(*(mq.send("a", b"x", order_key=key) for key in keys))
        assert len(t.stored("g0")) == len(keys)
        assert mq.unordered == 0


async def test_a_broker_that_is_never_reached_is_forsaken_after_the_time_of_a_slow_answer(town):
    """It neither refuses a connection nor greets: only the patience ends that."""
    async with town(groups=2) as t, t.client() as mq:
        t.places["g0"].broker.answers = False
        t.realm.route("a", "g0", "g1", strategy="BestTried")
        key = keys_of("g0", "g0", "g1")[0]
        async with asyncio.timeout(4):  # to connect may take five seconds
            await mq.send("a", b"x", order_key=key)
        assert t.stored("g1") == [b"x"]
        assert mq.unordered == 1


async def test_a_slow_broker_gives_up_what_waits_and_keeps_what_it_may_have_stored(town, until):
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0", "g1", strategy="BestTried")
        key = keys_of("g0", "g0", "g1")[0]
        await mq.send("a", b"0", order_key=key)
        await mq.send("a", b"x")
        await both_up(mq, until, "g0", "g1")
        place = t.places["g0"]
        place.broker.answers = False
        first = asyncio.ensure_future(mq.send("a", b"1", order_key=key))
        await until(lambda: b"1" in t.stored("g0"))
        await mq.send("a", b"2", order_key=key)
        assert b"2" in t.stored("g1")
        assert not first.done()
        place.broker.answers = True
        place.drop()
        await first
        assert (t.stored("g0") + t.stored("g1")).count(b"1") == 1


async def test_what_becomes_strict_later_stays(town, until):
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0", "g1", strategy="BestTried")
        key = keys_of("g0", "g0", "g1")[0]
        await mq.send("a", b"0", order_key=key)
        await mq.send("a", b"x")
        await both_up(mq, until, "g0", "g1")
        t.realm.route("a", "g0", "g1", strategy="Strict")
        await until(lambda: not mq._router.atlas.routes["a"].best_tried)
        await t.places["g0"].stop()
        await until(lambda: not mq._producer._lanes["g0"].link)
        waits = asyncio.ensure_future(mq.send("a", b"1", order_key=key))
        await mq.send("a", b"y")
        assert not waits.done()
        await t.places["g0"].start()
        await waits
        assert t.stored("g0")[-1] == b"1"
