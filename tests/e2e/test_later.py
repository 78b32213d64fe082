"""Messages for later with a real queue: given out at their time, not before, and once, whoever kills it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from e2e.conftest import MakeQueue
from e2e.queues import Queue, run_command, wait_until
from tidemill import Client, ClientSettings, Refused

pytestmark = pytest.mark.e2e

SETTINGS = ClientSettings(send_timeout_s=30, backoff_max_s=0.2)
TICK_S = 0.5
KILLS = 6
ROUND_S = 1.2
EACH = 40
STANDALONE = (sys.executable, "-m", "tidemill_standalone")


@pytest.fixture
def queue(make_queue: MakeQueue) -> Queue:
    return make_queue(command=STANDALONE).start()


async def test_a_message_with_a_delay_comes_then_with_the_id_that_its_receipt_says(queue: Queue) -> None:
    async with Client(queue.server, settings=SETTINGS) as mq:
        due = time.time() + 1.0
        receipt = await mq.send("later", b"tide", key="k", tags={"t"}, delay=1.0)
        now = await mq.send("later", b"now")
        async with mq.consume("later", group="g") as messages:
            first = await anext(messages)
            second = await anext(messages)
            came = time.time()
            await second.ack()

    assert (first.id, first.body) == (now.id, b"now")
    assert (second.id, second.body, second.key, second.tags) == (receipt.id, b"tide", "k", {"t"})
    assert due <= came <= due + TICK_S + 10


async def test_one_message_of_many_is_found_and_explained_by_its_id_when_it_was_given_out(
    queue: Queue,
) -> None:
    async with Client(queue.server, settings=SETTINGS) as mq:
        times = [datetime.now(UTC) + timedelta(seconds=0.2 + 1.2 * (index % 2)) for index in range(6)]
        receipts = await asyncio.gather(
            *(mq.send("later", b"%d" % index, at=at) for index, at in enumerate(times))
        )
        async with mq.consume("later", group="g") as messages:
            seen = {}
            async for message in messages:
                seen[message.id] = message.body
                if len(seen) == 6:
                    break
        found = [await mq.find(receipt.id) for receipt in receipts]
        why = await mq.why(receipts[5].id)

    assert seen == {receipt.id: b"%d" % index for index, receipt in enumerate(receipts)}
    assert [one.body if one is not None else None for one in found] == [b"%d" % index for index in range(6)]
    assert why is not None


async def test_what_cannot_be_is_said_before_anything_is_sent(queue: Queue) -> None:
    async with Client(queue.server, settings=SETTINGS) as mq:
        with pytest.raises(ValueError, match="give one of them"):
            await mq.send("later", b"x", delay=1, at=datetime.now(UTC))
        with pytest.raises(ValueError, match="has no time zone"):
            await mq.send("later", b"x", at=datetime.now())  # noqa: DTZ005  # what people write
        with pytest.raises(Refused, match="days ahead, 731 are the limit"):
            await mq.send("later", b"x", at=datetime.now(UTC) + timedelta(days=800))
        with pytest.raises(ValueError, match="is not within 0"):
            await mq.send("later", b"x", delay=-1)


def test_the_command_line_sends_for_later(queue: Queue) -> None:
    for options in (["--delay", "1s"], ["--at", (datetime.now(UTC) + timedelta(seconds=1)).isoformat()]):
        sent = run_command("send", "later", "tide", *options, "-o", "json", server=queue.server)
        assert sent.returncode == 0, sent.stderr
        assert json.loads(sent.stdout)["id"]
    wait_until(
        "both were given to the broker", lambda: queue.metrics()["tidemill_delay_delivered_total"] == 2
    )
    wrong = run_command("send", "later", "tide", "--delay", "soon", server=queue.server)
    assert wrong.returncode == 2
    assert "write one such as 30s, 90m, 1h30m or 7d" in wrong.stderr


async def test_a_queue_that_is_killed_while_messages_come_due_loses_none_and_gives_each_once(
    queue: Queue,
) -> None:
    due: dict[bytes, float] = {}
    seen: dict[bytes, list[float]] = {}
    async with Client(queue.server, settings=SETTINGS) as mq:
        for life in range(KILLS):
            now = time.time()
            for index in range(EACH):
                due[b"%d.%d" % (life, index)] = now + (index * 0.11) % (3 * ROUND_S)
            bodies = [body for body in due if body.startswith(b"%d." % life)]
            await asyncio.gather(
                *(mq.send("later", body, at=datetime.fromtimestamp(due[body], UTC)) for body in bodies)
            )
            await asyncio.to_thread(_live_on_and_die, queue)
        async with mq.consume("later", group="g") as messages:
            async for message in messages:
                seen.setdefault(message.body, []).append(message.stored_at.timestamp())
                await message.ack()
                if len(seen) == len(due):
                    break

    assert {body: len(times) for body, times in seen.items() if len(times) > 1} == {}
    early = {body: due[body] - times[0] for body, times in seen.items() if times[0] < due[body] - 0.002}
    assert early == {}, "by the queue's own clock"


def _live_on_and_die(queue: Queue) -> None:
    before = queue.metrics()["tidemill_delay_delivered_total"]
    wait_until("something came due", lambda: queue.metrics()["tidemill_delay_delivered_total"] > before + 3)
    queue.kill()
    queue.start()
