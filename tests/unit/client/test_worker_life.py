"""How a worker begins, how it ends, and what it refuses."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading

import pytest

from samples.handling import Listening, counts, handle_all
from tidemill import Refused, Worker
from tidemill.testing import Client, running
from tidemill.worker import Ended
from tidemill.worker.handler import Mode
from tidemill_wire.commands import Release


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
            if list(command.subjects) == ["b"]:
                peer.fail(correlation, "invalid_group", "no such group")
            else:
                plain(peer, correlation, command)

        mq.broker.pull = refusing
        await mq.send("a", b"1")
        assert await worker.serve(mq) is Ended.FAILED
        assert not any(
            member.leases for group in mq.broker.groups.values() for member in group.members.values()
        )
    assert "no such group" in caplog.text


def test_numbers_are_written_as_prometheus_reads_them():
    worker = Worker()
    worker.on("a", group="g")(one)

    text = worker.statistics().prometheus()

    assert 'tidemill_worker_handled_total{handler="one",group="g"} 0\n' in text
    assert "# TYPE tidemill_worker_in_progress gauge\n" in text
    assert text.endswith("\n")


async def test_a_stop_while_a_startup_waits_ends_it():
    """A database that does not come must not keep a worker from ending when it is told to."""
    worker, ended = Worker(), []

    @worker.on("a", group="g")
    async def handler(message):
        raise AssertionError

    @worker.on_startup
    async def waits():
        worker.stop()
        await asyncio.Event().wait()

    @worker.on_shutdown
    async def leaves():
        ended.append(True)

    async with Client() as mq:
        assert await worker.serve(mq) is Ended.DRAINED
        assert not mq.broker.groups
    assert ended == [True]


async def test_a_startup_has_its_own_timeouts():
    worker = Worker()

    @worker.on("a", group="g")
    async def handler(message):
        raise AssertionError

    @worker.on_startup
    async def fails():
        raise TimeoutError("the database's")

    async with Client() as mq:
        with pytest.raises(TimeoutError, match="the database's"):
            await worker.serve(mq)


async def test_a_second_signal_ends_a_shutdown_that_waits(caplog):
    worker, ended = Worker(), []

    @worker.on("a", group="g")
    async def handler(message):
        raise AssertionError

    @worker.on_shutdown
    async def leaves():
        ended.append("the other one")

    @worker.on_shutdown
    async def waits():
        worker.abort()
        await asyncio.Event().wait()

    async with Client() as mq:
        worker.on_startup(worker.stop)
        assert await worker.serve(mq) is Ended.DRAINED
    assert ended == ["the other one"]
    assert "in a hook, which is cancelled" in caplog.text


async def test_a_test_of_a_worker_that_has_ended_does_not_wait_for_it():
    worker = Worker()
    worker.on("a", group="g")(one)

    async with Client() as mq, running(worker, mq) as run:
        mq.broker.pull = lambda peer, correlation, command: peer.fail(correlation, "invalid_group", "no")
        await mq.send("a", b"1")
        with pytest.raises(RuntimeError, match=r"has ended \(FAILED\)"):
            await run.idle()


PROGRAM = """
import asyncio, os, signal, threading
from tidemill import Worker
from tidemill.testing import Client, running

worker, mq = Worker(drain_seconds=0.1), Client()
worker.client_type = lambda *_, **__: mq

@worker.on("a", group="g")
async def handle(message):
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        await {waits}
    finally:
        while {stubborn}:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

@worker.on_startup
async def begin():
    await worker.client.send("a", b"1")

worker.run()
"""


@pytest.mark.parametrize(
    "waits, stubborn",
    [("asyncio.to_thread(threading.Event().wait)", False), ("asyncio.Event().wait()", True)],
    ids=["a thread that never returns", "a handler that swallows its cancellation"],
)
def test_what_does_not_let_go_does_not_keep_the_process(waits, stubborn):
    """Python itself waits for either, for ever: a pod would be there until it is killed, with no word in its log."""
    program = PROGRAM.format(waits=waits, stubborn=stubborn)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == Ended.GIVEN_BACK, done.stderr
    assert "worker_ends_hard exit code 3, held by " in done.stderr
