"""A broker group that a canary looks at, while its masters come and go: the product's patrol, over the real client.

Checked besides the promises of a broker group, against the log of the last master: what the canary calls lost is not
there, so that it says nothing false; what is not there and was answered it does call lost, when it lived long enough;
and where no power was cut it lost nothing, so the RPO of each failover it saw is 0.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from sim.autopsy import read_batches
from sim.checkers import Outcome, Promise, Send, Terms, ended, place_of
from sim.clients import draw_client
from sim.cluster import declare_subjects
from sim.disk import Mount
from sim.replicated import Replicated
from sim.world import Env, World
from tidemill.canary.options import CanarySettings
from tidemill.canary.patrol import Patrol
from tidemill.canary.probes import group_manifest, subject_manifest, subject_of
from tidemill.canary.stream import Came
from tidemill.errors import OutcomeUnknown, TidemillError
from tidemill.receipts import Receipt
from tidemill_broker.doors import Service
from tidemill_broker.machine import Broker
from tidemill_wire.declarations import parse_manifests

GROUP = "g"
CANARY = "canary"
PATIENCE_S = 60.0
"""Longer than a lease, than a consumer is missed, and than clients try: what did not come by then never will."""
LOOK_S = 0.05
LAST_ONES = 200


class Watched(Replicated):
    """The scenario."""

    probes = (*Replicated.probes, "canary_failovers", "canary_interrupted", "canary_unsure")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        rng = random.Random(f"{seed}/watched")
        self.clients = (*self.clients, CANARY)
        self.patrols: list[Patrol] = []
        self._judged = False
        self._answered: set[str] = set()
        self._canary = CanarySettings(
            interval_s=rng.choice((0.1, 0.5)),
            later_every_s=0,
            patience_s=PATIENCE_S,
            slow_s=rng.choice((0.3, 1.0)),
        )

    def build(self, world: World) -> None:
        super().build(world)
        world.add_client(CANARY, self._patrol)

    async def _patrol(self, env: Env) -> None:
        mq = draw_client(env, self.fetch)
        mq.send = self._noted(env, mq.send)  # type: ignore[method-assign]
        patrol = Patrol(mq, subject_of(GROUP), self._canary)
        self.patrols.append(patrol)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(patrol.run())
            await env.quiet.wait()
            while not self._judged:
                await self._settle(patrol)

    async def _settle(self, patrol: Patrol) -> None:
        """Probes go on until all that went before is judged; then none is sent, and the last ones come."""
        patrol.resume()
        while patrol.judge.now.expected:  # noqa: ASYNC110  # it is looked at, and tells nobody
            await asyncio.sleep(LOOK_S)
        patrol.pause("the end")
        for _ in range(LAST_ONES):
            await asyncio.sleep(LOOK_S)
            tally = patrol.judge.now.tally
            self._judged = not patrol.judge.now.expected and tally.sent == tally.answered + tally.failed
            if self._judged:
                return

    def _noted(self, env: Env, send: Callable[..., Awaitable[Receipt]]) -> Callable[..., Awaitable[Receipt]]:
        """Probes are held to the promises of all messages."""

        async def noting(subject: str, body: bytes, **more: Any) -> Receipt:
            one = Send(body.decode(), env.name, subject, body, Promise.NORMAL, "", env.loop.now)
            self.history.sending(one)
            try:
                receipt = await send(subject, body, **more)
            except OutcomeUnknown:
                ended(one, Outcome.UNKNOWN, env.loop.now)
                raise
            except TidemillError:
                ended(one, Outcome.FAILED, env.loop.now)
                raise
            one.place = place_of(subject, receipt.sequence)
            self._answered.add(receipt.id)
            ended(one, Outcome.OK, env.loop.now)
            return receipt

        return noting

    def _declare(self, service: Service) -> None:
        manifests = [subject_manifest(GROUP, 6 * 3600), group_manifest(GROUP, CANARY)]
        service.declare([*declare_subjects(), *parse_manifests(manifests)])

    def drained(self) -> bool:
        return super().drained() and self._judged

    def _master_problems(self, disk: Mount, broker: Broker, terms: Terms) -> list[str]:
        stored = {
            batch.message_id(index)
            for batch in read_batches(disk, broker)
            if batch.partition == subject_of(GROUP)
            for index in range(batch.header.messages)
        }
        return [*super()._master_problems(disk, broker, terms), *self._verdicts(stored)]

    def _verdicts(self, stored: set[str]) -> Iterator[str]:
        for life, patrol in enumerate(self.patrols, 1):
            judge = patrol.judge
            self._world.probes["canary_failovers"] += judge.failovers.count
            self._world.probes["canary_interrupted"] += any(
                one.rto_ms > 1000 for one in judge.failovers.recent
            )
            self._world.probes["canary_unsure"] += judge.now.tally.failed
            lost = judge.now.tally.lost - judge.now.tally.found
            if lost and not self._world.cuts:
                yield f"canary lost: {judge.lost_of_late} of life {life}, and no power was cut"
            if wrong := set(judge.lost_of_late) & stored:
                yield f"canary wrong: {wrong} of life {life} are called lost, and are in the log"
            if wrong := set(judge.lost_of_late) - self._answered:
                yield f"canary wrong: {wrong} of life {life} are called lost, and were never answered"
            if any(one.rpo for one in judge.failovers.recent) and not lost:
                yield f"canary wrong: an RPO of {judge.failovers.recent} without a loss"
            if doubled := judge.doubled[Came.STORED_TWICE]:
                yield f"canary doubled: {doubled} probes of life {life} lie in two places"


def make(seed: str) -> Watched:
    """For the runner."""
    return Watched(seed)
