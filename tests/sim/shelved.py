"""Two broker groups, and producers with spools that learn late where their subjects lie: what had no route.

A spooled frame of it holds batches of several subjects. Brokers refuse some of these for a while, each in its turn, and
come and go: so of a frame a part is stored, and the rest may go to the other broker group. What a receipt calls spooled
was answered as anything else, and no producer dies: it is in one log, once; with an order key, in that of the broker
group that has it. The brokers, meta and the consumers are those of ``routed``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

from samples.realms import Realm
from sim.disk import Mount
from sim.routed import SUBJECTS, Fate, Routed
from sim.spools import FOLDER, SimShelf, opener
from sim.world import Env
from tidemill import Client
from tidemill.errors import BrokerUnreachable, OutcomeUnknown, Unavailable
from tidemill.spool import HEADER
from tidemill_broker.gate import Told
from tidemill_broker.machine import Broker

SPOOL = "sends"
LOOK_S = 0.02
KEYS = (None, None, None, "0", "1", "2", "3")
REFUSED = 0.4
"""Of the subjects, so many are refused by a broker for a while."""


class Late:
    """Meta's HTTP port, which a client cannot reach at first."""

    def __init__(self, realm: Realm) -> None:
        self.away = True
        self._realm = realm

    async def get(self, path: str, timeout_s: float = 5.0) -> Any:
        self._ask()
        return await self._realm.get(path, timeout_s)

    async def post(self, path: str, body: Any, timeout_s: float = 5.0) -> Any:
        self._ask()
        return await self._realm.post(path, body, timeout_s)

    async def lines(self, path: str, body: Any, silence_s: float) -> AsyncGenerator[Any]:
        self._ask()
        async for line in self._realm.lines(path, body, silence_s):
            yield line

    def _ask(self) -> None:
        if self.away:
            raise BrokerUnreachable("meta is not there yet")


class Shelved(Routed):
    """The scenario."""

    probes = ("spooled", "parted", "meta_away")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.begins_flat = self.realm.flat = self.wide = False
        for subject in SUBJECTS:
            self.realm.route(subject, "g1", "g2")

    def _watch(self, broker: Broker, env: Env) -> None:
        """It refuses some subjects, and soon others."""

        def turn() -> None:
            refused = [] if env.quiet.is_set() else [one for one in SUBJECTS if env.rng.random() < REFUSED]
            broker.intake.gate.obey(Told(read_only=frozenset(refused)))
            env.loop.call_later(env.rng.expovariate(2.0), turn)

        turn()

    async def _produce(self, env: Env) -> None:
        number = 0
        while not env.quiet.is_set():
            meta = Late(self.realm)
            async with self._spooling(env, meta) as client:
                names = [f"{env.name}.{number + at}" for at in range(env.rng.randrange(2, 12))]
                number += len(names)
                sends = [asyncio.ensure_future(self._shelve(client, env, name)) for name in names]
                await asyncio.sleep(env.rng.uniform(0.1, 0.6))
                meta.away = False
                await asyncio.gather(*sends)
                await self._emptied(env, client)
        self.finished.add(env.name)

    def _spooling(self, env: Env, meta: Late) -> Client:
        settings = replace(
            self._client(env).settings,
            spool_after_s=0.05,
            send_timeout_s=30.0,
            batch_bytes=1 << 20,
            open_port=lambda _host, _port: meta,
            shelf=SimShelf(env.disk),
            open_ack_file=opener(env.disk),
        )
        return Client("m1:7401", settings=settings, spool=SPOOL)

    async def _shelve(self, client: Client, env: Env, name: str) -> None:
        fate = self.fates[name] = Fate(0, 1)
        subject, key = env.rng.choice(SUBJECTS), env.rng.choice(KEYS)
        if key is not None:
            self.order[name, subject, key] = [name]  # each for itself: the route may come between two of them
        try:
            receipt = await client.send(subject, name.encode() + b"|", order_key=key)
        except OutcomeUnknown:
            return
        except (BrokerUnreachable, Unavailable):
            fate.most = 0
            return
        fate.least = 1
        self._world.probes["spooled"] += receipt.spooled

    async def _emptied(self, env: Env, client: Client) -> None:
        """A client that closes before that is as one that died: its last frame may be sent again."""
        spools: Any = client._spools
        parted: set[bytes] = set()
        while not is_empty(env.disk):
            parted |= spools._spoolers[""]._settled
            await asyncio.sleep(LOOK_S)
        self._world.probes["parted"] += len(parted)


def is_empty(disk: Mount) -> bool:
    """Nothing is in the spools of a node."""
    names = SimShelf(disk).names(Path(SPOOL), "")
    sizes = [
        disk.open(f"{FOLDER}/{SPOOL}{name}").size()
        for name in names
        if not name.endswith((".acks", ".refused", ".damaged"))
    ]
    return all(size <= HEADER.size for size in sizes)


def make(seed: str) -> Shelved:
    return Shelved(seed)
