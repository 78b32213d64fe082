"""The workloads of a cluster: producers and consumers made of the real client, and the history they write."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.checkers import Ack, Delivery, History, Outcome, Send, ended, place_of
from sim.graveyard import alive
from sim.hanging import hangs_s
from sim.lanes import draw_priority
from sim.spools import Spooled, opener
from sim.world import Env
from tidemill import Client
from tidemill.chain import Match
from tidemill.consumer import Consumer
from tidemill.errors import BrokerUnreachable, OutcomeUnknown, Refused, TidemillError, Unavailable
from tidemill.message import Message
from tidemill.routes import Address, Fetch, Routes
from tidemill.security import Security
from tidemill.settings import ClientSettings
from tidemill_wire.fields import DEAD_PROPERTY

if TYPE_CHECKING:
    from sim.cluster import Cluster

PORT = 7400
SENDERS = 2
GAP_S = 0.12
CROWD_MAX = 12
LATE_S = 1.0
AWAKE_ONE_IN = 8
TAGS = ("eu", "new", "vip")
DAWDLE_LEASE_S = 3.0
SPOOL_AFTER_S = 0.1
"""So little that many an outage is longer."""
SIZES = (0, 0, 20, 20, 300, 2_000)


class Oops(Exception):
    """What a handler may raise."""


async def routes() -> Routes:
    return (Address("g0", "s1", PORT),)


def draw_client(
    env: Env, fetch: Fetch = routes, spool: str | None = None, pod: str = "", token: str = ""
) -> Client:
    """A client whose patience is drawn; maybe with a spool on its node's disk."""
    rng = env.rng
    chance = rng.getrandbits(64)
    settings = ClientSettings(
        pod=pod,
        linger_ms=rng.choice((0, 0, 3)),
        batch_bytes=rng.choice((500, 5_000, 1 << 20)),
        memory_bytes_max=rng.choice((4_000, 64 << 20)),
        send_timeout_s=rng.choice((1.0, 4.0, 30.0)),
        connect_timeout_s=rng.choice((1.0, 5.0)),
        dead_peer_s=rng.choice((1.0, 3.0, 9.0)),
        backoff_max_s=rng.choice((0.2, 2.0)),
        prefetch_messages=rng.choice((1, 20, 1 << 17)),
        pull_bytes=rng.choice((500, 5_000, 4 << 20)),
        pull_wait_ms=rng.choice((100, 2_000, 15_000)),
        random=random.Random(chance),
        now_ms=env.clock.now_ms,
        spool_after_s=SPOOL_AFTER_S,
        open_ack_file=opener(env.disk),
        stay_awake=chance % AWAKE_ONE_IN == 0,
        seconds=env.clock.seconds,
        security=Security(token=token) if token else None,
    )
    return Client("s1:7401", settings=settings, fetch=fetch, spool=spool)


