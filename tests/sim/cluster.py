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

from samples.searches import Search
from sim.autopsy import examine, image_of
from sim.checkers import History, PowerCut, Promise, Terms, missing, violations
from sim.clients import Consuming, Producing
from sim.disk import SimDisk
from sim.faults import Kind
from sim.retention import Retention
from sim.rot import judge_refusal, may_rot
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
LONG_LEASE_MS = 600_000
"""Longer than any drain: what a consumer does not know it has must not wait for the end of a lease."""
SYNC_SLACK_S = 0.1
"""Between the moment a sync is due and the disk's answer, with nothing in its way."""
SUBJECTS = {"of.low": Promise.LOW, "of.normal": Promise.NORMAL, "of.high": Promise.HIGH}
UNDECLARED = "of.default"
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
        lease_ms=_draw_lease_ms(rng, seed),
        consumer_gone_ms=rng.choice((200, 1_000, 3_000)),
        free_space_min_percent=rng.choice((0, 5)),
        retention_seconds=_draw_retention_s(seed),
        retention_interval_ms=100,
    )


def _draw_retention_s(seed: str) -> int:
    rng = random.Random(f"{seed}/retention")
    return rng.choice((1, 2, 4)) if rng.random() < 0.3 else 72 * 3600


def _draw_lease_ms(rng: random.Random, seed: str) -> int:
    short_ms = rng.choice((300, 1_000, 3_000))
    return LONG_LEASE_MS if random.Random(f"{seed}/endless").random() < 0.2 else short_ms


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
    kinds = tuple(Kind)
    probes = ("clock_back", "clock_forward", "retention_drops", "rot_refused", "rot_read")

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
        self.retention = Retention(self.history, self.problems)
        self.finished: set[str] = set()
        self._producers = tuple(f"p{number}" for number in range(1, rng.randrange(2, 4)))
        self._consumers = {
            f"{group}-{number}": group for group in self.groups for number in range(rng.randrange(1, 3))
        }
        self.clients = (*self._producers, *self._consumers)
        self.rot_seen = 0
        """Messages that a consumer found to be damaged."""
        self._reigns: list[Reign] = []
        self._last: Broker | None = None
        self._world: World

    def build(self, world: World) -> None:
        self._world = world
        disk = world.add_server(SERVER, self._serve).disk
        disk.may_rot = lambda: may_rot(disk, self.settings)
        for name in self._producers:
            world.add_client(name, Producing(self).run)
        for name, group in self._consumers.items():
            world.add_client(name, Consuming(self, group).run)

    def drained(self) -> bool:
        return self.finished >= set(self._producers) and not any(missing(self.history, self._terms()))

    def check(self, world: World) -> list[str]:
        disk = world.nodes[SERVER].disk
        world.probes += self.retention.probes
        world.probes["rot_read"] += self.rot_seen
        terms = self._terms()
        return (
            self.problems
            + self._search_problems(disk)
            + violations(self.history, terms)
            + examine(disk, self.settings, self.history, terms)
        )

    def _search_problems(self, disk: SimDisk) -> list[str]:
        """What the last life had in memory, held against what it has left on the disk."""
        if self._last is None:
            return []
        return [
            f"the last life: {problem}" for problem in Search(self._last, image_of(disk).mount()).problems()
        ]

    def _terms(self) -> Terms:
        groups = {
            subject: tuple(group for group, subjects in self.groups.items() if subject in subjects)
            for subject in self.promises
        }
        within_s = self.settings.sync_interval_ms / 1000 + SYNC_SLACK_S
        return Terms(groups, self._cuts(), within_s, self.retention.floors, ack_promise=None)

    def _cuts(self) -> list[PowerCut]:
        world = self._world
        slow_s = world.nodes[SERVER].disk.slow_s
        stalls = [
            (
                fault.at_s,
                min(fault.at_s + fault.lasts_s, world.healed_at_s or world.now_s)
                + (slow_s if fault.kind is Kind.SLOW_DISK else 0.0),
            )
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
            problem = judge_refusal(env.disk.disk, error, self._world.probes)
            if problem:
                self.problems.append(problem)
            raise
        self._watch(broker, env)
        self._last = broker
        self.retention.watch(broker, env)
        lanes = Lanes(ThreadPoolExecutor(1), ThreadPoolExecutor(1), ThreadPoolExecutor(4))
        service = Service(broker, env.disk, lanes, env.clock)
        service.declare(declare_subjects())
        await service.listen("0.0.0.0", PORT)
        self._reigns.append(Reign(env.loop.now, env.loop.now))
        try:
            async with asyncio.timeout(env.rng.choice(TERMS_S)):
                await asyncio.shield(service.failed)
        except TimeoutError:
            if not env.quiet.is_set():
                self._last = None
                await service.drain()
                return
            await service.failed
        raise SystemExit(1)

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
