"""A delay group that brings its messages to two broker groups, each of which is away, or takes nothing, for some of the
time. What was answered is stored once in both together, whatever was on its way as a broker group or the delay group
got another master.

Meta is ``samples.realms``, and a node that says what it would: who is there, a moment late, and who takes messages now.
One subject begins with one broker group, and gets the other one while its messages come due.

Excused is what decision 0081 says: a message may be there twice when another life of the delay group looked for it
elsewhere than where the first one had sent it, because then its own broker group took nothing, or its subject was not
yet expanded.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Any

from samples.realms import Realm
from sim.calendars import Calendars
from sim.faults import Kind
from sim.later import BROKER, PORT, SUBJECTS
from sim.world import Env, World
from tidemill.settings import ClientSettings
from tidemill_delay.doors.finding import groups_of, ways_of
from tidemill_delay.doors.service import DelayService
from tidemill_delay.machine import Delay
from tidemill_delay.parcels import Parcel
from tidemill_delay.routing import home_of
from tidemill_wire.batch import read_header
from tidemill_wire.columns import Batch

OTHER, META = "s2", "meta"
GROUPS = {BROKER: "g0", OTHER: "g1"}
GROWS = SUBJECTS[1]
LOOKS_S = 0.3
"""How often meta looks who is there."""
ASKS_S = 0.5
"""How often a delay service asks meta."""
SHUT = 0.05
"""At each look, how likely a broker group takes nothing more, or takes messages again, as a person says."""


class Couriers(Calendars):
    """The scenario."""

    fails = 0.0
    brokers: Mapping[str, str] = {node: f"{group}-0" for node, group in GROUPS.items()}
    kinds = tuple(kind for kind in Calendars.kinds if kind is not Kind.DISK_FULL)
    """A broker whose disk is full tells meta so, which this one does not hear."""
    probes = ("failovers", "waiting_led", "shut", "waited")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        rng = random.Random(f"{seed}/couriers")
        self.servers = (BROKER, OTHER, *self._group)
        self.clients = (*self.clients, META)
        self.realm = Realm()
        self._shut: set[str] = set()
        self._grows_s = rng.uniform(0.5, self.phases.faults_s)
        self._broker_settings = replace(self._broker_settings, free_space_min_percent=0)
        self._lives = 0
        self._ways: defaultdict[bytes, dict[int, set[tuple[str, tuple[str, ...]]]]] = defaultdict(dict)
        """Of each batch and life, which broker groups it was meant for, and which there were."""
        self._batches: dict[bytes, bytes] = {}
        """Of each body."""

    def build(self, world: World) -> None:
        super().build(world)
        world.add_server(OTHER, self._serve_broker)
        world.add_client(META, self._govern)
        for node, group in GROUPS.items():
            self.realm.serve(group, PORT, host=node)
        for subject in SUBJECTS:
            groups = ("g0",) if subject == GROWS else ("g0", "g1")
            self.realm.route(subject, *groups)

    def _takes(self, batch: Batch) -> bool:
        self._batches |= dict.fromkeys(batch.bodies(), batch.header.batch_id)
        return super()._takes(batch)

    def _may_be_twice(self, body: bytes) -> bool:
        batch_id = self._batches[body]
        for one, other in permutations(self._ways[batch_id].values(), 2):
            for (home, takers), (elsewhere, others) in product(one, other):
                strayed = bool(takers) and home != home_of(batch_id, takers)
                if home != elsewhere and (strayed or takers != others):
                    self._world.probes["excused"] += 1
                    return True
        return False

    def _watch(self, machine: Any, delay: Delay, env: Env) -> None:
        super()._watch(machine, delay, env)
        courier: Any = delay.courier
        settle_home = courier._settle_home
        self._lives += 1
        life = self._lives

        def note_and_settle(parcel: Parcel, groups: Sequence[str]) -> None:
            settle_home(parcel, groups)
            ways = delay.courier.ways.get(parcel.subject)
            takers = tuple(ways.takers(parcel.subject)) if ways is not None else ()
            known = self._ways[read_header(parcel.batch).batch_id]
            known.setdefault(life, set()).add((parcel.home, takers))

        courier._settle_home = note_and_settle

    # -- meta --------------------------------------------------------------------------------------------------

    async def _govern(self, env: Env) -> None:
        """Say who leads, who is there, and who takes messages."""
        rng = random.Random(f"{env.name}/{env.life}")
        while True:
            if env.loop.now > self._grows_s and not self.realm.routes[GROWS]["former"]:
                self.realm.route(GROWS, "g0", "g1", former=[("g0",)])
            for group in GROUPS.values():
                if rng.random() < SHUT:
                    self._shut ^= {group}
                    self._world.probes["shut"] += 1
            if env.quiet.is_set():
                self._shut.clear()
            self._say_who_is_there()
            await asyncio.sleep(LOOKS_S * rng.uniform(0.5, 2.0))

    def _say_who_is_there(self) -> None:
        before = {group: row["state"] for group, row in self.realm.rows.items()}, dict(self.realm.delays)
        for node, group in GROUPS.items():
            life = self._world.nodes[node].life
            there = life is not None and life.alive and group not in self._shut
            self.realm.rows[group]["state"] = "RW" if there else "R"
        master = self._council.appointment.master
        if before[1].get("delay", {}).get("host") != master:
            self.realm.serve_later("delay", PORT, host=master)
        elif before[0] != {group: row["state"] for group, row in self.realm.rows.items()}:
            self.realm.changed()

    # -- a server ----------------------------------------------------------------------------------------------

    def _tell(self, service: DelayService) -> None:
        """Meta does."""

    def _bringing(self, env: Env, service: DelayService) -> list[Coroutine[Any, Any, None]]:
        return [self._find(env, service), *(service.reach(node, PORT) for node in GROUPS)]

    async def _find(self, env: Env, service: DelayService) -> None:
        """As ``doors/finding.py`` does."""
        while True:
            rows = self.realm.rows
            open_now = [group for group, row in rows.items() if "W" in row["state"]]
            for subject, route in self.realm.routes.items():
                service.found(subject, groups_of(route, open_now), ways_of(route, rows))
            brokers = service.delay.courier.brokers.values()
            self._world.probes["waited"] |= any(one.doubtful for some in brokers for one in some.waiting)
            await asyncio.sleep(ASKS_S * env.rng.uniform(0.5, 1.5))

    # -- clients -----------------------------------------------------------------------------------------------

    def _settings_of(self, env: Env) -> ClientSettings:
        return replace(super()._settings_of(env), open_port=self.realm.open_port)


def make(seed: str) -> Couriers:
    return Couriers(seed)
