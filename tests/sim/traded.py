"""Transactions over whole clusters: two broker groups that fail over and are handed over under the real meta, producers
whose transactions lie on one or the other, and clerks that all broker groups ask what became of them.

One of the two subjects is expanded in the midst of it. Checked besides what ``whole`` checks, over both logs together:
what ``halves`` checks of each transaction; that a commit which was answered is in the log of each later master of its
broker group when that begins; and that what was committed reaches a group that consumes both subjects.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from sim.autopsy import image_of, read_log
from sim.checkers import Ack, Delivery, Outcome, Promise, Terms
from sim.disk import Mount
from sim.halves import Books, Clerk, Shop
from sim.in_turn import SUBJECTS, answered, group_of
from sim.lanes import draw_priorities
from sim.metas import MetaPort
from sim.seats import RealmTerms, Seat
from sim.together import Together
from sim.whole import METAS
from sim.world import Env, World
from tidemill import Client
from tidemill.errors import TidemillError
from tidemill.message import Message
from tidemill_broker.machine import Broker
from tidemill_broker.settings import BrokerSettings
from tidemill_ledger.replication import Master
from tidemill_wire.transacting import parse_transaction_id

GROUP = "shared"
SURVEYOR = "surveyor"
PARTITIONS = 4
AGAIN_S = 0.5
STAYS_S = (1.5, 5.0, 1e9)
FAILS = 0.05


class Stall(Seat):
    """One broker group. Whatever was answered as committed on it is in the log of who becomes its master."""

    books: Books

    def _draw_settings(self, seed: str) -> BrokerSettings:
        rng = random.Random(f"{seed}/checks")
        return replace(
            super()._draw_settings(seed),
            transaction_check_after_ms=rng.choice((100, 500, 2_000)),
            transaction_check_interval_ms=rng.choice((100, 500)),
            transaction_checks_max=rng.choice((3, 100_000)),
        )

    def pending(self) -> bool:
        """Something is not decided, or nobody is there to say so."""
        master = self.running.get(self.book.appointment.master)
        if master is None or not isinstance(master.machine, Master):
            return True
        return bool(master.machine.inner.state.transactions.pending)

    def _begins(self, broker: Broker, env: Env) -> None:
        super()._begins(broker, env)
        there = {body for _, _, body in read_log(image_of(env.disk.disk).mount(), broker)}
        self.problems += [
            f"commit lost: {told.identity} was answered, and is not with {env.name} at {env.loop.now:.6f} s"
            for told in self.books.told.values()
            if told.answered and told.home == self.group and not {one.body for one in told.sends} <= there
        ]

    def _master_problems(self, disk: Mount, broker: Broker, terms: Terms) -> list[str]:
        """The rest is looked at for both broker groups at once."""
        pending = broker.state.transactions.pending
        return [f"undecided: {number:x} at {self.group} in the end" for number in pending]


class Traded(Together, Books):
    """The scenario."""

    probes = (
        *("failovers", "hand_overs", "committed", "rolled_back", "asked", "decided_by_another", "silent"),
        *("expanded", "on_both"),
    )

    def __init__(self, seed: str) -> None:
        Books.__init__(self)
        Together.__init__(self, seed)
        rng = random.Random(f"{seed}/traded")
        self.promises = dict.fromkeys(SUBJECTS, Promise.NORMAL)
        self.traded = SUBJECTS
        self.priorities = draw_priorities(seed)
        self._producers, self._workers, self._consumers = (), (), {}
        self._shops = tuple(f"t{number}" for number in range(1, rng.randrange(2, 4)))
        self._clerks = tuple(f"a{number}" for number in range(1, rng.randrange(2, 4)))
        self._buyers = ("c1", "c2")[: rng.randrange(1, 3)]
        mine = (*self._shops, *self._clerks, *self._buyers, SURVEYOR)
        self.clients = (*mine, *self.clients[-3:])

    def _seat(self, seed: str, group: str) -> Seat:
        seat = Stall(seed, group)
        seat.books = self
        return seat

    def build(self, world: World) -> None:
        super().build(world)
        for name in self._shops:
            world.add_client(name, self._trading(Shop(self)))
        for name in self._clerks:
            world.add_client(name, Clerk(self).run)
        for name in self._buyers:
            world.add_client(name, Buying(self).run)
        world.add_client(SURVEYOR, self._expand)

    def drained(self) -> bool:
        if not self.finished >= {*self._shops, SURVEYOR}:
            return False
        return not any(stall.pending() for stall in self.stalls) and super().drained()

    @property
    def stalls(self) -> list[Stall]:
        """The broker groups."""
        return [seat for seat in self.seats if isinstance(seat, Stall)]

    def check(self, world: World) -> list[str]:
        problems = super().check(world)
        stored: Counter[bytes] = Counter()
        brokers: dict[str, Broker] = {}
        for stall in self.stalls:
            master = stall.book.appointment.master
            service = stall.running.get(master)
            if service is None:
                return problems  # which was said
            brokers[stall.group] = service.broker
            mount = image_of(world.nodes[master].disk).mount()
            stored.update(body for _, _, body in read_log(mount, service.broker))
        homes = {told.home for told in self.told.values() if told.home}
        self.note("on_both", len(homes) == len(brokers))
        for told in self.told.values():
            broker = brokers.get(told.home)
            number = parse_transaction_id(told.identity)
            decision = None if broker is None else broker.state.transactions.decision(number)
            settings = self.seats[0].settings if broker is None else broker.settings
            problems += self.fate(told, stored, decision, settings)
        return problems

    def note(self, probe: str, count: int = 1) -> None:
        self._world.probes[probe] += count

    def _terms(self) -> RealmTerms:
        return RealmTerms(dict.fromkeys(SUBJECTS, (GROUP,)), ack_promise=None, seats=self.seats)

    def _trading(self, shop: Shop) -> Callable[[Env], Awaitable[None]]:
        """A shop opens when there is something to sell, in each of its lives."""

        async def run(env: Env) -> None:
            await self.founded()
            await shop.run(env)

        return run

    async def _expand(self, env: Env) -> None:
        """Give one subject further partitions, once."""
        await self.founded()
        await asyncio.sleep(env.rng.uniform(0, self.phases.faults_s))
        while True:
            port = MetaPort(self._calls, env.rng.choice(METAS))
            try:
                said = await port.get(f"/v1/routes?subject={SUBJECTS[0]}")
                [route] = said["routes"]
                if len(route["partitions"]) >= PARTITIONS:
                    break
                body = {"version": route["version"], "partitions": PARTITIONS}
                await port.post(f"/v1/subjects/{SUBJECTS[0]}/expand", body)
            except TidemillError:
                await asyncio.sleep(AGAIN_S)  # the store is away, or a replica is, or nobody leads
        self.note("expanded")
        self.finished.add(env.name)


class Buying:
    """A consumer of both subjects, in a group that it may share."""

    def __init__(self, realm: Traded) -> None:
        self._realm = realm

    async def run(self, env: Env) -> None:
        await self._realm.founded()
        while True:
            client = self._realm.client(env)
            stays_until_s = env.loop.now + env.rng.choice(STAYS_S)
            async with client.consume(SUBJECTS, group=GROUP) as messages:
                async for message in messages:
                    await self._handle(env, client, message)
                    if env.loop.now > stays_until_s and not env.quiet.is_set():
                        break
            await client.close()
            await asyncio.sleep(env.rng.random() * 0.3)

    async def _handle(self, env: Env, client: Client, message: Message) -> None:
        realm = self._realm
        home = group_of(client, message)
        seat = next(one for one in realm.seats if one.group == home)
        asked_s = seat.granted.get(message._delivery.pull_sequence + message._index, 0.0)
        name = message.body.partition(b"|")[0].decode(errors="replace")
        place = f"{home}/{message._delivery.subject}/{message.sequence}"
        realm.history.delivered(
            Delivery(
                env.loop.now, asked_s, GROUP, env.name, message.subject, name, place, message.body,
                message.order_key or "", message.priority,
            )
        )  # fmt: skip
        with suppress(TidemillError):  # it comes again
            if env.rng.random() < FAILS and not env.quiet.is_set():
                await message.nack(delay=env.rng.choice((0.0, 0.3)), reason="not now")
                return
            ack = realm.history.acking(Ack(GROUP, place, name, env.loop.now, Outcome.UNKNOWN, env.loop.now))
            await message.ack()
            answered(ack, env)


def make(seed: str) -> Traded:
    return Traded(seed)
