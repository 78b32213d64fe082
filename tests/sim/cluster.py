"""The real broker and real clients in a world: what they promise, under all that a plan can do to them.

One server node runs ``recover`` and ``Service`` as ``tidemill up`` does, a failed disk ends the process, and every
turn of it ends in ``broker.check()``. Producers and consumers are ``clients``. Limits are tiny and drawn from the seed,
so that a few hundred messages seal segments, write checkpoints, end leases and forget consumers. What the broker grants
is noted as it decides it: a delivery is judged by that moment, not by when a client happened to ask.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sim.autopsy import NOW_MS, examine, image_of, read_batches
from sim.checkers import History, PowerCut, Promise, Terms, missing, violations
from sim.clients import Consuming, Producing
from sim.faults import Kind
from sim.graveyard import Digging, Graveyard, dead_of, draw_policies, grave_problems, letters_in
from sim.world import Env, Phases, World
from tidemill_broker.actions import Action, Pulled
from tidemill_broker.doors import Service, recover
from tidemill_broker.machine import Broker
from tidemill_broker.settings import BrokerSettings
from tidemill_host.machine import Ready
from tidemill_host.persist import Lanes
from tidemill_journal.errors import JournalError
from tidemill_wire.declarations import API_VERSION, Declaration, parse_manifest

PORT = 7400
SERVER = "s1"
DIGGER = "digger"
SYNC_SLACK_S = 0.1
"""Between the moment a sync is due and the disk's answer, with nothing in its way."""
SUBJECTS = {"of.low": Promise.LOW, "of.normal": Promise.NORMAL, "of.high": Promise.HIGH}
UNDECLARED = "of.default"
HARMFUL = (Kind.BIT_ROT, Kind.CLOCK_STEP)
"""A single copy cannot survive rot, and leases are told in wall time."""
TERMS_S = (0.7, 2.0, None, None, None, None)
"""After so long a life of the broker is ended by SIGTERM; most are not."""
STALLS = (Kind.PAUSE, Kind.SLOW_CPU, Kind.SLOW_DISK)


@dataclass(slots=True)
class Reign:
    """One life of the broker, from when it serves until its last turn."""

    up_s: float
    last_turn_s: float


def draw_settings(seed: str) -> BrokerSettings:
    """Limits so small that everything happens."""
    rng = random.Random(f"{seed}/settings")
    return BrokerSettings(
        durability=rng.choice(("high", "normal", "low")),
        segment_bytes=rng.choice((1_000, 5_000, 30_000, 1 << 20)),
        segment_batches=rng.choice((2, 7, 40, 1 << 19)),
        action_segment_bytes=rng.choice((300, 2_000, 20_000, 1 << 20)),
        checkpoint_events=rng.choice((10, 50, 300, 10_000)),
        checkpoint_interval_ms=rng.choice((300, 1_000, 4_000)),
        checkpoint_pause_ms=rng.choice((50, 300, 1_000)),
        sync_interval_ms=rng.choice((20, 100, 500)),
        lease_ms=rng.choice((300, 1_000, 3_000)),
        consumer_gone_ms=rng.choice((200, 1_000, 3_000)),
        free_space_min_percent=rng.choice((0, 5)),
    )


def declare_subjects() -> list[Declaration]:
    return [
        parse_manifest(
            {
                "apiVersion": API_VERSION,
                "kind": "Subject",
                "metadata": {"name": name},
                "spec": {"config": [{"name": "durability", "value": promise.value}]},
            }
        )
        for name, promise in SUBJECTS.items()
    ]


