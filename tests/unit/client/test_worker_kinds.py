"""A message is acked when its handler has run: what only looks like one is awaited, or refused."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from samples.handling import counts, handle_all
from tidemill import Reject, RetryAfter, Worker
from tidemill.testing import Client, running
from tidemill.worker import HandlerTimeout
from tidemill_wire.commands import Nack


async def test_an_async_method_behind_a_lambda_is_awaited_before_its_message_is_acked():
    """It looks like a plain function, and what it returns in its thread has not run yet."""
    worker = Worker()
    begun, gate = asyncio.Event(), asyncio.Event()

    class Billing:
        async def bill(self, message):
            begun.set()
            await gate.wait()
            if message.body == b"bad":
                raise KeyError("no such order")

    worker.on("a", group="g", retry_after=3600)(lambda message: Billing().bill(message))

    async with Client() as mq, running(worker, mq) as run:
        await mq.send("a", b"good")
        async with asyncio.timeout(30):
            await begun.wait()
        assert not counts(worker).get("handled")
        gate.set()
        await run.idle()
        assert counts(worker) == {"handled": 1}
        await mq.send("a", b"bad")
        await run.idle()
    assert counts(worker) == {"handled": 1, "failed": 1}


async def test_what_a_lambda_returned_to_be_awaited_has_the_rest_of_the_timeout():
    worker = Worker()

    async def forever(message):
        await asyncio.Event().wait()

    worker.on("a", group="g", timeout=0.05, retry_after=3600)(lambda message: forever(message))  # noqa: PLW0108 - it is what is tested
    _, errors = await handle_all(worker, b"1")
    assert counts(worker) == {"failed": 1, "timed_out": 1}
    assert isinstance(errors[0], HandlerTimeout)


async def of_many(message):
    yield message


def of_some(message):
    yield message


class Sweep:
    async def __call__(self, message):
        yield message


@pytest.mark.parametrize("handler", [of_many, of_some, Sweep(), Sweep().__call__])
def test_a_generator_is_no_handler(handler):
    """Calling it runs nothing, so its messages would be acked unhandled."""
    with pytest.raises(TypeError, match="is a generator, because it has a yield"):
        Worker().on("a", group="g")(handler)


async def test_a_generator_that_is_returned_is_a_failure():
    worker = Worker()
    worker.on("a", group="g", retry_after=3600)(lambda message: of_some(message))  # noqa: PLW0108 - it is what is tested
    said, _ = await handle_all(worker, b"1")
    assert counts(worker) == {"failed": 1}
    assert "returned a generator" in said.of(Nack)[0].reason


class Bare(BaseException):
    """As test frameworks and old libraries have them."""


class Silent(RetryAfter):
    def __init__(self):
        """It does not call what it is made of."""


class Mute(Reject):
    def __init__(self):
        pass


RAISED = [
    (Reject(404), "rejected", "Reject: 404"),
    (Reject(ValueError("no such order")), "rejected", "Reject: no such order"),
    (Mute(), "rejected", "Mute"),
    (RetryAfter(1, ValueError("a bank\nholiday")), "retried", "a bank\nholiday"),
    (RetryAfter(7 * 24 * 3600, "half a character: \ud800"), "retried", None),
    (RetryAfter(1, "x" * 100_000), "retried", "x" * 1000),
    (Silent(), "retried", ""),
    (SystemExit(2), "failed", "SystemExit: 2"),
    (Bare("no"), "failed", "Bare: no"),
    (BaseExceptionGroup("all", [Bare("no")]), "failed", "BaseExceptionGroup: all (1 sub-exception)"),
    (
        asyncio.CancelledError(),
        "failed",
        "HandlerCancelled: something that the handler awaited was cancelled",
    ),
]


@pytest.mark.parametrize("place", ["handler", "filter", "middleware", "before", "thread"])
@pytest.mark.parametrize("error, count, reason", RAISED, ids=[repr(error)[:40] for error, *_ in RAISED])
async def test_whatever_is_raised_wherever_ends_one_message_and_not_the_worker(error, count, reason, place):
    """A library that calls ``sys.exit`` would else end one worker after the other, with the same message."""
    worker, fine = Worker(), []

    def handle(message, context=None):
        if message.body == b"bad":
            raise error
        fine.append(message.body)
        return True

    @asynccontextmanager
    async def around(message, context):
        handle(message)
        yield

    async def handler(message):
        if place == "handler":
            handle(message)

    match place:
        case "filter":
            worker.filter(handle)
        case "middleware":
            worker.use(around)
        case "before":
            worker.before(handle)
    worker.on("a", group="g", retry_after=3600)(handle if place == "thread" else handler)

    said, _ = await handle_all(worker, b"bad", b"good")

    assert fine == [b"good"]
    assert counts(worker).keys() == {"handled", count}
    assert counts(worker)["handled"] == 1
    if reason is not None and place != "thread":
        assert said.of(Nack)[0].reason == reason


@pytest.mark.parametrize("place", ["handler", "before"])
async def test_who_waits_for_the_loop_within_it_is_told_so(place):
    """It would wait for itself, and every handler of the worker with it. A plain hook runs in the loop, too."""
    worker = Worker()

    def waits(message, context):
        context.wait_for(context.client.send("b", b"1"))

    async def handler(message, context):
        if place == "handler":
            waits(message, context)

    if place == "before":
        worker.before(waits)
    worker.on("a", group="g", retry_after=3600)(handler)
    said, _ = await handle_all(worker, b"1")
    assert "wait_for is for handlers in threads" in said.of(Nack)[0].reason
