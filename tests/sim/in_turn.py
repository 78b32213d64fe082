"""Clients of a whole cluster that send and consume in order, and say to ``Turns`` what they begin and how it ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.checkers import Ack, Delivery, Outcome, Promise, Send, ended
from sim.turns import Turn
from sim.world import Env
from tidemill import Client
from tidemill.errors import BrokerUnreachable, OutcomeUnknown, TidemillError, Unavailable
from tidemill.message import Message
from tidemill.worker import Context, Ended, Worker

if TYPE_CHECKING:
    from sim.together import Together

SUBJECTS = ("paid", "sent")
KEYED, EXCLUSIVE, CAST = "key", "one", "cast"
GAP_S = 0.3
NACKED_ATTEMPTS_MAX = 3
"""Who was given out so often is not failed any more: nothing is to die here."""
HANDLED_S = (0.0, 0.0, 0.02, 0.2, 0.6)
"""How long handlers take."""
STAYS_S = (1.5, 5.0, 1e9)


class Sending:
    """A producer: for each of its keys one message after the other, and now and then some without a key."""

    def __init__(self, realm: Together) -> None:
        self._realm = realm
        self._number = 0

    async def run(self, env: Env) -> None:
        await self._realm.founded()
        client = self._realm.client(env)
        async with asyncio.TaskGroup() as tasks:
            for subject in SUBJECTS:
                for number in range(env.rng.randrange(1, 3)):
                    tasks.create_task(
                        self._send_in_order(env, client, subject, f"{subject}.{env.name}.{number}")
                    )
            tasks.create_task(self._send_in_order(env, client, SUBJECTS[0], ""))
        await client.close()
        self._realm.finished.add(env.name)

    async def _send_in_order(self, env: Env, client: Client, subject: str, key: str) -> None:
        realm = self._realm
        while not env.quiet.is_set():
            self._number += 1
            name = f"{env.name}.{env.life}.{self._number}"
            body = name.encode() + b"|" + env.rng.randbytes(env.rng.choice((0, 30, 400)))
            send = realm.history.sending(
                Send(name, env.name, subject, body, Promise.NORMAL, key, env.loop.now)
            )
            try:
                receipt = await client.send(subject, body, order_key=key or None)
            except OutcomeUnknown:
                ended(send, Outcome.UNKNOWN, env.loop.now)
            except (BrokerUnreachable, Unavailable):
                ended(send, Outcome.FAILED, env.loop.now)
            else:
                self._stored(send, receipt.sequence)
                ended(send, Outcome.OK, env.loop.now)
            await asyncio.sleep(env.rng.expovariate(1.0 / GAP_S))

    def _stored(self, send: Send, sequence: int) -> None:
        if not send.key:
            return  # where it lies its producer is not told
        group = self._realm.charts[send.subject].of(send.key).group
        send.place = f"{group}/{send.subject}/{sequence}"
        [seat] = [seat for seat in self._realm.seats if seat.group == group]
        seat.history.sending(send)
        self._realm.turns.answered(send)


@dataclass(frozen=True, slots=True)
class Begun:
    """A message at work. ``turn`` is ``None`` when it has no place in any order."""

    turn: Turn | None
    place: str
    name: str


class Handling:
    """What consumers of groups in order have in common: they say what they begin, and how it ends."""

    def __init__(self, realm: Together, group: str) -> None:
        self.realm = realm
        self.group = group

    def begin(self, env: Env, client: Client, message: Message) -> Begun:
        """A handler is called."""
        realm = self.realm
        name = message.body.partition(b"|")[0].decode(errors="replace")
        send = realm.history.sends.get(name)
        broker_group = group_of(client, message)
        seat = next(one for one in realm.seats if one.group == broker_group)
        pull = message._delivery.pull_sequence + message._index
        asked_s = seat.granted.get(pull)
        if asked_s is None:
            realm.problems.append(
                f"invented: pull {pull} of {self.group} was never granted by {broker_group}"
            )
        place = f"{broker_group}/{message.subject}/{message.sequence}"
        group = self._full_name(env)
        realm.history.delivered(
            Delivery(
                env.loop.now, asked_s or 0.0, group, env.name, message.subject, name, place, message.body,
                message.order_key or "",
            )
        )  # fmt: skip
        realm._world.probes["again"] += message.attempts > 0
        if self.group == KEYED:
            realm.turns.owned(env, broker_group, message.subject)
        if self.group == EXCLUSIVE:
            realm.turns.alone(env, self.group, message.subject)
        if send is None or (self.group == KEYED and not send.key):
            return Begun(None, place, name)
        line = send.key if self.group == KEYED else f"{broker_group}/{message.subject}"
        return Begun(realm.turns.begins(env, group, line, send, message), place, name)

    def end(self, env: Env, begun: Begun, *, handled: bool) -> Ack | None:
        """An ack follows when it was handled; whether it is answered is seen later, or never."""
        if begun.turn is not None:
            self.realm.turns.ends(begun.turn, handled=handled)
        if not handled:
            self.realm.note("failed")
            return None
        ack = Ack(self._full_name(env), begun.place, begun.name, env.loop.now, Outcome.UNKNOWN, env.loop.now)
        return self.realm.history.acking(ack)

    def _full_name(self, env: Env) -> str:
        return f"{CAST}.{env.name}" if self.group == CAST else self.group


class WorkingByKey(Handling):
    """The product's worker, by key: it serves for a while, drains, and begins again."""

    def __init__(self, realm: Together) -> None:
        super().__init__(realm, KEYED)
        self._acks: dict[int, Ack] = {}

    async def run(self, env: Env) -> None:
        await self.realm.founded()
        while True:
            client = self.realm.client(env)
            self.realm.turns.sharers[env.name] = env, client
            worker = self._worker(env, client)
            stays_s = env.rng.choice(STAYS_S) if not env.quiet.is_set() else 1e9
            env.loop.call_later(stays_s, worker.stop)
            if await worker.serve(client) is Ended.FAILED:
                self.realm.problems.append(f"worker: {env.name} failed at {env.loop.now:.6f} s")
            self.realm.note("drains")
            await client.close()
            await asyncio.sleep(env.rng.random())

    def _worker(self, env: Env, client: Client) -> Worker:
        concurrency = env.rng.choice((1, 3, 10))
        worker = Worker(drain_seconds=env.rng.choice((0.1, 30.0)))
        work: dict[str, int] = {"at": 0}

        @worker.on(
            SUBJECTS, group=KEYED, by_key=True, concurrency=concurrency, retry_after=0.2, give_up_after=None
        )
        async def handle(message: Message) -> None:
            begun, handled = self.begin(env, client, message), False
            work["at"] += 1
            if work["at"] > concurrency:
                self.realm.problems.append(f"worker: {env.name} is at {work['at']}, more than {concurrency}")
            try:
                await asyncio.sleep(env.rng.choice(HANDLED_S))
                if env.rng.random() < 0.05 and not env.quiet.is_set():
                    raise ValueError("not now")
                handled = True
            finally:
                work["at"] -= 1
                ack = self.end(env, begun, handled=handled)
                if ack is not None:
                    self._acks[id(message)] = ack

        @worker.acked
        def acked(message: Message, _: Context) -> None:
            answered(self._acks.pop(id(message)), env)

        del handle, acked
        return worker


