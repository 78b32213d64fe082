"""A message is acked when its handler has run: what only looks like one is awaited, or refused."""

from __future__ import annotations

import asyncio

import pytest

from samples.handling import counts, handle_all
from tidemill import Worker
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
