"""Transactions in a broker group: producers that commit, roll back, or are silent, while masters come and go.

What becomes of each transaction is written down before anybody is told of it (``truth``), as a program would do it in
its own database; whoever is asked answers by that. Checked besides the promises of a broker group:

    a transaction's messages are all in the log, once, or none of them is
    a commit that was answered is there, whatever the class of its subjects
    nothing is there of one whose truth is a rollback, and nobody gets a message before its commit was asked for
    in the end nothing is pending: what was to be committed is there, unless nobody answered in time for it
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sim.autopsy import read_log
from sim.checkers import Outcome, Send, Terms, ended
from sim.clients import SIZES, draw_client
from sim.disk import Mount
from sim.lanes import draw_priority
from sim.replicated import Replicated
from sim.world import Env, World
from tidemill import Client, PendingTransaction
from tidemill.errors import Refused, TidemillError
from tidemill_broker.machine import Broker
from tidemill_broker.pending import Decision
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.transaction_actions import Why
from tidemill_ledger.replication import Master
from tidemill_wire.transacting import parse_transaction_id

if TYPE_CHECKING:
    from sim.traded import Traded

GROUP = "shop"
GAP_S = 0.15
SENDERS = 2
NEVER_S = float("inf")
ENDS = ("commit", "commit", "commit", "rollback", "silent commit", "silent rollback", "raise")


class Oops(Exception):
    """What a program may raise in its block."""


@dataclass(slots=True)
class Told:
    """One transaction, as its producer knows it."""

    identity: str
    home: str = ""
    """The broker group that it lies on."""
    sends: list[Send] = field(default_factory=list[Send])
    answered: bool = False
    """Its commit was."""


class Books:
    """What became of transactions, as their programs know it: whoever is asked answers by that."""

    problems: list[str]

    def __init__(self) -> None:
        self.truth: dict[str, str] = {}
        self.told: dict[str, Told] = {}

    def note(self, probe: str, count: int = 1) -> None:
        """It came about."""
        raise NotImplementedError

    def fate(
        self, told: Told, stored: Counter[bytes], decision: Decision | None, settings: BrokerSettings
    ) -> list[str]:
        """What is wrong with what became of one, by the logs and by what its broker has noted."""
        there = [stored[send.body] for send in told.sends]
        what = f"transaction {told.identity} of {[send.message for send in told.sends]}"
        if any(count > 1 for count in there):
            return [f"committed twice: {what} lies there {there} times"]
        if len(set(there)) > 1:
            return [f"in part: {what} lies there {there} times"]
        committed = bool(there) and there[0] == 1
        self.note("committed", committed)
        self.note("rolled_back", not committed)
        self.note("silent", decision is not None and decision.why == Why.SILENCE)
        self.note("decided_by_another", committed and not told.answered)
        if told.answered and not committed:
            return [f"commit lost: {what}, whose commit was answered"]
        if committed and self.truth[told.identity] != "commit":
            return [f"rolled back and there: {what}"]
        if not committed and self.truth[told.identity] == "commit" and there:
            if decision is None or decision.why != Why.SILENCE:
                return [f"commit lost: {what}, which everybody says is committed: {decision}"]
            if settings.transaction_checks_max > 1000:
                return [f"given up: {what}, though its producer group was there"]
        return []


class Halves(Replicated, Books):
    """The scenario."""

    probes = ("failovers", "committed", "rolled_back", "asked", "decided_by_another", "silent")

    def __init__(self, seed: str) -> None:
        Replicated.__init__(self, seed)
        Books.__init__(self)
        rng = random.Random(f"{seed}/halves")
        self._shops = tuple(f"t{number}" for number in range(1, rng.randrange(2, 4)))
        self._clerks = tuple(f"a{number}" for number in range(1, rng.randrange(2, 4)))
        self._producers = self._producers[:1]
        self.clients = (*self._producers, *self._consumers, *self._shops, *self._clerks)

    def _draw_settings(self, seed: str) -> BrokerSettings:
        rng = random.Random(f"{seed}/checks")
        return replace(
            super()._draw_settings(seed),
            transaction_check_after_ms=rng.choice((100, 500, 2_000)),
            transaction_check_interval_ms=rng.choice((100, 500)),
            transaction_checks_max=rng.choice((1, 3, 100_000)),
        )

    def build(self, world: World) -> None:
        super().build(world)
        for name in self._shops:
            world.add_client(name, Shop(self).run)
        for name in self._clerks:
            world.add_client(name, Clerk(self).run)

    def drained(self) -> bool:
        if not self.finished >= set(self._shops) or self._pending():
            return False
        return super().drained()

    def _pending(self) -> bool:
        master = self.running.get(self.book.appointment.master)
        if master is None or not isinstance(master.machine, Master):
            return True
        return bool(master.machine.inner.state.transactions.pending)

    def _master_problems(self, disk: Mount, broker: Broker, terms: Terms) -> list[str]:
        problems = super()._master_problems(disk, broker, terms)
        stored = Counter(body for _, _, body in read_log(disk, broker))
        for number in broker.state.transactions.pending:
            problems.append(f"undecided: {number:x} in the end")
        for told in self.told.values():
            decision = broker.state.transactions.decision(parse_transaction_id(told.identity))
            problems += self.fate(told, stored, decision, self.settings)
        return problems

    @property
    def traded(self) -> tuple[str, ...]:
        """Subjects of transactions."""
        return tuple(self.promises)[:-1]

    def client(self, env: Env) -> Client:
        """Of a shop, or a clerk."""
        return draw_client(env, self.fetch)

    def note(self, probe: str, count: int = 1) -> None:
        self._world.probes[probe] += count


class Shop:
    """A node with transactions until the world is quiet."""

    def __init__(self, cluster: Halves | Traded) -> None:
        self._cluster = cluster
        self._number = 0
        self._open: dict[str, Told] = {}

    async def run(self, env: Env) -> None:
        for told in self._open.values():  # of a life that was killed: what it did not decide it never will
            self._leave(told, env)
        self._open.clear()
        client = self._cluster.client(env)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(SENDERS):
                tasks.create_task(self._trade(env, client))
        await client.close()
        self._cluster.finished.add(env.name)

    async def _trade(self, env: Env, client: Client) -> None:
        while not env.quiet.is_set():
            tx = client.transaction(GROUP)
            told = self._open[tx.id] = self._cluster.told[tx.id] = Told(tx.id)
            try:
                await self._block(env, tx, told)
            except (TidemillError, Oops):
                pass  # what it is about, the truth says
            self._leave(told, env)
            del self._open[tx.id]
            await asyncio.sleep(env.rng.expovariate(1.0 / GAP_S))

    async def _block(self, env: Env, tx: Any, told: Told) -> None:
        rng = env.rng
        subjects = rng.choices(self._cluster.traded, k=rng.choice((1, 1, 2, 4)))
        end = rng.choice(ENDS)
        if end.startswith("silent"):
            for subject in subjects:
                await self._send(env, tx, told, subject)
            if end == "silent commit":
                self._decide(told, env)
            return
        async with tx:
            for subject in subjects:
                await self._send(env, tx, told, subject)
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random())
            if end == "raise":
                raise Oops
            if end == "rollback":
                self._cluster.truth[told.identity] = "rollback"
                await tx.rollback()
                return
            self._decide(told, env)
        told.answered = True

    def _decide(self, told: Told, env: Env) -> None:
        """The program's own part has happened; from now on its messages may come."""
        self._cluster.truth[told.identity] = "commit"
        for send in told.sends:
            send.invoked_s = env.loop.now

    def _leave(self, told: Told, env: Env) -> None:
        """Nobody goes on with it here."""
        truth = self._cluster.truth.setdefault(told.identity, "rollback")
        for send in told.sends:
            outcome = Outcome.UNKNOWN if truth == "commit" else Outcome.FAILED
            ended(send, Outcome.OK if told.answered else outcome, env.loop.now)

    async def _send(self, env: Env, tx: Any, told: Told, subject: str) -> None:
        self._number += 1
        name = f"{env.name}.{env.life}.{self._number}"
        body = name.encode() + b"|" + env.rng.randbytes(env.rng.choice(SIZES))
        promise = self._cluster.promises[subject]
        send = Send(name, env.name, subject, body, promise, "", NEVER_S)
        send.priority = draw_priority(self._cluster.priorities, name)
        told.sends.append(self._cluster.history.sending(send))
        try:
            await tx.send(subject, body, priority=send.priority)
        except Refused as error:
            slow = error.kind.name == "transaction_decided"  # by silence
            if not slow and not lies_elsewhere(tx, subject):
                self._cluster.problems.append(f"refused: {send.message}: {error}")
            raise
        finally:
            told.home = tx._home


