"""Whole clusters that are locked, and a guest whose tokens are revoked: nothing is taken of it two seconds later.

The guest is given a token, sends and consumes by it, and goes on when it is revoked, on the connections that it has. Of
a revocation that was answered when all was well for a while, nothing that the guest begins to send two seconds later is
stored, and a master gives it nothing two seconds later, either; of one in the midst of the faults that holds as soon as
all has been well for a while. Whoever shows nothing is one of the cluster here, so that all other clients are as ever.

A service's stream is its first line, asked for twice a second; so news come late, as they do to clients of ``metas``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from aiohttp import web

from sim.autopsy import HERB
from sim.cleared import CUTTERS, _manifests
from sim.clients import draw_client
from sim.gate import Asking
from sim.metas import LINE_EVERY_S, Desk, MetaNode, Metas, Question, attend
from sim.noting import before_applied
from sim.whole import METAS, Cell, Whole
from sim.world import Env, World
from tidemill import Client
from tidemill.errors import Refused, TidemillError
from tidemill.security import Security
from tidemill_broker.actions import Action, Pulled
from tidemill_broker.attendance import BrokerAttendance
from tidemill_broker.doors import Service
from tidemill_host.local import LocalPeer
from tidemill_host.refusals import HttpRefused, wire_response
from tidemill_host.routing import Router
from tidemill_ledger.replication import Master
from tidemill_meta.doors.access import CHARTER, GRANTS, TOKENS, AccessDoor
from tidemill_meta.doors.api import Api
from tidemill_meta.doors.replica import Replica
from tidemill_meta.doors.watch import Watch
from tidemill_meta.storing import Entry
from tidemill_wire.access import Access
from tidemill_wire.errors import WireError
from tidemill_wire.guarding import Gate

GUEST = "guest"
HOLDS_S = 2.0
"""How long what was revoked may hold."""
GOES_ON_S = 2.5
"""So long behind that the guest tries."""
CALM_S = 20.0
"""After the heal; then masters are there, and hear meta."""
CALM_ROUNDS = 3
AGAIN_S = 0.1


def locked() -> Access:
    """Whoever shows nothing is of the cluster."""
    return Access(locked=True, own=lambda: ("",))


class LockedDesk(Desk):
    """The paths of meta, and those of grants and tokens, which take requests."""

    def __init__(self, api: Api, watch: Watch, door: AccessDoor, replica: Replica) -> None:
        super().__init__(api, watch)
        self._doors = Router(door.routes())
        self._replica = replica

    async def answer(self, question: Question) -> tuple[int, Any]:
        method, path, body = question
        if path == f"{CHARTER}/watch":
            return 200, {"access": self._replica.meta.registry.access_version}
        found = self._doors.find(path)
        if found is None:
            return await super().answer(question)
        handler: Any = found[0][method]
        said = path, {"Content-Type": "application/json"}, body.encode()
        try:
            response = await handler(cast("web.BaseRequest", Asking(said, broken=False)), found[1])
        except HttpRefused as error:
            response = error.response()
        except WireError as error:
            response = wire_response(error)
        return response.status, json.loads(response.body)


class LockedMeta(MetaNode):
    """A replica that tells brokers who may do what."""

    def _desk(self, replica: Replica, watch: Watch) -> Desk:
        door = AccessDoor(replica, locked())
        replica.meta.locked = True
        door.obey()

        def changed(keys: list[tuple[str, str]]) -> None:
            watch.changed(keys)
            door.changed(keys)

        replica.changed = changed
        return LockedDesk(Api(replica, watch), watch, door, replica)


class LockedCell(Cell):
    """A broker group that asks who its clients are."""

    def __init__(self, seed: str, group: str) -> None:
        super().__init__(seed, group)
        self.closed_s: float | None = None
        """From when on the guest is to be given nothing."""
        self._accesses: dict[tuple[str, int], Access] = {}

    def _equip(self, service: Service, env: Env) -> None:
        """What a process knows of everybody stays with it, whatever it becomes."""
        access = self._accesses.setdefault((env.name, env.life), locked())
        service.server.gate = Gate(access)

    async def _attend(self, env: Env, local: LocalPeer) -> None:
        metas = Metas(self._calls, METAS, env.rng)
        woken = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(hear(metas, woken))
            await attend(
                self.running[env.name], local, BrokerAttendance(self._identities[env.name]), metas, woken
            )

    def _watch(self, machine: Any, env: Env) -> None:
        super()._watch(machine, env)
        if not isinstance(machine, Master):
            return
        state: Any = machine.inner.state

        def note(action: Action) -> None:
            if isinstance(action, Pulled):
                group = state.consumers[action.consumer].group.name
                if group == CUTTERS and self.closed_s is not None and env.loop.now > self.closed_s:
                    self.problems.append(
                        f"given though revoked: by {env.name} at {env.loop.now:.6f} s, closed at {self.closed_s:.6f} s"
                    )

        before_applied(state, note)


async def hear(metas: Metas, woken: asyncio.Event) -> None:
    """What ``host/hearing.py`` does."""
    known: object = None
    while True:
        try:
            _, said = await metas.ask("POST", f"{CHARTER}/watch", {})
        except OSError:
            said = {"access": known}  # the beats turn away from who does not answer
        if said.get("access") != known:
            known = said.get("access")
            woken.set()
        await asyncio.sleep(LINE_EVERY_S)


class Visiting:
    """The guest, who gives it tokens, and who sends what it is to be given; in the place of ``Weeding``."""

    def __init__(self, cell: LockedCell, names: Sequence[str]) -> None:
        self.finished = False
        self._cell = cell
        self._names = names
        self._problems: list[str] = []

    def witness(self, entries: Sequence[Entry], now_s: float) -> None:
        """Nothing of it is of interest."""

    def check(self, world: World) -> list[str]:
        return self._problems

    async def run(self, env: Env) -> None:
        metas = Metas(self._cell.calls, self._names, env.rng)
        for manifest in _manifests(self._cell.group):
            await self._done(metas, "POST", "/v1/declarations", manifest)
        permissions = [{"operations": ["Send", "Consume"], "subjects": [HERB]}]
        grant = {"principals": [f"token:{GUEST}"], "permissions": permissions}
        await self._done(metas, "PUT", f"{GRANTS}/{GUEST}", grant)
        owner = draw_client(env, self._cell.fetch)
        feeding = asyncio.ensure_future(self._feed(env, owner))
        while not env.quiet.is_set():
            await self._round(env, metas)
        healed_s = cast("float", self._cell.world.healed_at_s)
        await asyncio.sleep(max(0.0, healed_s + CALM_S - env.loop.now))
        for _ in range(CALM_ROUNDS):
            await self._round(env, metas)
        feeding.cancel()
        await owner.close()
        self.finished = True

    async def _feed(self, env: Env, owner: Client) -> None:
        while True:
            try:
                await owner.send(HERB, b"for the guest")
            except TidemillError:  # no master
                await asyncio.sleep(AGAIN_S)
            await asyncio.sleep(env.rng.random())

    async def _round(self, env: Env, metas: Metas) -> None:
        """A token, what is done by it, its end, and what is tried by it then."""
        self._cell.closed_s = None
        token = await self._done(metas, "POST", TOKENS, {"who": GUEST})
        guest = draw_client(env, self._cell.fetch)
        guest.settings = replace(guest.settings, security=Security(token=token["secret"]))
        consuming = asyncio.ensure_future(self._consume(guest))
        sending = asyncio.ensure_future(self._send(env, guest))
        await asyncio.sleep(0.5 + 2 * env.rng.random())
        await self._done(metas, "DELETE", f"{TOKENS}/{token['token']}", {})
        self._cell.world.probes["revoked"] += 1
        healed_s = self._cell.world.healed_at_s
        if healed_s is not None and env.loop.now >= healed_s + CALM_S:
            self._cell.closed_s = env.loop.now + HOLDS_S
        await asyncio.sleep(HOLDS_S + GOES_ON_S)
        for task in (consuming, sending):
            task.cancel()
        await asyncio.wait((consuming, sending))
        await guest.close()

    async def _send(self, env: Env, guest: Client) -> None:
        while True:
            began_s = env.loop.now
            try:
                await guest.send(HERB, b"of the guest")
            except Refused:
                self._cell.world.probes["guest_refused"] += 1
            except TidemillError:  # no master
                pass
            else:
                self._cell.world.probes["guest_sent"] += 1
                closed_s = self._cell.closed_s
                if closed_s is not None and began_s > closed_s:
                    self._problems.append(
                        f"taken though revoked: sent at {began_s:.6f} s, closed at {closed_s:.6f} s"
                    )
            await asyncio.sleep(AGAIN_S)

    async def _consume(self, guest: Client) -> None:
        while True:
            try:
                async with guest.consume(HERB, group=CUTTERS) as messages:
                    async for message in messages:
                        self._cell.world.probes["guest_given"] += 1
                        await message.ack()
            except TidemillError:
                await asyncio.sleep(AGAIN_S)

    async def _done(self, metas: Metas, method: str, path: str, body: Any) -> Any:
        while True:
            try:
                status, answer = await metas.ask(method, path, body)
            except OSError:
                status, answer = 0, None
            if status == 200 or (method == "DELETE" and status == 404):
                return answer
            metas.turn_away()
            await asyncio.sleep(AGAIN_S)


class Revoked(Whole):
    """The scenario: a whole cluster, of which nobody weeds."""

    meta = LockedMeta
    cell = LockedCell
    gardener = Visiting
    probes = ("failovers", "hand_overs", "revoked", "guest_sent", "guest_given", "guest_refused")


def make(seed: str) -> Revoked:
    return Revoked(seed)
