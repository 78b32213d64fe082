"""Order keys that go to another partition while a producer sends them: none is lost, stored twice or overtaken."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samples.towns import QUICK, Town
from tidemill import Unavailable
from tidemill_wire.columns import Batch
from tidemill_wire.ordering import Chart
from tidemill_wire.routes import PartitionSet

KEYS = [f"k{number}" for number in range(12)]
WIDE = ("g0", "g1", "g0/a#1", "g1/a#2")


def closed(_subject: str) -> Unavailable:
    return Unavailable("route_outdated", "partition 'a' takes no messages of that order key")


def order(town: Town, *places: str) -> dict[str, list[str]]:
    """Of each key, its numbers as they lie in the partitions, in the order in which these are named."""
    found: dict[str, list[str]] = defaultdict(list)
    for place in places:
        group, _, name = place.partition("/")
        for body in town.stored(group, name or "a"):
            key, _, number = body.decode().partition(":")
            found[key].append(number)
    return found


async def send_all(mq: Any, first: int, end: int) -> list[Any]:
    return await asyncio.gather(
        *(
            mq.send("a", f"{key}:{number}".encode(), order_key=key)
            for number in range(first, end)
            for key in KEYS
        )
    )


async def test_what_is_refused_for_its_route_goes_where_its_key_lies_now(
    town: Any, until: Callable[..., Any]
) -> None:
    async with town(groups=2) as t, t.client(settings=replace(QUICK, batch_bytes=600)) as mq:
        t.realm.route("a", "g0")
        await send_all(mq, 0, 3)
        t.places["g0"].broker.refuse_batch = closed
        sending = asyncio.ensure_future(send_all(mq, 3, 20))
        await until(lambda: mq._producer.lane("g0").flights.refused)
        t.places["g0"].broker.refuse_batch = lambda _subject: None
        t.realm.route("a", *WIDE, former=[["g0"]])
        receipts = await sending

        assert order(t, *WIDE) == {key: [str(number) for number in range(20)] for key in KEYS}
        assert {receipt.subject for receipt in receipts} == {"a"}
        chart = Chart(PartitionSet.from_map(t.realm.routes["a"]))
        for place in WIDE[1:]:
            mine = {key for key in KEYS if chart.of(key).key == (place if "/" in place else f"{place}/a")}
            assert {body.decode().partition(":")[0] for body in t.stored(*parts(place))} == mine
            assert mine


def parts(place: str) -> tuple[str, str]:
    group, _, name = place.partition("/")
    return group, name or "a"


@pytest.mark.parametrize("refusal", [closed, lambda _subject: None], ids=["refused", "stored"])
async def test_nothing_overtakes_what_is_on_its_way_when_the_route_changes(
    town: Any, until: Callable[..., Any], refusal: Any
) -> None:
    """The answer comes after the new route, whatever it says."""
    async with town(groups=2) as t, t.client(settings=replace(QUICK, batch_bytes=300)) as mq:
        t.realm.route("a", "g0")
        await send_all(mq, 0, 1)
        broker = t.places["g0"].broker
        answer, held = broker.handle, list[Any]()
        broker.handle = lambda *said: held.append(said)
        sending = [asyncio.ensure_future(send_all(mq, 1, 3))]
        await until(lambda: held)
        t.realm.route("a", "g1", former=[["g0"]])
        await until(lambda: mq._producer._moving.holding)
        sending.append(asyncio.ensure_future(send_all(mq, 3, 6)))
        await asyncio.sleep(0)
        broker.refuse_batch, broker.handle = refusal, answer
        for said in held:
            answer(*said)
        await asyncio.gather(*sending)

        assert order(t, "g0", "g1") == {key: [str(number) for number in range(6)] for key in KEYS}
        assert t.stored("g1")


async def test_tags_and_properties_go_along(town: Any, until: Callable[..., Any]) -> None:
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0")
        await mq.send("a", b"first", order_key="k")
        t.places["g0"].broker.refuse_batch = closed
        sends = [
            asyncio.ensure_future(
                mq.send("a", b"1", order_key="k", key="id", tags={"red"}, properties={"x": 1})
            ),
            asyncio.ensure_future(mq.send("a", b"2", order_key="j")),
        ]
        await until(lambda: mq._producer.lane("g0").flights.refused)
        t.realm.route("a", "g1", former=[["g0"]])
        await asyncio.gather(*sends)

        batches = [Batch(one) for one in t.places["g1"].broker.subjects["a"].batches]
        assert [body for one in batches for body in one.bodies()] == [b"1", b"2"]
        assert batches[0].keys() == ["id", ""][: batches[0].header.messages]
        assert batches[0].tags() == [["red"], []][: batches[0].header.messages]


async def test_what_nobody_takes_in_time_fails_and_is_not_stored(town: Any) -> None:
    async with town(groups=2) as t, t.client(settings=replace(QUICK, send_timeout_s=0.3)) as mq:
        t.realm.route("a", "g0")
        await mq.send("a", b"k:0", order_key="k")
        t.places["g0"].broker.refuse_batch = closed

        with pytest.raises(Unavailable, match="takes no messages of that order key"):
            await mq.send("a", b"k:1", order_key="k")

        assert t.stored("g0") == [b"k:0"]


async def test_budget_is_even_when_all_has_ended(town: Any, until: Callable[..., Any]) -> None:
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0")
        await send_all(mq, 0, 1)
        t.places["g0"].broker.refuse_batch = closed
        sending = asyncio.ensure_future(send_all(mq, 1, 5))
        await until(lambda: mq._producer.lane("g0").flights.refused)
        t.realm.route("a", "g1", former=[["g0"]])
        await sending

        assert mq._producer.budget.held == 0


@pytest.mark.parametrize("batch_bytes", [600, 100_000], ids=["small", "large"])
async def test_what_is_refused_out_of_a_spool_goes_where_its_keys_lie_now_and_is_not_overtaken(
    town: Any, until: Callable[..., Any], tmp_path: Path, batch_bytes: int
) -> None:
    settings = replace(QUICK, batch_bytes=batch_bytes, spool_after_s=0.01)
    async with town(groups=2) as t:
        t.realm.route("a", "g0")
        async with t.client(settings=settings, spool=tmp_path / "spool") as mq:
            await send_all(mq, 0, 2)
            await t.places["g0"].stop()
            receipts = await send_all(mq, 2, 6)
            assert all(one.spooled for one in receipts)
            t.places["g0"].broker.refuse_batch = closed
            await t.places["g0"].start()
            await until(lambda: mq._producer.lane("g0").link)
            t.realm.route("a", "g1", "g0/a#1", former=[["g0"]])
            t.places["g0"].broker.refuse_batch = lambda subject: closed(subject) if subject == "a" else None
            await send_all(mq, 6, 9)
        assert order(t, "g0", "g1", "g0/a#1") == {key: [str(number) for number in range(9)] for key in KEYS}
        assert len(t.stored("g0")) == 2 * len(KEYS)
        assert t.stored("g1")
        assert t.stored("g0", "a#1")
        assert {one.stat().st_size for one in tmp_path.glob("spool.to.*")} == {24}


@pytest.mark.parametrize("routed", [False, True])
async def test_what_waits_for_a_route_goes_where_its_key_lies(
    town: Any, until: Callable[..., Any], routed: bool
) -> None:
    """Also when it was handed in before anybody had said that there are routes; the others take turns."""
    async with town(groups=2) as t, t.client(settings=replace(QUICK, batch_bytes=600)) as mq:
        if routed:
            t.realm.route("other", "g0")
            await mq.send("other", b"")
            t.realm.hindrance = "no_broker_group"  # until it is there
        else:
            t.realm.away = True
        sending = asyncio.ensure_future(send_all(mq, 0, 5))
        await until(lambda: mq._producer is not None and any(mq._producer.anywhere.laden))
        t.realm.away = False
        t.realm.route("a", "g0", "g1")
        await sending
        chart = Chart(PartitionSet.from_map(t.realm.routes["a"]))

    for group in ("g0", "g1"):
        found = order(t, group)
        assert set(found) == {key for key in KEYS if chart.of(key).group == group}
        assert all(numbers == [str(number) for number in range(5)] for numbers in found.values())
