"""A world: nodes that live, die and come back, the faults of a plan, and the phases of a run.

Phases: warm-up, faults, **heal everything**, drain within bounded virtual time, linger (what comes too late comes now),
final checks. A ``Scenario`` says which nodes there are and what must hold; ``run_plan`` runs it once.

A server node is a supervised process: when ``serve(env)`` returns or raises it is gone, and is started again a little
later on the same disk. A client node runs its workload once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sim.disk import Mount, SimDisk
from sim.faults import Kind, Plan, draw_faults
from sim.injector import Injector
from sim.life import Life
from sim.loop import Deadlock, Livelock, SimLoop
from sim.network import Network
from sim.seal import EPOCH_S, sealed
from sim.weather import draw_weather

RESTART_MIN_S, RESTART_MAX_S = 0.05, 1.0
DRAIN_POLL_S = 0.05
EXITS_AFTER_HEAL_MAX = 3


@dataclass(frozen=True, slots=True)
class Phases:
    """Virtual seconds."""

    warm_up_s: float = 1.0
    faults_s: float = 8.0
    drain_max_s: float = 120.0
    linger_s: float = 1.0


class Clock:
    """Twin of the host's ``RealClock``: the wall is read when the process starts, from then on time only passes.

    A fault that steps a node's wall clock is therefore seen by the processes that start while it lasts.
    """

    __slots__ = ("_loop", "offset_ms")

    def __init__(self, loop: SimLoop, offset_ms: float) -> None:
        self._loop = loop
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        return int((EPOCH_S + self._loop.now) * 1000 + self.offset_ms)

    def seconds(self) -> float:
        return self._loop.now


@dataclass(frozen=True, slots=True)
class Env:
    """What a process is given. Everything it owns hangs off this or its own objects, never off a module."""

    name: str
    address: str
    life: int
    """1 for the first process of the node."""
    disk: Mount
    clock: Clock
    rng: random.Random
    loop: SimLoop
    quiet: asyncio.Event
    """Set at the heal: clients send nothing new from here on, and finish what they began."""


Serve = Callable[[Env], Awaitable[None]]


class Scenario(Protocol):
    """What runs on top. Made anew for each run, from the seed alone."""

    servers: Sequence[str]
    clients: Sequence[str]
    kinds: Sequence[Kind]
    """The faults that this cluster promises to survive."""
    probes: Sequence[str]
    """What must have come about in some of many seeds, besides."""
    phases: Phases

    def build(self, world: World) -> None:
        """``world.add_server`` and ``world.add_client`` for every name."""
        ...

    def drained(self) -> bool:
        """Asked often after the heal: nothing more is due."""
        ...

    def check(self, world: World) -> list[str]:
        """What was broken, in words. Runs after the end."""
        ...


@dataclass(slots=True, eq=False)
class Node:
    """A name, a host, a disk, how wrong its wall clock is, and who lives there now."""

    name: str
    serve: Serve
    is_client: bool
    disk: SimDisk
    wall_offset_ms: float = 0.0
    life: Life | None = None
    lives: int = 0
    seen_offset_ms: float = 0.0
    """What the process before this one took for its clock."""
    task: asyncio.Task[None] | None = None
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment at which a node lost power: what checkers need to know what may be lost."""

    at_s: float
    node: str


@dataclass(slots=True)
class Outcome:
    """What one run was."""

    plan: Plan
    crc: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    violations: list[str] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    exits: list[str] = field(default_factory=list)
    recent: list[str] = field(default_factory=list)