def lies_elsewhere(tx: Any, subject: str) -> bool:
    """A broker group that was away when a subject was declared is none of its own: no transaction there has it."""
    route = tx._transactions._router.atlas.routes.get(subject)
    return route is not None and tx._home not in route.groups


class Clerk:
    """A node that answers for the producer group, for as long as it lives."""

    def __init__(self, cluster: Halves | Traded) -> None:
        self._cluster = cluster

    async def run(self, env: Env) -> None:
        client = self._cluster.client(env)

        @client.check_back(GROUP)
        async def what_became(transaction: PendingTransaction) -> Any:
            self._cluster.note("asked")
            self._look(transaction)
            if env.rng.random() < 0.1:
                raise Oops
            if env.rng.random() < 0.1:
                await asyncio.sleep(env.rng.random())
            return self._cluster.truth.get(transaction.id, "unknown")

        async with client:
            await asyncio.Event().wait()

    def _look(self, transaction: PendingTransaction) -> None:
        """It is asked about what was sent, and nothing else."""
        told = self._cluster.told.get(transaction.id)
        sent = {send.body for send in told.sends} if told is not None else set()
        strange = [one.body[:40] for one in transaction.messages if one.body not in sent]
        if strange or not transaction.messages:
            self._cluster.problems.append(f"asked wrongly: {transaction.id} holds {strange}")


def make(seed: str) -> Halves:
    return Halves(seed)