def draw_groups(seed: str, subjects: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Each group with its subjects: one takes all, the others some."""
    rng = random.Random(f"{seed}/groups")
    groups = {"all": tuple(subjects)}
    for number in range(rng.randrange(3)):
        groups[f"some{number}"] = tuple(rng.sample(list(subjects), rng.randrange(1, len(subjects))))
    return groups


class Cluster:
    """The scenario."""

    servers = (SERVER,)
    kinds = tuple(kind for kind in Kind if kind not in HARMFUL)
    probes = ("dead_letters", "died_again", "pauses", "purges", "redrives", "resumes")

    def __init__(self, seed: str) -> None:
        rng = random.Random(f"{seed}/cluster")
        self.phases = Phases(warm_up_s=0.3, faults_s=rng.choice((2.0, 4.0)), drain_max_s=150.0)
        self.settings = draw_settings(seed)
        self.history = History()
        self.promises = SUBJECTS | {UNDECLARED: Promise(self.settings.durability)}
        self.groups = draw_groups(seed, tuple(self.promises))
        self.granted: dict[int, float] = {}
        """When the broker decided each delivery, by its pull sequence."""
        self.problems: list[str] = []
        self.graveyard = Graveyard(self.problems)
        self.policies, self.outages = draw_policies(seed, tuple(self.groups), self.settings.lease_ms)
        self.finished: set[str] = set()
        self._producers = tuple(f"p{number}" for number in range(1, rng.randrange(2, 4)))
        self._consumers = {
            f"{group}-{number}": group for group in self.groups for number in range(rng.randrange(1, 3))
        }
        self.clients = (*self._producers, *self._consumers, DIGGER)
        self._reigns: list[Reign] = []
        self._world: World

    def build(self, world: World) -> None:
        self._world = world
        world.add_server(SERVER, self._serve)
        for name in self._producers:
            world.add_client(name, Producing(self).run)
        for name, group in self._consumers.items():
            world.add_client(name, Consuming(self, group).run)
        world.add_client(DIGGER, Digging(self).run)

    def drained(self) -> bool:
        terms = self._terms(self.graveyard.waiting())
        return self.finished >= set(self._producers) and not any(missing(self.history, terms))

    def check(self, world: World) -> list[str]:
        disk = world.nodes[SERVER].disk
        world.faults.fired.update(self.graveyard.fired)
        image = image_of(disk)
        try:
            broker, _ = recover(image.mount(), self.settings, NOW_MS)
        except JournalError as error:
            return [*self.problems, f"refused start: {error}"]
        letters = [one for batch in read_batches(image.mount(), broker) for one in letters_in(batch)]
        purged = self.graveyard.purged
        terms = self._terms(dead_of(letters, broker.state, purged))
        return (
            self.problems
            + violations(self.history, terms)
            + grave_problems(letters, broker.state, self.history, terms, purges=bool(purged))
            + examine(disk, self.settings, self.history, terms)
        )

    def _terms(self, dead: set[tuple[str, str]]) -> Terms:
        groups = {
            subject: tuple(group for group, subjects in self.groups.items() if subject in subjects)
            for subject in self.promises
        }
        within_s = self.settings.sync_interval_ms / 1000 + SYNC_SLACK_S
        return Terms(groups, self._cuts(), within_s, ack_promise=None, dead=dead)

    def _cuts(self) -> list[PowerCut]:
        world = self._world
        stalls = [
            (fault.at_s, min(fault.at_s + fault.lasts_s, world.healed_at_s or world.now_s))
            for fault in world.plan.faults
            if fault.node == SERVER and fault.kind in STALLS
        ]
        moments = [cut.at_s for cut in world.cuts if cut.node == SERVER]
        return [PowerCut(at_s, SERVER, self._late(at_s, stalls)) for at_s in moments]

    def _late(self, at_s: float, stalls: Sequence[tuple[float, float]]) -> float:
        """For how long before a power cut the broker could not sync what it had answered."""
        spans = list(stalls)
        last_turn_s = 0.0
        for reign in self._reigns:
            spans.append((last_turn_s, reign.up_s))
            last_turn_s = reign.last_turn_s
        if last_turn_s < at_s:
            spans.append((last_turn_s, at_s))
        late_s = 0.0
        while True:
            start_s = at_s - self.settings.sync_interval_ms / 1000 - SYNC_SLACK_S - late_s
            inside = sum(max(0.0, min(end, at_s) - max(begin, start_s)) for begin, end in spans)
            if inside <= late_s + 1e-9:
                return late_s
            late_s = inside

    # -- the server --------------------------------------------------------------------------------------------

    async def _serve(self, env: Env) -> None:
        try:
            broker, _ = recover(env.disk, self.settings, env.clock.now_ms())
        except JournalError as error:
            self.problems.append(f"refused start: {error}")
            raise
        self.graveyard.opened(env.disk, broker)
        self._watch(broker, env)
        lanes = Lanes(ThreadPoolExecutor(1), ThreadPoolExecutor(1), ThreadPoolExecutor(4))
        service = Service(broker, env.disk, lanes, env.clock)
        service.declare(declare_subjects())
        self._declare_groups(broker, env.clock.now_ms())
        await service.listen("0.0.0.0", PORT)
        self._reigns.append(Reign(env.loop.now, env.loop.now))
        try:
            async with asyncio.timeout(env.rng.choice(TERMS_S)):
                await asyncio.shield(service.failed)
        except TimeoutError:
            if not env.quiet.is_set():
                await service.drain()
                return
            await service.failed
        raise SystemExit(1)

    def _declare_groups(self, broker: Broker, now_ms: int) -> None:
        """Those that give up soon; on subjects that are there. The rest is made by the first pull."""
        for group, settings in self.policies.items():
            for subject in self.groups[group]:
                partition = broker.state.by_name.get(subject.encode())
                if partition is not None:
                    broker.members.declare_group(partition, group, (0, 0), settings, now_ms)

    def _watch(self, broker: Broker, env: Env) -> None:
        """Check after each turn, and note what is granted."""
        machine: Any = broker
        state: Any = broker.state
        ready, apply = broker.ready, broker.state.apply

        def check_and_ready() -> Ready:
            broker.check()
            if self._reigns:
                self._reigns[-1].last_turn_s = env.loop.now
            return ready()

        def note_and_apply(action: Action) -> int:
            self.graveyard.acts(action, env.loop.now)
            if isinstance(action, Pulled):
                for run in action.runs:
                    for pull in range(run.pull, run.pull + run.messages):
                        if pull in self.granted:
                            self.problems.append(f"reused pull: {pull} at {env.loop.now:.6f} s")
                        self.granted[pull] = env.loop.now
            return apply(action)

        machine.ready = check_and_ready
        state.apply = note_and_apply


def make(seed: str) -> Cluster:
    return Cluster(seed)
