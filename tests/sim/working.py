"""The product's worker as a client of the simulator: concurrency, time limits, retries, draining, all of it unchanged.

Handlers are coroutines: threads and processes are no part of a simulation.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sim.checkers import Ack, Outcome
from sim.clients import DAWDLE_LEASE_S, Consuming, draw_client
from sim.world import Env
from tidemill.chain import Match
from tidemill.message import Message
from tidemill.worker import Context, Ended, Reject, RetryAfter, Worker

if TYPE_CHECKING:
    from sim.cluster import Cluster

STAYS_S = (0.3, 1.0, 3.0, 1e9)
HANDLED_S = (0.0, 0.0, 0.0, 0.01, 0.1)


class Broken(Exception):
    """What every handler meets while nothing can be handled."""


class Working(Consuming):
    """A node whose worker serves for a while, drains, and begins again."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        super().__init__(cluster, group)
        self._at_work = 0
        self._answered: dict[int, Ack] = {}
        """Acks of handlers that returned, by their pull sequences."""

    async def run(self, env: Env) -> None:
        self._at_work = 0  # of this life
        while True:
            client = draw_client(env, self._cluster.fetch)
            worker = self._worker(env)
            if not env.quiet.is_set():
                env.loop.call_later(env.rng.choice(STAYS_S), worker.stop)
            ended = await worker.serve(client)
            self._look(env, worker, ended)
            await client.close()
            await asyncio.sleep(env.rng.random() * 0.2)

    def _look(self, env: Env, worker: Worker, ended: Ended) -> None:
        """How a worker ended is how it says it did."""
        self._cluster.note(f"worker_{ended.name.lower()}")
        left = worker.statistics().total.in_progress
        if ended is Ended.FAILED:
            self._cluster.problems.append(f"worker: {env.name} failed at {env.loop.now:.6f} s")
        if left or self._at_work:
            self._cluster.problems.append(
                f"worker: {env.name} ended at {env.loop.now:.6f} s as {ended.name}, and is at {left}, {self._at_work}"
            )

    def _worker(self, env: Env) -> Worker:
        rng = env.rng
        wish = self._cluster.groups[self._group]
        match: Match = "all" if wish.wanted.every else "any"
        concurrency = rng.choice((1, 2, 10))
        worker = Worker(drain_seconds=rng.choice((0.0, 0.1, 30.0)))

        @worker.on(
            wish.subjects,
            group=self._group,
            concurrency=concurrency,
            timeout=rng.choice((None, 0.05, 1.0)),
            retry_after=rng.choice((None, 0.0, 0.3)),
            tags=wish.wanted.tags,
            match=match,
        )
        async def handle(message: Message) -> None:
            self._at_work += 1
            try:
                if self._at_work > concurrency:
                    self._cluster.problems.append(
                        f"worker: {env.name} is at {self._at_work} of {concurrency}"
                    )
                self._got(env, message)
                await self._do(env, worker, message)
            finally:
                self._at_work -= 1

        @worker.acked
        def acked(message: Message, _: Context) -> None:
            ack = self._answered.pop(pull_of(message))
            ack.outcome, ack.ended_s = Outcome.OK, env.loop.now

        del handle, acked
        return worker

    async def _do(self, env: Env, worker: Worker, message: Message) -> None:
        match self._mood(env):
            case "nack":
                raise env.rng.choice((ValueError("not now"), RetryAfter(0.1, "not now")))
            case "outage":
                raise Broken("the database is away")
            case "raise":
                raise Reject("of no use")
            case "dawdle":
                lease_s = min(self._cluster.settings.lease_ms / 1000, DAWDLE_LEASE_S)
                await asyncio.sleep(lease_s * env.rng.uniform(0.5, 3.0))
            case "leave":
                worker.stop()
            case _:
                await asyncio.sleep(env.rng.choice(HANDLED_S))
        ack = self._begin(env, message)
        ack.outcome, ack.ended_s = Outcome.UNKNOWN, env.loop.now  # until the broker has answered
        self._answered[pull_of(message)] = ack


def pull_of(message: Message) -> int:
    """What names the delivery of a message."""
    return message._delivery.pull_sequence + message._index
