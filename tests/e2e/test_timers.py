"""What waits at a real queue: found, cancelled and given another time, by programs and by people."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from e2e.conftest import MakeQueue
from e2e.queues import Queue, run_command
from tidemill import Changed, Client, ClientSettings, blocking

pytestmark = pytest.mark.e2e

SETTINGS = ClientSettings(send_timeout_s=30, backoff_max_s=0.2)
STANDALONE = (sys.executable, "-m", "tidemill_standalone")
SUBJECT = "reminder"


@pytest.fixture
def queue(make_queue: MakeQueue) -> Queue:
    return make_queue(command=STANDALONE).start()


async def test_timers_are_listed_moved_and_cancelled_also_over_a_kill(queue: Queue) -> None:
    day = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    async with Client(queue.server, settings=SETTINGS) as mq:
        receipts = await asyncio.gather(
            *(
                mq.send(
                    SUBJECT, b"%d" % number, at=day + timedelta(hours=number), timer_key=f"order-{number}"
                )
                for number in range(5)
            )
        )
        unnamed = await mq.send(SUBJECT, b"unnamed", delay=3600)
        assert await mq.cancel(receipts[0].id) == Changed(1, 0)
        assert await mq.cancel(subject=SUBJECT, timer_key="order-1") == Changed(1, 0)
        assert await mq.reschedule(subject=SUBJECT, timer_key="order-2", delay=timedelta(days=2)) == Changed(
            1, 0
        )
        queue.kill()
        queue.start()
        listed = [timer async for timer in mq.timers(SUBJECT, "order-")]
        early = [timer async for timer in mq.timers(SUBJECT, until=day + timedelta(hours=4))]
        first = await mq.timer(receipts[3].id)
        assert await mq.timer(receipts[0].id) is None
        assert await mq.cancel(unnamed.id) == Changed(1, 0)

    assert sorted(timer.id for timer in listed) == sorted(receipt.id for receipt in receipts[2:])
    assert [timer.timer_key for timer in early] == ["order-3"]
    assert first is not None
    assert (first.subject, first.timer_key, first.body) == (SUBJECT, "order-3", b"3")
    assert first.due == day + timedelta(hours=3)


async def test_what_is_moved_ahead_arrives_at_once_with_its_key_and_is_gone_then(queue: Queue) -> None:
    async with Client(queue.server, settings=SETTINGS) as mq:
        receipt = await mq.send(SUBJECT, b"tide", key="k", delay=3600, timer_key="order-17")
        await mq.send(SUBJECT, b"never", delay=2, timer_key="order-18")
        assert await mq.cancel(subject=SUBJECT, timer_key="order-18") == Changed(1, 0)
        assert await mq.reschedule(receipt.id, delay=1) == Changed(1, 0)
        moved = time.time()
        async with mq.consume(SUBJECT, group="g") as messages:
            message = await anext(messages)
            await message.ack()
        assert await mq.cancel(receipt.id) == Changed(0, 1)
        await mq.send(SUBJECT, b"last", delay=2)
        async with mq.consume(SUBJECT, group="g") as messages:
            last = await anext(messages)

    assert (message.id, message.body, message.key, message.timer_key) == (
        receipt.id,
        b"tide",
        "k",
        "order-17",
    )
    assert message.stored_at.timestamp() >= moved + 0.9
    assert last.body == b"last"


def test_programs_without_a_loop_have_the_same_calls(queue: Queue) -> None:
    with blocking.Client(queue.server, settings=SETTINGS) as mq:
        receipt = mq.send(SUBJECT, b"tide", delay=3600, timer_key="k")
        assert [timer.id for timer in mq.timers(SUBJECT)] == [receipt.id]
        assert mq.reschedule(receipt.id, delay=7200) == Changed(1, 0)
        timer = mq.timer(subject=SUBJECT, timer_key="k")
        assert timer is not None
        assert timer.due > datetime.now(UTC) + timedelta(seconds=3700)
        assert mq.cancel(subject=SUBJECT, timer_key="k") == Changed(1, 0)
        assert list(mq.timers(SUBJECT)) == []


def test_people_have_the_same_commands_and_are_told_what_is_wrong_in_one_sentence(queue: Queue) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        done = run_command(*arguments, server=queue.server)
        assert done.stderr.count("\n") <= 1, done.stderr
        return done.returncode, done.stdout, done.stderr

    code, out, _ = run("send", SUBJECT, "tide", "--delay", "1h", "--timer-key", "order-17")
    identity = out.strip()
    assert code == 0
    code, out, _ = run("timers", "list", SUBJECT, "--prefix", "order-", "-o", "json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == [identity]
    code, out, _ = run("timers", "show", identity)
    assert "tide" in out
    code, out, _ = run("timers", "reschedule", identity, "--delay", "2h")
    assert (code, out) == (0, "1 message rescheduled.\n")
    code, out, _ = run("timers", "cancel", "--subject", SUBJECT, "--timer-key", "order-17", "-o", "json")
    assert (code, json.loads(out)) == (0, {"cancelled": 1, "gone": 0})
    code, out, _ = run("timers", "list", SUBJECT)
    assert (code, out) == (0, "")
    code, _, error = run("timers", "cancel", "--subject", SUBJECT, "--timer-key", "order-17")
    assert code == 1
    assert "no such message waits" in error

    for arguments, sentence in (
        (("timers", "cancel"), "say which messages"),
        (("timers", "cancel", identity, "--timer-key", "x"), "leave out --subject and --timer-key"),
        (("timers", "show", "xyz"), "is no message id"),
        (("timers", "reschedule", identity), "say the new time"),
        (("send", SUBJECT, "tide", "--timer-key", "x"), "add --delay, --at or --cron"),
    ):
        code, _, error = run(*arguments)
        assert code == 2, arguments
        assert sentence in error


async def test_what_recurs_is_listed_and_ended(queue: Queue) -> None:
    async with Client(queue.server, settings=SETTINGS) as mq:
        sent = await mq.send(
            SUBJECT, b"report", cron="0 9 * * mon-fri", time_zone="Europe/Berlin", timer_key="r"
        )
        now = datetime.now(UTC)
        await mq.reschedule(sent.id, at=now)
        async with mq.consume(SUBJECT, group="g") as messages:
            message = await anext(messages)
            await message.ack()
        listed = run_command("timers", "list", SUBJECT, "--output", "json", "--server", queue.server)
        [row] = [json.loads(line) for line in listed.stdout.splitlines()]
        assert (await mq.cancel(subject=SUBJECT, timer_key="r")).changed == 1
        assert [timer async for timer in mq.timers(SUBJECT)] == []

    assert (message.id, message.body, message.timer_key) == (sent.id, b"report", "r")
    assert row["cron"] == "0 9 * * mon-fri Europe/Berlin"
    assert row["id"] != sent.id
