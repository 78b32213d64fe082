"""Two broker groups, consumers with spools, and a broker that is away while its messages fail: what the other one does.

    moved      the failure went to the other broker, and the client knows it: the message comes from there
    acked      told, or in the spool: the message comes again from neither
    unheard    the other broker took it and the answer was lost: then it may come from both, and nothing else may

Leases outlast the run and a consumer that is away is waited for, as in ``spooled``, so neither broker has a reason of
its own to give a message again; and no disk loses anything. The brokers, meta and the senders are those of ``routed``.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

from sim.cluster import LONG_LEASE_MS
from sim.faults import Kind
from sim.routed import FAILS, SUBJECTS, Routed
from sim.spooled import DRAIN_MAX_S, GONE_MS
from sim.world import Env, World
from tidemill.consumer import Consumer
from tidemill.errors import TidemillError
from tidemill.message import Message
from tidemill_broker.machine import Broker
from tidemill_wire.adopting import Adopt
from tidemill_wire.columns import Batch
from tidemill_wire.fields import DEAD_PROPERTY


class Adopted(Routed):
    """The scenario."""

    kinds = (
        *(Kind.KILL, Kind.KILL_AT_OPERATION, Kind.PARTITION, Kind.CLOG, Kind.RESET, Kind.RESET_AT_SEGMENT),
        *(Kind.PAUSE, Kind.SLOW_CPU, Kind.SLOW_DISK),
    )
    probes = ("moved", "came_from_the_other", "acks_spooled")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.phases = replace(self.phases, drain_max_s=DRAIN_MAX_S)
        self.settings = replace(self.settings, lease_ms=LONG_LEASE_MS, consumer_gone_ms=GONE_MS)
        self._taken: defaultdict[str, set[bytes]] = defaultdict(set)
        """The batches in which a message was adopted, whoever heard of it."""
        self._moved: Counter[str] = Counter()
        """As often the client heard of it."""
        self._came: Counter[str] = Counter()
        """Adopted ones, when they were given out."""
        self._acked_s: dict[str, float] = {}
        self._again: list[tuple[str, float]] = []

    def drained(self) -> bool:
        return super().drained() and not any(self._owed())

    def _owed(self) -> list[str]:
        """What has moved, and did not come."""
        return [name for name in self._moved if not self._came[name]]

    def _watch(self, broker: Broker, env: Env) -> None:
        adoption: Any = broker._adoption
        adopt = adoption.adopt

        def note_and_adopt(command: Adopt, now_ms: int) -> Any:
            answer = adopt(command, now_ms)
            batch = Batch(bytearray(command.batch))
            for body in batch.bodies():
                self._taken[name_of(body)].add(batch.header.batch_id)
            return answer

        adoption.adopt = note_and_adopt

    async def _consume(self, env: Env) -> None:
        while True:
            client = self._client(env, "acks")
            until_s = env.loop.now + env.rng.choice((1.0, 1e9))
            async with client.consume(SUBJECTS, group="g", name=env.name) as messages:
                async for message in messages:
                    await self._handle(env, message, messages)
                    if env.loop.now > until_s:
                        break
            await client.close()

    async def _handle(self, env: Env, message: Message, messages: Consumer) -> None:
        name = name_of(message.body)
        if name in self._acked_s:
            self._again.append((name, env.loop.now))
        if DEAD_PROPERTY in message.properties:
            self._came[name] += 1
        try:
            if env.rng.random() >= FAILS:
                self.given[name] += 1
                told = await message.ack()
                self._acked_s.setdefault(name, env.loop.now)
                self._world.probes["acks_spooled"] += not told
                return
            if not env.quiet.is_set():
                await asyncio.sleep(env.rng.choice((0.0, env.rng.random())))
            before = messages.statistics["adopted"]
            await message.nack(delay=env.rng.choice((None, 0.0, 0.5)), reason="not now")
            if messages.statistics["adopted"] > before:
                self._moved[name] += 1
        except TidemillError:
            return  # it is given out again

    def check(self, world: World) -> list[str]:
        unheard = {name for name, batches in self._taken.items() if len(batches) > self._moved[name]}
        world.probes["moved"] += self._moved.total()
        world.probes["came_from_the_other"] += sum(self._came[name] > 0 for name in self._moved)
        world.probes["unheard"] += len(unheard)
        owed = [
            f"never came: {name} failed while its broker was away, and went to the other"
            for name in self._owed()
        ]
        invented = [f"invented: {name} came as adopted" for name in self._came if name not in self._taken]
        again = [
            f"again: {name} at {at_s:.6f} s, though it was acked at {self._acked_s[name]:.6f} s"
            for name, at_s in self._again
            if name not in unheard
        ]
        return super().check(world) + owed + invented + again


def name_of(body: bytes) -> str:
    return bytes(body).partition(b"|")[0].decode()


def make(seed: str) -> Adopted:
    return Adopted(seed)
