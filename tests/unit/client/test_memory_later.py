"""Messages for later in a queue in memory, whose clock a test moves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemill import Message
from tidemill.settings import ClientSettings
from tidemill.testing import Client, MemoryBroker, running
from tidemill.worker import Worker

AT_MS = 1_800_000_000_000
AT = datetime.fromtimestamp(AT_MS / 1000, UTC)


def client(**settings: Any) -> Client:
    """Of a broker whose time only passes when it is moved."""
    return Client(MemoryBroker(now_ms=lambda: AT_MS), settings=ClientSettings(**settings))


async def stored(mq: Client, subject: str = "reminder") -> list[tuple[bytes, datetime]]:
    if subject not in mq.broker.subjects:
        return []
    return [(one.body, one.stored_at) async for one in mq.browse(subject)]


async def test_a_message_for_later_comes_when_the_clock_says_so_and_not_a_millisecond_before() -> None:
    async with client() as mq:
        await mq.send("reminder", b"table", delay=timedelta(days=30))
        await mq.advance(days=29, hours=23, minutes=59, seconds=59.999)
        assert await stored(mq) == []
        await mq.advance(seconds=0.001)
        assert await stored(mq) == [(b"table", AT + timedelta(days=30))]


async def test_what_becomes_due_on_the_way_is_given_out_in_the_order_of_its_times() -> None:
    async with client() as mq:
        for hours in (3, 1, 2):
            await mq.send("reminder", str(hours), at=AT + timedelta(hours=hours))
        await mq.send_many("reminder", [b"2a", b"2b"], delay=7200)
        await mq.advance(hours=2.5)
        wanted = [(b"1", 1), (b"2", 2), (b"2a", 2), (b"2b", 2)]
        assert await stored(mq) == [(body, AT + timedelta(hours=hours)) for body, hours in wanted]
        async with mq.consume("reminder", group="g") as messages:
            assert [(await anext(messages)).body for _ in wanted] == [body for body, _ in wanted]


async def test_messages_of_several_subjects_and_priorities_come_all() -> None:
    """A producer counts its batches in each lane of a subject apart."""
    async with client() as mq:
        receipts = [
            await mq.send(subject, b"r", delay=60, priority=priority)
            for subject in ("reminder", "report")
            for priority in (0, 3)
        ]
        await mq.advance(minutes=1)
        assert [receipt.sequence for receipt in receipts] == [0, 1, 2, 3]
        assert [len(await stored(mq, subject)) for subject in ("reminder", "report")] == [2, 2]


async def test_messages_of_one_batch_keep_their_ids_and_all_that_belongs_to_them() -> None:
    async with client(linger_ms=5) as mq:
        receipts = await asyncio.gather(
            *(
                mq.send(
                    "reminder", str(hours), key=f"k{hours}", tags={f"t{hours}"}, properties={"h": hours},
                    priority=3, delay=timedelta(hours=hours),
                )
                for hours in (2, 1, 3)
            )
        )  # fmt: skip
        assert len({receipt.id[:-4] for receipt in receipts}) == 1  # they went as one batch
        assert [receipt.sequence for receipt in receipts] == [0, 1, 2]
        await mq.advance(hours=3)
        async with mq.consume("reminder", group="g") as messages:
            found = [await anext(messages) for _ in receipts]
        assert [one.body for one in found] == [b"1", b"2", b"3"]
        assert [one.id for one in found] == [receipts[place].id for place in (1, 0, 2)]
        assert [(one.key, set(one.tags), one.properties, one.priority) for one in found] == [
            (f"k{hours}", {f"t{hours}"}, {"h": hours}, 3) for hours in (1, 2, 3)
        ]
        assert await mq.why(receipts[2].id) is not None


async def test_what_is_past_or_due_now_comes_without_moving_the_clock() -> None:
    async with client() as mq, mq.consume("reminder", group="g") as messages:
        await mq.send("reminder", b"past", at=AT - timedelta(days=1))
        await mq.send("reminder", b"now", delay=0)
        assert [(await anext(messages)).body for _ in range(2)] == [b"past", b"now"]


async def test_a_clock_that_nobody_moves_goes_as_the_wall_clock_does() -> None:
    async with Client() as mq, mq.consume("reminder", group="g") as messages:
        due = datetime.now(UTC) + timedelta(milliseconds=20)
        await mq.send("reminder", b"soon", at=due)
        assert (await anext(messages)).body == b"soon"
        assert datetime.now(UTC) >= due


async def test_clients_of_one_broker_have_one_clock() -> None:
    broker = MemoryBroker(now_ms=lambda: AT_MS)
    async with Client(broker) as one, Client(broker) as other:
        await one.advance(hours=5)
        await other.send("reminder", b"r", delay=3600)
        await one.advance(minutes=59)
        assert await stored(other) == []
        await other.advance(minutes=1)
        assert await stored(one) == [(b"r", AT + timedelta(hours=6))]
        with pytest.raises(ValueError, match="ahead only"):
            await one.advance(hours=-1)


async def test_a_message_that_failed_comes_again_when_its_delay_is_over_by_that_clock() -> None:
    async with client() as mq, mq.consume("reminder", group="g") as messages:
        await mq.send("reminder", b"r")
        await (await anext(messages)).nack(delay=3600)
        await mq.advance(minutes=59)
        assert not mq.broker.groups["reminder", "g"].due
        await mq.advance(minutes=1)
        assert (await anext(messages)).attempts == 1


async def test_a_reminder_that_sends_the_next_one_comes_as_often_as_its_time_does() -> None:
    worker, seen = Worker(), list[datetime]()

    @worker.on("reminder", group="g")
    async def remind(message: Message) -> None:
        seen.append(message.stored_at)
        await mq.send("reminder", b"again", delay=timedelta(days=1))

    async with client() as mq, running(worker, mq) as run:
        await mq.send("reminder", b"first", delay=timedelta(days=1))
        await run.advance(days=3)
        assert seen == [AT + timedelta(days=day) for day in (1, 2, 3)]
        assert run.errors == []
