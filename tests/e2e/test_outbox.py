"""The outbox on real databases, with programs killed at every step: what committed is sent, and nothing else.

The order that is written in the same transaction is the witness: its table says what has committed.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from sqlalchemy.ext.asyncio import create_async_engine

from e2e.outboxes import (
    ORDERS,
    SEND_SECONDS,
    TRANSACTIONS,
    Life,
    Nursery,
    Place,
    committed,
    empty_database,
    pace,
    places,
    wait_empty,
)
from e2e.queues import COMMAND, Queue
from e2e.services import RealService
from samples.mariadb import mariadb
from samples.postgres import postgres
from tidemill import Client, ClientSettings
from tidemill.outbox import Outbox, Pace, create_tables, create_tables_async
from tidemill.outbox.blocking import Outbox as BlockingOutbox

pytestmark = pytest.mark.e2e

WAYS = ("async", "session", "cursor")
STEPS = (
    ("before", 2),
    ("written", 1),
    ("written", 3),
    ("committed", 1),
    ("committed", 3),
    ("sender read", 1),
    ("sender sent", 1),
    ("settling", 1),
    ("sender settled", 1),
    ("leasing", 1),
    ("watchdog leading", 2),
    ("watchdog read", 1),
    ("watchdog sent", 1),
    ("watchdog sent", 2),
    ("settling", 3),
    ("watchdog settled", 1),
)
SENT_AND_NOT_DELETED = sum(step.endswith("sent") or step == "settling" for step, _ in STEPS)
NAMES = ("sqlite", "postgresql", "mariadb")
ONLY_WRITE = Pace(sender=False, watchdog=False)


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    folder = tmp_path_factory.mktemp("shops")
    with places(str(folder)) as found:
        for place in found.values():
            engine = sql.create_engine(place.plain)
            create_tables(engine)
            ORDERS.create(engine)
            engine.dispose()
        yield found


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


async def _die_everywhere(place: Place, server: str, nursery: Nursery) -> None:
    """One program after the other; each must have come to its step, and have died there."""
    for number, (step, times) in enumerate(STEPS):
        life = Life(place, server, WAYS[number % len(WAYS)], number, step, times)
        code = await asyncio.to_thread(nursery.run, life)
        assert code == -signal.SIGKILL, f"{life} was not killed there: it ended with {code}"


async def _drain(place: Place, server: str) -> list[str]:
    """A program that stays alive sends the rest; which orders there are."""
    engine = create_async_engine(place.calm)
    settings = ClientSettings(send_timeout_s=SEND_SECONDS)
    calm = pace(Life(place, server, "async", 0))
    async with Client(server, settings=settings) as mq, Outbox(engine, mq, pace=calm):
        await wait_empty(engine)
    names = await committed(engine)
    await engine.dispose()
    return names


async def test_killed_at_every_step_nothing_is_lost_and_nothing_comes_that_rolled_back(
    shared_queue: Queue, shops: dict[str, Place], nursery: Nursery
) -> None:
    server = shared_queue.server
    await asyncio.gather(*(_die_everywhere(place, server, nursery) for place in shops.values()))
    for place in shops.values():
        names = await _drain(place, server)
        async with Client(server) as mq:
            stored = [message async for message in mq.browse(place.name)]
        loose = Counter(message.body.decode() for message in stored if "loose" in message.tags)
        ordered = [message.body.decode() for message in stored if "in order" in message.tags]

        assert len(names) > len(STEPS)
        assert set(loose) == set(names), (place.name, set(loose) ^ set(names))
        assert list(dict.fromkeys(ordered)) == names, place.name
        repeated = sum(loose.values()) + len(ordered) - 2 * len(names)
        told = {message.properties["outbox_id"] for message in stored}
        assert len(told) == 2 * len(names)
        print(f"{place.name}: {len(names)} orders, {repeated} messages repeated after {len(STEPS)} kills")
        # Only what one of the dead had sent and not deleted: here at most all that it wrote.
        assert repeated <= SENT_AND_NOT_DELETED * 2 * TRANSACTIONS


@pytest.mark.parametrize("name", NAMES)
async def test_several_watchdogs_send_each_row_and_one_that_is_killed_costs_a_batch_at_most(
    name: str, shared_queue: Queue, shops: dict[str, Place], nursery: Nursery
) -> None:
    place, server = shops[name], shared_queue.server
    subject, count = f"{name}.race", 600
    engine = create_async_engine(place.calm)
    settings = ClientSettings(send_timeout_s=SEND_SECONDS)
    writer = Outbox(engine, pace=Pace(sender=False, watchdog=False))
    for ordered in (None, "one"):
        async with engine.begin() as connection:
            for number in range(count // 2):
                tags = {"loose" if ordered is None else "in order"}
                await writer.send(connection, subject, str(number), order_key=ordered, tags=tags)
    killed = nursery.begin(Life(place, server, "watch", 900, "watchdog sent", 1))
    async with Client(server, settings=settings) as mq:
        boxes = [Outbox(engine, mq, pace=pace(Life(place, server, "async", 0))) for _ in range(3)]
        await asyncio.to_thread(killed.join)
        for box in boxes:
            await box.__aenter__()
        await wait_empty(engine)
        led = [box.statistics() for box in boxes]
        for box in boxes:
            await box.close()
    await engine.dispose()
    async with Client(server) as mq:
        stored = [message async for message in mq.browse(subject)]

    assert killed.exitcode == -signal.SIGKILL
    loose = Counter(message.body for message in stored if "in order" not in message.tags)
    ordered_bodies = [message.body for message in stored if "in order" in message.tags]
    numbers = [str(number).encode() for number in range(count // 2)]
    assert set(loose) == set(numbers)
    assert list(dict.fromkeys(ordered_bodies)) == numbers
    repeated = len(stored) - count
    assert repeated <= 500, led
    assert sum(one["recovered"] for one in led) + 500 >= count


@pytest.mark.parametrize("name", NAMES)
async def test_timers_of_a_transaction_are_cancelled_and_moved_in_order_and_a_series_is_one(
    name: str, queue_with_later: Queue, shops: dict[str, Place]
) -> None:
    """Through a session and through a cursor; what rolled back changes nothing."""
    place, subject, server = shops[name], f"{name}.timers", queue_with_later.server
    engine, plain = create_async_engine(place.calm), sql.create_engine(place.plain)
    calm, blocking = Outbox(engine, pace=ONLY_WRITE), BlockingOutbox(plain, pace=ONLY_WRITE)
    async with engine.begin() as connection:
        for key in ("cancelled", "moved", "kept"):
            await calm.send(connection, subject, key, delay=3600, timer_key=key)
        await calm.send(connection, subject, "report", cron="@daily", timer_key="report")
        await calm.cancel(connection, subject=subject, timer_key="cancelled")
    raw = plain.raw_connection()
    blocking.reschedule(raw.cursor(), subject=subject, timer_key="moved", delay=timedelta(days=3))
    raw.commit()
    blocking.cancel(raw.cursor(), subject=subject, timer_key="kept")
    raw.rollback()
    raw.close()
    begin = datetime.now(UTC)
    async with Client(server) as mq, Outbox(engine, mq, pace=Pace(poll_s=0.05, retry_s=0.1)):
        await wait_empty(engine)
        found = {timer.timer_key: timer async for timer in mq.timers(subject)}
    await engine.dispose()
    plain.dispose()

    assert set(found) == {"moved", "kept", "report"}
    assert found["kept"].due < begin + timedelta(hours=2) < begin + timedelta(days=2) < found["moved"].due
    assert found["report"].cron == "@daily UTC"


@pytest.mark.parametrize("name", NAMES)
async def test_messages_for_later_come_at_the_time_that_was_meant_when_they_were_written(
    name: str, queue_with_later: Queue, shops: dict[str, Place]
) -> None:
    """Through a session and through a cursor, also when they are sent long after; what rolled back never."""
    place, subject, server = shops[name], f"{name}.later", queue_with_later.server
    engine, plain = create_async_engine(place.calm), sql.create_engine(place.plain)
    calm, blocking = Outbox(engine, pace=ONLY_WRITE), BlockingOutbox(plain, pace=ONLY_WRITE)
    due = datetime.now(UTC) + timedelta(seconds=3)
    for turn in range(2):
        async with engine.connect() as connection:
            await calm.send(connection, subject, f"session {turn}", at=due)
            await (connection.rollback() if turn else connection.commit())
        raw = plain.raw_connection()
        blocking.send(raw.cursor(), subject, f"cursor {turn}", delay=timedelta(seconds=3), order_key="k")
        (raw.rollback if turn else raw.commit)()
        raw.close()
    pause = pace(Life(place, server, "async", 0))
    settings = ClientSettings(send_timeout_s=SEND_SECONDS)
    async with Client(server, settings=settings) as mq, Outbox(engine, mq, pace=pause):
        await wait_empty(engine)
        sent = datetime.now(UTC)
        async with mq.consume(subject, group="g") as messages:
            found = {(message := await anext(messages)).body: datetime.now(UTC) for _ in range(2)}
            await message.ack()
        stored = [message.body async for message in mq.browse(subject)]
    await engine.dispose()
    plain.dispose()

    assert set(found) == {b"session 0", b"cursor 0"}
    assert sorted(stored) == sorted(found)
    assert min(found.values()) >= due
    assert sent < due


@pytest.mark.parametrize("kind", [postgres, mariadb])
async def test_a_database_that_is_stopped_and_comes_back_loses_no_message(
    kind: Callable[[], Any], shared_queue: Queue
) -> None:
    """Connections of the pool are cut in the middle of their work, again and again."""
    subject, sent = f"{kind.__name__}.restarted", list[str]()
    with kind() as server:
        engine = create_async_engine(empty_database(server))
        await create_tables_async(engine)
        settings = ClientSettings(send_timeout_s=SEND_SECONDS)
        calm = pace(Life(Place("", "", ""), "", "async", 0))
        async with Client(shared_queue.server, settings=settings) as mq, Outbox(engine, mq, pace=calm) as box:
            for turn in range(2):
                for number in range(5):
                    async with engine.begin() as connection:
                        name = f"{turn}-{number}"
                        await box.send(connection, subject, name, order_key="k" if number % 2 else None)
                    sent.append(name)
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start)
                await (
                    engine.dispose()
                )  # of the shop's own connections: what they say of the end is its own matter
            await wait_empty(engine)
        await engine.dispose()
    async with Client(shared_queue.server) as mq:
        stored = [message.body.decode() async for message in mq.browse(subject)]

    assert set(stored) == set(sent)


async def test_the_relay_sends_for_programs_that_only_write_and_ends_on_a_signal(
    queue: Queue, tmp_path: Path
) -> None:
    """Nobody sent while they wrote."""
    url = f"sqlite+aiosqlite:///{tmp_path}/shop.db"
    engine = create_async_engine(url)
    await create_tables_async(engine)
    writer = Outbox(engine, pace=Pace(sender=False, watchdog=False))
    async with engine.begin() as connection:
        for number in range(10):
            await writer.send(connection, "relayed", str(number), order_key="k" if number % 2 else None)
    relay = RealService(tmp_path / "relay")
    command = [*COMMAND, "outbox", "relay", "--url", url, "--server", queue.server]
    try:
        relay.spawn(command, stdout=subprocess.DEVNULL)
        await wait_empty(engine)
        assert relay.stop() == 0
    finally:
        relay.close()
    await engine.dispose()
    async with Client(queue.server) as mq:
        stored = [message.body.decode() async for message in mq.browse("relayed")]

    assert sorted(stored) == [str(number) for number in range(10)]
    assert "until Ctrl-C" in relay.errors
