"""A broker group that leaves for good, while somebody sends to and consumes a subject that lies on it and on another
one: drained, retired when all is consumed, stopped, forgotten. In some worlds it comes again, with empty disks.

What must not be: that a message goes with it that was answered as stored and that nobody has acknowledged. What must
be: meta lets go of it when its brokers are gone, and a group of that name with nothing is led, as any other.

Whether all is consumed is asked as ``tidemill brokers retire`` does, of its master; that must have heard that it is
read only, or it takes a message afterwards.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from sim.autopsy import HERB
from sim.calls import Calls
from sim.disk import SimDisk
from sim.metas import MetaPort, Metas
from sim.whole import METAS, Cell, Whole
from sim.world import Env, World
from tidemill import Client
from tidemill.errors import TidemillError
from tidemill.settings import ClientSettings
from tidemill_broker.doors.status import left_of
from tidemill_broker.gate import Gate
from tidemill_meta.storing import Entry
from tidemill_meta.values import BrokerGroup
from tidemill_wire.declarations import API_VERSION
from tidemill_wire.routes import writable

LEAVING = "g9"
MOURNERS = "mourners"
SENDER, HEIR = "sender", "heir"
AGAIN_S = 0.3
GAP_S = 0.1
BEFORE_S = 3.0
"""At most, until it is drained."""
COMES_AGAIN = 0.5
LED_WITHIN_S = 30.0


class LeavingCell(Cell):
    """Its servers, whose clients are everybody's."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed, LEAVING)
        self.clients = ()

    def furnish(self, world: World, calls: Calls) -> None:
        self._world = self.world = world
        self._calls = self.calls = calls
        for name in self.servers:
            world.add_server(name, self._serve)

    def is_done(self) -> bool:
        """Its master takes nothing, and has nothing that a group has not done with."""
        service = self.running.get(self.chronicle.appointment.master)
        if service is None or not self.is_led():
            return False
        gate: Gate = service.broker.intake.gate
        return not writable(gate._told.state) and not left_of(service.broker.state, HERB)["left"]

    def stop(self) -> None:
        """For good: nobody starts them again."""
        for name in self.servers:
            self.world.kill(name, None)
            self.world.nodes[name].finished = True
            self.world.nodes[name].lives += 1  # a kill of before brings nobody back

    def begin_again(self) -> None:
        """With new disks."""
        for name in self.servers:
            node = self.world.nodes[name]
            node.disk = SimDisk(
                random.Random(f"{self.world.plan.seed}/again/{name}"),
                self.world.plan.weather,
                self.world.loop.charge,
            )
            node.finished = False
            self.world.start(name)


class Undertaker:
    """A person; in the place of ``Weeding``."""

    def __init__(self, cell: LeavingCell, metas: Callable[[Env], Metas], *, comes_again: bool) -> None:
        self.finished = False
        self.problems: list[str] = []
        self._cell = cell
        self._metas = metas
        self._comes_again = comes_again
        self._retired = self._forgotten = False

    def witness(self, entries: Sequence[Entry], now_s: float) -> None:
        """What was stored."""

    async def run(self, env: Env) -> None:
        metas, probes = self._metas(env), self._cell.world.probes
        if not self._retired:  # one that is killed goes on where it was
            await self._retire(env, metas)
        if not self._forgotten:
            for name in self._cell.servers:
                await metas.until_done("DELETE", f"/v1/groups/{LEAVING}/brokers/{name}", {}, AGAIN_S)
            self._forgotten = True
            probes["forgotten"] += 1
            if self._comes_again:
                self._cell.begin_again()
        if self._comes_again:
            began_s = env.loop.now
            while not self._cell.is_led():
                await asyncio.sleep(AGAIN_S)
                if env.quiet.is_set() and env.loop.now > began_s + LED_WITHIN_S:
                    self.problems.append(f"no master: {LEAVING}, which came again")
                    break
            probes["came_again"] += 1
        self.finished = True

    async def _retire(self, env: Env, metas: Metas) -> None:
        for manifest in _manifests():
            await metas.until_done("POST", "/v1/declarations", manifest, AGAIN_S)
        await asyncio.sleep(env.rng.random() * BEFORE_S)
        await metas.until_done("POST", f"/v1/groups/{LEAVING}/drain", {}, AGAIN_S)
        while not self._cell.is_done():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(AGAIN_S)
        await metas.until_done("POST", f"/v1/groups/{LEAVING}/retire", {}, AGAIN_S)
        self._cell.stop()
        self._retired = True

    def check(self, _world: World) -> list[str]:
        return self.problems


