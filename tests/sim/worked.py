"""The cluster with the product's workers among its consumers, and with clients that come over HTTP."""

from __future__ import annotations

import random

from sim.calls import Calls
from sim.clients import Consuming
from sim.cluster import Cluster
from sim.gate import PORT, Door, Visiting
from sim.working import Working
from sim.world import Env, World
from tidemill_broker.doors import Service
from tidemill_broker.doors.gateway import Gateway

VISITORS = ("v1", "v2")
WORKERS_SHARE = 0.7


class Worked(Cluster):
    """The scenario."""

    probes = (*Cluster.probes, "http_again", "http_given", "worker_drained", "worker_given_back")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self._rng = random.Random(f"{seed}/worked")
        self._visitors = VISITORS[: self._rng.randrange(1, 3)]
        self.clients = (*self.clients, *self._visitors)
        self._calls: Calls

    def build(self, world: World) -> None:
        self._calls = Calls(world.network)
        super().build(world)
        for name in self._visitors:
            world.add_client(name, Visiting(self, self._calls).run)

    def drained(self) -> bool:
        return self.finished >= set(self._visitors) and super().drained()

    def probe(self, name: str, came_about: bool) -> None:
        """Count it when it did."""
        self._world.probes[name] += came_about

    def _consuming(self, group: str) -> Consuming:
        return Working(self, group) if self._rng.random() < WORKERS_SHARE else super()._consuming(group)

    def _opened(self, service: Service, env: Env) -> None:
        gateway = Gateway(service)
        gateway.start()
        self._calls.listen(PORT, Door(gateway, env.rng).answer)


def make(seed: str) -> Worked:
    return Worked(seed)
