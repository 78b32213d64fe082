"""A queue for the tests of programs that use one: the same client, and a broker in memory instead of a server.

    from tidemill.testing import Client

    async with Client() as mq:
        await mq.send("order.created", b"...")

Everything between ``send`` and the socket is the real thing. Clients that are given the same ``broker`` see the same
messages. What was rejected, or has failed as often as the broker allows, is among ``mq.dead_letters(...)``, to be
listed, redriven and purged as ever:

    async with Client(MemoryBroker(attempts_max=3)) as mq:
        ...
        [letter] = [letter async for letter in mq.dead_letters("order.created", "billing")]

What became of a message, ``mq.why(receipt.id)`` tells as ever; here the whole history is kept.

What is sent for later comes when its time has come; a test moves the clock instead of waiting:

    await mq.send("reminder", b"your table at eight", delay=timedelta(days=30))
    await mq.advance(days=30)

Timers are found, cancelled and moved as ever, and what recurs comes as often as its expression says on the way. What
becomes of times that nobody was there for is seen by moving the clock with ``away=True``.

A worker's handlers are tested in the same way, with all that surrounds them:

    async with Client() as mq, running(worker, mq) as run:
        await mq.send("order.created", b"...")
        await run.idle()
        assert run.errors == []
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from tidemill import client
from tidemill.memory import MemoryBroker
from tidemill.memory_search import MemoryPort
from tidemill.memory_stores import is_lane, lanes_of
from tidemill.message import Message
from tidemill.routes import Address, HttpPort, Routes
from tidemill.settings import ClientSettings, wall_clock_ms
from tidemill.worker import Ended, Worker
from tidemill_wire.lanes import split_lane

__all__ = ["Client", "MemoryBroker", "Running", "running"]

LOOK_S = 0.002


class Client(client.Client):
    """A client of a broker in memory."""

    def __init__(self, broker: MemoryBroker | None = None, *, settings: ClientSettings | None = None) -> None:
        self.broker = broker or MemoryBroker()
        found = replace(settings or ClientSettings(), connect=self.broker.connect, open_port=self._open_port)
        if found.now_ms is wall_clock_ms:
            found = replace(found, now_ms=self.broker.clock.now_ms)
        super().__init__("memory:1", settings=found, fetch=self._routes)
        self._router.atlas.delays = (Address("d0", "memory", 2),)

    async def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        away: bool = False,
    ) -> None:
        """Move the clock ahead: what becomes due on the way is given out, in the order of its times.

        It is the clock of the broker, and of all clients on it. Whoever handles what came is not waited for;
        ``running(...)`` has an ``advance`` that does. ``away``: as if no delay service had been there on the way; what
        was due meanwhile is late.
        """
        for _ in self.steps(away=away, days=days, hours=hours, minutes=minutes, seconds=seconds):
            await asyncio.sleep(0)

    def steps(self, *, away: bool = False, **by: float) -> Iterator[None]:
        """The same, one step with each ``next``: a step is to the next time at which something becomes due."""
        by_ms = round(timedelta(**by) / timedelta(milliseconds=1))
        if by_ms < 0:
            raise ValueError(f"the clock moves ahead only, and not by {by_ms} ms")
        return self.broker.clock.advance(by_ms, away=away)

    async def subjects(self) -> list[dict[str, Any]]:
        """The subjects there are."""
        return [
            {
                "name": name,
                "messages": sum(
                    self.broker.subjects[lane].next_sequence - self.broker.subjects[lane].begin
                    for lane in lanes_of(self.broker.subjects, name)
                ),
                "next_sequence": subject.next_sequence,
            }
            for name, subject in self.broker.subjects.items()
            if not is_lane(name)
        ]

    async def groups(self) -> list[dict[str, Any]]:
        """The consumer groups there are."""
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for (name, group), found in sorted(self.broker.groups.items(), key=lambda item: is_lane(item[0][0])):
            subject = split_lane(name)[0]
            row = rows.setdefault((subject, group), {"group": group, "subject": subject})
            numbers = {
                "lag": self.broker.subjects[name].next_sequence - found.cursor,
                "in_flight": found.in_flight,
                "failed": len(found.due),
                "acked": found.acked,
                "consumers": 0 if is_lane(name) else len(found.members),
            }
            row |= {what: row.get(what, 0) + number for what, number in numbers.items()}
            grave = self.broker.graves.of(subject, group)
            row["dead"] = 0 if grave is None else grave.waiting()
        return list(rows.values())

    def _open_port(self, _host: str, _port: int) -> HttpPort:
        return MemoryPort(self.broker)

    async def _routes(self) -> Routes:
        return (Address("g0", "memory", 1),)


@dataclass(slots=True)
class Running:
    """A worker that handles the messages of a queue in memory."""

    worker: Worker
    mq: Client
    errors: list[BaseException] = field(default_factory=list[BaseException])
    """What handlers have raised, ``Reject`` included, in its order."""
    serving: asyncio.Task[Ended] | None = None

    async def idle(self) -> None:
        """Until every message that was sent is settled. One that waits for its retry, or is for later, is not waited
        for.
        """
        while not self._is_idle():
            if self.serving is not None and self.serving.done():
                raise RuntimeError(
                    f"the worker has ended ({self.serving.result().name}), and not all is handled: its log says why"
                )
            await asyncio.sleep(LOOK_S)

    async def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        away: bool = False,
    ) -> None:
        """Move the clock ahead, and let handlers be done with what is due before it moves on: what they send for later
        counts from then. ``away``: see ``Client.advance``.
        """
        await self.idle()
        for _ in self.mq.steps(away=away, days=days, hours=hours, minutes=minutes, seconds=seconds):
            await self.idle()

    def _is_idle(self) -> bool:
        broker = self.mq.broker
        for handler in self.worker.handlers:
            for subject in handler.subscription.subjects:
                for lane in lanes_of(broker.subjects, subject):
                    group = broker.groups.get((lane, handler.subscription.group))
                    if group is None or group.cursor < broker.subjects[lane].next_sequence or group.due:
                        return False
                    if group.in_flight:
                        return False
        return self.worker.statistics().total.in_progress == 0

    def note(self, _message: Message, error: BaseException) -> None:
        """A handler failed."""
        self.errors.append(error)


@asynccontextmanager
async def running(worker: Worker, mq: Client) -> AsyncGenerator[Running]:
    """Serve with the client of a queue in memory, until the block ends; then drain."""
    run = Running(worker, mq)
    worker.listeners.append(run.note)
    try:
        async with asyncio.TaskGroup() as group:
            run.serving = serving = group.create_task(worker.serve(mq))
            try:
                yield run
            finally:
                if not serving.done():
                    worker.stop()
                await asyncio.wait([serving])
    finally:
        worker.listeners.remove(run.note)
