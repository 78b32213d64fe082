"""Messages for later whose delay service is away for so long that their clients keep them in spools, and die.

What a receipt calls spooled was answered as anything else: it is stored once, by whatever process opens the spool next,
not before its time, and not long after the delay service is back. What lies in a spool is found by no timer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sim.disk import Mount
from sim.later import DELAY, Later
from sim.spools import FOLDER, SimShelf, opener
from sim.world import Env, World
from tidemill import Client
from tidemill.later import LANE
from tidemill.receipts import Receipt
from tidemill.settings import ClientSettings
from tidemill.spool import HEADER
from tidemill.spools import BOUND

SPOOL = "sends"
AWAY_S = (0.5, 2.0, 5.0)
"""How long the delay service is away, again and again."""
LEFT_S = 0.2


class Hoarded(Later):
    """The scenario. Besides all other faults its delay service is away for seconds at a time."""

    probes: Sequence[str] = ("spooled", "inherited", "moved", "cancelled", "far_came")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self._outages = random.Random(f"{seed}/outages")

    def build(self, world: World) -> None:
        super().build(world)
        at_s = 0.0
        while (at_s := at_s + self._outages.uniform(0.5, 6.0)) < self.phases.faults_s:
            world.loop.at(at_s, world.kill, DELAY, self._outages.choice(AWAY_S))

    # -- clients -----------------------------------------------------------------------------------------------

    def _client(self, env: Env) -> Client:
        if env.name not in self._producers:
            return super()._client(env)
        return Client("s1:7401", settings=self._settings_of(env), spool=SPOOL)

    def _settings_of(self, env: Env) -> ClientSettings:
        return replace(
            super()._settings_of(env),
            spool_after_s=env.rng.choice((0.05, 0.3, 1.0)),
            open_ack_file=opener(env.disk),
            shelf=SimShelf(env.disk),
        )

    async def _opened(self, env: Env, client: Client) -> None:
        self._world.probes["inherited"] += not is_empty(env.disk)
        await client.__aenter__()

    async def _ending(self, env: Env, client: Client) -> None:
        """It would be kept until somebody opens it."""
        loop, emptied = env.loop, asyncio.Event()

        def look() -> None:
            if is_empty(env.disk):
                emptied.set()
            else:
                loop.call_later(LEFT_S, look)

        look()
        await emptied.wait()

    def _told(self, env: Env, body: bytes, receipt: Receipt) -> None:
        self._world.probes["spooled"] += receipt.spooled


def is_empty(disk: Mount) -> bool:
    """Nothing is in the spools of a node."""
    shelf = SimShelf(disk)
    names = [name for name in shelf.names(Path(SPOOL), "") if name in ("", f"{BOUND}{LANE}")]
    return all(disk.open(f"{FOLDER}/{SPOOL}{name}").size() <= HEADER.size for name in names)


def make(seed: str) -> Hoarded:
    return Hoarded(seed)
