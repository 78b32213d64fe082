"""What a worker promises of its handlers, with the broker in memory."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from contextlib import asynccontextmanager

import pytest

from tidemill import Refused, Reject, RetryAfter, Skip, Worker
from tidemill.testing import Client, running
from tidemill.worker import Ended, HandlerTimeout
from tidemill.worker.handler import Mode
from tidemill_wire.commands import Ack, Nack, Release


class Listening:
    """Notes the commands that a queue in memory is told."""

    def __init__(self, mq: Client) -> None:
        self.said = []
        self._handle = mq.broker.handle
        mq.broker.handle = self.handle

    def handle(self, peer, correlation, command):
        self.said.append(command)
        self._handle(peer, correlation, command)

    def of(self, kind):
        return [command for command in self.said if isinstance(command, kind)]


def counts(worker):
    """Those that are not zero."""
    total = worker.statistics().total
    names = ("handled", "failed", "retried", "rejected", "timed_out", "filtered", "skipped", "released", "lost", "stuck")
    return {name: getattr(total, name) for name in names if getattr(total, name)}


async def handle_all(worker, *bodies, subject="a", **extras):
    """Send, and wait until all is settled; what was said, and the errors."""
    async with Client() as mq:
        said = Listening(mq)
        async with running(worker, mq) as run:
            for body in bodies:
                await mq.send(subject, body, **extras)
            await run.idle()
            return said, run.errors


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


async def test_an_exception_is_a_nack_with_kind_place_and_fingerprint(caplog):
    worker = Worker()

    @worker.on("a", group="g", retry_after=3600)
    async def handler(message):
        raise ValueError("no\nsuch amount")

    with caplog.at_level(logging.WARNING, "tidemill.worker"):
        said, errors = await handle_all(worker, b"1")

    [nack] = said.of(Nack)
    assert nack.delay_ms == 3_600_000
    assert nack.reason.startswith("ValueError: no such amount at ")
    assert "test_worker.py:" in nack.reason
    assert nack.reason.endswith("]")
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
        (Reject("no such order"), "rejected", 60_000, "rejected: no such order"),
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

    @worker.on("a", group="g", concurrency=1, timeout=0.01, retry_after=3600)
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


async def test_filters_and_tags_acknowledge_without_handling():
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
        assert next(iter(mq.broker.groups.values())).acked == 4
    assert seen == [b"yes"]
    assert counts(worker) == {"handled": 1, "filtered": 3}


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


async def test_stopping_finishes_what_runs_and_releases_what_was_not_begun(until):
    worker = Worker()
    hold = asyncio.Event()

    @worker.on("a", group="g", concurrency=2, prefetch=10)
    async def handler(message):
        await hold.wait()

    async with Client() as mq:
        said = Listening(mq)
        await mq.send_many("a", [b"x"] * 20)
        serving = asyncio.ensure_future(worker.serve(mq))
        await until(lambda: worker.statistics().total.in_progress == 2)
        worker.stop()
        [group] = mq.broker.groups.values()
        await until(lambda: sum(len(member.leases) for member in group.members.values()) == 2)
        assert said.of(Release)
        assert not serving.done()
        hold.set()
        assert await serving is Ended.DRAINED
        assert group.acked == 2
        assert counts(worker) == {"handled": 2}


@pytest.mark.parametrize("forced", [False, True])
async def test_what_cannot_be_finished_is_given_back_without_an_attempt(until, forced):
    worker = Worker(drain_seconds=3600 if forced else 0.01)
    cancelled = []

    @worker.on("a", group="g")
    async def handler(message):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(message.sequence)
            raise

    async with Client() as mq:
        await mq.send("a", b"1")
        serving = asyncio.ensure_future(worker.serve(mq))
        await until(lambda: worker.statistics().total.in_progress)
        worker.stop()
        if forced:
            worker.abort()
        assert await serving is (Ended.FORCED if forced else Ended.GIVEN_BACK)
        assert list(next(iter(mq.broker.groups.values())).due) == [(0, 0)]
    assert (cancelled, counts(worker)) == ([0], {"released": 1})


async def test_a_thread_that_never_returns_does_not_keep_the_worker(until):
    worker = Worker(drain_seconds=0)
    release = threading.Event()

    @worker.on("a", group="g")
    def handler(message):
        release.wait()

    async with Client() as mq:
        await mq.send("a", b"1")
        serving = asyncio.ensure_future(worker.serve(mq))
        await until(lambda: worker.statistics().total.in_progress)
        worker.stop()
        assert await serving is Ended.GIVEN_BACK
        assert list(next(iter(mq.broker.groups.values())).due) == [(0, 0)]
    release.set()


async def test_startup_and_shutdown_are_called_around_the_work():
    worker = Worker()
    order = []
    worker.on_startup(lambda: order.append("up"))
    worker.on_shutdown(lambda: order.append("down last"))

    @worker.on_shutdown
    async def close():
        order.append("down first")
        await worker.client.send("b", b"bye")

    @worker.on("a", group="g")
    async def handler(message):
        order.append("handler")

    await handle_all(worker, b"1")

    assert order == ["up", "handler", "down first", "down last"]
    with pytest.raises(RuntimeError, match="does not serve"):
        _ = worker.client


async def test_a_startup_that_fails_ends_the_worker_with_its_error():
    worker = Worker()

    @worker.on("a", group="g")
    async def handler(message):
        raise AssertionError

    @worker.on_startup
    async def fails():
        raise OSError("no database")

    async with Client() as mq:
        with pytest.raises(OSError, match="no database"):
            await worker.serve(mq)
        assert not mq.broker.groups


async def one(message):
    pass


async def with_default(message, context=None):
    pass


class Callable:
    async def __call__(self, message, context):
        pass


@pytest.mark.parametrize(
    "function, pool, mode, takes_context",
    [
        (one, None, Mode.LOOP, False),
        (with_default, None, Mode.LOOP, False),
        (Callable(), None, Mode.LOOP, True),
        (functools.partial(Callable(), context=1), None, Mode.THREAD, False),
        (lambda message: None, None, Mode.THREAD, False),
        (lambda message, context: None, "thread", Mode.THREAD, True),
        (print, "process", Mode.PROCESS, False),
    ],
)
def test_how_a_function_is_called_is_seen_from_it(function, pool, mode, takes_context):
    worker = Worker()

    assert worker.on("a", group="g", pool=pool)(function) is function

    [handler] = worker.handlers
    assert (handler.mode, handler.takes_context) == (mode, takes_context)


@pytest.mark.parametrize(
    "options, function, said",
    [
        ({"concurrency": 0}, one, "concurrency 0"),
        ({"timeout": 0}, one, "timeout 0"),
        ({"prefetch": 0}, one, "prefetch 0"),
        ({"pool": "fork"}, one, "pool 'fork'"),
        ({"pool": "thread"}, one, "is async"),
        ({"pool": "process"}, lambda message, context: None, "no context"),
        ({}, lambda: None, "takes 0 parameters"),
        ({}, lambda a, b, c: None, "takes 3 parameters"),
        ({}, lambda a, *, b: None, "only its name"),
        ({"retry_after": []}, one, "empty list"),
        ({"retry_after": -1}, one, "delay"),
        ({"retry_after": [1, 1e9]}, one, "delay"),
        ({"retry_after": "soon"}, one, "retry_after 'soon'"),
        ({"start": "yesterday"}, one, "yesterday"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_written(options, function, said):
    with pytest.raises(ValueError, match=said):
        Worker().on("a", group="g", **options)(function)


def test_bad_names_are_refused_where_they_are_written():
    with pytest.raises(Refused):
        Worker().on("a b", group="g")(one)


def test_two_handlers_cannot_share_a_subject_in_one_group():
    worker = Worker()
    worker.on(["a", "b"], group="g")(one)
    worker.on("b", group="other")(one)

    with pytest.raises(ValueError, match="both handle b"):
        worker.on("b", group="g")(with_default)
    with pytest.raises(ValueError, match=r"on\(\["):
        worker.on("c", group="g")(one)


async def test_a_worker_without_handlers_says_so():
    with pytest.raises(ValueError, match="no handler"):
        await Worker().serve()


async def test_what_another_process_cannot_find_is_refused_before_anything_is_pulled():
    worker = Worker()
    worker.on("a", group="g", pool="process")(lambda message: None)

    async with Client() as mq:
        with pytest.raises(ValueError, match="top of its module"):
            await worker.serve(mq)
        assert not mq.broker.groups


async def test_a_subscription_that_is_refused_ends_the_worker_in_good_order(caplog):
    worker = Worker()
    worker.on("a", group="g")(one)
    worker.on("b", group="other")(one)

    async with Client() as mq:
        plain = mq.broker.pull

        def refusing(peer, correlation, command):
            if command.subjects == ("b",):
                peer.fail(correlation, "invalid_group", "no such group")
            else:
                plain(peer, correlation, command)

        mq.broker.pull = refusing
        await mq.send("a", b"1")
        assert await worker.serve(mq) is Ended.FAILED
        assert not any(member.leases for group in mq.broker.groups.values() for member in group.members.values())
    assert "no such group" in caplog.text


def test_numbers_are_written_as_prometheus_reads_them():
    worker = Worker()
    worker.on("a", group="g")(one)

    text = worker.statistics().prometheus()

    assert 'tidemill_worker_handled_total{handler="one",group="g"} 0\n' in text
    assert "# TYPE tidemill_worker_in_progress gauge\n" in text
    assert text.endswith("\n")
