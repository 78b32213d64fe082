"""Questions between nodes, each with one answer: what HTTP and a database's protocol come down to.

A question travels as a segment does, with its link's latency, and again after a while as long as the link is blocked;
so does the answer. It may be done and the asker never know. A process that stands still is asked when it goes on.
Where nobody listens, the asker is refused; where the power is lost, or a process is killed in the middle, nothing
comes, and the asker's patience ends it. Not modelled: connections, and with them resets and the order of questions.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from sim.life import LIFE, Life
from sim.network import Host, Network

RETRY_S = 0.5
NEVER = object()
"""An answer that gets lost, every time that it is sent."""

HAS_GONE: ContextVar[Callable[[], bool]] = ContextVar("HAS_GONE")
"""Whether who asked has closed its connection by now, as far as the network let that through: for who answers."""

Answer = Callable[[Any], Awaitable[Any]]


@dataclass(slots=True, eq=False)
class Call:
    """One question under way. ``over``: nobody waits for its answer."""

    source: Host
    target: Host
    port: int
    question: Any
    life: Life
    answered: asyncio.Future[Any]
    over: bool = False


class Calls:
    """All nodes' questions."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._loop = network.loop
        self._desks: dict[tuple[str, int], tuple[Life, Answer]] = {}

    def listen(self, port: int, answer: Answer) -> None:
        """Who calls answers at a port of its node, until its process ends."""
        self._desks[self._network.here().name, port] = LIFE.get(self._loop.outside), answer

    async def ask(self, target: str, port: int, question: Any, patience_s: float) -> Any:
        """The answer, or ``OSError``: nobody there, or none in time."""
        life = LIFE.get(self._loop.outside)
        hosts, answered = self._network.hosts, self._loop.create_future()
        call = Call(hosts[life.node], hosts[target], port, question, life, answered)
        self._leave(call)
        try:
            async with asyncio.timeout(patience_s):
                return await answered
        finally:
            call.over = True

    def _leave(self, call: Call) -> None:
        self._loop.at(self._loop.now + self._network.hop(call.source, call.target), self._arrive, call)

    def _arrive(self, call: Call) -> None:
        if call.over or not call.life.alive:
            return
        if self._network.unreachable(call.source, call.target):
            self._loop.at(self._loop.now + RETRY_S, self._leave, call)
            return
        life, answer = self._desks.get((call.target.name, call.port), (self._loop.outside, None))
        if answer is None or not life.alive:
            refusal = ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
            self._send_back(call, refusal, self._loop.outside)
            return
        task = life.context.run(self._loop.create_task, self._work(call, life, answer))
        task.add_done_callback(_raise_defect)

    async def _work(self, call: Call, life: Life, answer: Answer) -> None:
        HAS_GONE.set(lambda: call.over and not self._network.unreachable(call.source, call.target))
        result = await answer(call.question)
        if result is NEVER:
            self._network.probes["lost_answers"] += 1
        else:
            self._send_back(call, result, life)

    def _send_back(self, call: Call, result: Any, life: Life) -> None:
        when = self._loop.now + self._network.hop(call.target, call.source)
        self._loop.at(when, self._come_back, call, result, life)

    def _come_back(self, call: Call, result: Any, life: Life) -> None:
        if call.over or not call.life.alive or call.answered.done():
            return
        if self._network.unreachable(call.target, call.source):
            if life.alive:
                self._loop.at(self._loop.now + RETRY_S, self._send_back, call, result, life)
        elif isinstance(result, OSError):
            call.answered.set_exception(result)
        else:
            call.answered.set_result(result)


def _raise_defect(task: asyncio.Task[None]) -> None:
    """For the loop, which notes it."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        raise error
