"""What a new master inherits: consumer groups that people steer, while broker groups fail over.

    tagged   gets what has some tags
    frail    gives up soon, and for a while nothing can be handled: dead letters, and a pause; a digger redrives
    moved    is moved about: what was given out before a seek is void after it, whoever is master by then
    held     is suspended and resumed: between the two answers nobody gives it anything

Checked besides the promises of a broker group: those that the lone broker is held to in ``cluster`` and ``steered``, by
the same checkers; and that the state which a process had in memory, as a master or as a slave, is the one that its
disk gives to what it becomes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, cast

from sim.autopsy import NOW_MS, image_of, read_batches, state_of
from sim.checkers import Promise, Terms, missing, violations
from sim.clients import TAGS, Consuming, draw_client
from sim.cluster import LATE, SUBJECTS, Wish
from sim.disk import Mount
from sim.graveyard import Digging, Graveyard, dead_of, draw_policies, grave_problems, letters_in
from sim.moves import MOVED, Mover, Moves, Moving
from sim.noting import before_applied
from sim.replicated import Replicated, used
from sim.world import Env, World
from tidemill.errors import TidemillError
from tidemill_broker.actions import Action, Sought
from tidemill_broker.doors import Service, recover
from tidemill_broker.machine import Broker
from tidemill_broker.state import State
from tidemill_ledger.membership import FENCED
from tidemill_ledger.replication import Master
from tidemill_wire.filters import parse_filter

TAGGED, FRAIL, HELD = "tagged", "frail", "held"
DIGGER, MOVER, KEEPER = "digger", "mover", "keeper"
TRIES_MAX = 1000
GAP_S = 0.25


@dataclass(frozen=True, slots=True)
class Stillness:
    """From the answer to a suspension until somebody asked for its end."""

    subject: str
    begins_s: float
    ends_s: float


class Inherited(Replicated):
    """See the module."""

    probes = (
        *("failovers", "truncations", "begun_anew", "compared", "stillness"),
        *("dead_letters", "pauses", "purges", "redrives", "resumes"),
    )

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        rng = random.Random(f"{seed}/inherited")
        # What only its master had goes with it; that is looked at in ``replicated``.
        self.promises = {name: promise for name, promise in SUBJECTS.items() if promise is not Promise.LOW}
        self.promises[LATE] = Promise.NORMAL
        everything = Wish(tuple(self.promises))
        tagged = Wish(
            everything.subjects, parse_filter(rng.sample(TAGS, rng.randrange(1, 3)), rng.random() < 0.5)
        )
        self.groups = dict.fromkeys((TAGGED, FRAIL, MOVED, HELD), everything) | {TAGGED: tagged}
        drawn, self.outages = draw_policies(seed, (FRAIL,), self.settings.lease_ms)
        fallback = draw_policies(f"{seed}/again", (FRAIL,) * 8, self.settings.lease_ms)[0]
        self.policies = drawn or fallback
        self.moves = Moves(self.history)
        self.still: list[Stillness] = []
        self.graveyard = Graveyard(self.problems)
        self._graveyards = [self.graveyard]
        self._purged: set[tuple[str, int]] = set()
        """The dead letters that somebody purged, whoever was master."""
        self._consumers = (*(f"{group}-0" for group in self.groups), f"{FRAIL}-1")
        self._producers = self._producers[:1]
        self.gap_s = GAP_S
        self.clients = (*self._producers, *self._consumers, DIGGER, MOVER, KEEPER)

    def build(self, world: World) -> None:
        super().build(world)
        world.add_client(DIGGER, Digging(self).run)
        world.add_client(MOVER, Mover(self).run)
        world.add_client(KEEPER, Keeping(self).run)

    def _consuming(self, name: str) -> Consuming:
        group = name.partition("-")[0]
        return Moving(self) if group == MOVED else Consuming(self, group)

    def drained(self) -> bool:
        if not {MOVER, KEEPER} <= self.finished or not super().drained():
            return False
        return not any(missing(self.moves.since_last(), self._terms_of(MOVED, dead=self.graveyard.waiting())))

    def check(self, world: World) -> list[str]:
        for graveyard in self._graveyards:
            world.faults.fired.update(graveyard.fired)
        world.probes["stillness"] += len(self.still)
        return super().check(world)

    def _terms(self) -> Terms:
        """Of all groups but the one that is moved."""
        return self._terms_of(TAGGED, FRAIL, HELD, dead=self.graveyard.waiting())

    def _terms_of(self, *groups: str, dead: AbstractSet[tuple[str, str]] = frozenset()) -> Terms:
        wanted = {TAGGED: self.groups[TAGGED].wanted}
        return replace(
            super()._terms(), groups=dict.fromkeys(self.promises, groups), wanted=wanted, dead=dead
        )

    def _history_problems(self, terms: Terms) -> list[str]:
        moved = self._terms_of(MOVED, dead=terms.dead)
        return [
            *violations(self.history, terms),
            *violations(self.moves.since_last(), moved),
            *self.moves.void_acks(moved),
            *self._stirred(),
        ]

    def _master_problems(self, disk: Mount, broker: Broker, terms: Terms) -> list[str]:
        letters = [one for batch in read_batches(disk, broker) for one in letters_in(batch)]
        told = replace(terms, dead=dead_of(letters, broker.state, self._purged))
        frail = [one for one in letters if one.group == FRAIL]
        graves = grave_problems(
            frail, cast("State", Only(broker.state, FRAIL)), self.history, told, purges=bool(self._purged)
        )
        return super()._master_problems(disk, broker, terms) + graves

    def _stirred(self) -> list[str]:
        """What a suspended group was given."""
        return [
            f"stirred: {one.place} was given out at {one.asked_s:.6f} s, though its group was suspended from "
            f"{still.begins_s:.6f} s to {still.ends_s:.6f} s"
            for one in self.history.deliveries
            if one.group == HELD
            for still in self.still
            if still.subject == one.subject and still.begins_s < one.asked_s < still.ends_s
        ]

    # -- a server ----------------------------------------------------------------------------------------------

    def _declare(self, service: Service) -> None:
        super()._declare(service)
        broker = service.broker
        now_ms = service._clock.now_ms()
        for group, settings in self.policies.items():
            for subject in self.promises:
                partition = broker.state.by_name.get(subject.encode())
                if partition is not None:
                    broker.members.declare_group(partition, group, (0, 0), settings, now_ms)

    def _begins(self, broker: Broker, env: Env) -> None:
        self.graveyard.opened(env.disk, broker)

    def _ends(self, broker: Broker, env: Env) -> None:
        """What it had in memory, and what whoever begins here finds on the disk."""
        settings = replace(self.settings, name=env.name)
        found, _ = recover(image_of(env.disk.disk).mount(), settings, NOW_MS, FENCED)
        copied = not broker.state.partitions  # a slave that copies applies nothing before it begins anew
        if copied or found.logs.actions.end != broker.logs.actions.end:
            return
        self._world.probes["compared"] += 1
        there = used(state_of(found))
        self.problems += [
            f"inherited: {part} of {env.name} was {value} at {env.loop.now:.6f} s, its disk has {there[part]}"
            for part, value in used(state_of(broker)).items()
            if there[part] != value
        ]

    def _watch(self, machine: Any, env: Env) -> None:
        super()._watch(machine, env)
        if not isinstance(machine, Master):
            return
        graveyard = self.graveyard = Graveyard(self.problems)
        graveyard.purged = self._purged
        self._graveyards.append(graveyard)
        state: Any = machine.inner.state

        def note(action: Action) -> None:
            graveyard.acts(action, env.loop.now)
            if isinstance(action, Sought):
                self.moves.sought(state.partitions[state.groups[action.group].partition].name, env.loop.now)

        before_applied(state, note)


class Only:
    """What a broker knows of one consumer group."""

    def __init__(self, state: State, name: str) -> None:
        self.partitions, self.by_name, self.group_of = state.partitions, state.by_name, state.group_of
        self.groups = {identity: group for identity, group in state.groups.items() if group.name == name}


class Keeping:
    """A node that suspends a group and lets it go on, until the world is quiet; then it goes on for good."""

    def __init__(self, cluster: Inherited) -> None:
        self._cluster = cluster

    async def run(self, env: Env) -> None:
        client = draw_client(env, self._cluster.fetch)
        rng = env.rng
        subjects = tuple(self._cluster.promises)
        certain = dict.fromkeys(subjects, True)
        while not env.quiet.is_set():
            await asyncio.sleep(rng.expovariate(2.0))
            subject = rng.choice(subjects)
            if await self._ask(client.suspend(subject, HELD)):
                begins_s = env.loop.now
                await asyncio.sleep(rng.uniform(0.1, 1.5))
                if certain[subject]:
                    self._cluster.still.append(Stillness(subject, begins_s, env.loop.now))
            if not await self._ask(client.resume(subject, HELD)):
                certain[subject] = False  # it may be heard at any time from now on
        for subject in subjects:
            for _ in range(TRIES_MAX):
                if await self._ask(client.resume(subject, HELD)):
                    break
                await asyncio.sleep(0.1)
        await client.close()
        self._cluster.finished.add(env.name)

    async def _ask(self, asked: Any) -> bool:
        try:
            await asked
        except TidemillError:
            return False
        return True


def make(seed: str) -> Inherited:
    return Inherited(seed)
