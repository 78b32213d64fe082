"""Dead letters of a queue in memory, for users' tests: as the client of a real one has them."""

from __future__ import annotations

import pytest

from tidemill import Message, Refused, Worker, blocking
from tidemill.dead import Chosen
from tidemill.testing import Client, MemoryBroker, running

AT_MS = 1_800_000_000_000


def client(attempts_max: int = 3) -> Client:
    return Client(MemoryBroker(attempts_max, now_ms=lambda: AT_MS))


async def fail(mq: Client, count: int) -> list[int]:
    """Fail so many deliveries; the attempts that each had behind it."""
    seen: list[int] = []
    async with mq.consume("a", group="g") as messages:
        async for message in messages:
            seen.append(message.attempts)
            await message.nack(error=ValueError(f"no amount in {message.body.decode()}"))
            if len(seen) == count:
                return seen
    raise AssertionError


async def test_what_failed_as_often_as_may_be_is_listed_with_its_reason() -> None:
    async with client() as mq:
        sent = await mq.send("a", b"7", key="k", properties={"p": 1})
        assert await fail(mq, 3) == [0, 1, 2]
        letters = mq.dead_letters("a", "g")
        [letter] = [letter async for letter in letters]
        status = await letters.status()
        [row] = await mq.groups()

    assert (letter.id, letter.sequence, letter.attempts) == (sent.id, 0, 3)
    assert (letter.reason, letter.error) == ("ValueError: no amount in 7", "ValueError")
    assert (letter.message.body, letter.message.key, letter.message.properties) == (b"7", "k", {"p": 1})
    assert letter.failed_at.timestamp() * 1000 == AT_MS
    assert (status["waiting"], status["errors"][0]["messages"], row["dead"], row["failed"]) == (1, 1, 1, 0)


async def test_what_is_redriven_comes_again_as_new_and_what_is_purged_does_not() -> None:
    async with client(1) as mq:
        await mq.send_many("a", [b"0", b"1", b"2"])
        await mq.send("a", b"3", priority=5)
        await fail(mq, 4)
        letters = mq.dead_letters("a", "g")
        bodies = [letter.message.body async for letter in letters]
        assert sorted(bodies) == [b"0", b"1", b"2", b"3"]
        assert await letters.purge([bodies.index(b"1")]) == 1
        chosen = [one async for one in letters.chosen(Chosen(reason="in 3"))]
        assert await letters.redrive(chosen) == 1
        assert await letters.redrive(chosen) == 0
        assert await letters.redrive() == 2
        assert [letter async for letter in letters] == []
        async with mq.consume("a", group="g") as messages:
            again = [await anext(messages) for _ in range(3)]
        assert [(message.body, message.attempts) for message in again[:1]] == [(b"3", 0)]
        assert {message.body for message in again} == {b"0", b"2", b"3"}


async def test_a_rejected_message_is_dead_at_once_and_a_group_without_any_has_none() -> None:
    async with client() as mq:
        await mq.send("a", b"x")
        async with mq.consume("a", group="g") as messages:
            message = await anext(messages)
            assert [letter async for letter in mq.dead_letters("a", "g")] == []
            assert await mq.dead_letters("a", "g").redrive() == 0
            await message.nack(reason="never", reject=True)
        [letter] = [letter async for letter in mq.dead_letters("a", "g")]
        assert (letter.reason, letter.attempts) == ("never", 1)
        with pytest.raises(Refused, match="not_found"):
            await mq.dead_letters("a", "nobody").status()


async def test_what_a_worker_cannot_handle_is_given_up_and_it_is_idle() -> None:
    worker = Worker()

    @worker.on("a", group="g")
    async def handle(message: Message) -> None:
        raise LookupError(message.body.decode())

    async with client() as mq, running(worker, mq) as run:
        await mq.send("a", b"o-1")
        await run.idle()
        [letter] = [letter async for letter in mq.dead_letters("a", "g")]

    assert (letter.attempts, letter.error, len(run.errors)) == (3, "LookupError", 3)
    assert "test_memory_dead.py:" in letter.place


def test_a_program_without_a_loop_has_them_too() -> None:
    with blocking.Client(make=client) as mq:
        mq.send("a", b"x")
        with mq.consume("a", group="g") as messages:
            next(iter(messages)).nack(reason="never", reject=True)
        letters = mq.dead_letters("a", "g")
        assert [letter.reason for letter in letters] == ["never"]
        assert letters.purge() == 1
        assert list(letters) == []
