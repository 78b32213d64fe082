"""A subject that is removed and declared again and again, while its broker group fails over: what it was never comes
back, and what was sent to it since is there.

Brokers hear of a removal by their heartbeats, so a failover may come before, in the middle and behind. When each one
was stored, the store itself says: a request whose answer was lost may be carried out much later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sim.autopsy import WEED, image_of, read_batches
from sim.clients import draw_client
from sim.metas import Metas
from sim.world import Env, World
from tidemill.errors import TidemillError
from tidemill_meta.storing import Entry
from tidemill_meta.values import Removal, SubjectRecord

if TYPE_CHECKING:
    from sim.whole import Cell

AGAIN_S = 0.4
ROUND_S = 3.0


class Weeding:
    """A person and a producer in one."""

    def __init__(self, cell: Cell, names: Sequence[str]) -> None:
        self.finished = False
        self._cell = cell
        self._names = names
        self._removed_s = -1.0
        """When the last removal was stored."""
        self._number = 0
        """Of the last message. One that is started again goes on: an earlier one may be answered late, or never."""
        self._answered: dict[str, tuple[float, float]] = {}
        """When each message was sent, and answered as stored."""

    def witness(self, entries: Sequence[Entry], now_s: float) -> None:
        """What was stored."""
        if any((one.kind, one.name) == (Removal.KIND, WEED) for one in entries):
            self._removed_s = now_s

    async def run(self, env: Env) -> None:
        metas = Metas(self._cell.calls, self._names, env.rng)
        client = draw_client(env, self._cell.fetch)
        while not self.finished:
            await metas.until_done("POST", "/v1/declarations", _manifest(self._cell.group), AGAIN_S)
            declared_s, stored = env.loop.now, 0
            while stored < 1 + env.rng.randrange(3):
                self._number += 1
                number = self._number
                began_s = env.loop.now
                try:
                    await client.send(WEED, b"%d" % number)
                except TidemillError:  # no master, or it has not heard yet that the subject is there again
                    await asyncio.sleep(AGAIN_S)
                    if self._removed_s > declared_s:  # by a request that was given up before, and came late
                        break
                    continue
                self._answered[str(number)] = began_s, env.loop.now
                stored += 1
            else:
                await self._go_on(env, metas, stored)
        await client.close()

    async def _go_on(self, env: Env, metas: Metas, stored: int) -> None:
        """So many of the last messages are stored: it is enough, or the subject is removed once more."""
        self.finished = env.quiet.is_set() and self._removed_s < min(
            began for began, _ in list(self._answered.values())[-stored:]
        )
        if not self.finished:
            await asyncio.sleep(env.rng.expovariate(1 / ROUND_S) if not env.quiet.is_set() else 0.0)
        if not self.finished and not env.quiet.is_set():
            await metas.until_done("DELETE", f"/v1/subjects/{WEED}", {}, AGAIN_S)
            self._cell.world.probes["weeded"] += 1

    def check(self, world: World) -> list[str]:
        """What lies with the master at the end."""
        master = self._cell.chronicle.appointment.master
        service = self._cell.running.get(master)
        if service is None:
            return []  # said elsewhere
        broker = service.broker
        partition = broker.state.by_name.get(WEED.encode())
        there = {
            body.decode()
            for batch in read_batches(image_of(world.nodes[master].disk).mount(), broker)
            if batch.partition == WEED
            and partition
            is not None  # else a removal came after all: one whose answer was lost is carried out late
            and batch.header.first_sequence >= broker.state.tombs.floor(partition)
            for body in batch.bodies()
        }
        problems = [
            f"came back: {message}, answered at {ended_s:.6f} s, was removed at {self._removed_s:.6f} s"
            for message, (_, ended_s) in self._answered.items()
            if message in there and ended_s < self._removed_s
        ]
        return problems + [
            f"removed too late: {message} was sent at {began_s:.6f} s, the removal was at {self._removed_s:.6f} s"
            for message, (began_s, _) in self._answered.items()
            if message not in there and began_s > self._removed_s
        ]


def _manifest(group: str) -> Any:
    spec = {
        "placement": {"brokerGroups": [group]}, "config": [{"name": "durability", "value": "high"}],
    }  # fmt: skip
    return {
        "apiVersion": "tidemill.dev/v1alpha1", "kind": SubjectRecord.KIND.capitalize(),
        "metadata": {"name": WEED}, "spec": spec,
    }  # fmt: skip
