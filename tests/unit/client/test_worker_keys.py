"""A worker by key: keys side by side, each in its order, and one that fails holds up itself alone."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from samples.handling import counts
from tidemill import Worker
from tidemill.settler import BrokerSettler
from tidemill.testing import Client, running
from tidemill.why import Why
from tidemill.worker import Ended, HandlerTimeout, Reject, RetryAfter
from tidemill_wire.commands import Extend, Nack, Pull


async def send(mq: Client, *messages: str) -> None:
    """``k0`` is the body of a message of the key ``k``; ``-0`` has none."""
    for message in messages:
        await mq.send("a", message.encode(), order_key=message[0] if message[0] != "-" else None)


class Watched:
    """What was begun, and that no two of a key are at once."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most = 0
        self.begun: list[str] = []

    def begin(self, body: str) -> None:
        self.running[body[0]] += 1
        assert self.running[body[0]] == 1 or body[0] == "-", body
        self.most = max(self.most, self.running.total())
        self.begun.append(body)

    def end(self, body: str) -> None:
        self.running[body[0]] -= 1

    def of(self, key: str) -> list[str]:
        return [body for body in self.begun if body[0] == key]


async def test_keys_are_handled_side_by_side_and_each_in_order():
    worker, watched, three, gate = Worker(), Watched(), asyncio.Event(), asyncio.Event()

    @worker.on("a", group="g", concurrency=3, by_key=True)
    async def handler(message):
        body = message.body.decode()
        watched.begin(body)
        if len(watched.begun) == 3:
            three.set()
        await gate.wait()
        watched.end(body)

    async with Client() as mq:
        await send(mq, "x0", "x1", "y0", "x2", "-0", "y1", "-1", "z0")
        async with running(worker, mq) as run:
            await three.wait()
            assert watched.begun == ["x0", "y0", "-0"]
            gate.set()
            await run.idle()

    assert watched.most == 3
    assert (watched.of("x"), watched.of("y"), len(watched.begun)) == (["x0", "x1", "x2"], ["y0", "y1"], 8)


async def test_key_that_fails_waits_and_others_go_on():
    worker, watched, others = Worker(), Watched(), asyncio.Event()

    @worker.on("a", group="g", concurrency=2, by_key=True, retry_after=0.01)
    async def handler(message):
        body = message.body.decode()
        watched.begin(body)
        watched.end(body)
        if body == "y3":
            others.set()
        if body == "x0" and not others.is_set():
            raise ValueError("not before the others have ended")

    async with Client() as mq:
        await send(mq, "x0", "x1", "y0", "y1", "x2", "y2", "y3")
        async with running(worker, mq) as run:
            await run.idle()

    assert watched.of("y") == ["y0", "y1", "y2", "y3"]
    assert [body for body in watched.of("x") if body != "x0"] == ["x1", "x2"]
    assert watched.of("x")[-3:] == ["x0", "x1", "x2"]


async def test_broker_is_told_what_holds_a_key_up_and_until_when(monkeypatch: pytest.MonkeyPatch):
    worker, told, said = Worker(), list[tuple[list[int], Why | None]](), asyncio.Event()
    extend = BrokerSettler.extend

    async def extend_and_note(self, subject, ranges, parked=None):
        told.append((ranges, parked))
        await extend(self, subject, ranges, parked)
        said.set()

    monkeypatch.setattr(BrokerSettler, "extend", extend_and_note)

    @worker.on("a", group="g", by_key=True, retry_after=0.25)
    async def handler(message):
        if not told:
            raise ValueError("no amount")

    async with Client() as mq:
        await send(mq, "x0")
        async with running(worker, mq) as run:
            await said.wait()
            await run.idle()

    [(ranges, why)] = told
    assert len(set(ranges)) == 1
    assert why is not None
    assert (why.delay_ms, why.reason, why.error) == (250, "ValueError: no amount", "ValueError")


async def test_message_is_given_up_after_so_many_attempts_and_its_key_goes_on():
    worker, watched = Worker(), Watched()

    @worker.on("a", group="g", by_key=True, retry_after=0, give_up_after=3)
    async def handler(message):
        body = message.body.decode()
        watched.begin(body)
        watched.end(body)
        if body == "x0":
            raise ValueError

    async with Client() as mq:
        await send(mq, "x0", "x1")
        async with running(worker, mq) as run:
            await run.idle()
        assert mq.broker.groups["a", "g"].rejected == 1

    assert watched.begun == ["x0", "x0", "x0", "x1"]
    assert counts(worker) == {"failed": 3, "handled": 1}


@pytest.mark.parametrize("error", [Reject("hopeless"), RetryAfter(0)])
async def test_verdicts_mean_what_they_say(error):
    worker, watched = Worker(), Watched()

    @worker.on("a", group="g", by_key=True)
    async def handler(message):
        body = message.body.decode()
        watched.begin(body)
        watched.end(body)
        if body == "x0" and len(watched.begun) == 1:
            raise error

    async with Client() as mq:
        await send(mq, "x0", "x1")
        async with running(worker, mq) as run:
            await run.idle()

    again = ["x0"] if isinstance(error, RetryAfter) else []
    assert watched.begun == ["x0", *again, "x1"]