class World:
    """See the module. ``now_s``, ``cuts``, ``deaths`` and ``exits`` are for checkers."""

    def __init__(self, plan: Plan, phases: Phases) -> None:
        self.plan = plan
        self.phases = phases
        self.loop = SimLoop(plan.seed, plan.weather.order)
        self.network = Network(self.loop, plan.seed, plan.weather)
        self.nodes: dict[str, Node] = {}
        self.faults = Injector(self)
        self.probes: Counter[str] = Counter()
        self.cuts: list[Cut] = []
        self.deaths: list[Cut] = []
        """When processes ended, those that lost power among them."""
        self.exits: list[str] = []
        self.violations: list[str] = []
        self.healed_at_s: float | None = None
        self.quiet = asyncio.Event()
        self._rng = random.Random(f"{plan.seed}/world")
        self._exits_after_heal = 0
        self.network.add_host("world")
        self.loop.on_exit = self._process_exit

    @property
    def now_s(self) -> float:
        return self.loop.now

    def add_server(self, name: str, serve: Serve) -> Node:
        return self._add(name, serve, is_client=False)

    def add_client(self, name: str, run: Serve) -> Node:
        return self._add(name, run, is_client=True)

    def _add(self, name: str, serve: Serve, *, is_client: bool) -> Node:
        self.network.add_host(name)
        rng = random.Random(f"{self.plan.seed}/disk/{name}")
        disk = SimDisk(rng, self.plan.weather, self.loop.charge)
        node = self.nodes[name] = Node(name, serve, is_client, disk)
        return node

    # -- lives of nodes ----------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """A new process on the node's disk; nothing when one is alive."""
        node = self.nodes[name]
        if node.life is not None and node.life.alive:
            return
        self.network.power_back(name)
        node.lives += 1
        self._note_clock(node)
        life = node.life = Life(self.loop, name, node.lives)
        env = Env(
            name=name,
            address=self.network.hosts[name].address,
            life=node.lives,
            disk=node.disk.mount(),
            clock=Clock(self.loop, node.wall_offset_ms),
            rng=random.Random(f"{self.plan.seed}/app/{name}/{node.lives}"),
            loop=self.loop,
            quiet=self.quiet,
        )
        self.faults.derive(node)
        node.task = life.context.run(self._spawn, node, env)
        node.task.add_done_callback(lambda task: self._exited(node, life, task))

    def _note_clock(self, node: Node) -> None:
        """A step that no process starts under has not struck."""
        if not node.is_client and node.wall_offset_ms != node.seen_offset_ms:
            self.probes["clock_back" if node.wall_offset_ms < node.seen_offset_ms else "clock_forward"] += 1
        node.seen_offset_ms = node.wall_offset_ms

    def kill(self, name: str, back_after_s: float | None) -> bool:
        """kill -9: the kernel closes what was open, the page cache stays. False when nobody lived there."""
        return self._stop(self.nodes[name], back_after_s, power=False)

    def power_cut(self, name: str, back_after_s: float | None) -> bool:
        """Silence on the network, and only what was synced survives for certain."""
        return self._stop(self.nodes[name], back_after_s, power=True)

    def _stop(self, node: Node, back_after_s: float | None, *, power: bool) -> bool:
        if node.life is None or not node.life.alive:
            return False
        self.loop.end(node.life)
        self.deaths.append(Cut(self.now_s, node.name))
        if power:
            self.cuts.append(Cut(self.now_s, node.name))
            self.network.power_lost(node.name)
            node.disk.power_cut()
        else:
            self.network.process_died(node.name)
            node.disk.kill()
        if back_after_s is not None and not node.finished:
            self.loop.at(self.now_s + back_after_s, self._start_again, node, node.lives)
        return True

    def _start_again(self, node: Node, after: int) -> None:
        if node.lives == after:  # Else the heal was faster, and this one is somebody else's.
            self.start(node.name)

    def _spawn(self, node: Node, env: Env) -> asyncio.Task[None]:
        async def main() -> None:
            await node.serve(env)

        return self.loop.create_task(main(), name=f"{node.name}.{node.lives}")

    def _process_exit(self, life: Life) -> None:
        self._gone(self.nodes[life.node], SystemExit(life.exit_code))

    def _exited(self, node: Node, life: Life, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if life.alive and not self.loop.inert:
            self._gone(node, error)

    def _gone(self, node: Node, error: BaseException | None) -> None:
        node.finished = node.is_client
        if node.is_client and error is not None:
            self.violations.append(f"client {node.name} died at {self.now_s:.6f} s: {error!r}")
        if not node.is_client:
            self.exits.append(f"{self.now_s:.6f} s {node.name}: {error!r}")
            if self.healed_at_s is not None:
                self._exits_after_heal += 1
        self._stop(node, self._rng.uniform(RESTART_MIN_S, RESTART_MAX_S), power=False)

    def heal(self) -> None:
        """Everything works again, and who is down comes back."""
        self.faults.heal()
        for node in self.nodes.values():
            if not node.finished:
                self.start(node.name)
        self.healed_at_s = self.now_s
        self.quiet.set()

    # -- a run -------------------------------------------------------------------------------------------------

    async def play(self, scenario: Scenario) -> None:
        """All phases but the checks."""
        for name in self.nodes:
            self.start(name)
        for number, fault in enumerate(self.plan.faults):
            self.loop.at(fault.at_s, self.faults.begin, number, fault)
        await asyncio.sleep(self.phases.warm_up_s + self.phases.faults_s)
        self.heal()
        deadline = self.now_s + self.phases.drain_max_s
        while not scenario.drained():
            if self.now_s > deadline:
                self.violations.append(f"not drained {self.phases.drain_max_s} s after the heal")
                break
            await asyncio.sleep(DRAIN_POLL_S)
        await asyncio.sleep(self.phases.linger_s)
        for node in self.nodes.values():
            if node.life is not None and node.life.alive:
                self.loop.end(node.life)
            node.disk.kill()
        if self._exits_after_heal > EXITS_AFTER_HEAL_MAX:
            self.violations.append(f"{self._exits_after_heal} exits after the heal: {self.exits[-1]}")


def draw_plan(seed: str, scenario: Scenario) -> Plan:
    phases = scenario.phases
    faults = draw_faults(
        seed, scenario.kinds, scenario.servers, scenario.clients, phases.warm_up_s, phases.faults_s
    )
    return Plan(seed, draw_weather(seed), faults)


def run_plan(plan: Plan, make: Callable[[str], Scenario], *, trace: bool = False) -> Outcome:
    """One run, from nothing, in this process."""
    scenario = make(plan.seed)
    world = World(plan, scenario.phases)
    loop = world.loop
    loop.tracing = trace
    outcome = Outcome(plan)
    with sealed(loop, plan.seed):
        scenario.build(world)
        try:
            loop.run_until_complete(world.play(scenario))
        except (Deadlock, Livelock) as error:
            world.violations.append(f"{type(error).__name__}: {error}")
        outcome.crc, outcome.steps, outcome.virtual_s = loop.crc, loop.steps, loop.now
        outcome.recent = [f"{at:.6f} {node} {what}" for at, node, what in loop.recent]
        world.violations.extend(scenario.check(world))
        loop.dissolve()
    outcome.violations = world.violations + loop.errors
    outcome.exits = world.exits
    outcome.fired = world.faults.fired + world.network.probes + world.probes
    for node in world.nodes.values():
        outcome.fired += node.disk.probes
    return outcome