class Forgotten(Whole):
    """The scenario: a whole cluster, of which nobody weeds, and one broker group more."""

    probes = ("failovers", "forgotten", "came_again", "mourned")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        rng = random.Random(f"{seed}/forgotten")
        self._leaving = LeavingCell(seed)
        self._leaving.chronicle.silence_s = self._settings.liveness_ms / 1000
        self._undertaker = Undertaker(self._leaving, self._metas_of, comes_again=rng.random() < COMES_AGAIN)
        self._weeding: Any = self._undertaker
        self.guests = (self._leaving,)
        self.servers = (*self.servers, *self._leaving.servers)
        self.clients = (*self.clients, SENDER, HEIR)
        self._answered: dict[str, float] = {}
        """When each message was answered as stored."""
        self._acked: set[str] = set()

    def build(self, world: World) -> None:
        super().build(world)
        self._leaving.furnish(world, self._calls)
        world.add_client(SENDER, self._send)
        world.add_client(HEIR, self._inherit)

    def drained(self) -> bool:
        return super().drained() and self._answered.keys() <= self._acked

    def check(self, world: World) -> list[str]:
        world.probes["mourned"] += len(self._acked)
        return [
            *super().check(world),
            *self._leaving.problems,
            *(
                f"went with its group: {name}, answered at {at_s:.6f} s"
                for name, at_s in self._answered.items()
                if name not in self._acked
            ),
        ]

    def _witness(self, entries: Sequence[Entry], now_s: float) -> None:
        mine = [one for one in entries if (one.kind, one.name) == (BrokerGroup.KIND, LEAVING)]
        super()._witness([one for one in entries if one not in mine], now_s)
        for entry in mine:
            chronicle = self._leaving.chronicle
            if entry.body is None:
                chronicle.stored = None  # another one of that name has epochs of its own
                self._leaving._commits.clear()
            else:
                group = BrokerGroup.from_map(entry.name, entry.version, entry.body)
                self._leaving.problems += chronicle.note(group, now_s)

    # -- clients -----------------------------------------------------------------------------------------------

    def _metas_of(self, env: Env) -> Metas:
        return Metas(self._calls, METAS, env.rng)

    def _client(self, env: Env) -> Client:
        rng = env.rng
        settings = ClientSettings(
            send_timeout_s=rng.choice((1.0, 4.0)),
            connect_timeout_s=rng.choice((1.0, 5.0)),
            dead_peer_s=rng.choice((1.0, 3.0)),
            pull_wait_ms=rng.choice((100, 2_000)),
            routes_poll_s=rng.choice((1.0, 30.0)),
            random=random.Random(rng.getrandbits(64)),
            now_ms=env.clock.now_ms,
            stay_awake=False,
            seconds=env.clock.seconds,
            open_port=lambda host, _port: MetaPort(self._calls, host),
        )
        return Client(",".join(f"{name}:7401" for name in rng.sample(METAS, len(METAS))), settings=settings)

    async def _send(self, env: Env) -> None:
        client, number = self._client(env), 0
        while not (env.quiet.is_set() and self._undertaker.finished):
            number += 1
            name = f"{env.life}.{number}"
            try:
                await client.send(HERB, name.encode(), order_key="k" if env.rng.random() < 0.2 else None)
            except TidemillError:
                await asyncio.sleep(AGAIN_S)
            else:
                self._answered[name] = env.loop.now
            await asyncio.sleep(GAP_S * 2 * env.rng.random())
        await client.close()

    async def _inherit(self, env: Env) -> None:
        client = self._client(env)
        while True:
            try:
                async with client.consume(HERB, group=MOURNERS) as messages:
                    async for message in messages:
                        self._acked.add(message.body.decode())  # the answer may be lost, and the ack noted
                        await message.ack()
            except TidemillError:
                await asyncio.sleep(AGAIN_S)


def _manifests() -> tuple[Any, Any]:
    placed = {
        "placement": {"brokerGroups": [LEAVING, "g0"]},
        "config": [{"name": "durability", "value": "high"}],
    }
    consumed = {"subjectName": HERB, "startFrom": {"position": "Earliest"}}
    return (
        {"apiVersion": API_VERSION, "kind": "Subject", "metadata": {"name": HERB}, "spec": placed},
        {
            "apiVersion": API_VERSION,
            "kind": "ConsumerGroup",
            "metadata": {"name": MOURNERS},
            "spec": consumed,
        },
    )


def make(seed: str) -> Forgotten:
    return Forgotten(seed)
