"""What a worker promises of its handlers, with the broker in memory."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import asynccontextmanager

import pytest

from samples.handling import Listening, counts, handle_all
from tidemill import Reject, RetryAfter, Skip, Worker
from tidemill.testing import Client, running
from tidemill.worker import HandlerTimeout
from tidemill_wire.commands import Ack, Nack


async def test_returning_is_an_ack_and_the_handler_sees_the_message():
    worker = Worker()
    seen = []

    @worker.on("a", group="g")
    async def handler(message):
        seen.append((message.subject, message.body, message.key, message.tags, message.attempts))

    said, errors = await handle_all(worker, b"1", key="k", tags={"t"})

    assert seen == [("a", b"1", "k", {"t"}, 0)]
    assert (counts(worker), errors, said.of(Nack)) == ({"handled": 1}, [], [])
    assert sum(len(ack.ranges) // 2 for ack in said.of(Ack)) == 1


async def test_acks_of_many_messages_leave_together():
    worker = Worker()

    @worker.on("a", group="g", concurrency=100)
    async def handler(message):
        pass

    async with Client() as mq:
        said = Listening(mq)
        await mq.send_many("a", [b"x"] * 5000)
        async with running(worker, mq) as run:
            await run.idle()
        assert len(said.of(Ack)) < 500
    assert counts(worker) == {"handled": 5000}


async def test_an_exception_is_a_nack_with_its_kind_and_place(caplog):
    worker = Worker()

    @worker.on("a", group="g", retry_after=3600)
    async def handler(message):
        raise ValueError("no\nsuch amount")

    with caplog.at_level(logging.WARNING, "tidemill.worker"):
        said, errors = await handle_all(worker, b"1")

    [nack] = said.of(Nack)
    assert nack.delay_ms == 3_600_000
    assert (nack.reason, nack.error) == ("ValueError: no such amount", "ValueError")
    assert "test_worker.py:" in nack.place
    assert [type(error) for error in errors] == [ValueError]
    assert counts(worker) == {"failed": 1}
    [record] = [record for record in caplog.records if record.message.startswith("handler_failed")]
    assert "\n" not in record.message
    assert "handler/g a 0" in record.message.replace(record.message.split()[1].rpartition(".")[0] + ".", "")


async def test_a_failure_comes_again_and_then_succeeds():
    worker = Worker()
    attempts = []

    @worker.on("a", group="g", retry_after=[0, 0, 3600])
    async def handler(message):
        attempts.append(message.attempts)
        if message.attempts < 2:
            raise OSError

    await handle_all(worker, b"1")

    assert attempts == [0, 1, 2]
    assert counts(worker) == {"failed": 2, "handled": 1}


@pytest.mark.parametrize("delay", [-1, "soon", None])
async def test_a_delay_that_is_none_leaves_it_to_the_group_and_is_logged(delay, caplog):
    worker = Worker()
    failures = []

    @worker.on("a", group="g", retry_after=lambda attempts: 1 / 0 if delay is None else delay)
    async def handler(message):
        if not failures:
            failures.append(message)
            raise OSError

    said, _ = await handle_all(worker, b"1")

    assert [nack.delay_ms for nack in said.of(Nack)] == [-1]
    assert "retry_after_failed" in caplog.text


async def test_a_retry_that_cannot_be_is_a_failure_of_the_handler():
    worker = Worker()

    @worker.on("a", group="g", retry_after=3600)
    async def handler(message):
        raise RetryAfter(-1)

    said, _ = await handle_all(worker, b"1")

    assert said.of(Nack)[0].error == "ValueError"


async def test_a_group_s_own_policy_is_left_to_the_broker():
    worker = Worker()
    failures = []

    @worker.on("a", group="g")
    async def handler(message):
        if not failures:
            failures.append(message)
            raise OSError

    said, _ = await handle_all(worker, b"1")

    assert [nack.delay_ms for nack in said.of(Nack)] == [-1]


@pytest.mark.parametrize(
    "raised, count, delay_ms, reason",
    [
        (RetryAfter(7200, "not yet"), "retried", 7_200_000, "not yet"),
        (Reject("no such order"), "rejected", -1, "Reject: no such order"),
    ],
)
async def test_a_handler_can_say_what_is_to_become_of_the_message(raised, count, delay_ms, reason):
    worker = Worker()

    @worker.on("a", group="g")
    async def handler(message):
        raise raised

    said, _ = await handle_all(worker, b"1")

    assert [(nack.delay_ms, nack.reason) for nack in said.of(Nack)] == [(delay_ms, reason)]
    assert counts(worker) == {count: 1}


async def test_no_more_handlers_run_than_were_allowed():
    worker = Worker()
    now, most = 0, 0
    full = asyncio.Event()

    @worker.on("a", group="g", concurrency=7)
    async def handler(message):
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 7:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        now -= 1

    await handle_all(worker, *[b"x"] * 100)

    assert (most, counts(worker)) == (7, {"handled": 100})


async def test_what_waits_for_a_handler_is_bounded(until):
    """One is handled; at most three answers to pulls of the size of the prefetch lie here."""
    worker = Worker()
    hold = asyncio.Event()

    @worker.on("a", group="g", concurrency=1, prefetch=5)
    async def handler(message):
        await hold.wait()

    async with Client() as mq:
        await mq.send_many("a", [b"x"] * 1000)
        async with running(worker, mq) as run:
            await until(lambda: worker.statistics().total.in_progress)
            for _ in range(200):
                await asyncio.sleep(0)
            [group] = mq.broker.groups.values()
            assert sum(len(member.leases) for member in group.members.values()) <= 1 + 3 * 5
            hold.set()
            await run.idle()


async def test_plain_functions_run_in_threads_and_can_send():
    worker = Worker()
    threads = set()

    @worker.on("a", group="g", concurrency=3)
    def handler(message, context):
        threads.add(threading.current_thread().name)
        context.wait_for(context.client.send("b", message.body + b"!"))

    async with Client() as mq, running(worker, mq) as run:
        await mq.send_many("a", [b"x"] * 20)
        await run.idle()
        assert mq.broker.subjects["b"].next_sequence == 20
    assert counts(worker) == {"handled": 20}
    assert 1 <= len(threads) <= 3
    assert threading.current_thread().name not in threads


@pytest.mark.parametrize("raised", [StopIteration(), SystemExit(3), asyncio.CancelledError(), KeyError("k")])
async def test_whatever_a_thread_raises_is_a_failure(raised):
    worker = Worker()

    @worker.on("a", group="g", retry_after=3600)
    def handler(message):
        raise raised

    said, _ = await handle_all(worker, b"1")

    assert counts(worker) == {"failed": 1}
    assert type(raised).__name__ in said.of(Nack)[0].reason


async def test_an_async_handler_that_takes_too_long_is_cancelled():
    worker = Worker()
    ended = []

    @worker.on("a", group="g", timeout=0.01, retry_after=3600)
    async def handler(message):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    _, errors = await handle_all(worker, b"1")

    assert ended == ["cancelled"]
    assert [type(error) for error in errors] == [HandlerTimeout]
    assert counts(worker) == {"failed": 1, "timed_out": 1}


async def test_a_cancellation_from_within_the_handler_is_a_failure_and_not_the_end():
    worker = Worker()

    @worker.on("a", group="g", retry_after=3600)
    async def handler(message):
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    said, _ = await handle_all(worker, b"1")

    assert counts(worker) == {"failed": 1}
    assert said.of(Nack)[0].reason.startswith("HandlerCancelled: ")


async def test_a_timeout_of_the_handlers_own_is_no_timeout_of_the_worker():
    worker = Worker()

    @worker.on("a", group="g", timeout=60, retry_after=3600)
    async def handler(message):
        raise TimeoutError("the bank")

    await handle_all(worker, b"1")

    assert counts(worker) == {"failed": 1}


async def test_a_thread_that_takes_too_long_is_nacked_and_keeps_its_slot(until):
    worker = Worker()
    release = threading.Event()
    began = []

    @worker.on("a", group="g", concurrency=1, timeout=0.5, retry_after=3600)
    def handler(message):
        began.append(message.sequence)
        if message.sequence == 0:
            release.wait()

    async with Client() as mq, running(worker, mq) as run:
        said = Listening(mq)
        await mq.send_many("a", [b"0", b"1"])
        await until(lambda: said.of(Nack))
        await until(lambda: worker.statistics().total.stuck)
        assert worker.statistics().total.in_progress == 1
        assert began == [0]
        release.set()
        await run.idle()
    assert began == [0, 1]
    assert counts(worker) == {"handled": 1, "failed": 1, "timed_out": 1}


async def test_filters_acknowledge_without_handling_and_tags_are_not_seen():
    worker = Worker()
    seen = []

    @worker.on("a", group="g", tags={"vip", "eu"})
    async def handler(message):
        seen.append(message.body)

    @worker.filter
    def large(message, context):
        return len(message.body) > 1

    async with Client() as mq, running(worker, mq) as run:
        for body, tags in ((b"no", {"us"}), (b"no", None), (b"1", {"vip"}), (b"yes", {"eu", "us"})):
            await mq.send("a", body, tags=tags)
        await run.idle()
        assert next(iter(mq.broker.groups.values())).acked == 2
    assert seen == [b"yes"]
    assert counts(worker) == {"handled": 1, "filtered": 1}


async def test_middlewares_surround_the_handler_in_their_order():
    worker = Worker()
    order = []

    def named(name):
        @asynccontextmanager
        async def middleware(message, context):
            order.append(f"{name} in")
            context.values[name] = name.upper()
            try:
                yield
            finally:
                order.append(f"{name} out")

        return middleware

    worker.use(named("a"))
    worker.use(named("b"))
    worker.before(lambda message, context: order.append("before"))
    worker.after(lambda message, context: order.append("after"))

    @worker.acked
    async def acked(message, context):
        order.append("acked")

    @worker.on("a", group="g")
    async def handler(message, context):
        order.append(f"handler {context.values['a']}{context.values['b']}")

    await handle_all(worker, b"1")

    assert order == ["a in", "b in", "before", "handler AB", "after", "b out", "a out", "acked"]


async def test_error_hooks_hear_the_exception_and_cannot_hide_it(caplog):
    worker = Worker()
    heard = []

    @worker.error
    async def hears(message, context, error):
        heard.append(error)
        raise RuntimeError("a hook that fails")

    @worker.on("a", group="g", retry_after=3600)
    async def handler(message):
        raise ValueError("itself")

    said, _ = await handle_all(worker, b"1")

    assert [str(error) for error in heard] == ["itself"]
    assert said.of(Nack)[0].reason.startswith("ValueError: itself")
    assert "error_hook_failed" in caplog.text


async def test_a_middleware_can_skip_the_handler():
    worker = Worker()

    @asynccontextmanager
    async def nothing(message, context):
        raise Skip("seen before")
        yield

    worker.use(nothing)

    @worker.on("a", group="g")
    async def handler(message):
        raise AssertionError

    said, _ = await handle_all(worker, b"1")

    assert (counts(worker), said.of(Nack)) == ({"skipped": 1}, [])