class InTurn(Handling):
    """An exclusive or a broadcast consumer."""

    async def run(self, env: Env) -> None:
        await self.realm.founded()
        while True:
            client = self.realm.client(env)
            if self.group == EXCLUSIVE:
                self.realm.turns.loners[env.name] = env, client
            stays_until_s = env.loop.now + env.rng.choice(STAYS_S)
            if self.group == EXCLUSIVE:
                consumer = client.consume(
                    SUBJECTS, group=EXCLUSIVE, exclusive=True, name=env.rng.choice((None, env.name))
                )
            else:
                consumer = client.consume(SUBJECTS, group=CAST, broadcast=True, name=env.name)
            async with consumer as messages:
                async for message in messages:
                    await self._handle(env, client, message)
                    if env.loop.now > stays_until_s and not env.quiet.is_set():
                        break
            await client.close()
            await asyncio.sleep(env.rng.random() * 0.3)

    async def _handle(self, env: Env, client: Client, message: Message) -> None:
        begun = self.begin(env, client, message)
        await asyncio.sleep(env.rng.choice(HANDLED_S) / 2)
        fails = env.rng.random() < 0.05 and message.attempts < NACKED_ATTEMPTS_MAX and not env.quiet.is_set()
        ack = self.end(env, begun, handled=not fails)
        try:
            if fails:
                await message.nack(delay=env.rng.choice((None, 0.0, 0.3)), reason="not now")
            elif ack is not None and env.rng.random() < 0.7:
                await message.ack()
                answered(ack, env)
        except TidemillError:
            return  # it comes again


def answered(ack: Ack, env: Env) -> None:
    """It was an ack that nobody knew of until now."""
    ack.outcome, ack.ended_s = Outcome.OK, env.loop.now


def group_of(client: Client, message: Message) -> str:
    """The broker group that gave a message."""
    settler = message.origin[0]
    for consumer in client._consumers:
        for group, puller in consumer._brokers._pullers.items():
            if puller.settler is settler:
                return group
    raise AssertionError("a message has come from somewhere")