class Producing:
    """A node that sends until the world is quiet."""

    def __init__(self, cluster: Cluster, gap_s: float = GAP_S) -> None:
        self._cluster = cluster
        self._gap_s = gap_s
        self._number = 0

    async def run(self, env: Env) -> None:
        client = self._client(env)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(SENDERS):
                tasks.create_task(self._send(env, client))
        await client.close()
        self._cluster.finished.add(env.name)

    def _client(self, env: Env) -> Client:
        return draw_client(env, self._cluster.fetch)

    async def _send(self, env: Env, client: Client) -> None:
        rng = env.rng
        while not env.quiet.is_set():
            match rng.randrange(6):
                case 0:
                    subject = rng.choice(self._subjects(env))
                    await self._crowd(env, client, [subject] * rng.randrange(1, CROWD_MAX))
                case 1:
                    subjects = rng.choices(self._subjects(env), k=rng.randrange(1, 5))
                    await self._crowd(env, client, subjects)
                case 2:  # they may share a batch, of which a filter wants some
                    await asyncio.gather(
                        *(self._one(env, client) for _ in range(rng.randrange(2, CROWD_MAX)))
                    )
                case _:
                    await self._one(env, client)
            await asyncio.sleep(rng.expovariate(1.0 / self._gap_s))

    def _subjects(self, env: Env) -> tuple[str, ...]:
        """Those that are in use by now."""
        subjects = tuple(self._cluster.promises)
        return subjects if env.loop.now > LATE_S else subjects[:-1]

    def _new(self, env: Env, subject: str, key: str = "") -> Send:
        self._number += 1
        name = f"{env.name}.{self._number}"
        body = name.encode() + b"|" + env.rng.randbytes(env.rng.choice(SIZES))
        promise = self._cluster.promises[subject]
        send = Send(name, env.name, subject, body, promise, key, env.loop.now)
        send.priority = draw_priority(self._cluster.priorities, name)
        return self._cluster.history.sending(send)

    async def _one(self, env: Env, client: Client) -> None:
        send = self._new(env, env.rng.choice(self._subjects(env)), env.rng.choice(("", "", "key")))
        send.tags = frozenset(tag for tag in TAGS if env.rng.random() < 0.3)
        try:
            receipt = await client.send(
                send.subject, send.body, key=send.key or None, tags=send.tags, priority=send.priority
            )
        except OutcomeUnknown:
            ended(send, Outcome.UNKNOWN, env.loop.now)
        except (Refused, Unavailable, BrokerUnreachable) as error:
            if isinstance(error, Refused):
                self._cluster.problems.append(f"refused: {send.message}: {error}")
            ended(send, Outcome.FAILED, env.loop.now)
        else:
            send.place = place_of(send.subject, receipt.sequence)
            ended(send, Outcome.OK, env.loop.now)

    async def _crowd(self, env: Env, client: Client, subjects: Sequence[str]) -> None:
        """Many at once; when the call fails, nobody knows of any single one."""
        sends = [self._new(env, subject) for subject in subjects]
        alike = len(set(subjects)) == 1
        for send in sends:
            send.priority = sends[0].priority if alike else 0
        try:
            if alike:
                bodies = [send.body for send in sends]
                receipts = await client.send_many(subjects[0], bodies, priority=sends[0].priority)
            else:
                receipts = await client.send_each([(send.subject, send.body) for send in sends])
        except (OutcomeUnknown, Unavailable, BrokerUnreachable):
            for send in sends:
                ended(send, Outcome.UNKNOWN, env.loop.now)
            return
        for send, receipt in zip(sends, receipts, strict=True):
            send.place = place_of(send.subject, receipt.sequence)
            ended(send, Outcome.OK, env.loop.now)


