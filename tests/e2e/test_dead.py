"""Dead letters from end to end: a handler that fails, the list of what it failed of, and what becomes of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.queues import Queue, run_command
from tidemill import Client, DeadLetter, Message, blocking

pytestmark = pytest.mark.e2e

MANIFEST = """
apiVersion: tidemill.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: billing}
spec:
  subjectName: order.created
  startFrom: {position: Earliest}
  delivery: {maxAttempts: 2, minRetrySeconds: 0, retryBackoffSeconds: [1], ackTimeoutSeconds: 30}
"""


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    manifest = tmp_path / "group.yaml"
    manifest.write_text(MANIFEST)
    with_group = Queue(tmp_path / "data", [manifest]).start()
    yield with_group
    with_group.close()


async def handle(queue: Queue, settled: int, failing: set[int]) -> list[Message]:
    """Settle so many deliveries; messages with these numbers in their body fail."""
    handled: list[Message] = []
    async with Client(queue.server) as mq, mq.consume("order.created", group="billing") as messages:
        async for message in messages:
            settled -= 1
            if int(message.body) in failing:
                await message.nack(error=ValueError(f"no amount in order {int(message.body)}"))
            else:
                handled.append(message)
                await message.ack()
            if not settled:
                return handled
    raise AssertionError


async def send_and_fail(queue: Queue, count: int, failing: set[int]) -> list[str]:
    """The ids of what was sent; what fails has failed twice."""
    async with Client(queue.server) as mq:
        ids = [(await mq.send("order.created", str(n).encode(), key=f"k{n}")).id for n in range(count)]
    await asyncio.wait_for(handle(queue, count + len(failing), failing), 30)
    return ids


async def letters(queue: Queue, count: int) -> list[DeadLetter]:
    """They, as soon as there are so many."""
    async with Client(queue.server) as mq, asyncio.timeout(10):
        while True:
            found = [letter async for letter in mq.dead_letters("order.created", "billing")]
            if len(found) == count:
                return found


def dead(queue: Queue, *arguments: str) -> list[dict[str, Any]]:
    verb, *options = arguments
    done = run_command(
        "dead", verb, "order.created", "-g", "billing", "-o", "json", *options, server=queue.server
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_what_fails_too_often_is_listed_with_its_reason_and_given_again(queue: Queue) -> None:
    ids = await send_and_fail(queue, 6, {1, 3, 4})
    found = await letters(queue, 3)

    assert [letter.id for letter in found] == [ids[1], ids[3], ids[4]]
    assert {letter.fingerprint for letter in found} == {found[0].fingerprint}
    assert found[0].reason == "ValueError: no amount in order 1"
    assert (found[0].attempts, found[0].message.key, found[0].message.body) == (2, "k1", b"1")
    async with Client(queue.server) as mq:
        waiting = asyncio.ensure_future(handle(queue, 2, set()))
        assert await mq.dead_letters("order.created", "billing").redrive([0, 1]) == 2
        again = await asyncio.wait_for(waiting, 30)
        assert await mq.dead_letters("order.created", "billing").redrive([0, 1]) == 0
    assert sorted(message.id for message in again) == sorted([ids[1], ids[3]])
    assert {(message.subject, message.attempts) for message in again} == {("order.created", 0)}
    assert [letter.id for letter in await letters(queue, 1)] == [ids[4]]


async def test_dead_letters_survive_a_kill_and_their_counts_add_up(queue: Queue) -> None:
    ids = await send_and_fail(queue, 5, {0, 2, 3, 4})
    await letters(queue, 4)
    queue.kill()
    queue.start()

    listed = dead(queue, "list")
    assert [row["id"] for row in listed] == [ids[0], *ids[2:]]
    assert dead(queue, "list", "--id", ids[3], "--reason", "order 3")[0]["attempts"] == 2
    assert dead(queue, "list", "--fingerprint", "00000000") == []
    assert dead(queue, "redrive", "--dry-run", "--id", ids[2]) == [{"found": 1, "redriven": 0, "left": 4}]
    assert dead(queue, "redrive", "--yes", "--id", ids[2]) == [{"found": 1, "redriven": 1, "left": 3}]
    assert dead(queue, "purge", "--yes", "-n", "1") == [{"found": 1, "purged": 1, "left": 2}]
    [again] = await asyncio.wait_for(handle(queue, 1, set()), 30)
    assert again.id == ids[2]
    assert queue.group("billing")["dead"] == 2
    [shown] = dead(queue, "show", ids[3])
    assert (shown["body"], shown["key"], shown["error"]) == ("3", "k3", "ValueError")


async def test_a_rejected_message_is_not_tried_again(queue: Queue) -> None:
    async with Client(queue.server) as mq:
        receipt = await mq.send("order.created", b"never")
        async with mq.consume("order.created", group="billing") as messages:
            async for message in messages:
                await message.nack(reason="unknown customer", reject=True)
                break
    [letter] = await letters(queue, 1)

    assert (letter.id, letter.attempts, letter.reason) == (receipt.id, 1, "unknown customer")


def test_to_settle_many_without_a_word_is_refused(queue: Queue) -> None:
    asyncio.run(send_and_fail(queue, 1, {0}))
    asyncio.run(letters(queue, 1))
    done = run_command("dead", "purge", "order.created", "-g", "billing", server=queue.server)

    assert done.returncode == 2
    assert done.stderr.startswith("tidemill: 1 dead letter would be concerned: ")
    assert "--dry-run" in done.stderr
    assert done.stderr.count("\n") == 1

    done = run_command("dead", "purge", "order.created", "-g", "billing", "--yes", server=queue.server)
    assert (done.returncode, done.stdout) == (0, "1 dead letter was purged, 0 are left.\n")


async def test_why_says_where_a_message_stands_and_how_it_came_there(queue: Queue) -> None:
    ids = await send_and_fail(queue, 2, {1})
    await letters(queue, 1)
    async with Client(queue.server) as mq:
        later = await mq.send("order.created", b"7")
        acked, dead_one, waiting = [await mq.why(each) for each in (*ids, later.id)]
        nobody = await mq.why("0" * 32 + "-0")

    assert nobody is None
    assert acked
    assert dead_one
    assert waiting
    [group] = acked["groups"]
    assert (group["group"], group["state"]) == ("billing", "acked")
    assert [event["what"] for event in group["events"]] == ["pulled", "acked"]
    [group] = dead_one["groups"]
    assert (group["state"], group["attempts"]) == ("dead", 2)
    assert [event["what"] for event in group["events"]] == ["pulled", "failed", "pulled", "failed", "dead"]
    assert "no amount in order 1" in group["sentence"]
    [group] = waiting["groups"]
    assert (group["state"], group["ahead"]) == ("waiting", 0)
    assert group["sentence"].startswith("not pulled yet, it is the next one")
    shown = run_command("why", ids[1], server=queue.server)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "billing: a dead letter since" in shown.stdout


async def test_a_message_that_is_not_kept_any_more_is_found_as_its_dead_letter(tmp_path: Path) -> None:
    """The segments of the originals are dropped by age, and the dead letters live longer."""
    manifest = tmp_path / "group.yaml"
    manifest.write_text(MANIFEST)
    settings = {
        "TIDEMILL_RETENTION_SECONDS": "1",
        "TIDEMILL_RETENTION_INTERVAL_MS": "200",
        "TIDEMILL_SEGMENT_BATCHES": "1",
    }
    queue = Queue(tmp_path / "brief", [manifest], settings).start()
    try:
        ids = await send_and_fail(queue, 3, {1})
        await letters(queue, 1)
        async with Client(queue.server) as mq, asyncio.timeout(20):
            while (found := await mq.find(ids[1])) is not None and found.id == ids[1]:
                pass
            gone = await mq.find(ids[0])
            why = await mq.why(ids[1])
        shown, said = (run_command(verb, ids[1], server=queue.server) for verb in ("find", "why"))
    finally:
        queue.close()

    assert gone is None
    assert found is not None
    assert (found.origin, found.body, found.key) == (ids[1], b"1", "k1")
    assert why is not None
    assert (why["id"], why["subject"], why["sequence"], why["stored_at"]) == (
        ids[1],
        "order.created",
        1,
        None,
    )
    [group] = why["groups"]
    assert (group["group"], group["state"], group["attempts"]) == ("billing", "dead", 2)
    assert "no amount in order 1" in group["sentence"]
    assert (shown.returncode, said.returncode) == (0, 0)
    assert shown.stderr == f"tidemill: {ids[1]} is not kept any more; this is a dead letter of it\n"
    assert "order.created 1, not kept any more but as a dead letter" in said.stdout


async def test_why_follows_a_message_into_the_dead_letters_and_back(queue: Queue) -> None:
    [_, identity] = await send_and_fail(queue, 2, {1})
    await letters(queue, 1)

    async def standing(*, settled: int = 0, failing: set[int] | None = None) -> tuple[str, int, list[str]]:
        if settled:
            await asyncio.wait_for(handle(queue, settled, failing or set()), 30)
        async with Client(queue.server) as mq:
            found = await mq.why(identity)
        assert found
        [group] = found["groups"]
        events = [event["what"] for event in group["events"]]
        return group["state"], group["attempts"], events[events.index("dead") :]

    async with Client(queue.server) as mq:
        grave = mq.dead_letters("order.created", "billing")
        assert await standing() == ("dead", 2, ["dead"])
        assert await grave.redrive() == 1
        assert await standing() == ("waiting", 0, ["dead", "redriven"])
        assert queue.group("billing")["lag"] == 1
        again = ["dead", "redriven", "pulled", "failed", "pulled", "failed", "dead"]
        assert (await standing(settled=2, failing={1}))[2][: len(again) - 1] == again[:-1]
        await letters(queue, 1)
        assert await standing() == ("dead", 2, again)
        assert await grave.redrive() == 1
        assert await standing(settled=1) == ("acked", 0, [*again, "redriven", "pulled", "acked"])
        await mq.suspend("order.created", "billing")
        later = await mq.send("order.created", b"9")
        why = await mq.why(later.id)
        assert why
        assert why["groups"][0]["sentence"].endswith("the group is suspended, and given nothing")


async def test_why_says_that_a_message_was_given_back_unopened(queue: Queue) -> None:
    async with Client(queue.server) as mq:
        receipts = await mq.send_many("order.created", [b"0", b"1"])
        async with mq.consume("order.created", group="billing") as messages:
            async for _ in messages:
                break
        why = await mq.why(receipts[1].id)
    assert why
    [group] = why["groups"]
    assert (group["state"], group["until"]) == ("waiting", None)
    assert "given back by" in group["sentence"]
    row = queue.group("billing")
    assert (row["acked"], row["lag"], row["failed"]) == (1, 1, 0)


def test_programs_without_an_event_loop_see_the_same(queue: Queue) -> None:
    [identity] = asyncio.run(send_and_fail(queue, 1, {0}))
    asyncio.run(letters(queue, 1))
    with blocking.Client(queue.server) as mq:
        grave = mq.dead_letters("order.created", "billing")
        assert [letter.id for letter in grave] == [identity]
        assert grave.purge() == 1
        assert grave.status()["waiting"] == 0
        assert (mq.why(identity) or {})["groups"][0]["state"] == "purged"
