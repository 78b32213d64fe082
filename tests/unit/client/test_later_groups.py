"""Sending for later where there are several delay groups, whose masters change. Brokers in memory stand in for them."""

from __future__ import annotations

import asyncio

from samples.towns import Town
from tidemill_wire.columns import Batch
from tidemill_wire.commands import SendBatches


def given(town: Town, group: str) -> list[bytes]:
    """Bodies that one of them was sent for later."""
    found: list[bytes] = []
    for command in town.places[group].broker.said:
        if isinstance(command, SendBatches):
            at = 0
            while at < len(command.batches):
                batch = Batch(bytes(command.batches[at:]))
                found += batch.bodies()
                at += batch.header.length
    return found


def taken(town: Town) -> list[list[bytes]]:
    return [given(town, group) for group in ("g0", "g1")]


def with_delays(town: Town) -> Town:
    for group, place in town.places.items():
        town.realm.serve_later(f"later{group}", place.port)
    return town


async def test_a_client_takes_one_delay_group_and_several_clients_take_all(town):
    async with town(creates=("g0",)) as t:
        with_delays(t)
        for number in range(12):
            async with t.client() as mq:
                await mq.send("a", b"%d" % number, delay=0)
                await mq.send("a", b"%d" % number, delay=0)
        counts = [len(bodies) for bodies in taken(t)]

    assert sum(counts) == 24
    assert all(count and not count % 2 for count in counts)


async def test_when_a_delay_group_fails_what_comes_goes_to_another_one(town, until):
    async with town(creates=("g0",)) as t, with_delays(t).client() as mq:
        await mq.send("a", b"first", delay=0)
        failing = next(group for group in ("g0", "g1") if given(t, group))
        await t.places[failing].stop()
        await until(lambda: mq._producer.later._ways[0].failing)
        await asyncio.wait_for(asyncio.gather(*(mq.send("a", b"%d" % n, delay=0) for n in range(20))), 5)

        other = "g1" if failing == "g0" else "g0"
        assert sorted(given(t, other), key=int) == [b"%d" % n for n in range(20)]
        await t.places[failing].start()


async def test_what_was_on_its_way_waits_for_the_next_master_of_its_group(town, until):
    async with town(creates=("g0",)) as t:
        t.realm.serve_later("later", t.places["g0"].port)
        async with t.client() as mq:
            await mq.send("a", b"first", delay=0)
            t.places["g0"].broker.silent = True
            sending = asyncio.ensure_future(mq.send("a", b"second", delay=0))
            await until(lambda: len(given(t, "g0")) == 2)
            await t.places["g0"].stop()
            t.realm.serve_later("later", t.places["g1"].port, epoch=2)
            await asyncio.wait_for(sending, 5)

        assert given(t, "g1") == [b"second"]
        await t.places["g0"].start()


async def test_a_delay_group_that_takes_nothing_is_not_chosen(town):
    async with town(creates=("g0",)) as t:
        t.realm.serve_later("full", t.places["g0"].port, state="R")
        t.realm.serve_later("open", t.places["g1"].port)
        async with t.client() as mq:
            await mq.send("a", b"x", delay=0)

        assert taken(t) == [[], [b"x"]]
