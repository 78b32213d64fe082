"""Whole clusters whose consumers run in pods, of which somebody says that they are gone: when they are, and by mistake.

Each life of a consumer's node is a pod. Somebody says of any that ever was, also of the one that lives, that it has
vanished. What must not be: that a message is lost by it, or comes again after its ack was answered; what the checkers
of ``whole`` look at. What must be: all is consumed, though leases end beneath consumers that are at work.
"""

from __future__ import annotations

import asyncio

from sim.clients import Consuming
from sim.metas import Metas
from sim.weeding import Weeding
from sim.whole import METAS, Cell, Whole
from sim.world import Env, World
from tidemill_broker.doors import Service

SAY_EVERY_S = 0.7


class PodConsuming(Consuming):
    """A consumer in a pod."""

    def __init__(self, cell: PodCell) -> None:
        super().__init__(cell, "all")
        self._cell = cell

    def _pod(self, env: Env) -> str:
        pod = f"pod-{env.name}-{env.life}"
        if pod not in self._cell.pods:
            self._cell.pods.append(pod)
        return pod


class PodCell(Cell):
    """A broker group with its clients."""

    def __init__(self, seed: str, group: str) -> None:
        super().__init__(seed, group)
        self.pods: list[str] = []

    def _consuming(self, _name: str) -> Consuming:
        return PodConsuming(self)

    def _declare(self, service: Service) -> None:
        super()._declare(service)
        broker = service.broker
        vanished = broker.vanished

        def count(pods: tuple[str, ...], now_ms: int) -> None:
            before = broker.counters.leases_ended
            vanished(pods, now_ms)
            self.world.probes["leases_taken"] += broker.counters.leases_ended - before

        broker.vanished = count


class Fallow(Weeding):
    """Nobody removes anything here."""

    async def run(self, env: Env) -> None:
        self.finished = True

    def check(self, world: World) -> list[str]:
        return []


class Vanished(Whole):
    """The scenario."""

    cell = PodCell
    gardener = Fallow
    probes = ("failovers", "vanished", "leases_taken")

    async def _person(self, env: Env) -> None:
        metas = Metas(self._calls, METAS, env.rng)
        while not env.quiet.is_set():
            await asyncio.sleep(env.rng.expovariate(1 / SAY_EVERY_S))
            pods = env.rng.choice(self.cells).pods
            if not pods:
                continue
            try:
                status, _ = await metas.ask(
                    "POST", "/v1/clients/vanished", {"pod": env.rng.choice(pods[-3:])}
                )
            except OSError:
                metas.turn_away()
            else:
                self._world.probes["vanished"] += status == 200


def make(seed: str) -> Vanished:
    return Vanished(seed)
