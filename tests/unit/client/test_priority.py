"""Priorities from ``send`` to the handler, with the broker in memory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from tidemill import Refused
from tidemill.blocking import Client as BlockingClient
from tidemill.testing import Client, MemoryBroker, running
from tidemill.worker import Worker
from tidemill_wire.batch import read_header
from tidemill_wire.lanes import first_of_lane, lane_name


async def bodies(mq: Client, count: int, group: str = "g", **more: bool) -> list[bytes]:
    found: list[bytes] = []
    async with mq.consume("orders", group=group, name="c", **more) as messages:
        async for message in messages:
            found.append(message.body)
            if len(found) == count:
                break
    return found


async def test_higher_ones_come_first_and_say_so() -> None:
    async with Client() as mq:
        await mq.send("orders", b"plain")
        receipt = await mq.send("orders", b"urgent", priority=7)
        await mq.send_many("orders", [b"a", b"b"], priority=3)

        assert (receipt.subject, receipt.sequence) == ("orders", first_of_lane(7))
        seen = []
        async with mq.consume("orders", group="g") as messages:
            async for message in messages:
                seen.append((message.subject, message.body, message.priority))
                if len(seen) == 4:
                    break

    assert seen == [
        ("orders", b"urgent", 7),
        ("orders", b"a", 3),
        ("orders", b"b", 3),
        ("orders", b"plain", 0),
    ]


@pytest.mark.parametrize("priority", [-1, 8, True, "high", None, 1.0])
async def test_no_other_priority_leaves_the_client(priority: int) -> None:
    async with Client() as mq:
        for sending in (
            mq.send("orders", b"x", priority=priority),
            mq.send_many("orders", [b"x"], priority=priority),
        ):
            with pytest.raises(Refused, match="use a whole number from 0, which is the default, to 7"):
                await sending

        assert mq.broker.subjects == {}


async def test_the_broker_in_memory_refuses_as_the_real_one() -> None:
    async with Client() as mq:
        producer = mq._sender()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        class Waiter:
            def stored(self, place: int, part: object) -> None:
                future.set_result(None)

            def failed(self, error: Exception) -> None:
                future.set_exception(error)

        producer.put("orders", b"x", None, Waiter(), 8)
        with pytest.raises(Refused, match="'8' is no priority"):
            await future


async def test_batches_of_one_subject_gather_by_priority() -> None:
    async with Client() as mq:
        sending = [asyncio.ensure_future(mq.send("orders", b"%d" % n, priority=n % 2)) for n in range(50)]
        await asyncio.gather(*sending)
        lanes = {name: stored.batches for name, stored in mq.broker.subjects.items()}

    assert set(lanes) == {"orders", lane_name("orders", 1)}
    for name, batches in lanes.items():
        assert {read_header(batch).priority for batch in batches} == {int(name != "orders")}
        assert sum(read_header(batch).messages for batch in batches) == 25


async def test_what_is_nacked_comes_again_with_its_priority() -> None:
    async with Client() as mq:
        await mq.send("orders", b"urgent", priority=5)
        async with mq.consume("orders", group="g") as messages:
            async for message in messages:
                if message.attempts:
                    assert message.priority == 5
                    break
                await message.nack(delay=0)


async def test_a_worker_sees_the_priority() -> None:
    worker, seen = Worker(), list[tuple[bytes, int]]()

    @worker.on("orders", group="g")
    async def handle(message) -> None:  # type: ignore[no-untyped-def]
        seen.append((message.body, message.priority))

    async with Client() as mq:
        await mq.send("orders", b"plain")
        await mq.send("orders", b"urgent", priority=7)
        async with running(worker, mq) as run:
            await run.idle()

    assert sorted(seen) == [(b"plain", 0), (b"urgent", 7)]


async def test_groups_and_subjects_are_shown_with_all_their_lanes() -> None:
    async with Client() as mq:
        await bodies_sent(mq)
        await bodies(mq, 1)
        [subject] = await mq.subjects()
        [group] = await mq.groups()

    assert (subject["name"], subject["messages"]) == ("orders", 3)
    assert (group["subject"], group["acked"] + group["lag"] + group["in_flight"] + group["failed"]) == (
        "orders",
        3,
    )


async def bodies_sent(mq: Client) -> None:
    for priority in (0, 5, 0):
        await mq.send("orders", b"%d" % priority, priority=priority)


async def test_a_seek_moves_all_lanes_and_a_group_that_is_new_begins_in_all() -> None:
    async with Client() as mq:
        await bodies_sent(mq)
        assert await bodies(mq, 3) == [b"5", b"0", b"0"]
        moved = await mq.seek("orders", "g", "earliest")
        assert moved.again == 3
        assert await bodies(mq, 3) == [b"5", b"0", b"0"]
        await mq.seek("orders", "g", first_of_lane(5))
        assert await bodies(mq, 1) == [b"5"]
        await mq.seek("orders", "g", datetime.now(UTC))
        async with mq.consume("orders", group="late", start="latest", name="c"):
            pass
        await mq.send("orders", b"new", priority=6)
        assert await bodies(mq, 1, "late") == [b"new"]


async def test_in_order_each_lane_is_in_its_own() -> None:
    async with Client() as mq:
        await bodies_sent(mq)

        assert await bodies(mq, 3, exclusive=True) == [b"5", b"0", b"0"]


async def test_stored_messages_say_their_priority() -> None:
    async with Client() as mq:
        receipt = await mq.send("orders", b"urgent", priority=4)
        found = await mq.find(receipt.id)

        assert found is not None
        assert (found.priority, found.sequence) == (4, receipt.sequence)
        await mq.send("orders", b"plain")
        assert [one.priority async for one in mq.browse("orders")] == [0, 4]


def test_the_blocking_client_sends_with_priorities() -> None:
    broker = MemoryBroker()
    with BlockingClient(make=lambda: Client(broker)) as mq:
        mq.send("orders", b"urgent", priority=2)
        mq.send_many("orders", [b"x"], priority=1)

    assert set(broker.subjects) == {"orders", lane_name("orders", 1), lane_name("orders", 2)}
