"""A broker group whose action log is archived: from whichever replica answers, over failovers, each action once.

Power does not fail here. What a master has committed lies in the page caches of all replicas in sync, and on the disk
of the one that told it; when all lose power at once, another one may be elected that has less, which a lone broker's
family looks at (``archived.py``).
"""

from __future__ import annotations

import asyncio

from sim.autopsy import NOW_MS, image_of
from sim.booked import Books
from sim.faults import Kind
from sim.replicated import KINDS, Replicated
from sim.world import Env, World
from tidemill_broker.doors import recover
from tidemill_broker.doors.service import Service
from tidemill_broker.machine import Broker
from tidemill_journal.errors import JournalError
from tidemill_ledger.following import Follower
from tidemill_ledger.membership import FENCED, Role

BOOKKEEPER = "bookkeeper"
LOOK_S = 0.2
CUTS = {Kind.POWER_CUT, Kind.POWER_CUT_AT_OPERATION, Kind.POWER_CUT_ALL}


class Accounted(Replicated):
    """See the module."""

    kinds = tuple(kind for kind in KINDS if kind not in CUTS)
    probes = ("failovers", "books_kept", "books_died", "books_late", "books_compared", "books_of_slaves")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self._seed = seed
        self._books: Books

    def build(self, world: World) -> None:
        super().build(world)
        self._books = Books(self._seed, self.problems, world.probes)
        world.add_client(BOOKKEEPER, self._keep)
        self.clients = (*self.clients, BOOKKEEPER)

    async def _keep(self, env: Env) -> None:
        while True:
            await asyncio.sleep(env.rng.expovariate(1 / LOOK_S))
            names = sorted(self.running)
            name = env.rng.choice(names) if names else ""
            service = self.running.get(name)
            if service is None or service.failed.done():
                continue
            limit = limit_of(service)
            disk = image_of(self._world.nodes[name].disk).mount()
            self._world.probes["books_of_slaves"] += bool(limit) and isinstance(service.machine, Follower)
            self._books.look(service.broker, disk, limit)

    def check(self, world: World) -> list[str]:
        problems = super().check(world)
        name = self.book.appointment.master or self.servers[0]
        disk = image_of(world.nodes[name].disk).mount()
        try:
            broker, _ = recover(disk, self.settings, NOW_MS, FENCED)
        except JournalError:
            return problems  # which say so
        self._books.check(broker, disk)
        return [*problems, *(one for one in self.problems if one not in problems)]


def limit_of(service: Service) -> int:
    """Up to where the door tells actions; 0: it tells nobody any."""
    machine, logs = service.machine, service.broker.logs
    if isinstance(machine, Broker) or machine.part.role not in {Role.MASTER, Role.SLAVE}:
        return 0
    return min(machine.committed.action, logs.synced_action_position)


def make(seed: str) -> Accounted:
    return Accounted(seed)
