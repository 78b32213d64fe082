"""The cluster with groups that are not shared, and groups that are moved while everything goes wrong.

order    two consumers, exclusive: at least once, in order, nothing begun without a lease
cast     two broadcast consumers: each of them the same, in a group of its own
once     two consumers, at most once: nothing comes twice
moved    two consumers, and a client that moves the group about: what was given out before a seek is void after it;
         after the last one, to the earliest message, it is a group like any other
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from sim.checkers import Ack, History, Outcome, Promise, Terms, missing, place_of, violations
from sim.clients import Consuming, Producing
from sim.cluster import SERVER, Cluster, Wish
from sim.faults import Kind
from sim.graveyard import Letter
from sim.moves import MOVED, Mover, Moves, Moving
from sim.noting import before_applied
from sim.rot import may_rot
from sim.weather import draw_weather
from sim.world import Env, World
from tidemill import Client
from tidemill.consumer import Consumer
from tidemill.errors import TidemillError
from tidemill.message import Message
from tidemill_broker.actions import (
    Action,
    Extended,
    FailedDeliveries,
    Pulled,
    Reason,
    Released,
    Sought,
    Voided,
)
from tidemill_broker.groups import Group
from tidemill_broker.machine import Broker
from tidemill_broker.state import State
from tidemill_wire.lanes import lane_name

ORDER, ONCE, CAST = "order", "once", "cast"
PAIR = (0, 1)
FAR_LEASE_MS_MIN = 1_000
"""Over a far link an answer and what is said to it take up to 0.48 s, and a renewal begins a third of a lease later."""


class InOrder(Consuming):
    """Consumes exclusively, or by broadcast, and looks at the order of what it begins."""

    def __init__(self, cluster: Steered, group: str) -> None:
        super().__init__(cluster, group)
        self._steered = cluster

    def _consume(self, client: Client, env: Env, name: str | None) -> Consumer:
        subjects = self._steered.groups[self._group].subjects
        if self._group == ORDER:
            return client.consume(subjects, group=ORDER, exclusive=True, name=name)
        return client.consume(subjects, group=CAST, broadcast=True, name=env.name)

    def _got(self, env: Env, message: Message) -> None:
        super()._got(env, message)
        steered, now_s = self._steered, env.loop.now
        pull = message._delivery.pull_sequence + message._index
        where = f"{env.name} began {message.subject}/{message.sequence} of {self._group} at {now_s:.6f} s"
        ended_s = steered.ended_s.get(pull)
        if ended_s is not None and ended_s < now_s:
            steered.problems.append(
                f"lease: {where}, though the lease of pull {pull} had ended at {ended_s:.6f} s"
            )
        key = (self._group, lane_name(message.subject, message.priority))  # in order within a priority
        begun = steered.begun.setdefault(key, set())
        if message.sequence not in begun and begun and message.sequence < max(begun):
            steered.problems.append(f"order: {where}, after {max(begun)}")
        begun.add(message.sequence)
        failed = steered.failed.get(key)
        if failed is not None and steered.is_gone(message.subject, failed):
            del steered.failed[key]  # the broker was away when it failed, and had it no more when it was back
        elif failed is not None and message.sequence > failed:
            steered.problems.append(f"order: {where}, and {failed} had failed and not come again")
        elif failed == message.sequence:
            del steered.failed[key]

    async def _nack(self, env: Env, whole: Any) -> None:
        first = whole.sequence if isinstance(whole, Message) else whole.first_sequence
        try:
            await whole.nack(delay=env.rng.choice((None, 0.0, 0.3)), reason="not now")
        except TidemillError:
            return
        self._steered.failed[self._group, lane_name(whole.subject, whole.priority)] = first


class Once(Consuming):
    """Consumes at most once."""

    def _consume(self, client: Client, env: Env, name: str | None) -> Consumer:
        return client.consume(self._cluster.groups[ONCE].subjects, group=ONCE, at_most_once=True, name=name)


class Steered(Cluster):
    """See the module."""

    kinds = tuple(kind for kind in Kind if kind is not Kind.BAD_PLACE)  # in order nothing may die here

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        subjects = tuple(self.promises)
        self.casts = {f"{CAST}-{number}": f"{CAST}.{CAST}-{number}" for number in PAIR}
        self.groups = dict.fromkeys((ORDER, ONCE, MOVED, *self.casts.values()), Wish(subjects))
        self.policies = {}
        if draw_weather(seed).far_links:
            # In order nothing is begun whose lease is not certain. One that ends on its way there and back is kept by
            # luck only; each time it is not, the message waits twice as long, at last for longer than a run lasts.
            self.settings = replace(
                self.settings,
                lease_ms=max(self.settings.lease_ms, FAR_LEASE_MS_MIN),
                consumer_gone_ms=max(self.settings.consumer_gone_ms, FAR_LEASE_MS_MIN),
            )
        self.moves = Moves(self.history)
        self.once = History()
        self.once.sends = self.history.sends
        self.begun: dict[tuple[str, str], set[int]] = {}
        self.failed: dict[tuple[str, str], int] = {}
        self.ended_s: dict[int, float] = {}
        """When the broker took back a delivery of a group in order."""
        self._until_s: dict[int, float] = {}
        """How long the lease of a delivery of a group in order was promised to run."""
        self._ended_early: set[tuple[int, float]] = set()
        """In which groups, and when, a lease was ended before its time."""
        self._given: dict[tuple[int, int], int] = {}
        pairs = [f"{group}-{number}" for group in (ORDER, ONCE, MOVED) for number in PAIR]
        self.clients = (*self._producers, *pairs, *self.casts, "mover")

    def is_gone(self, subject: str, sequence: int) -> bool:
        """Whether a message may have been taken by a power cut, or was by retention."""
        place, terms = place_of(subject, sequence), self._terms()
        sends = [send for send in self.history.sends.values() if send.place == place]
        return all(terms.may_be_lost(send.promise, send) or terms.expired(send) for send in sends)

    def build(self, world: World) -> None:
        self._world = world
        disk = world.add_server(SERVER, self._serve).disk
        disk.may_rot = lambda: may_rot(disk, self.settings)
        for name in self._producers:
            world.add_client(name, Producing(self).run)
        for number in PAIR:
            world.add_client(f"{ORDER}-{number}", InOrder(self, ORDER).run)
            world.add_client(f"{ONCE}-{number}", Once(self, ONCE, self.once).run)
            world.add_client(f"{MOVED}-{number}", Moving(self).run)
        for name, group in self.casts.items():
            world.add_client(name, InOrder(self, group).run)
        world.add_client("mover", Mover(self).run)

    def drained(self) -> bool:
        if not super().drained() or "mover" not in self.finished:
            return False
        return not any(missing(self.moves.since_last(), self._terms_of(MOVED)))

    def check(self, world: World) -> list[str]:
        return (
            super().check(world)
            + violations(self.moves.since_last(), self._terms_of(MOVED))
            + self.moves.void_acks(self._terms_of(MOVED))
            + list(self._twice())
        )

    def _grave_problems(self, letters: Sequence[Letter], state: State, terms: Terms) -> list[str]:
        """Nothing dies here, and what a seek passes over is in no sum."""
        del state, terms
        return [f"dead: {letter.message}" for letter in letters]

    def _terms(self, dead: AbstractSet[tuple[str, str]] = frozenset()) -> Terms:
        """For the groups that get everything at least once."""
        del dead
        return self._terms_of(ORDER, *self.casts.values())

    def _terms_of(self, *groups: str) -> Terms:
        return replace(super()._terms(), groups=dict.fromkeys(self.promises, groups))

    def _twice(self) -> Sequence[str]:
        """At most once: a place that was given out is not given out again, unless a power cut took the ack."""
        terms = self._terms()
        first: dict[str, Ack] = {}
        problems = []
        for delivery in sorted(self.once.deliveries, key=lambda one: one.asked_s):
            promise = self.promises.get(delivery.subject, Promise.LOW)
            earlier = first.get(delivery.place)
            if earlier is not None and not terms.may_be_lost(promise, earlier):
                problems.append(
                    f"twice: {delivery.place} came at {earlier.ended_s:.6f} s and at {delivery.at_s:.6f} s"
                )
            first[delivery.place] = Ack(ONCE, delivery.place, "", delivery.asked_s, Outcome.OK, delivery.at_s)
        return problems

    def _watch(self, broker: Broker, env: Env) -> None:
        """Note besides what is taken back in groups in order, and that one consumer at a time holds messages."""
        super()._watch(broker, env)

        def note(action: Action) -> None:
            now_s = env.loop.now
            if isinstance(action, FailedDeliveries | Released | Extended):
                self._note_lease(broker, action, now_s)
            if isinstance(action, Voided):  # what failed was taken by a power cut
                voided = broker.state.groups[action.group]
                self.failed.pop((voided.name, broker.state.partitions[voided.partition].name), None)
            if isinstance(action, Sought):
                partition = broker.state.partitions[broker.state.groups[action.group].partition]
                self.moves.sought(partition.name, now_s)
            if isinstance(action, Pulled):
                self._note_given(broker, action, now_s)

        before_applied(broker.state, note)

    def _note_lease(
        self, broker: Broker, action: FailedDeliveries | Released | Extended, now_s: float
    ) -> None:
        """A lease that a clock set forward ends at a start runs on for who has it. The start knows nothing of that, but
        it keeps all others out for as long; so it has not ended before its time. Nor have those behind it, which are
        taken back with it to keep the order.
        """
        consumer = broker.state.consumers[action.consumer]
        if not consumer.group.ordered:
            return
        held = [pull for one in consumer.held() for pull in range(one.pull, one.pull + one.count)]
        for pull in held:
            if not any(a <= pull <= b for a, b in _pairs(action.ranges)):
                continue
            if isinstance(action, Extended):
                self._until_s[pull] = now_s + self._lease_s(consumer.group)
                continue
            until_s = self._until_s.get(pull, now_s)
            if (
                isinstance(action, FailedDeliveries)
                and action.reason == Reason.LEASE_ENDED
                and until_s > now_s
            ):
                self._ended_early.add((consumer.group.identity, now_s))
            early = (consumer.group.identity, now_s) in self._ended_early
            self.ended_s.setdefault(pull, max(now_s, until_s) if early else now_s)

    def _lease_s(self, group: Group) -> float:
        return min(group.settings.lease_ms, self.settings.consumer_gone_ms) / 1000

    def _note_given(self, broker: Broker, action: Pulled, now_s: float) -> None:
        consumer = broker.state.consumers[action.consumer]
        group = consumer.group
        if not group.ordered:
            return
        family = broker.state.family(group)
        for other in (one for kin in family for one in kin.consumers.values()):
            if other.name != consumer.name and any(other.held()):
                self.problems.append(f"lock: {consumer.name} and {other.name} hold messages at {now_s:.6f} s")
        for run in action.runs:
            for index in range(run.messages):
                key = group.identity, run.first + index
                if key in self._given:  # a power cut may have made the broker forget that it was given out
                    self.ended_s.setdefault(self._given[key], now_s)
                self._given[key] = run.pull + index
                self._until_s[run.pull + index] = now_s + self._lease_s(group)


def _pairs(ranges: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(ranges[::2], ranges[1::2], strict=True))


def make(seed: str) -> Steered:
    return Steered(seed)