class Consuming:
    """A node that consumes for ever: it acks, fails, dawdles, leaves and comes back."""

    def __init__(self, cluster: Cluster, group: str, history: History | None = None) -> None:
        self._cluster = cluster
        self._group = group
        self._history = history or cluster.history
        self._open: dict[int, Ack] = {}
        self._spooled = Spooled(cluster)

    async def run(self, env: Env) -> None:
        spools = self._cluster.has_spool(env.name)
        for ack in self._open.values():  # Of a life that was killed.
            ended(ack, Outcome.UNKNOWN, env.loop.now)
        self._open.clear()
        while True:
            spool = "acks" if spools else None
            client = draw_client(env, self._cluster.fetch, spool, self._pod(env), self._token(env))
            if spools:
                self._spooled.watch(client, env.loop.time)
            name = env.rng.choice((None, env.name))
            stays_until_s = env.loop.now + env.rng.choice((0.5, 3.0, 1e9))
            try:
                async with self._consume(client, env, name) as messages:
                    if env.rng.random() < 0.3:
                        await self._by_the_batch(env, messages, stays_until_s)
                    else:
                        await self._one_by_one(env, messages, stays_until_s)
            except Oops:
                pass
            self._cluster.rot_seen += messages.statistics["corrupt"]
            await client.close()
            await asyncio.sleep(env.rng.random() * 0.2)

    def _pod(self, _env: Env) -> str:
        """Which it runs in; none."""
        return ""

    def _token(self, _env: Env) -> str:
        """What it shows; nothing."""
        return ""

    def _consume(self, client: Client, env: Env, name: str | None) -> Consumer:
        wish = self._cluster.groups[self._group]
        match: Match = "all" if wish.wanted.every else "any"
        return client.consume(wish.subjects, group=self._group, name=name, tags=wish.wanted.tags, match=match)

    async def _one_by_one(self, env: Env, messages: Consumer, stays_until_s: float) -> None:
        async for message in messages:
            self._got(env, message)
            match self._mood(env):
                case "nack":
                    await self._nack(env, message)
                case "outage":
                    await self._cannot(message)
                case "leave" if env.loop.now > stays_until_s:
                    self._said(env, message)
                    return
                case "raise":
                    raise Oops
                case "trust":
                    self._said(env, message)
                    continue
                case mood:
                    if hung_s := hangs_s(env, self._cluster.policies.get(self._group), message):
                        await asyncio.sleep(hung_s)
                    if mood == "dawdle":
                        lease_s = min(self._cluster.settings.lease_ms / 1000, DAWDLE_LEASE_S)
                        await asyncio.sleep(lease_s * env.rng.uniform(0.5, 3.0))
                    await self._ack(env, [message], message)

    async def _by_the_batch(self, env: Env, messages: Consumer, stays_until_s: float) -> None:
        async for batch in messages.batches():
            parts = list(batch)
            for message in parts:
                self._got(env, message)
            match self._mood(env):
                case "nack":
                    await self._nack(env, batch)
                case "outage":
                    await self._cannot(batch)
                case "raise":
                    raise Oops
                case "trust":
                    for message in parts:
                        self._said(env, message)
                case "dawdle":
                    for message in parts:
                        await asyncio.sleep(env.rng.random() * 0.1)
                        await self._ack(env, [message], message)
                case _:
                    await self._ack(env, parts, batch)
            if env.loop.now > stays_until_s:
                return

    def _mood(self, env: Env) -> str:
        if env.quiet.is_set():
            return "ack"
        begins_s, ends_s = self._cluster.outages.get(self._group, (0.0, 0.0))
        if begins_s <= env.loop.now < ends_s:
            return "outage"
        moods = ("ack", "trust", "nack", "dawdle", "leave", "raise")
        nacks = 25 if self._group in self._cluster.policies else 8  # of a group that gives up soon, some die
        return env.rng.choices(moods, (70, 10, nacks, 3, 8, 1))[0]

    def _got(self, env: Env, message: Message) -> None:
        delivery = message._delivery
        pull = delivery.pull_sequence + message._index
        asked_s = self._cluster.granted.get(pull)
        if asked_s is None:
            self._cluster.problems.append(f"invented: pull {pull} of {self._group} was never granted")
            asked_s = 0.0
        if not message.body and DEAD_PROPERTY in message.properties:
            return  # a flipped bit, buried without a body and redriven: nobody sent that
        name = message.body.partition(b"|")[0].decode(errors="replace")
        self._history.delivered(
            Delivery(
                env.loop.now, asked_s, self._group, env.name, alive(message.subject, self._group), name,
                place_of(message.subject, message.sequence), message.body, message.key or "", message.priority,
            )
        )  # fmt: skip

    def _begin(self, env: Env, message: Message) -> Ack:
        name = message.body.partition(b"|")[0].decode(errors="replace")
        place = place_of(message.subject, message.sequence)
        return self._history.acking(Ack(self._group, place, name, env.loop.now))

    def _said(self, env: Env, message: Message) -> None:
        """Acked by going on: nobody hears the answer."""
        ended(self._begin(env, message), Outcome.UNKNOWN, env.loop.now)

    async def _ack(self, env: Env, parts: Sequence[Message], whole: object) -> None:
        acks = [self._begin(env, message) for message in parts]
        self._open |= {id(ack): ack for ack in acks}
        outcome: Outcome | None = Outcome.OK
        try:
            if not await whole.ack():  # type: ignore[attr-defined]
                outcome = None
        except TidemillError:
            outcome = Outcome.UNKNOWN
        for ack, message in zip(acks, parts, strict=True):
            del self._open[id(ack)]
            if outcome is None:
                self._spooled.keep(message._delivery.pull_sequence + message._index, ack, env.loop.now)
            else:
                ended(ack, outcome, env.loop.now)

    async def _nack(self, env: Env, whole: object) -> None:
        try:
            await whole.nack(delay=env.rng.choice((None, 0.0, 0.3)), reason="not now")  # type: ignore[attr-defined]
        except TidemillError:
            return

    async def _cannot(self, whole: object) -> None:
        """What every handler meets, whatever the message."""
        try:
            await whole.nack(reason="the database is away")  # type: ignore[attr-defined]
        except TidemillError:
            return
