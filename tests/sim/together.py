"""Order keys, an exclusive group and broadcast over broker groups that fail over, under the real meta.

Nothing stands in for anything: the clients ask three replicas of the real meta, as those of a cluster do, and send to
and consume from all broker groups at once. Two subjects lie on both of them.

    key      two or three workers by key: meta shares the partitions out among them
    one      two exclusive consumers: of each subject one of them at a time, over all broker groups
    cast     two broadcast consumers: each of them everything, in order

Each producer sends a key's messages one after the other, so the order of its answers is the order of the key. ``Turns``
looks at who handles what; the promises to a group that gets everything at least once are those of ``checkers``.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from sim.checkers import History, Outcome, keys_in_order, missing, violations
from sim.in_turn import CAST, EXCLUSIVE, KEYED, SUBJECTS, InTurn, Sending, WorkingByKey
from sim.metas import MetaPort
from sim.seats import RealmTerms, Seat
from sim.turns import Turns
from sim.weeding import Weeding
from sim.whole import GARDENER, METAS, PERSON, Whole
from sim.world import Env, Phases, World
from tidemill import Client
from tidemill.errors import BrokerUnreachable, TidemillError
from tidemill.settings import ClientSettings
from tidemill_meta.storing import Entry
from tidemill_meta.values import Allocation, Route
from tidemill_wire.declarations import API_VERSION
from tidemill_wire.ordering import Chart

CASTS = ("b1", "b2")
FOUNDER = "founder"
FOUND_EVERY_S = 0.3


class Together(Whole):
    """The scenario."""

    probes = (
        "failovers",
        "truncations",
        "wished_in",
        "hand_overs",
        "shared_out",
        "succeeded",
        "again",
        "failed",
        "drains",
    )

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        rng = random.Random(f"{seed}/together")
        self.phases = Phases(warm_up_s=3.0, faults_s=rng.choice((6.0, 10.0)), drain_max_s=200.0)
        self._settings = replace(
            self._settings,
            create_subjects=False,
            authorisation_ms=rng.choice((4_000, 6_000)),
            ordered_beat_ms=1_000,
        )
        self.seats = [self._seat(seed, f"g{number}") for number in range(2)]
        self.cells = list(self.seats)
        self._weeding = Weeding(self.cells[-1], METAS)
        for seat in self.seats:
            seat.chronicle.silence_s = self._settings.liveness_ms / 1000
        self.servers = (
            *(name for seat in self.seats for name in seat.servers),
            *self.servers[-len(METAS) - 1 :],
        )
        self.history = History()
        for seat in self.seats:
            seat.everything = self.history
        self.problems: list[str] = []
        self.finished: set[str] = set()
        self.charts: dict[str, Chart] = {}
        self.turns: Turns
        self._founded = asyncio.Event()
        self._producers = ("p1", "p2")[: rng.randrange(1, 3)]
        self._workers = ("w1", "w2", "w3")[: rng.randrange(2, 4)]
        self._consumers = {"e1": EXCLUSIVE, "e2": EXCLUSIVE} | dict.fromkeys(CASTS, CAST)
        self.clients = (*self._producers, *self._workers, *self._consumers, FOUNDER, PERSON, GARDENER)

    def _seat(self, seed: str, group: str) -> Seat:
        return Seat(seed, group)

    def build(self, world: World) -> None:
        super().build(world)
        self.turns = Turns(world, self.problems, lambda send: self._terms().may_be_lost(send.promise, send))
        world.add_client(FOUNDER, self._found)
        for name in self._producers:
            world.add_client(name, Sending(self).run)
        for name in self._workers:
            world.add_client(name, WorkingByKey(self).run)
        for name, group in self._consumers.items():
            world.add_client(name, InTurn(self, group).run)

    def drained(self) -> bool:
        if not super().drained() or not self.finished >= set(self._producers):
            return False
        return not any(missing(self.history, self._terms()))

    def check(self, world: World) -> list[str]:
        terms = self._terms()
        stored: Counter[str] = Counter()
        for seat in self.seats:
            stored += seat.stored()
        twice = [f"stored twice: {name}" for name, count in stored.items() if count > 1]
        lost = [
            f"lost: {send.message} is in no log"
            for send in self.history.sends.values()
            if send.outcome is Outcome.OK
            and send.message not in stored
            and not terms.may_be_lost(send.promise, send)
        ]
        mine = [*self.problems, *violations(self.history, terms), *keys_in_order(self.history, terms)]
        return mine + super().check(world) + twice + lost

    def note(self, probe: str) -> None:
        """It came about."""
        self._world.probes[probe] += 1

    def client(self, env: Env) -> Client:
        """A client of meta, whose patience is drawn."""
        rng = env.rng
        settings = ClientSettings(
            linger_ms=rng.choice((0, 3)),
            send_timeout_s=rng.choice((1.0, 4.0, 30.0)),
            connect_timeout_s=rng.choice((1.0, 5.0)),
            dead_peer_s=rng.choice((1.0, 3.0, 9.0)),
            backoff_max_s=rng.choice((0.2, 2.0)),
            prefetch_messages=rng.choice((1, 20, 1 << 17)),
            pull_wait_ms=rng.choice((100, 2_000, 15_000)),
            routes_poll_s=rng.choice((1.0, 30.0)),
            random=random.Random(rng.getrandbits(64)),
            now_ms=env.clock.now_ms,
            stay_awake=False,
            seconds=env.clock.seconds,
            open_port=lambda host, _port: MetaPort(self._calls, host),
        )
        return Client(",".join(f"{name}:7401" for name in rng.sample(METAS, len(METAS))), settings=settings)

    async def founded(self) -> None:
        """The subjects are there."""
        await self._founded.wait()

    def _terms(self) -> RealmTerms:
        groups = (KEYED, EXCLUSIVE, *(f"{CAST}.{name}" for name in CASTS))
        return RealmTerms(dict.fromkeys(SUBJECTS, groups), ack_promise=None, seats=self.seats)

    def _witness(self, entries: Sequence[Entry], now_s: float) -> None:
        super()._witness(entries, now_s)
        for entry in entries:
            if entry.kind == Route.KIND and entry.body is not None:
                self.charts[entry.name] = Chart(Route.from_map(entry.name, entry.version, entry.body).current)
            if entry.kind == Allocation.KIND:
                self._world.probes["shared_out"] += 1

    async def _found(self, env: Env) -> None:
        """Declare the subjects once each broker group has a master, so that they lie on all of them."""
        manifests = [
            {
                "apiVersion": API_VERSION,
                "kind": "Subject",
                "metadata": {"name": name},
                "spec": {"orderStrategy": "Strict"},
            }
            for name in SUBJECTS
        ]
        ports = [MetaPort(self._calls, name) for name in METAS]
        while not self._founded.is_set():
            await asyncio.sleep(FOUND_EVERY_S)
            port = env.rng.choice(ports)
            try:
                routes = await port.get("/v1/routes")
                if len(routes["brokers"]) == len(self.seats):
                    await port.post("/v1/declarations", manifests)
                    self._founded.set()
            except (BrokerUnreachable, TidemillError):
                continue  # the store is away, or a replica is


def make(seed: str) -> Together:
    return Together(seed)
