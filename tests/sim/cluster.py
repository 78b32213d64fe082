"""The real broker and real clients in a world: what they promise, under all that a plan can do to them.

One server node runs ``recover`` and ``Service`` as ``tidemill up`` does, a failed disk ends the process, and every
turn of it ends in ``broker.check()``. Producers and consumers are ``clients``. Limits are tiny and drawn from the seed,
so that a few hundred messages seal segments, write checkpoints, end leases and forget consumers. What the broker grants
is noted as it decides it: a delivery is judged by that moment, not by when a client happened to ask.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from samples.searches import Search
from sim.autopsy import NOW_MS, examine, image_of, read_batches
from sim.checkers import Ack, History, PowerCut, Promise, Terms, missing, violations
from sim.clients import AWAKE_ONE_IN, TAGS, Consuming, Producing, routes
from sim.disk import SimDisk
from sim.faults import Kind
from sim.graveyard import Digging, Graveyard, Letter, dead_of, draw_policies, grave_problems, letters_in
from sim.hanging import LimitWatch, draw_limits
from sim.kernel import make_lanes
from sim.lanes import LaneWatch, draw_priorities
from sim.noting import before_applied
from sim.repeats import PROBES as REPEATS
from sim.repeats import watch_repeats
from sim.retention import Retention
from sim.rot import judge_refusal, may_rot, mended, message_log, unanswered
from sim.sparing import Sparing
from sim.world import Env, Phases, World
from tidemill_broker.actions import Action, Pulled
from tidemill_broker.doors import Service, recover
from tidemill_broker.machine import Broker
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.state import State
from tidemill_host.machine import Ready
from tidemill_journal.errors import JournalError
from tidemill_wire.declarations import API_VERSION, Declaration, parse_manifest
from tidemill_wire.filters import EVERYTHING, TagFilter, is_pattern, matches_pattern, parse_filter

PORT = 7400
SERVER = "s1"
LONG_LEASE_MS = 600_000
"""Longer than any drain: what a consumer does not know it has must not wait for the end of a lease."""
DIGGER = "digger"
SYNC_SLACK_S = 0.1
"""Between the moment a sync is due and the disk's answer, with nothing in its way."""
SUBJECTS = {"of.low": Promise.LOW, "of.normal": Promise.NORMAL, "of.high": Promise.HIGH}
UNDECLARED = "of.default"
LATE = "of.late"
"""Sent to only after a while, and named by nobody: patterns find it."""
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
        low_sync_interval_ms=random.Random(f"{seed}/low").choice((20, 500, 2_000, 10_000)),
        lease_ms=_draw_lease_ms(rng, seed),
        consumer_gone_ms=rng.choice((200, 1_000, 3_000)),
        free_space_min_percent=rng.choice((0, 5)),
        retention_seconds=_draw_retention_s(seed),
        retention_interval_ms=100,
        stay_awake=random.Random(f"{seed}/awake").randrange(AWAKE_ONE_IN) == 0,
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


@dataclass(frozen=True, slots=True)
class Wish:
    """What a group consumes: subjects or a pattern, and the tags it wants."""

    subjects: tuple[str, ...]
    wanted: TagFilter = EVERYTHING

    def has(self, subject: str) -> bool:
        return any(
            matches_pattern(name, subject) if is_pattern(name) else name == subject for name in self.subjects
        )


def draw_groups(seed: str, subjects: Sequence[str]) -> dict[str, Wish]:
    """Each group with its subjects: one takes all, the others some; maybe one those of a pattern, or of some tags."""
    rng = random.Random(f"{seed}/groups")
    groups = {"all": Wish(tuple(subjects))}
    for number in range(rng.randrange(3)):
        groups[f"some{number}"] = Wish(tuple(rng.sample(list(subjects), rng.randrange(1, len(subjects)))))
    rng = random.Random(f"{seed}/filters")
    if rng.random() < 0.4:
        groups["pattern"] = Wish((rng.choice(("of.*", "of.l*", "*")),))
    if rng.random() < 0.5:
        wanted = parse_filter(rng.sample(TAGS, rng.randrange(1, 3)), rng.random() < 0.5)
        groups["tagged"] = Wish(rng.choice((tuple(subjects), ("of.*",))), wanted)
    return groups


