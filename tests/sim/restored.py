"""A whole cluster whose meta loses what it stored last: a standby that lacks it takes over, or a copy is put back.

It comes upon all who remember more: replicas of meta in their memory, brokers in what they obeyed. What must not be:
two masters in one epoch, also of epochs that are in no store any more; and that a message which was answered is not
with a later master. What must be: that all replicas of meta know the same in the end, and every broker group is led and
whole.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sim.metas import MetaNode, Metas
from sim.whole import METAS, Cell, Chronicle, Whole
from sim.world import Env, World
from tidemill_meta.doors.replica import Replica
from tidemill_meta.storing import Entry
from tidemill_meta.values import BrokerGroup
from tidemill_wire.appointments import Appointment

LOST_S = (0.2, 0.5, 1.0, 2.0, 5.0, 20.0)
"""How much is lost; with the longest nearly all that the store ever had."""
EVERY_S = 3.0
STORE_KEEPER = "keeper"
STATE_AGAIN_S = 0.5
PATIENCE_S = 9.0
"""A person waits before electing: for longer than it takes to hear all who live."""


@dataclass(slots=True)
class Remembering(Chronicle):
    """Of commits that are lost, too, which master an epoch had."""

    masters: dict[int, str] = field(default_factory=dict)

    def note(self, group: BrokerGroup, now_s: float) -> list[str]:
        problems = Chronicle.note(self, group, now_s)
        if group.master and group.seated:
            former = self.masters.setdefault(group.epoch, group.master)
            if former != group.master:
                problems.append(
                    f"two masters, one of them forgotten: {former}, {group.master} of epoch {group.epoch} of "
                    f"{group.name} at {now_s:.6f} s"
                )
        return problems


class RestoredCell(Cell):
    """A broker group of whose masters more is remembered than meta knows."""

    def __init__(self, seed: str, group: str) -> None:
        super().__init__(seed, group)
        silence_s = self.chronicle.silence_s
        self.chronicle = self.book = Remembering(Appointment(group, 0, "", (), (), 0), silence_s=silence_s)


class Keeping:
    """Who makes broker groups read-only and writable again, so that brokers are told something; in the place of
    ``Weeding``. In the end all take messages, whatever was lost of that.
    """

    def __init__(self, cell: Cell, names: Sequence[str]) -> None:
        self.finished = False
        self._cell = cell
        self._names = names

    def witness(self, entries: Sequence[Entry], now_s: float) -> None:
        """Nothing is told by what is stored."""

    async def run(self, env: Env) -> None:
        metas, path = Metas(self._cell.calls, self._names, env.rng), f"/v1/groups/{self._cell.group}/state"
        while not env.quiet.is_set():
            await asyncio.sleep(env.rng.expovariate(1 / EVERY_S))
            state = env.rng.choice(("R", "RW"))
            try:
                await metas.ask("POST", path, {"state": state})
            except OSError:
                metas.turn_away()
        await metas.until_done("POST", path, {"state": "RW"}, STATE_AGAIN_S)
        self.finished = True
        while True:
            await asyncio.sleep(PATIENCE_S)
            with suppress(OSError):
                await self._elect(metas)

    async def _elect(self, metas: Metas) -> None:
        """Where nothing of a group is stored any more, and all its brokers were started again, nobody leads: a person
        does what the page says. Of others it is known in time.
        """
        status, rows = await metas.ask("GET", "/v1/brokers", {})
        for row in rows if status == 200 else ():
            there = [one for one in row["brokers"] if one["alive"]]
            if "older copy" not in row["problem"] or not there:
                continue
            best = max(there, key=lambda one: (one["epoch"], *one["positions"].values()))
            status, _ = await metas.ask("POST", f"/v1/groups/{row['group']}/elect", {"to": best["name"]})
            self._cell.world.probes["elected"] += status == 200

    def check(self, _: World) -> list[str]:
        return []


class KnownNode(MetaNode):
    """A replica of which is known what it knows."""

    replicas: dict[str, Replica]

    def _desk(self, replica: Replica, watch: Any) -> Any:
        self.replicas[replica.meta.settings.name.partition(".")[0]] = replica
        return super()._desk(replica, watch)


class GoingBack(Whole):
    """What is lost of a whole cluster's store, and what is looked at then."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        rng = random.Random(f"{seed}/restored")
        self._times = rng.randrange(1, 4)
        self._lost_s = rng.choice(LOST_S)
        self.clients = (*self.clients, STORE_KEEPER)
        self._replicas: dict[str, Replica] = {}
        self.meta = type("Known", (KnownNode,), {"replicas": self._replicas})

    async def _kept_s(self, _env: Env) -> float:
        """What was stored before is never lost."""
        return 0.0

    def build(self, world: World) -> None:
        super().build(world)
        world.add_client(STORE_KEEPER, self._mishap)

    async def _mishap(self, env: Env) -> None:
        """The store goes back, some times."""
        kept_s = await self._kept_s(env)
        for _ in range(self._times):
            await asyncio.sleep(env.rng.expovariate(1 / EVERY_S))
            if env.quiet.is_set():
                return
            since_s = env.loop.now - self._lost_s * env.rng.random()
            lost = self._house.go_back(max(kept_s, since_s))
            self._world.probes["went_back"] += bool(lost)
            self._world.probes["lost_entries"] += len(lost)
            for (kind, name), entry in lost.items():
                if kind == BrokerGroup.KIND:
                    [cell] = [cell for cell in self.cells if cell.group == name]
                    body = entry.body if entry is not None else None
                    cell.chronicle.stored = (
                        None
                        if entry is None or body is None
                        else BrokerGroup.from_map(name, entry.version, body)
                    )

    def drained(self) -> bool:
        return super().drained() and not any(self._differences())

    def check(self, world: World) -> list[str]:
        return [*super().check(world), *self._differences()]

    def _differences(self) -> list[str]:
        """All replicas know what is stored, and nothing else."""
        stored = {
            place: (entry.version, entry.body)
            for place, (_, entry) in self._house.entries.items()
            if entry.body is not None
        }
        problems: list[str] = []
        for name in METAS:
            replica = self._replicas.get(name)
            if replica is None:
                problems.append(f"no replica: {name}")
                continue
            known = {
                (kind, key): (value.version, value.to_map())
                for kind, values in replica.meta.registry._values.items()
                for key, value in values.items()
            }
            wrong = sorted(place for place in {*known, *stored} if known.get(place) != stored.get(place))
            problems += [f"{name} knows {place} otherwise than it is stored" for place in wrong[:3]]
        return problems


class Restored(GoingBack):
    """The scenario."""

    cell = RestoredCell
    gardener = Keeping
    probes = ("failovers", "wished_in", "hand_overs", "went_back", "lost_entries", "elected")


def make(seed: str) -> Restored:
    return Restored(seed)
