"""A broker group whose clients send what others have sent: messages with dedup keys, while masters come and go.

Several clients draw their keys from the same few, which change as time goes by: one that is sent again comes from the
same client or another one, alone or in a batch with others, within the window of its subject or after it; to a master
that was killed, lost power, was cut off or has a clock that was set, or to the one that came after it.

Checked besides the promises of a broker group, on the log of the last master: within the window of a stored message no
other one of its key is stored; an answer "stored before" leads to a message of the same key; and what was answered so
is not in the log itself. A message whose key is new is stored, as any other that was answered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sim.autopsy import read_batches
from sim.checkers import Outcome, Promise, Send, Terms, ended, place_of
from sim.clients import draw_client
from sim.cluster import declare_subjects
from sim.disk import Mount
from sim.lanes import draw_priority
from sim.replicated import Replicated
from sim.world import Env, World
from tidemill import Client
from tidemill.errors import BrokerUnreachable, OutcomeUnknown, Refused, Unavailable
from tidemill.receipts import Receipt
from tidemill_broker.doors import Service
from tidemill_broker.machine import Broker
from tidemill_wire.columns import Column
from tidemill_wire.declarations import API_VERSION, parse_manifest
from tidemill_wire.deduplication import NO_KEY, digest_of, digests_of

KEYED = "keyed"
TWINS = ("d1", "d2", "d3")
GAP_S = 0.15
KEYS = 5
"""So many are in use at a time."""
KEPT_S = 3.0
"""After so long each of them has become another one."""
WINDOWS_S = (1, 2, 5)
SIZES = (0, 20, 300)


@dataclass(frozen=True, slots=True)
class Stored:
    """A message of the log."""

    digest: bytes
    body: bytes
    sequence: int
    stored_at_ms: int


class Deduped(Replicated):
    """The scenario."""

    probes = (*Replicated.probes, "duplicates", "mixed", "stored_again", "forgotten")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        rng = random.Random(f"{seed}/deduped")
        self.window_s = rng.choice(WINDOWS_S)
        self.clients = (*self.clients, *TWINS)
        self.told: list[tuple[Send, str, str, int]] = []
        """Of answers "stored before": the send, its key, and the id and sequence that were answered."""

    def build(self, world: World) -> None:
        super().build(world)
        for name in TWINS:
            world.add_client(name, Sending(self).run)

    def drained(self) -> bool:
        return self.finished >= set(TWINS) and super().drained()

    def _declare(self, service: Service) -> None:
        spec = {
            "config": [{"name": "durability", "value": Promise.HIGH.value}],
            "deduplicationSeconds": self.window_s,
        }
        manifest: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Subject", "metadata": {"name": KEYED}}
        service.declare([*declare_subjects(), parse_manifest(manifest | {"spec": spec})])

    def _master_problems(self, disk: Mount, broker: Broker, terms: Terms) -> list[str]:
        stored = dict(_stored(disk, broker))
        self._world.probes["duplicates"] += len(self.told)
        self._world.probes["mixed"] += sum(
            batch.numbers(Column.SOURCES, "i", batch.header.messages) is not None
            for batch in read_batches(disk, broker)
            if batch.partition == KEYED
        )
        problems = [*super()._master_problems(disk, broker, terms), *self._untrue(stored)]
        return problems + self._twice(list(stored.values()))

    def _untrue(self, stored: dict[str, Stored]) -> Iterator[str]:
        keys = {one.digest for one in stored.values()}
        for send, key, identity, sequence in self.told:
            if (
                sequence < 0
            ):  # its batch came again behind the window, and nobody knows any more where it lies
                self._world.probes["forgotten"] += 1
                if digest_of(key) not in keys:
                    yield f"dropped: {send.message} was answered as stored before, and nothing of {key} is"
                continue
            there = stored.get(identity)
            if there is None or (there.digest, there.sequence) != (digest_of(key), sequence):
                yield f"dropped: {send.message} of {key} was answered for {identity} at {sequence}, where is {there}"

    def _twice(self, stored: list[Stored]) -> list[str]:
        """A key is forgotten when its window is over by the clock of whoever stores the next message of the subject,
        and a clock that is set back then does not bring it back.
        """
        problems: list[str] = []
        latest: dict[bytes, Stored] = {}
        highest_ms = 0
        for one in stored:
            highest_ms = max(highest_ms, one.stored_at_ms)
            before = latest.get(one.digest)
            if before is not None and before.stored_at_ms > highest_ms - 1000 * self.window_s:
                late_ms = one.stored_at_ms - before.stored_at_ms
                problems.append(f"stored twice: {one.body!r} {late_ms} ms after {before.body!r}")
            self._world.probes["stored_again"] += before is not None
            if one.digest != NO_KEY:
                latest[one.digest] = one
        return problems


def _stored(disk: Mount, broker: Broker) -> Iterator[tuple[str, Stored]]:
    """By their ids, in the order of the log."""
    for batch in read_batches(disk, broker):
        if batch.partition == KEYED:
            header = batch.header
            sources = batch.numbers(Column.SOURCES, "i", header.messages) or range(header.messages)
            digests = digests_of(batch) or [NO_KEY] * header.messages
            for row, body in enumerate(batch.bodies()):
                said = Stored(digests[row], body, header.first_sequence + row, header.stored_at_ms)
                yield batch.message_id(sources[row]), said


class Sending:
    """A node that sends with keys until the world is quiet."""

    def __init__(self, cluster: Deduped) -> None:
        self._cluster = cluster
        self._number = 0

    async def run(self, env: Env) -> None:
        client = draw_client(env, self._cluster.fetch)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):
                tasks.create_task(self._send(env, client))
        await client.close()
        self._cluster.finished.add(env.name)

    async def _send(self, env: Env, client: Client) -> None:
        rng = env.rng
        while not env.quiet.is_set():
            match rng.randrange(4):
                case 0:
                    await self._many(env, client)
                case 1:
                    await asyncio.gather(*(self._one(env, client) for _ in range(rng.randrange(2, 6))))
                case _:
                    await self._one(env, client)
            await asyncio.sleep(rng.expovariate(1.0 / GAP_S))

    def _key(self, env: Env) -> str | None:
        match env.rng.randrange(10):
            case 0:
                return None
            case 1:
                return f"{env.name}.{self._number}"
            case _:
                slot = env.rng.randrange(KEYS)
                return f"k{slot}.{int(env.loop.now / KEPT_S + slot / KEYS)}"

    def _new(self, env: Env, priority: int) -> Send:
        self._number += 1
        name = f"{env.name}.{self._number}"
        body = name.encode() + b"|" + env.rng.randbytes(env.rng.choice(SIZES))
        send = Send(name, env.name, KEYED, body, Promise.HIGH, "", env.loop.now)
        send.priority = priority
        return self._cluster.history.sending(send)

    async def _one(self, env: Env, client: Client) -> None:
        send, key = self._new(env, 0), self._key(env)
        send.priority = draw_priority(self._cluster.priorities, send.message)
        try:
            receipt = await client.send(KEYED, send.body, dedup_key=key, priority=send.priority)
        except OutcomeUnknown:
            ended(send, Outcome.UNKNOWN, env.loop.now)
        except (Refused, Unavailable, BrokerUnreachable) as error:
            if isinstance(error, Refused):
                self._cluster.problems.append(f"refused: {send.message}: {error}")
            ended(send, Outcome.FAILED, env.loop.now)
        else:
            self._answered(env, send, key, receipt)

    async def _many(self, env: Env, client: Client) -> None:
        """When the call fails, nobody knows of any single one."""
        sends = [self._new(env, 0) for _ in range(env.rng.randrange(1, 8))]
        keys = [self._key(env) for _ in sends]
        try:
            receipts = await client.send_many(KEYED, [send.body for send in sends], dedup_keys=keys)
        except (OutcomeUnknown, Unavailable, BrokerUnreachable):
            for send in sends:
                ended(send, Outcome.UNKNOWN, env.loop.now)
            return
        for send, key, receipt in zip(sends, keys, receipts, strict=True):
            self._answered(env, send, key, receipt)

    def _answered(self, env: Env, send: Send, key: str | None, receipt: Receipt) -> None:
        """What was stored before is not stored now, and never will be; unless it was this one, said twice."""
        if not receipt.duplicate:
            send.place = place_of(KEYED, receipt.sequence) if receipt.sequence >= 0 else ""
            ended(send, Outcome.OK, env.loop.now)
            return
        if key is None:
            self._cluster.problems.append(f"dropped: {send.message}, which has no key")
        self._cluster.told.append((send, key or "", receipt.id, receipt.sequence))
        ended(send, Outcome.FAILED if receipt.sequence >= 0 else Outcome.UNKNOWN, env.loop.now)


def make(seed: str) -> Deduped:
    return Deduped(seed)