async def test_thread_that_is_late_keeps_its_key():
    worker, watched, gate, late = Worker(), Watched(), threading.Event(), asyncio.Event()

    @worker.on("a", group="g", by_key=True, timeout=0.3, retry_after=0)
    def handler(message):
        body = message.body.decode()
        watched.begin(body)
        if body == "x0" and len(watched.of("x")) == 1:
            gate.wait(10)
        watched.end(body)

    @worker.error
    def failed(message, context, error):
        assert isinstance(error, HandlerTimeout)
        late.set()

    async with Client() as mq:
        await send(mq, "x0", "x1", "y0")
        async with running(worker, mq) as run:
            await late.wait()
            assert watched.of("x") == ["x0"]
            gate.set()
            await run.idle()

    assert watched.of("x") == ["x0", "x0", "x1"]


async def test_worker_that_stops_gives_back_what_it_has_in_order():
    first, second, seen = Worker(), Worker(), Watched()
    failed = asyncio.Event()

    @first.on("a", group="g", by_key=True, retry_after=1000)
    async def fails(message):
        failed.set()
        raise ValueError("no")

    @second.on("a", group="g", by_key=True)
    async def handles(message):
        seen.begin(message.body.decode())
        seen.end(message.body.decode())

    async with Client() as mq:
        await send(mq, "x0", "x1", "x2")
        async with running(first, mq):
            await failed.wait()
        async with running(second, mq) as run:
            await run.idle()

    assert seen.begun == ["x0", "x1", "x2"]


def test_what_cannot_be_is_refused():
    worker = Worker()
    with pytest.raises(ValueError, match="at_most_once"):
        worker.on("a", group="g", by_key=True, at_most_once=True)(_nothing)
    with pytest.raises(ValueError, match="instead of a pattern"):
        worker.on("a.*", group="g", by_key=True)(_nothing)
    with pytest.raises(ValueError, match="give_up_after 0"):
        worker.on("a", group="g", by_key=True, give_up_after=0)(_nothing)


async def _nothing(message):
    raise AssertionError(message)


async def test_handler_at_work_keeps_its_message_over_a_new_connection(serve, until):
    """The broker is told which one that is: it takes the others back, and gives them again."""
    worker, watched, gate, began = Worker(), Watched(), asyncio.Event(), asyncio.Event()

    @worker.on("a", group="g", by_key=True, concurrency=2)
    async def handler(message):
        body = message.body.decode()
        watched.begin(body)
        began.set()
        await gate.wait()
        watched.end(body)

    async with serve() as place, place.client() as mq:
        place.broker.patient = True
        await send(mq, "x0", "x1", "x2")
        serving = asyncio.create_task(worker.serve(mq))
        await began.wait()
        place.drop()
        await until(lambda: [one for one in place.broker.said if isinstance(one, Pull) and one.held])
        gate.set()
        await until(lambda: place.group().acked == 1)
        worker.stop()
        await serving
        [held] = [one.held for one in place.broker.said if isinstance(one, Pull) and one.held]

    assert held == [0, 0]
    assert watched.begun == ["x0"]
    assert counts(worker) == {"handled": 1}


async def test_worker_that_stops_when_the_lease_of_what_it_parked_is_over_stops_in_good_order(serve, until):
    worker = Worker()

    @worker.on("a", group="g", by_key=True, retry_after=1000)
    async def handler(message):
        raise ValueError("no")

    async with serve() as place, place.client() as mq:
        await send(mq, "x0")
        serving = asyncio.create_task(worker.serve(mq))
        await until(lambda: any(isinstance(one, Extend) for one in place.broker.said))
        for member in place.group().members.values():
            member.leases.clear()
        worker.stop()
        assert await serving is Ended.DRAINED
        assert [one.ranges for one in place.broker.said if isinstance(one, Nack)] == [[0, 0]]


async def test_worker_keeps_nothing_in_hand_of_what_a_lost_connection_took_back(
    serve, until, monkeypatch: pytest.MonkeyPatch
):
    """It would be kept for ever, and so would a partition that somebody else is to have."""
    worker, watched, gate, began = Worker(), Watched(), asyncio.Event(), asyncio.Event()
    settlers: list[BrokerSettler] = []
    begin_anew = BrokerSettler.begin_anew
    monkeypatch.setattr(
        BrokerSettler, "begin_anew", lambda self: (settlers.append(self), begin_anew(self))[1]
    )

    @worker.on("a", group="g", by_key=True, concurrency=1)
    async def handler(message):
        watched.begin(message.body.decode())
        began.set()
        await gate.wait()
        watched.end(message.body.decode())

    async with serve() as place, place.client() as mq:
        place.broker.patient = True
        await send(mq, "x0", "x1", "y0")
        serving = asyncio.create_task(worker.serve(mq))
        await began.wait()
        await until(lambda: place.group().in_flight == 3)
        place.drop()
        await until(lambda: [one for one in place.broker.said if isinstance(one, Pull) and one.held])
        gate.set()
        await until(lambda: place.group().acked)
        for member in place.group().members.values():
            assert [number for number in member.leases if number] == [1, 2]
        await until(lambda: not settlers[-1].outstanding)
        worker.stop()
        await serving
