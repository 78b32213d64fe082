"""Sending and consuming over the routes of meta, with brokers in memory behind real sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from samples.towns import QUICK, both_up
from tidemill import BrokerUnreachable, Client, OutcomeUnknown, Refused, Unavailable
from tidemill.spread import Standing


async def test_messages_of_a_subject_take_turns_among_its_broker_groups(town, until):
    async with town(creates=("g0", "g1")) as t, t.client() as mq:
        await mq.send("a", b"first")
        await both_up(mq, until, "g0", "g1")
        for number in range(10):
            await mq.send("a", b"%d" % number)
        receipts = await mq.send_many("a", [b"x" * 200_000] * 40)
        assert len(receipts) == 40
        await mq.send_each([("a", b"each"), ("b", b"each")])
        counts = [len(t.stored(group)) for group in ("g0", "g1")]
        assert sum(counts) == 52
        assert min(counts) >= 20


async def test_a_refused_batch_goes_to_another_broker_group_within_the_call(town, until):
    async with town(creates=("g0", "g1")) as t, t.client() as mq:
        await mq.send("a", b"0")
        await both_up(mq, until, "g0", "g1")
        full = t.places["g0"].broker
        full.refuse_batch = lambda _subject: Unavailable("disk_full", "full")
        sent = [b"%d" % number for number in range(1, 30)]
        for body in sent:
            await mq.send("a", body, key="k")
        assert sorted(t.stored("g0") + t.stored("g1")) == sorted([b"0", *sent])


async def test_a_broker_that_is_away_keeps_nobody_waiting(town, until):
    async with town(creates=("g0", "g1")) as t, t.client() as mq:
        await mq.send("a", b"0")
        await both_up(mq, until, "g0", "g1")
        await t.places["g0"].stop()
        await until(lambda: not mq._producer._lanes["g0"].link)
        sent = [b"%d" % number for number in range(1, 20)]
        await asyncio.gather(*(mq.send("a", body) for body in sent))
        assert set(sent) <= set(t.stored("g1"))
        await t.places["g0"].start()


async def test_what_may_be_stored_is_sent_again_to_the_same_broker_group_and_stored_once(town, until):
    async with town(creates=("g0", "g1")) as t, t.client() as mq:
        await mq.send("a", b"0")
        await both_up(mq, until, "g0", "g1")
        for place in t.places.values():
            place.broker.answers = False
        sends = [asyncio.ensure_future(mq.send("a", b"%d" % number)) for number in (1, 2)]
        await until(lambda: len(t.stored("g0") + t.stored("g1")) == 3)
        before = {group: t.stored(group) for group in t.places}
        assert all(before.values())
        for place in t.places.values():
            place.broker.answers = True
            place.drop()
        await asyncio.gather(*sends)
        assert {group: t.stored(group) for group in t.places} == before


async def test_what_may_be_stored_stays_when_its_broker_begins_to_stop_and_cannot_say_so(town, until):
    """A broker that stops refuses whole frames, without a look at what it has: so it has said nothing."""
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0", "g1")
        await mq.send("a", b"0")
        await both_up(mq, until, "g0", "g1")
        place = t.places["g0"]
        place.broker.answers = False
        sends = [asyncio.ensure_future(mq.send("a", b"%d" % number)) for number in (1, 2)]
        await until(lambda: len(t.stored("g0") + t.stored("g1")) == 3)
        stored = {group: t.stored(group) for group in t.places}
        place.broker.answers, place.broker.stopping = True, True
        place.drop()
        await until(lambda: place.broker.turned_away >= 12 or all(send.done() for send in sends))
        place.broker.stopping = False
        await asyncio.gather(*sends)
        assert {group: t.stored(group) for group in t.places} == stored


async def test_a_subject_on_one_broker_group_waits_for_it(town, until):
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0")
        await mq.send("a", b"0")
        await t.places["g0"].stop()
        send = asyncio.ensure_future(mq.send("a", b"1"))
        await t.places["g0"].start()
        await send
        assert (t.stored("g0"), t.stored("g1")) == ([b"0", b"1"], [])


async def test_a_new_master_is_gone_to_when_the_stream_says_so(town, until):
    """The former one takes connections and answers nothing: only meta can tell."""
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0")
        await mq.send("a", b"0")
        t.places["g0"].broker.answers = False
        send = asyncio.ensure_future(mq.send("a", b"1"))
        await until(lambda: len(t.stored("g0")) == 2)
        t.realm.serve("g0", t.places["g1"].port, epoch=2)
        await send
        assert t.stored("g1") == [b"1"]


async def test_an_expanded_route_is_followed_by_producers_and_consumers(town, until):
    async with town(groups=3) as t, t.client() as mq:
        t.realm.route("a", "g0")
        await mq.send("a", b"0")
        t.realm.route("a", "g1", "g2", former=[("g0",)])
        await until(lambda: "g1" in mq._producer._lanes)
        await both_up(mq, until, "g1", "g2")
        for number in range(1, 9):
            await mq.send("a", b"%d" % number)
        assert t.stored("g0") == [b"0"]
        assert len(t.stored("g1")) == len(t.stored("g2")) == 4
        got = []
        async with mq.consume("a", group="g") as messages:
            async for message in messages:
                got.append(message.body)
                if len(got) == 9:
                    break
        assert sorted(got) == [b"%d" % number for number in range(9)]


async def test_a_subject_that_meta_does_not_make_is_refused(town):
    async with town() as t, t.client() as mq:
        with pytest.raises(Refused, match="unknown_subject"):
            await mq.send("a", b"0")
        t.realm.route("a", "g0")
        await asyncio.wait_for(_sent_at_last(mq), 10)


async def _sent_at_last(mq: Client) -> None:
    while True:
        try:
            await mq.send("a", b"1")
        except Refused:
            await asyncio.sleep(0)
        else:
            return


async def test_what_hinders_meta_is_said_when_the_time_is_over(town):
    async with town(hindrance="no_broker_group") as t:
        async with t.client(replace(QUICK, send_timeout_s=0.3)) as mq:
            with pytest.raises(BrokerUnreachable, match="no_broker_group"):
                await mq.send("a", b"0")


async def test_meta_away_stops_nothing_that_runs(town):
    async with town(creates=("g0", "g1")) as t, t.client() as mq:
        await mq.send("a", b"0")
        t.realm.away = True
        t.realm.changed()
        for place in t.places.values():
            place.drop()
        await mq.send_many("a", [b"1", b"2"])
        async with mq.consume("a", group="g") as messages:
            got = [(await anext(messages)).body for _ in range(3)]
        assert sorted(got) == [b"0", b"1", b"2"]


async def test_a_client_begins_with_cached_routes_while_meta_is_away(town, tmp_path, until):
    cached = replace(QUICK, routes_cache=tmp_path / "routes")
    async with town(creates=("g0", "g1")) as t:
        async with t.client(cached) as mq:
            await mq.send("a", b"0")
            await until(
                lambda: (tmp_path / "routes").exists() and b'"a"' in (tmp_path / "routes").read_bytes()
            )
        t.realm.away = True
        async with t.client(cached) as mq:
            await mq.send("a", b"1")
            async with mq.consume("a", group="g") as messages:
                got = [(await anext(messages)).body for _ in range(2)]
        assert sorted(got) == [b"0", b"1"]


async def test_cached_routes_of_a_former_cluster_are_of_no_account_where_somebody_answers(town, tmp_path):
    cached = replace(QUICK, routes_cache=tmp_path / "routes")
    async with town(creates=("g0",)) as former:
        former.realm.serve("g0", former.places["g0"].port, epoch=40)
        async with former.client(cached) as mq:
            await mq.send("a", b"0")
    async with town(creates=("g0",)) as t, t.client(cached) as mq:
        await mq.send("a", b"1")
        assert t.stored("g0") == [b"1"]


async def test_without_streams_routes_are_polled(town):
    settings = replace(QUICK, routes_poll_s=0.05)
    async with town(groups=2, watched=False) as t, t.client(settings) as mq:
        t.realm.route("a", "g0")
        await mq.send("a", b"0")
        t.realm.route("a", "g1", former=[("g0",)])
        while not t.stored("g1"):
            await mq.send("a", b"1")


async def test_meta_hears_what_is_produced_and_consumed(town, until):
    async with town(creates=("g0", "g1")) as t:
        async with t.client() as mq:
            await mq.send("a", b"0")
            async with mq.consume(["b", "c*"], group="g", name="ann") as messages:
                await until(lambda: t.realm.beats[-1]["consumes"])
                told = {"subject": "b", "group": "g", "consumer": "ann", "consumption": "shared"}
                assert t.realm.beats[-1]["consumes"] == [told]
                assert t.realm.beats[-1]["produces"] == ["a"]
                await mq.send("c.1", b"1")
                assert (await anext(messages)).body == b"1"
        assert t.realm.asked[-1] == "/v1/clients/leave"


async def test_what_no_broker_group_takes_is_spooled_for_it_and_sent_by_the_next_process(town, tmp_path):
    settings = replace(QUICK, spool_after_s=0.05)
    async with town(groups=2) as t:
        t.realm.route("a", "g0")
        t.realm.route("b", "g1")
        async with t.client(settings, spool=tmp_path / "spool") as mq:
            await mq.send("a", b"0")
            await t.places["g0"].stop()
            assert (await mq.send("a", b"1")).spooled
            assert not (await mq.send("b", b"2")).spooled
        assert (tmp_path / "spool.to.g0").stat().st_size > 24
        await t.places["g0"].start()
        async with t.client(settings, spool=tmp_path / "spool") as mq:
            await mq.send("a", b"3")
        assert t.stored("g0") == [b"0", b"1", b"3"]


async def test_what_had_no_route_is_spooled_and_goes_where_meta_says_later(town, tmp_path, until):
    settings = replace(QUICK, spool_after_s=0.05)
    async with town(creates=("g0", "g1")) as t, t.client(settings, spool=tmp_path / "spool") as mq:
        t.realm.away = True
        assert (await mq.send("a", b"0")).spooled
        assert (await mq.send("b", b"1")).spooled
        t.realm.away = False
        await until(lambda: t.stored("g0") + t.stored("g1") and t.stored("g0", "b") + t.stored("g1", "b"))
        assert not (await mq.send("a", b"2")).spooled
        assert sorted(t.stored("g0") + t.stored("g1")) == [b"0", b"2"]


async def test_what_was_spooled_and_may_be_stored_stays_when_its_broker_cannot_say_so(town, tmp_path, until):
    settings = replace(QUICK, spool_after_s=0.05)
    async with town(creates=("g0", "g1")) as t, t.client(settings, spool=tmp_path / "spool") as mq:
        t.realm.away = True
        assert (await mq.send("a", b"0")).spooled
        brokers = {group: place.broker for group, place in t.places.items()}
        for broker in brokers.values():
            broker.silent = True
        t.realm.away = False
        await until(lambda: t.stored("g0") + t.stored("g1"))
        [mine] = [group for group in t.places if t.stored(group)]
        [other] = set(t.places) - {mine}
        brokers[other].silent = False
        brokers[mine].stopping = True
        t.places[mine].drop()
        await until(lambda: brokers[mine].turned_away)
        await t.places[mine].stop()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until(lambda: len(t.stored("g0") + t.stored("g1")) > 1), 0.3)
        brokers[mine].stopping = brokers[mine].silent = False
        await t.places[mine].start()
        assert not (await mq.send("a", b"1")).spooled
        assert t.stored(mine)[:1] == [b"0"]
        assert sorted(t.stored("g0") + t.stored("g1")) == [b"0", b"1"]


async def test_what_lies_behind_a_spooled_frame_in_doubt_goes_by_its_own_route(town, tmp_path, until):
    """Neither had a route. What may be at a broker group is sent there again, and nothing else with it."""
    settings = replace(QUICK, spool_after_s=0.05)
    async with town(creates=("g0",)) as t, t.client(settings, spool=tmp_path / "spool") as mq:
        t.realm.away = True
        assert (await mq.send("a", b"doubtful")).spooled
        place = t.places["g0"]
        place.broker.silent = True
        t.realm.away = False
        await until(lambda: t.stored("g0"))
        t.realm.away = True
        await place.stop()
        assert (await mq.send("b", b"behind")).spooled
        place.broker.silent = False
        await place.start()
        spooler = mq._spools._spoolers[""]
        await until(lambda: not spooler._bound)
        t.realm.route("b", "g1")
        t.realm.away = False
        await until(lambda: t.stored("g0", "b") or t.stored("g1", "b"))
        assert (t.stored("g0"), t.stored("g0", "b"), t.stored("g1", "b")) == ([b"doubtful"], [], [b"behind"])


async def test_a_deadline_holds_for_what_is_in_flight_and_for_what_is_not(town, until):
    async with town(creates=("g0", "g1")) as t, t.client(replace(QUICK, send_timeout_s=0.4)) as mq:
        await mq.send("a", b"0")
        await both_up(mq, until, "g0", "g1")
        for place in t.places.values():
            place.broker.answers = False
        with pytest.raises(OutcomeUnknown):
            await mq.send("a", b"1")
        for place in t.places.values():
            place.broker.answers = True
            await place.stop()
        with pytest.raises((BrokerUnreachable, OutcomeUnknown)):
            await mq.send("a", b"2")
        for place in t.places.values():
            await place.start()
        assert mq._producer.budget.held == 0


async def test_a_backlog_on_one_broker_does_not_shut_out_the_other(town, until):
    settings = replace(QUICK, prefetch_messages=40)
    async with town(groups=2) as t, t.client(settings) as mq:
        t.realm.route("much", "g0")
        t.realm.route("little", "g1")
        await mq.send_many("much", [b"m"] * 2000)
        async with mq.consume(["much", "little"], group="g") as messages:
            for _ in range(200):
                assert (await anext(messages)).body == b"m"
            await mq.send("little", b"l")
            later = [(await anext(messages)).body for _ in range(200)]
            assert b"l" in later
            rest = [(await anext(messages)).body for _ in range(2001 - 400)]
            assert set(rest) == {b"m"}


async def test_a_broker_that_owes_an_answer_is_avoided_until_it_gives_it(town, until):
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0", "g1")
        await mq.send_each([("a", b"0")])
        await mq.send("a", b"0")
        await both_up(mq, until, "g0", "g1")
        lanes = mq._producer._lanes
        t.places["g0"].broker.answers = False
        waits = [asyncio.ensure_future(mq.send("a", b"%d" % number)) for number in (1, 2)]
        await until(lambda: lanes["g0"].standing is Standing.AVOIDED)
        for number in range(50):
            await mq.send("a", b"more-%d" % number)
        assert not any(body.startswith(b"more") for body in t.stored("g0"))
        t.places["g0"].broker.answers = True
        t.places["g0"].drop()
        await asyncio.gather(*waits)
        stored = t.stored("g0") + t.stored("g1")
        assert sorted(stored) == sorted(
            [b"0", b"0", b"1", b"2", *(b"more-%d" % number for number in range(50))]
        )


async def test_a_broker_that_turns_out_to_have_a_meta_gets_what_it_may_have_again_and_stores_it_once(
    town, until
):
    async with town(groups=1, creates=("g0",), flat=True) as t, t.client() as mq:
        await mq.send("a", b"0")
        place = t.places["g0"]
        place.broker.answers = False
        send = asyncio.ensure_future(mq.send("a", b"1"))
        await until(lambda: len(t.stored("g0")) == 2)
        t.realm.flat = False
        place.broker.answers = True
        place.drop()
        await send
        await mq.send("a", b"2")
        await mq.send("b", b"3")
        assert (t.stored("g0"), t.stored("g0", "b")) == ([b"0", b"1", b"2"], [b"3"])
        assert t.realm.beats


async def test_what_is_refused_where_meta_has_come_since_goes_by_the_route(town, until):
    async with town(groups=2, creates=("g1",), flat=True) as t, t.client() as mq:
        await mq.send("a", b"0")
        broker = t.places["g0"].broker
        broker.refuse_batch = lambda _subject: Unavailable("disk_full", "full")
        send = asyncio.ensure_future(mq.send("a", b"1"))
        await until(lambda: mq._producer.anywhere.flights.refused)
        t.realm.flat = False
        t.places["g0"].drop()
        await send
        assert (t.stored("g0"), t.stored("g1")) == ([b"0"], [b"1"])
