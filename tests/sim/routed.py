"""Two broker groups under a meta: what real clients promise when subjects lie on both, and everything goes wrong.

    a send that was answered       is in one log, once, and reaches the group
    a send whose fate is unknown   is in one log at most, once
    a send that failed as not stored is in none
    what fails while it is handled comes again, also when its broker is away: then from the other one

Each broker is a group of its own. Meta is ``samples.realms``: it does not travel over the simulated network; it is away
for some of the time, and it expands a subject's route. Messages with an order key lie where the route says and, each
being sent after the one before was answered, in their order. Those of a subject that is only tried do, unless their
client counted that some went elsewhere.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from samples.realms import Realm
from sim.autopsy import NOW_MS, image_of, read_batches
from sim.cluster import LONG_LEASE_MS, draw_settings
from sim.faults import Kind
from sim.kernel import make_lanes
from sim.spools import opener
from sim.world import Env, Phases, World
from tidemill import Client
from tidemill.errors import BrokerUnreachable, OutcomeUnknown, TidemillError, Unavailable
from tidemill.settings import ClientSettings
from tidemill_broker.doors import Service, recover
from tidemill_broker.machine import Broker
from tidemill_wire.ordering import Chart
from tidemill_wire.routes import PartitionSet

PORT = 7400
SERVERS = ("s1", "s2")
GROUPS = dict(zip(SERVERS, ("g1", "g2"), strict=True))
META = "meta"
TRIED = "tried"
SUBJECTS = ("both", "grows", "one", TRIED)
BOTH_WIDE = ("g1", "g2", "g1/both#1", "g2/both#2", "g2/both#3")
GROWN_WIDE = ("g1", "g1/grows#1", "g2/grows#2")
"""The second broker group has no partition of the subject's own name."""
KEYS = ("k1", "k2", "k3", "k4")
GAP_S = 0.1
FAILS = 0.15
"""Of what is begun: told to its broker, or with the whole message to the other one when that is away."""


@dataclass
class Fate:
    """What became of a send: stored once, perhaps, or not at all."""

    least: int
    most: int


