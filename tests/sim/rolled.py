"""Whole clusters that somebody rolls: brokers are told to stop, say goodbye, and begin again, whatever else fails.

Who rolls asks meta before each broker, and stops any that meta calls safe to stop, or a master that can hand over; now
and then he asks nobody. What must not be: that anything answered is lost or comes again after its ack, that who leaves
has handed over less than all it has, or that two lead; what the checkers of ``whole`` look at. What must be: brokers
that stop are followed, and the cluster is whole in the end.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from sim.metas import Metas
from sim.whole import CONTROL, HANDOVER_PATIENCE_S, METAS, Cell, Chronicle, Whole
from sim.world import Env
from tidemill_broker.doors import Service
from tidemill_host.parting import Parting, Step
from tidemill_ledger.farewell import Farewell
from tidemill_ledger.replication import Master
from tidemill_meta.values import BrokerGroup
from tidemill_wire.asking import Request
from tidemill_wire.replication import Handover

STOP = "stop"
ROLL_EVERY_S = 1.5
BLINDLY = 0.2


class SimParting(Parting):
    """What the host does, over the simulated network."""

    def __init__(self, cell: RolledCell, env: Env, service: Service, metas: Metas) -> None:
        super().__init__(service.server, ())
        self._cell = cell
        self._service = service
        self._sim_metas = metas

    async def _do(self, step: Step) -> tuple[int, object]:
        status, answer = await super()._do(step)
        if isinstance(step, Handover) and status == 200:
            self._cell.handed_over(self._service, step.to)
        return status, answer

    async def _ask(self, request: Request) -> tuple[int, object]:
        for _ in METAS:
            try:
                return await self._sim_metas.ask(
                    request.method, request.path, request.body, request.patience_s
                )
            except OSError:
                self._sim_metas.turn_away()
        return 0, None


@dataclass(slots=True)
class RolledChronicle(Chronicle):
    """Whoever was told to stop may be elected before meta has heard that it leaves, and is replaced then."""

    stopped_s: dict[str, float] = field(default_factory=dict)

    def note(self, group: BrokerGroup, now_s: float) -> list[str]:
        if self.stored is not None and self.stored.master in self.stopped_s:
            self.asked_s = max(self.asked_s, self.stopped_s[self.stored.master])
        return Chronicle.note(self, group, now_s)


class RolledCell(Cell):
    """A broker group whose processes can be told to stop."""

    chronicle: RolledChronicle

    def __init__(self, seed: str, group: str) -> None:
        super().__init__(seed, group)
        self.chronicle = self.book = RolledChronicle(self.chronicle.appointment)
        self._stops: dict[str, tuple[int, asyncio.Future[None]]] = {}
        """Of each server: a life of it, and what is done when that is told to stop."""

    def _stopped(self, env: Env) -> asyncio.Future[None]:
        """A process that is told once stops, also when it is something else in its group by then."""
        life, stopped = self._stops.get(env.name, (0, env.loop.create_future()))
        if life != env.life:
            stopped = env.loop.create_future()
        self._stops[env.name] = env.life, stopped
        return stopped

    async def _hand_over(self, env: Env, to: str) -> int:
        if to != STOP:
            return await super()._hand_over(env, to)
        life, stopped = self._stops.get(env.name, (0, None))
        if env.name not in self.running or stopped is None or life != env.life or stopped.done():
            return 503
        self.chronicle.stopped_s[env.name] = self.world.now_s
        if isinstance(self.running[env.name].machine, Master):
            self.world.probes["rolled_masters"] += 1
        self.world.probes["rolled"] += 1
        stopped.set_result(None)
        return 200

    async def _say_goodbye(self, env: Env, service: Service) -> None:
        parting = SimParting(self, env, service, Metas(self.calls, METAS, env.rng))
        await parting.say_unless(service.failed, partial(Farewell, self._identities[env.name]))

    def handed_over(self, service: Service, to: str) -> None:
        """Who leaves says that somebody has all."""
        self.world.probes["left"] += 1
        self._check_left(service.machine, to)


class Rolled(Whole):
    """The scenario."""

    cell = RolledCell
    probes = ("failovers", "wished_in", "wished_out", "rolled", "rolled_masters", "left")

    async def _person(self, env: Env) -> None:
        metas = Metas(self._calls, METAS, env.rng)
        while not env.quiet.is_set():
            await asyncio.sleep(env.rng.expovariate(1 / ROLL_EVERY_S))
            try:
                await self._roll(env, metas)
            except OSError:
                metas.turn_away()

    async def _roll(self, env: Env, metas: Metas) -> None:
        status, rows = await metas.ask("GET", "/v1/brokers", {})
        blindly = env.rng.random() < BLINDLY
        able = [
            one["name"]
            for row in (rows if status == 200 else ())
            for one in row["brokers"]
            if blindly or one["safe_to_stop"] or one["hand_over_to"]
        ]
        if able and not env.quiet.is_set():
            await self._calls.ask(env.rng.choice(able), CONTROL, STOP, HANDOVER_PATIENCE_S)


def make(seed: str) -> Rolled:
    return Rolled(seed)
