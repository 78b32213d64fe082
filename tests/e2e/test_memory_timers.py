"""Timers of a queue in memory are those of a real one: the same program is answered the same by both."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import pytest

from e2e.queues import Queue
from tidemill import Client, ClientSettings, TidemillError, testing

pytestmark = pytest.mark.e2e

SETTINGS = ClientSettings(send_timeout_s=30, backoff_max_s=0.2)
DAY = timedelta(days=1)
SUBJECT, KEY = "reminder", {"subject": "reminder", "timer_key": "order-1"}

Ask: TypeAlias = Callable[[], Awaitable[Any]]


async def told(ask: Ask) -> Any:
    """An answer, or an error by its name and its sentence without numbers of its own."""
    try:
        return await ask()
    except (TidemillError, ValueError) as error:
        return type(error).__name__, re.sub(r"[\d.]+", "#", str(error))


def seen(timer: Any, begin: datetime) -> Any:
    """What two runs have in common."""
    if timer is None:
        return None
    days = round((timer.due - begin) / DAY)
    return timer.subject, timer.timer_key, days, timer.size, timer.body, timer.cron


async def program(mq: Client) -> list[Any]:
    """What somebody asks, and what is answered."""
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + DAY
    ids = [
        (await mq.send(SUBJECT, b"%d" % n, at=begin + n * DAY, timer_key=f"order-{n}")).id
        for n in (1, 2, 3, 4)
    ]
    unnamed = (await mq.send(SUBJECT, b"unnamed", delay=3600)).id
    await mq.send(SUBJECT, b"again", cron="0 9 * * mon-fri", time_zone="Europe/Berlin", timer_key="report")
    nobody = f"{'0' * 32}-0"

    async def listed(*asked: Any, **more: Any) -> list[Any]:
        return [seen(timer, begin) async for timer in mq.timers(*asked, **more)]

    async def shown(*asked: Any, **more: Any) -> Any:
        return seen(await mq.timer(*asked, **more), begin)

    questions: list[Ask] = [
        lambda: listed(SUBJECT, "order-"),
        lambda: listed(SUBJECT, since=begin + 2 * DAY, until=begin + 4 * DAY, prefix="order-"),
        lambda: listed(SUBJECT, "order-", limit=2),
        lambda: listed("nobody"),
        lambda: shown(ids[1]),
        lambda: shown(**KEY),
        lambda: shown(nobody),
        lambda: mq.cancel(nobody),
        lambda: mq.cancel(**KEY),
        lambda: mq.cancel(**KEY),
        lambda: mq.cancel(ids[0]),
        lambda: mq.reschedule(ids[0], delay=5),
        lambda: shown(ids[0]),
        lambda: mq.cancel(unnamed),
        lambda: mq.cancel(unnamed),
        lambda: mq.reschedule(ids[1], at=begin + 9 * DAY),
        lambda: shown(ids[1]),
        lambda: mq.reschedule(ids[1], at=begin + 800 * DAY),
        lambda: mq.reschedule(ids[1]),
        lambda: mq.cancel("order-17"),
        lambda: mq.cancel(subject=SUBJECT),
        lambda: mq.cancel(ids[0], subject=SUBJECT),
        lambda: mq.cancel(subject=SUBJECT, timer_key=""),
        lambda: mq.send(SUBJECT, b"", timer_key="order-1"),
        lambda: mq.send(SUBJECT, b"", cron="0 9 * *", timer_key="report"),
        lambda: mq.send(SUBJECT, b"", cron="@daily", time_zone="Nowhere/Land", timer_key="report"),
        lambda: mq.send(SUBJECT, b"", cron="@daily"),
        lambda: mq.send(SUBJECT, b"", cron="@daily", timer_key="report", dedup_key="d"),
        lambda: mq.reschedule(ids[2], delay=0),
        lambda: mq.reschedule(subject=SUBJECT, timer_key="report", delay=0),
    ]
    said = [await told(ask) for ask in questions]
    return [*said, *await after(mq, ids[2]), await listed(SUBJECT)]


async def after(mq: Client, moved: str) -> list[Any]:
    """What comes then, and what is said of it."""
    came: list[bytes] = []
    async with mq.consume(SUBJECT, group="g") as messages:
        async for message in messages:
            came.append(message.body)
            await message.ack()
            if len(came) == 2:
                break
    while [timer async for timer in mq.timers(SUBJECT, until=datetime.now(UTC))]:
        pass  # the broker has them, and its answer is on its way
    return [
        sorted(came),
        await told(lambda: mq.cancel(moved)),
        await told(lambda: mq.reschedule(subject=SUBJECT, timer_key="order-3", delay=1)),
        [timer.cron async for timer in mq.timers(SUBJECT, "report")],
        await told(lambda: mq.cancel(subject=SUBJECT, timer_key="report")),
    ]


async def test_the_same_questions_have_the_same_answers_in_memory_and_at_a_real_queue(
    queue_with_later: Queue,
) -> None:
    async with Client(queue_with_later.server, settings=SETTINGS) as mq:
        real = await program(mq)
    async with testing.Client() as mq:
        assert await program(mq) == real
    assert real[-1] != []
