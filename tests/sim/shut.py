"""A subject that is closed and opened, again and again, while somebody sends to it and masters change.

It is closed by a person who makes it read-only, or removes it, and who hands the mastership over then. What must not
be: that a master which was appointed after that was stored stores a message that was sent since the master began,
before a person asks for the opening. Who was master before may: it hears of it a beat late, or has not heard that it
leads no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sim.autopsy import HERB
from sim.clients import draw_client
from sim.metas import Metas
from sim.whole import Cell, Whole
from sim.world import Env, World
from tidemill import Client
from tidemill.errors import TidemillError
from tidemill_broker.machine import Broker
from tidemill_host.local import LocalPeer
from tidemill_meta.storing import Entry
from tidemill_meta.values import BrokerGroup, Removal, SubjectRecord
from tidemill_wire.declarations import API_VERSION

AGAIN_S = 0.1
CLOSED_S = 3.0
OPEN_S = 1.0
HANDED_OVER = 0.8
"""Of the times it is closed."""
SENDERS = 3
LATE = 0.5
LATE_S = 1.5


@dataclass(slots=True)
class Closed:
    """A time in which nothing is to be taken."""

    stored_s: float
    asked_s: float = float("inf")
    """When a person began to ask that it takes messages again."""


class MarkedCell(Cell):
    """A broker group of which is known when its masters were appointed, and when they began. Some hear of meta late: a
    replica that they ask first stands still.
    """

    def __init__(self, seed: str, group: str) -> None:
        super().__init__(seed, group)
        self.appointed_s: dict[int, float] = {}
        self.began_s: dict[int, float] = {}

    def _begins(self, broker: Broker, env: Env) -> None:
        super()._begins(broker, env)
        self.began_s[broker.logs.epoch] = env.loop.now

    async def _attend(self, env: Env, local: LocalPeer) -> None:
        if env.rng.random() < LATE:
            await asyncio.sleep(env.rng.random() * LATE_S)
        await super()._attend(env, local)


class Porter:
    """A person and producers in one; in the place of ``Weeding``."""

    def __init__(self, cell: MarkedCell, names: Sequence[str]) -> None:
        self.finished = False
        self._cell = cell
        self._names = names
        self._number = 0
        self._taken: dict[str, tuple[float, float]] = {}
        """When each message was sent, and answered as stored."""
        self._closed: list[Closed] = []

    def witness(self, entries: Sequence[Entry], now_s: float) -> None:
        """What was stored."""
        for one in entries:
            if one.kind == BrokerGroup.KIND and one.name == self._cell.group and one.body is not None:
                group = BrokerGroup.from_map(one.name, one.version, one.body)
                self._cell.appointed_s.setdefault(group.epoch, now_s)
            is_closed = (one.kind, one.name) == (Removal.KIND, HERB) and one.body is not None
            if (one.kind, one.name) == (SubjectRecord.KIND, HERB) and one.body is not None:
                is_closed = SubjectRecord.from_map(one.name, one.version, one.body).state == "R"
            if is_closed and (not self._closed or self._closed[-1].asked_s < now_s):
                self._closed.append(Closed(now_s))

    async def run(self, env: Env) -> None:
        metas = Metas(self._cell.calls, self._names, env.rng)
        client = draw_client(env, self._cell.fetch)
        manifest, state = _manifest(self._cell.group), f"/v1/subjects/{HERB}/state"
        sending: list[asyncio.Future[None]] = []
        while not self.finished:
            is_last = env.quiet.is_set()
            await metas.until_done("POST", "/v1/declarations", manifest, AGAIN_S)
            await metas.until_done("POST", state, {"state": "RW"}, AGAIN_S)
            sending = sending or [asyncio.ensure_future(self._send(env, client)) for _ in range(SENDERS)]
            await asyncio.sleep(env.rng.random() * OPEN_S)
            if env.rng.random() < 0.5:
                await metas.until_done("POST", state, {"state": "R"}, AGAIN_S)
            else:
                await metas.until_done("DELETE", f"/v1/subjects/{HERB}?force=1", {}, AGAIN_S)
            self._cell.world.probes["closed"] += 1
            if env.rng.random() < HANDED_OVER and not is_last:
                await self._hand_over(metas)
            await asyncio.sleep(env.rng.random() * CLOSED_S)
            self._closed[-1].asked_s = env.loop.now
            self.finished = is_last
        for one in sending:
            one.cancel()
        await client.close()

    async def _hand_over(self, metas: Metas) -> None:
        """To the first that can have it, if anybody can."""
        said = self._cell.chronicle.appointment
        to = [name for name in said.in_sync if name != said.master]
        if to:
            self._cell.chronicle.asked_s = self._cell.world.now_s
            with suppress(OSError):
                await metas.ask("POST", f"/v1/groups/{self._cell.group}/handover", {"to": to[0]})

    async def _send(self, env: Env, client: Client) -> None:
        while True:
            self._number += 1
            name, began_s = f"{env.life}.{self._number}", env.loop.now
            try:
                await client.send(HERB, name.encode())
            except TidemillError:  # no master, or it is closed
                await asyncio.sleep(AGAIN_S * env.rng.random())
            else:
                self._taken[name] = began_s, env.loop.now
            await asyncio.sleep(AGAIN_S * env.rng.random())

    def check(self, world: World) -> list[str]:
        cell, problems = self._cell, []
        for closed in self._closed:
            later = [epoch for epoch, at_s in cell.appointed_s.items() if at_s > closed.stored_s]
            began_s = min((cell.began_s[epoch] for epoch in later if epoch in cell.began_s), default=None)
            if began_s is None or began_s > closed.asked_s:
                continue
            world.probes["closed_before_its_master"] += 1
            problems += [
                f"taken though closed: {name}, sent at {sent_s:.6f} s and answered at {ended_s:.6f} s; it was closed "
                f"at {closed.stored_s:.6f} s, and a master that was appointed since began at {began_s:.6f} s"
                for name, (sent_s, ended_s) in self._taken.items()
                if sent_s > began_s and ended_s < closed.asked_s
            ]
        return problems


def _manifest(group: str) -> Any:
    spec = {"placement": {"brokerGroups": [group]}, "config": [{"name": "durability", "value": "high"}]}
    return {"apiVersion": API_VERSION, "kind": "Subject", "metadata": {"name": HERB}, "spec": spec}


class Shut(Whole):
    """The scenario: a whole cluster, of which nobody weeds."""

    last_cell = MarkedCell
    gardener = Porter
    probes = ("failovers", "hand_overs", "closed", "closed_before_its_master")


def make(seed: str) -> Shut:
    return Shut(seed)
