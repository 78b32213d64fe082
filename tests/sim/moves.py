"""A group that is moved about while everything goes wrong: by whom, what it is given, and what must be true of that.

What was given out before a seek is void after it; after the last one, to the earliest message, it is a group like any
other.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sim.checkers import Ack, History, Outcome, Send, Terms
from sim.clients import Consuming, draw_client
from sim.seal import EPOCH_S
from sim.world import Env
from tidemill import Client
from tidemill.errors import Refused, TidemillError
from tidemill.message import Message
from tidemill_wire.lanes import split_lane

if TYPE_CHECKING:
    from sim.inherited import Inherited
    from sim.steered import Steered

MOVED = "moved"
PATIENCE_S = 100.0
TRIES_MAX = 1000


@dataclass(slots=True)
class Move:
    """A seek, with what became of it."""

    subject: str
    invoked_s: float
    ended_s: float = 0.0
    outcome: Outcome = Outcome.UNKNOWN
    lane: int | None = None
    """A sequence says nothing of lanes other than its own."""

    def concerns(self, send: Send) -> bool:
        """Whether a message was moved over."""
        return send.subject == self.subject and self.lane in (None, send.priority)


class Moves:
    """The moves of the group, and all that it was given."""

    def __init__(self, history: History) -> None:
        self.history = History()
        self.history.sends = history.sends
        self.made: list[Move] = []
        self.sought_s: dict[str, float] = {}
        """When the broker moved the group last, by subject."""
        self.asked_s: dict[int, float] = {}
        """When the broker granted what an ack of the group is about."""

    def sought(self, partition: str, now_s: float) -> None:
        """The broker moves it in a partition, or in a lane of one."""
        self.sought_s[split_lane(partition)[0]] = now_s

    def since_last(self) -> History:
        """What happened to the group after each subject's last seek."""
        sends, never = self.history.sends, float("inf")
        deliveries = [
            one for one in self.history.deliveries if one.asked_s >= self.sought_s.get(one.subject, never)
        ]
        acks = [
            ack
            for ack in self.history.acks
            if self.asked_s[id(ack)] >= self.sought_s.get(sends[ack.message].subject, never)
        ]
        return History(sends, deliveries, acks)

    def void_acks(self, terms: Terms) -> list[str]:
        """What was given out before a seek was asked for cannot be acked after it was answered."""
        problems: list[str] = []
        for move in self.made:
            as_ack = Ack(MOVED, "", "", move.invoked_s, move.outcome, move.ended_s)
            if move.outcome is not Outcome.OK:
                continue
            problems += [
                f"void: {ack.place} was given out at {self.asked_s[id(ack)]:.6f} s and acked at {ack.ended_s:.6f} s, "
                f"though its group was moved between {move.invoked_s:.6f} s and {move.ended_s:.6f} s"
                for ack in self.history.acks
                if ack.outcome is Outcome.OK
                and move.concerns(send := self.history.sends[ack.message])
                and self.asked_s[id(ack)] < move.invoked_s
                and ack.invoked_s > move.ended_s
                and not terms.may_be_lost(send.promise, as_ack)
            ]
        return problems


class Moving(Consuming):
    """Consumes a group that is moved, and remembers by which pull it got what it acks."""

    def __init__(self, cluster: Steered | Inherited) -> None:
        super().__init__(cluster, MOVED, cluster.moves.history)
        self._moves = cluster.moves

    def _begin(self, env: Env, message: Message) -> Ack:
        ack = super()._begin(env, message)
        pull = message._delivery.pull_sequence + message._index
        self._moves.asked_s[id(ack)] = self._cluster.granted.get(pull, 0.0)
        return ack


class Mover:
    """Moves the group about until the world is quiet; then to the earliest message, for good."""

    def __init__(self, cluster: Steered | Inherited) -> None:
        self._cluster = cluster

    async def run(self, env: Env) -> None:
        client = draw_client(env, self._cluster.fetch)
        rng = env.rng
        subjects = self._cluster.groups[MOVED].subjects
        while not env.quiet.is_set():
            await asyncio.sleep(rng.expovariate(2.0))
            moment = datetime.fromtimestamp(EPOCH_S + env.loop.now * rng.random(), UTC)
            to = rng.choice(("earliest", "latest", rng.randrange(50), moment))
            await self._move(env, client, rng.choice(subjects), to)
        for subject in subjects:
            async with asyncio.timeout(PATIENCE_S):
                await self._move_for_certain(env, client, subject)
        await client.close()
        self._cluster.finished.add(env.name)

    async def _move_for_certain(self, env: Env, client: Client, subject: str) -> None:
        for _ in range(TRIES_MAX):
            if await self._move(env, client, subject, "earliest"):
                return
            await asyncio.sleep(0.1)

    async def _move(self, env: Env, client: Client, subject: str, to: str | int | datetime) -> bool:
        rehearsal = env.rng.random() < 0.2 and not env.quiet.is_set()
        move = Move(subject, env.loop.now, lane=0 if isinstance(to, int) else None)
        try:
            await client.seek(subject, MOVED, to, rehearsal=rehearsal)
        except Refused:
            move.outcome = Outcome.FAILED  # nobody has pulled yet
        except TidemillError:
            pass
        else:
            move.outcome = Outcome.OK
        move.ended_s = env.loop.now
        if not rehearsal:
            self._cluster.moves.made.append(move)
        return move.outcome is Outcome.OK
