"""Timers in a queue in memory, whose clock a test moves: found, cancelled, moved; and what recurs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tidemill import Changed, Message, Refused
from tidemill.settings import ClientSettings
from tidemill.testing import Client, MemoryBroker, running
from tidemill.worker import Worker

BERLIN = ZoneInfo("Europe/Berlin")
AT = datetime(2027, 3, 26, 8, tzinfo=BERLIN)
"""A Friday; clocks are turned on the Sunday after it."""


def client(**settings: Any) -> Client:
    """Of a broker whose time only passes when it is moved."""
    at_ms = round(AT.timestamp() * 1000)
    return Client(MemoryBroker(now_ms=lambda: at_ms), settings=ClientSettings(**settings))


async def stored(mq: Client, subject: str = "reports") -> list[tuple[bytes, datetime]]:
    if subject not in mq.broker.subjects:
        return []
    return [(one.body, one.stored_at) async for one in mq.browse(subject)]


async def test_what_is_cancelled_never_comes_and_what_has_come_is_gone() -> None:
    async with client() as mq:
        first, second, third = [
            await mq.send("reports", b"%d" % n, delay=n, timer_key="k") for n in (1, 2, 3)
        ]
        await mq.advance(seconds=1)
        assert await mq.cancel(first.id) == Changed(0, 1)
        assert await mq.cancel(second.id) == await mq.cancel(second.id.upper()) == Changed(1, 0)
        assert await mq.reschedule(second.id, delay=1) == Changed(0, 0)
        assert await mq.cancel(subject="reports", timer_key="k") == Changed(1, 1)
        assert await mq.cancel(subject="reports", timer_key="k") == Changed(0, 1)
        assert await mq.timer(third.id) is None
        await mq.advance(days=1)
        assert [body for body, _ in await stored(mq)] == [b"1"]


async def test_what_has_another_time_comes_then_with_its_id_and_key_and_not_before() -> None:
    async with client() as mq:
        receipt = await mq.send("reports", b"r", delay=60, timer_key="k", key="kk")
        other = await mq.send("reports", b"o", delay=60, timer_key="k2")
        assert await mq.reschedule(receipt.id, delay=timedelta(days=1)) == Changed(1, 0)
        assert await mq.reschedule(subject="reports", timer_key="k2", at=AT - timedelta(days=1)) == Changed(
            1, 0
        )
        async with mq.consume("reports", group="g") as messages:
            assert (await anext(messages)).id == other.id
            await mq.advance(hours=23.99)
            assert len(await stored(mq)) == 1
            await mq.advance(minutes=1)
            message = await anext(messages)
        assert (message.id, message.timer_key, message.key) == (receipt.id, "k", "kk")
        with pytest.raises(Refused, match="731 are allowed"):
            await mq.reschedule(receipt.id, delay=timedelta(days=731, seconds=-1))
            await mq._change(_far(receipt.id))


def _far(identity: str) -> Any:
    from tidemill_wire.timing import Reschedule, Target

    return Reschedule(Target(id=identity), round(1000 * (AT + timedelta(days=800)).timestamp()))


async def test_timers_are_shown_and_listed_by_prefix_and_time_and_page_by_page() -> None:
    async with client() as mq:
        for number in range(250):
            await mq.send("reports", b"%d" % number, delay=1000 - number, timer_key=f"order-{number:03}")
        await mq.send("reports", b"no key", delay=1)
        await mq.send("others", b"other", delay=1, timer_key="order-1")
        listed = [timer async for timer in mq.timers("reports", "order-")]
        assert [timer.timer_key for timer in listed] == [
            f"order-{number:03}" for number in reversed(range(250))
        ]
        assert {timer.body for timer in listed} == {None}
        some = mq.timers(
            "reports", "order-1", since=AT + timedelta(seconds=881), until=AT + timedelta(seconds=884)
        )
        assert [timer.timer_key async for timer in some] == ["order-119", "order-118", "order-117"]
        assert len([timer async for timer in mq.timers("reports", limit=7)]) == 7
        found = await mq.timer(subject="reports", timer_key="order-007")
        assert found is not None
        assert (found.body, found.due, found.stored_at) == (b"7", AT + timedelta(seconds=993), AT)


async def test_what_recurs_comes_by_the_clocks_of_its_zone_until_it_is_cancelled() -> None:
    async with client() as mq:
        receipt = await mq.send(
            "reports", b"daily", cron="30 2 * * *", time_zone="Europe/Berlin", timer_key="report", key="k"
        )
        await mq.advance(days=3, hours=1)
        wanted = [  # on the Sunday there is no half past two
            datetime(2027, 3, 27, 2, 30, tzinfo=BERLIN),
            datetime(2027, 3, 28, 3, 0, tzinfo=BERLIN),
            datetime(2027, 3, 29, 2, 30, tzinfo=BERLIN),
        ]
        assert await stored(mq) == [(b"daily", at) for at in wanted]
        async with mq.consume("reports", group="g") as messages:
            found: list[Message] = [await anext(messages) for _ in wanted]
        assert [(one.key, one.timer_key, one.created_at) for one in found][1:] == [
            ("k", "report", at) for at in wanted[1:]
        ]
        assert len({one.id for one in found}) == 3
        assert found[0].id == receipt.id
        [timer] = [timer async for timer in mq.timers("reports")]
        assert (timer.cron, timer.due) == (
            "30 2 * * * Europe/Berlin", datetime(2027, 3, 30, 2, 30, tzinfo=BERLIN),
        )  # fmt: skip
        assert await mq.cancel(receipt.id) == Changed(1, 1), "whichever of its occurrences is named"
        assert await mq.cancel(subject="reports", timer_key="report") == Changed(0, 3)
        await mq.advance(days=30)
        assert len(await stored(mq)) == 3


@pytest.mark.parametrize(("missed", "hours"), [("once", [72.5]), ("all", [72.5] * 3), ("none", [])])
async def test_of_times_that_were_missed_come_as_many_as_was_said(missed: str, hours: list[float]) -> None:
    async with client() as mq:
        await mq.send("reports", b"r", cron="0 8 * * *", time_zone="UTC", missed=missed, timer_key="report")
        await mq.advance(hours=72.5, away=True)
        assert [(at - AT) / timedelta(hours=1) for _, at in await stored(mq)] == hours
        await mq.advance(days=1)
        assert [(at - AT) / timedelta(hours=1) for _, at in await stored(mq)] == [*hours, 73.0]


async def test_a_series_that_was_moved_passes_over_the_times_before() -> None:
    async with client() as mq:
        await mq.send("reports", b"r", cron="@daily", timer_key="report")
        moved = datetime(2027, 3, 29, 12, tzinfo=UTC)
        assert await mq.reschedule(subject="reports", timer_key="report", at=moved) == Changed(1, 0)
        await mq.advance(days=4)
        assert [at for _, at in await stored(mq)] == [moved, datetime(2027, 3, 30, tzinfo=UTC)]


async def test_handlers_are_done_with_each_occurrence_before_the_next_comes() -> None:
    worker, seen = Worker(), list[datetime]()

    @worker.on("reports", group="g")
    async def handle(message: Message) -> None:
        seen.append(datetime.fromtimestamp(mq.broker.clock.now_ms() / 1000, UTC))

    async with client() as mq, running(worker, mq) as run:
        await mq.send("reports", b"r", cron="@hourly", timer_key="report")
        await run.advance(hours=3)
        assert seen == [AT + timedelta(hours=hour) for hour in (1, 2, 3)]
        assert run.errors == []