class Cluster:
    """The scenario."""

    servers = (SERVER,)
    fetch = staticmethod(routes)
    kinds = tuple(Kind)
    probes = (
        *("clock_back", "clock_forward", "retention_drops", "rot_refused", "rot_read"),
        *("bad_place_refused", "refused_read"),
        *("dead_letters", "died_again", "pauses", "purges", "redrives", "resumes"),
        *("lane_shares", "lane_waits", "held_too_long"),
        *("acks_spooled", "acks_told_by_another_client"),
        *REPEATS,
    )

    def __init__(self, seed: str) -> None:
        rng = random.Random(f"{seed}/cluster")
        self.phases = Phases(warm_up_s=0.3, faults_s=rng.choice((2.0, 4.0)), drain_max_s=800.0)
        self.settings = draw_settings(seed)
        self.history = History()
        self.promises = SUBJECTS | {UNDECLARED: Promise(self.settings.durability)}
        self.groups = draw_groups(seed, tuple(self.promises))
        self.promises[LATE] = Promise(self.settings.durability)
        self.priorities = draw_priorities(seed)
        self.granted: dict[int, float] = {}
        """When the broker decided each delivery, by its pull sequence."""
        self.problems: list[str] = []
        self.retention = Retention(self.history, self.problems)
        self.graveyard = Graveyard(self.problems)
        self.policies, self.outages = draw_policies(seed, tuple(self.groups), self.settings.lease_ms)
        self.policies = draw_limits(seed, self.policies)
        self._limits = LimitWatch(self.problems)
        self.finished: set[str] = set()
        self._producers = tuple(f"p{number}" for number in range(1, rng.randrange(2, 4)))
        self._consumers = {
            f"{group}-{number}": group for group in self.groups for number in range(rng.randrange(1, 3))
        }
        self.clients = (*self._producers, *self._consumers, DIGGER)
        self._seed = seed
        self.acks_kept: list[tuple[Ack, float]] = []
        """Those in spools, and since when."""
        self.rot_seen = 0  # messages that a consumer found to be damaged
        self._reigns: list[Reign] = []
        self._sparing = Sparing(seed)
        self._last: Broker | None = None
        self._served: list[Service] = []
        self._world: World

    def build(self, world: World) -> None:
        self._world = world
        disk = world.add_server(SERVER, self._serve).disk
        disk.may_rot = lambda: may_rot(disk, self.settings)
        disk.may_go_bad = lambda: message_log(disk)
        for name in self._producers:
            world.add_client(name, Producing(self).run)
        for name, group in self._consumers.items():
            world.add_client(name, self._consuming(group).run)
        world.add_client(DIGGER, Digging(self).run)

    def _consuming(self, group: str) -> Consuming:
        return Consuming(self, group)

    def has_spool(self, consumer: str) -> bool:  # and so keeps what it cannot tell
        return random.Random(f"{self._seed}/spool/{consumer}").random() < 0.5

    def note(self, probe: str) -> None:
        """It came about."""
        self._world.probes[probe] += 1

    def kept(self, ack: Ack, at_s: float) -> None:
        """A consumer's spool has it."""
        self.acks_kept.append((ack, at_s))
        self.note("acks_spooled")

    def drained(self) -> bool:
        terms = self._terms(self.graveyard.waiting())
        return self.finished >= set(self._producers) and not any(missing(self.history, terms))

    def check(self, world: World) -> list[str]:
        disk = world.nodes[SERVER].disk
        world.probes += self.retention.probes
        world.probes["held_too_long"] += self._limits.held_too_long
        world.probes["rot_read"] += self.rot_seen
        world.faults.fired.update(self.graveyard.fired)
        image = image_of(disk)
        try:
            broker, _ = recover(image.mount(), self.settings, NOW_MS)
        except JournalError as error:
            return [*self.problems, f"refused start: {error}"]
        letters = [one for batch in read_batches(image.mount(), broker) for one in letters_in(batch)]
        letters += self.graveyard.dropped(broker.state)
        terms = self._terms(dead_of(letters, broker.state, self.graveyard.purged))
        return (
            self.problems
            + unanswered(self._served, self.settings)
            + self._search_problems(disk)
            + violations(self.history, terms)
            + self._grave_problems(letters, broker.state, terms)
            + examine(disk, self.settings, self.history, terms)
        )

    def _grave_problems(self, letters: Sequence[Letter], state: State, terms: Terms) -> list[str]:
        """What must be true of dead letters at the end."""
        return grave_problems(letters, state, self.history, terms, purges=bool(self.graveyard.purged))

    def _search_problems(self, disk: SimDisk) -> list[str]:
        """What the last life had in memory, held against what it has left on the disk."""
        if self._last is None:
            return []
        return [
            f"the last life: {problem}" for problem in Search(self._last, image_of(disk).mount()).problems()
        ]

    def _terms(self, dead: AbstractSet[tuple[str, str]] = frozenset()) -> Terms:
        groups = {
            subject: tuple(group for group, wish in self.groups.items() if wish.has(subject))
            for subject in self.promises
        }
        within_s = self.settings.sync_interval_ms / 1000 + SYNC_SLACK_S
        wanted = {group: wish.wanted for group, wish in self.groups.items()}
        return Terms(
            groups, self._cuts(), within_s, self.retention.floors, None, wanted, dead | self._rotted()
        )

    def _rotted(self) -> set[tuple[str, str]]:
        """(group, message) of those whose body the disk took: what was copied into their graves has none."""
        if not any(self._world.faults.fired[kind.name] for kind in (Kind.BIT_ROT, Kind.BAD_PLACE)):
            return set()
        at = {send.place: send.message for send in self.history.sends.values()}
        return {(group, at[place]) for group, place in self.graveyard.unread if place in at}

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
        except OSError:
            self._world.probes["bad_place_refused"] += mended(env.disk.disk)
            raise
        disk = env.disk.disk  # who looks on from outside may read where the broker cannot
        self.graveyard.opened(image_of(disk).mount() if disk.refused else env.disk, broker)
        self._watch(broker, env)
        self._last = broker
        self.retention.watch(broker, env)
        lanes = make_lanes(kernel=len(self._reigns) % 2 == 1)  # every other life
        service = Service(broker, env.disk, lanes, env.clock)
        service.declare(self._declared())
        self._declare_groups(broker, env.clock.now_ms())
        await service.listen("0.0.0.0", PORT)
        self._reigns.append(Reign(env.loop.now, env.loop.now))
        self._served.append(service)
        self._opened(service, env)
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

    def _declared(self) -> list[Declaration]:  # to each life
        return declare_subjects()

    def _opened(self, service: Service, env: Env) -> None:
        """A life of the broker serves."""

    def _declare_groups(self, broker: Broker, now_ms: int) -> None:
        """Those that give up soon; on subjects that are there. The rest is made by the first pull."""
        for group, settings in self.policies.items():
            for subject in filter(self.groups[group].has, self.promises):
                partition = broker.state.by_name.get(subject.encode())
                if partition is not None:
                    broker.members.declare_group(partition, group, (0, 0), settings, now_ms)

    def _watch(self, broker: Broker, env: Env) -> None:
        """Check after each turn, and note what is granted, and what is asked twice."""
        watch_repeats(broker, self._world.probes)
        machine: Any = broker
        serving: Any = broker.serving
        ready, show = broker.ready, broker.serving.show
        lanes = LaneWatch(broker.state, self.problems, self._world.probes)
        self._limits.opened(broker.state, self._world)

        def check_and_ready() -> Ready:
            if self._sparing.due():
                broker.check()
            if self._reigns:
                self._reigns[-1].last_turn_s = env.loop.now
            return ready()

        def note(action: Action) -> None:
            self.graveyard.acts(action, env.loop.now)
            self._limits.acts(action, env.loop.now)
            if isinstance(action, Pulled):
                lanes.grants(action, env.clock.now_ms(), env.loop.now)
                self.problems += note_grants(self.granted, action, env.loop.now)

        def note_and_show(shown: Mapping[int, int], now_ms: int) -> None:
            lanes.shown = shown
            show(shown, now_ms)

        machine.ready = check_and_ready
        before_applied(broker.state, note)
        serving.show = note_and_show


def note_grants(granted: dict[int, float], action: Pulled, now: float) -> Iterator[str]:
    """Each pull sequence, with the time; what is wrong when one is given out twice."""
    for run in action.runs:
        for pull in range(run.pull, run.pull + run.messages):
            if pull in granted:
                yield f"reused pull: {pull} at {now:.6f} s"
            granted[pull] = now


def make(seed: str) -> Cluster:
    return Cluster(seed)