class Routed:
    """The scenario."""

    servers = SERVERS
    kinds = (
        *(Kind.KILL, Kind.KILL_AT_OPERATION, Kind.POWER_CUT, Kind.PARTITION, Kind.CLOG, Kind.RESET),
        *(Kind.RESET_AT_SEGMENT, Kind.PAUSE, Kind.SLOW_CPU, Kind.SLOW_DISK),
    )
    probes = ("spread", "further", "meta_away", "failed_sends", "unordered", "tried_in_order", "adopted")

    def __init__(self, seed: str) -> None:
        rng = random.Random(f"{seed}/routed")
        self.phases = Phases(warm_up_s=0.5, faults_s=rng.choice((3.0, 6.0)), drain_max_s=150.0)
        self.settings = replace(
            draw_settings(seed), durability="high", retention_seconds=72 * 3600, free_space_min_percent=0,
            lease_ms=rng.choice((1_000, LONG_LEASE_MS)),
        )  # fmt: skip
        self.begins_flat = rng.random() < 0.3
        """At first brokers list themselves, and meta comes later: until then order keys lie where that leads."""
        self.realm = Realm(flat=self.begins_flat)
        self.wide = rng.random() < 0.6
        """``both`` has several partitions on each broker group, and ``grows`` gets some."""
        self.realm.route("both", *(BOTH_WIDE if self.wide else ("g1", "g2")))
        self.realm.route("grows", "g1")
        self.realm.route(TRIED, "g1", "g2/tried#1", "g2/tried#2", strategy="BestTried")
        self.realm.route("one", "g1" if self.begins_flat else "g2")
        self.producers = tuple(f"p{number}" for number in range(1, rng.randrange(2, 4)))
        self.clients = (*self.producers, "c1", "c2", META)
        self.fates: dict[str, Fate] = {}
        self.given: Counter[str] = Counter()
        self.finished: set[str] = set()
        self.order: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
        """What was answered, by producer, subject and key."""
        self.unordered: dict[str, int] = {}
        """By producer, how many went elsewhere."""
        self._rng = rng
        self._world: World

    def build(self, world: World) -> None:
        self._world = world
        for name in SERVERS:
            if name == SERVERS[0] or not self.begins_flat:  # a broker that lists itself knows of no other
                self.realm.serve(GROUPS[name], PORT, host=name)
            world.add_server(name, self._serve)
        for name in self.producers:
            world.add_client(name, self._produce)
        for name in ("c1", "c2"):
            world.add_client(name, self._consume)
        world.add_client(META, self._govern)

    def drained(self) -> bool:
        wanted = [name for name, fate in self.fates.items() if fate.least]
        return self.finished >= set(self.producers) and all(self.given[name] for name in wanted)

    # -- nodes -------------------------------------------------------------------------------------------------

    async def _serve(self, env: Env) -> None:
        settings = replace(self.settings, name=f"{GROUPS[env.name]}-0")
        broker, _ = recover(env.disk, settings, env.clock.now_ms())
        self._watch(broker, env)
        service = Service(broker, env.disk, make_lanes(kernel=env.life % 2 == 0), env.clock)
        await service.listen("0.0.0.0", PORT)
        await service.failed
        raise SystemExit(1)

    def _watch(self, broker: Broker, env: Env) -> None:
        """A life of a broker begins."""

    async def _govern(self, env: Env) -> None:
        """Meta comes and goes, and one route grows."""
        await asyncio.sleep(env.rng.uniform(0.3, 3.0))
        self.realm.flat = False
        for name in SERVERS:
            self.realm.serve(GROUPS[name], PORT, host=name)
        self.realm.route("grows", *(GROWN_WIDE if self.wide else ("g1", "g2")), former=[("g1",)])
        while not env.quiet.is_set():
            await asyncio.sleep(env.rng.expovariate(1.0))
            self.realm.away = not self.realm.away
            self._world.probes["meta_away"] += self.realm.away
            self.realm.changed()
        self.realm.away = False
        self.realm.changed()

    def _client(self, env: Env, spool: str | None = None) -> Client:
        rng = env.rng
        settings = ClientSettings(
            linger_ms=rng.choice((0, 3)),
            batch_bytes=rng.choice((300, 5_000, 1 << 20)),
            memory_bytes_max=rng.choice((4_000, 64 << 20)),
            send_timeout_s=rng.choice((1.0, 4.0, 30.0)),
            connect_timeout_s=rng.choice((1.0, 5.0)),
            dead_peer_s=rng.choice((1.0, 9.0)),
            backoff_max_s=rng.choice((0.2, 2.0)),
            spool_after_s=rng.choice((0.05, 0.5)),
            prefetch_messages=rng.choice((5, 1 << 17)),
            pull_wait_ms=rng.choice((100, 15_000)),
            routes_poll_s=rng.choice((1.0, 30.0)),
            random=random.Random(rng.getrandbits(64)),
            now_ms=env.clock.now_ms,
            stay_awake=False,
            seconds=env.clock.seconds,
            open_port=self.realm.open_port,
            open_ack_file=opener(env.disk),
        )
        return Client("m1:7401", settings=settings, spool=spool)

    async def _produce(self, env: Env) -> None:
        client = self._client(env)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_many(env, client))
            for key in KEYS[: env.rng.randrange(1, len(KEYS) + 1)]:
                for subject in ("both", TRIED):
                    tasks.create_task(self._send_in_order(env, client, subject, key))
        self.unordered[env.name] = client.unordered
        self._world.probes["unordered" if client.unordered else "tried_in_order"] += 1
        await client.close()
        self.finished.add(env.name)

    async def _send_many(self, env: Env, client: Client) -> None:
        number = 0
        while not env.quiet.is_set():
            names = [f"{env.name}.{number + at}" for at in range(env.rng.randrange(1, 8))]
            number += len(names)
            subject = env.rng.choice(SUBJECTS)
            if env.rng.random() < 0.5:
                await asyncio.gather(*(self._send(env, client, subject, name) for name in names))
            else:
                await self._send_all(client, subject, names)
            await asyncio.sleep(env.rng.expovariate(1.0 / GAP_S))

    async def _send_in_order(self, env: Env, client: Client, subject: str, key: str) -> None:
        number = 0
        while not env.quiet.is_set():
            number += 1
            name = f"{env.name}/{subject}/{key}/{number}"
            if await self._send(env, client, subject, name, key):
                self.order[env.name, subject, key].append(name)
            await asyncio.sleep(env.rng.expovariate(1.0 / (2 * GAP_S)))

    async def _send(self, env: Env, client: Client, subject: str, name: str, key: str | None = None) -> bool:
        fate = self.fates[name] = Fate(0, 1)
        body = name.encode() + b"|" + env.rng.randbytes(env.rng.choice((0, 30, 400)))
        try:
            await client.send(subject, body, order_key=key)
        except OutcomeUnknown:
            return False
        except (BrokerUnreachable, Unavailable):
            fate.most = 0
            self._world.probes["failed_sends"] += 1
            return False
        fate.least = 1
        return True

    async def _send_all(self, client: Client, subject: str, names: list[str]) -> None:
        self.fates |= {name: Fate(0, 1) for name in names}
        try:
            await client.send_many(subject, [name.encode() + b"|" for name in names])
        except (OutcomeUnknown, BrokerUnreachable, Unavailable):
            return
        for name in names:
            self.fates[name].least = 1

    async def _consume(self, env: Env) -> None:
        while True:
            client = self._client(env)
            until_s = env.loop.now + env.rng.choice((1.0, 1e9))
            async with client.consume(SUBJECTS, group="g") as messages:
                async for message in messages:
                    try:
                        if env.rng.random() < FAILS:
                            if not env.quiet.is_set():
                                await asyncio.sleep(env.rng.choice((0.0, env.rng.random())))
                            await message.nack(delay=env.rng.choice((None, 0.0, 0.5)), reason="not now")
                        else:
                            self.given[message.body.partition(b"|")[0].decode()] += 1
                            await message.ack()
                    except TidemillError:
                        continue  # it is given out again
                    if env.loop.now > until_s:
                        break
            await client.close()

    # -- at the end --------------------------------------------------------------------------------------------

    def check(self, world: World) -> list[str]:
        problems: list[str] = []
        stored: Counter[str] = Counter()
        for server, group in GROUPS.items():
            image = image_of(world.nodes[server].disk)
            broker, _ = recover(image.mount(), replace(self.settings, name=f"{group}-0"), NOW_MS)
            names = [
                (batch.partition, body.partition(b"|")[0].decode())
                for batch in read_batches(image.mount(), broker)
                for body in batch.bodies()
            ]
            graves = [name for subject, name in names if subject.startswith("%dead%")]
            world.probes["adopted"] += len(graves)
            problems += [f"invented: {name} was adopted" for name in graves if name not in self.fates]
            names = [(subject, name) for subject, name in names if not subject.startswith("%dead%")]
            stored.update(name for _, name in names)
            world.probes["spread"] += any(subject == "both" for subject, _ in names)
            world.probes["further"] += sum("#" in subject for subject, _ in names)
            if not self.begins_flat:
                for place in {subject for subject, _ in names}:
                    problems += self._order_problems(
                        group, place, [name for at, name in names if at == place]
                    )
        for name, count in stored.items():
            if name not in self.fates:
                problems.append(f"invented: {name}")
            elif count > self.fates[name].most:
                fate = "failed as not stored" if not self.fates[name].most else "sent once"
                problems.append(f"stored {count} times: {name} was {fate}")
        for name, fate in self.fates.items():
            if stored[name] < fate.least:
                problems.append(f"lost: {name} was answered and is in no log")
            if fate.least and not self.given[name]:
                problems.append(f"never given: {name}")
        return problems

    def _order_problems(self, group: str, partition: str, names: list[str]) -> list[str]:
        """Order keys lie where the route says, in the order of their answers."""
        places = {name: at for at, name in enumerate(names)}
        problems: list[str] = []
        for (producer, subject, key), answered in self.order.items():
            if subject == TRIED and self.unordered.get(producer):
                continue
            owner = Chart(PartitionSet.from_map(self.realm.routes[subject])).of(key)
            found = [places[name] for name in answered if name in places]
            if found != sorted(found):
                problems.append(f"out of order: {key} in {group}/{partition}")
            if found and owner.key != f"{group}/{partition}":
                problems.append(f"misplaced: {key} in {group}/{partition}")
        return problems


def make(seed: str) -> Routed:
    return Routed(seed)
