"""A subject that is removed when it is empty, again and again, while somebody sends to it and masters change.

Somebody asks for it all the time, whether anything is left or not; a producer sends meanwhile, and a consumer takes its
time. What must not be: that the subject goes with a message that was answered as stored and that the consumer has not
acknowledged. What must be: when all is quiet and consumed, it goes. In some rounds the disks of its brokers are full
from before it is asked for until it is gone: nothing can be made there, and it must go all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sim.autopsy import HERB
from sim.clients import draw_client
from sim.metas import Metas
from sim.whole import Cell, Whole
from sim.world import Env, World
from tidemill import Client
from tidemill.errors import TidemillError
from tidemill_broker.doors import Service
from tidemill_broker.settings import BrokerSettings
from tidemill_meta.storing import Entry
from tidemill_meta.values import Removal
from tidemill_wire.declarations import API_VERSION

CUTTERS = "cutters"
AGAIN_S = 0.4
DAWDLE_S = 2.0
SENDS_MAX = 4
PATIENCE_S = 8.0
"""Of who asks meta, which waits for the brokers itself."""
FULL_SHARE = 0.3
"""Of the rounds."""


class FullCell(Cell):
    """A broker group whose disks may be full, as far as its masters are told."""

    full = False

    def _draw_settings(self, seed: str) -> BrokerSettings:
        return replace(super()._draw_settings(seed), free_space_min_percent=5)

    def _declare(self, service: Service) -> None:
        super()._declare(service)
        disk = service._disk
        told = disk.space

        def space() -> tuple[int, int]:
            free, total = told()
            return (0 if self.full else free), total

        disk.space = space  # type: ignore[method-assign]


class Clearing:
    """A person, a producer and a consumer in one; in the place of ``Weeding``."""

    def __init__(self, cell: FullCell, names: Sequence[str]) -> None:
        self.finished = False
        self._cell = cell
        self._names = names
        self._number = 0
        self._answered: dict[str, float] = {}
        """When each message was answered as stored."""
        self._acked: dict[str, float] = {}
        """When the consumer began to acknowledge it."""
        self._removed: list[float] = []
        """When removals were stored."""

    def witness(self, entries: Sequence[Entry], now_s: float) -> None:
        """What was stored."""
        if any((one.kind, one.name) == (Removal.KIND, HERB) and one.body is not None for one in entries):
            self._removed.append(now_s)

    async def run(self, env: Env) -> None:
        metas = Metas(self._cell.calls, self._names, env.rng)
        client = draw_client(env, self._cell.fetch)
        consuming = asyncio.ensure_future(self._consume(env, client))
        while not self.finished:
            is_last = env.quiet.is_set()
            self._cell.full = False
            for manifest in _manifests(self._cell.group):
                await self._until_done(metas, "POST", "/v1/declarations", manifest)
            count = 0 if is_last else env.rng.randrange(SENDS_MAX)
            sending = asyncio.ensure_future(self._send(env, client, count))
            await asyncio.sleep(env.rng.random())
            self._cell.full = env.rng.random() < FULL_SHARE
            await asyncio.sleep(env.rng.random() if self._cell.full else 0)
            await self._until_done(metas, "DELETE", f"/v1/subjects/{HERB}?if_empty=1", {})
            self._cell.world.probes["cleared"] += 1
            self._cell.world.probes["cleared_while_full"] += self._cell.full
            await sending
            self._cell.full, self.finished = False, is_last
        consuming.cancel()
        await client.close()

    async def _send(self, env: Env, client: Client, count: int) -> None:
        for _ in range(count):
            self._number += 1
            name = f"{env.life}.{self._number}"
            try:
                await client.send(HERB, name.encode())
            except TidemillError:  # no master, or it is removed, or nobody knows
                await asyncio.sleep(AGAIN_S)
            else:
                self._answered[name] = env.loop.now
            await asyncio.sleep(env.rng.random())

    async def _consume(self, env: Env, client: Client) -> None:
        while True:
            try:
                async with client.consume(HERB, group=CUTTERS) as messages:
                    async for message in messages:
                        if not env.quiet.is_set() and env.rng.random() < 0.5:
                            await asyncio.sleep(env.rng.random() * DAWDLE_S)
                        self._acked.setdefault(message.body.decode(), env.loop.now)
                        await message.ack()
            except TidemillError:
                await asyncio.sleep(AGAIN_S)

    async def _until_done(self, metas: Metas, method: str, path: str, body: Any) -> None:
        while True:
            try:
                status, answer = await metas.ask(method, path, body, PATIENCE_S)
            except OSError:
                status, answer = 0, {}
            if status == 200 or (method == "DELETE" and status == 404):
                return
            if status == 409:
                assert answer["error"]["code"] == "not_empty", answer
                self._cell.world.probes["not_empty"] += 1
            else:
                metas.turn_away()
            await asyncio.sleep(AGAIN_S)

    def check(self, world: World) -> list[str]:
        problems = []
        for name, answered_s in self._answered.items():
            removed_s = min((at_s for at_s in self._removed if at_s > answered_s), default=None)
            if removed_s is not None and self._acked.get(name, removed_s) >= removed_s:
                problems.append(
                    f"removed though not empty: {name}, answered at {answered_s:.6f} s, was acked by nobody when its "
                    f"subject was removed at {removed_s:.6f} s"
                )
        return problems


def _manifests(group: str) -> tuple[Any, Any]:
    placed = {"placement": {"brokerGroups": [group]}, "config": [{"name": "durability", "value": "high"}]}
    consumed = {"subjectName": HERB, "startFrom": {"position": "Earliest"}}
    return (
        {"apiVersion": API_VERSION, "kind": "Subject", "metadata": {"name": HERB}, "spec": placed},
        {"apiVersion": API_VERSION, "kind": "ConsumerGroup", "metadata": {"name": CUTTERS}, "spec": consumed},
    )


class Cleared(Whole):
    """The scenario: a whole cluster, of which nobody weeds."""

    last_cell = FullCell
    gardener = Clearing
    probes = ("failovers", "hand_overs", "cleared", "cleared_while_full", "not_empty")


def make(seed: str) -> Cleared:
    return Cleared(seed)
