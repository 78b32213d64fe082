"""Faults are data: a plan is drawn from the seed before the run, printed, replayed, shrunk, and kept as a file.

Each fault says when, what, to whom, for how long and how hard; nothing about it is drawn while it happens. Faults
``at an operation`` are armed at their time and strike at the nth disk operation or segment from then on, for times
drawn uniformly miss the windows that matter. Which kinds are on is a swarm draw, p = .5 each; 5 % of seeds have none.
A fault heals by itself, by its own number, and overlapping faults do not heal each other.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum

from sim.weather import CALM, Weather

FAULTLESS_SEEDS = 0.05


class Kind(Enum):
    POWER_CUT = "power cut"
    POWER_CUT_AT_OPERATION = "power cut at a disk operation"
    POWER_CUT_ALL = "power cut of all nodes"
    KILL = "process kill"
    KILL_AT_OPERATION = "process kill at a disk operation"
    PAUSE = "process pause"
    SLOW_CPU = "slow processor"
    SLOW_DISK = "slow disk"
    PARTITION = "partition"
    CLOG = "clogged link"
    RESET = "connection reset"
    RESET_AT_SEGMENT = "connection reset at a segment"
    SYNC_ERROR = "failed sync"
    WRITE_ERROR = "failed write"
    READ_ERROR = "failed read"
    DISK_FULL = "full disk"
    BIT_ROT = "bit rot"
    BAD_PLACE = "bad place of a disk"
    CLOCK_STEP = "wall clock step"
    CLIENT_KILL = "kill of a client"


@dataclass(frozen=True, slots=True)
class Fault:
    """``value`` is the kind's own number: an operation, a factor, bytes, or milliseconds."""

    at_s: float
    kind: Kind
    node: str
    other: str = ""
    lasts_s: float = 0.0
    value: float = 0.0
    one_way: bool = False

    def __str__(self) -> str:
        other = f"{'>' if self.one_way else '='}{self.other}" if self.other else ""
        return f"{self.at_s:8.3f} s  {self.kind.value} {self.node}{other} for {self.lasts_s:.3f} s, {self.value:g}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a run depends on but the code."""

    seed: str
    weather: Weather = CALM
    faults: tuple[Fault, ...] = ()

    def to_json(self) -> str:
        faults = [asdict(fault) | {"kind": fault.kind.name} for fault in self.faults]
        return json.dumps({"seed": self.seed, "weather": asdict(self.weather), "faults": faults}, indent=1)


def plan_from_json(text: str) -> Plan:
    data = json.loads(text)
    faults = tuple(Fault(**(fault | {"kind": Kind[fault["kind"]]})) for fault in data["faults"])
    return Plan(data["seed"], Weather(**data["weather"]), faults)


@dataclass(frozen=True, slots=True)
class Draw:
    """How one kind is drawn: how many in 10 s of the fault phase, how long, and how hard."""

    per_10_s: float
    lasts_s: tuple[float, float] = (0.0, 0.0)
    value: tuple[float, float] = (0.0, 0.0)
    on_clients: bool = False


DRAWS: Mapping[Kind, Draw] = {
    Kind.POWER_CUT: Draw(1.5, (0.1, 3.0)),
    Kind.POWER_CUT_AT_OPERATION: Draw(3.0, (0.1, 3.0), (1, 300)),
    Kind.POWER_CUT_ALL: Draw(0.2, (0.1, 3.0)),
    Kind.KILL: Draw(1.5, (0.05, 2.0)),
    Kind.KILL_AT_OPERATION: Draw(2.0, (0.05, 2.0), (1, 300)),
    Kind.PAUSE: Draw(2.0, (0.01, 5.0), on_clients=True),
    Kind.SLOW_CPU: Draw(1.0, (0.5, 5.0), (5, 50), on_clients=True),
    Kind.SLOW_DISK: Draw(2.0, (0.1, 5.0), (10, 500)),
    Kind.PARTITION: Draw(2.0, (0.1, 8.0), on_clients=True),
    Kind.CLOG: Draw(3.0, (0.1, 5.0), on_clients=True),
    Kind.RESET: Draw(3.0, on_clients=True),
    Kind.RESET_AT_SEGMENT: Draw(3.0, (0.0, 0.0), (1, 200), on_clients=True),
    Kind.SYNC_ERROR: Draw(0.7, (0.0, 0.0), (1, 100)),
    Kind.WRITE_ERROR: Draw(0.5, (0.0, 0.0), (1, 100)),
    Kind.READ_ERROR: Draw(0.5, (0.0, 0.0), (1, 100)),
    Kind.DISK_FULL: Draw(0.5, (0.2, 3.0), (0, 20_000)),
    Kind.BIT_ROT: Draw(6.0),
    Kind.BAD_PLACE: Draw(4.0, (0.0, 0.0), (1, 1500)),
    Kind.CLOCK_STEP: Draw(1.0, (0.5, 5.0), (-3 * 3_600_000, 3 * 3_600_000), on_clients=True),
    Kind.CLIENT_KILL: Draw(2.0, (0.05, 3.0)),
}
"""Rates and ranges after research/simulation.md, section 9."""


def draw_faults(
    seed: str,
    kinds: Sequence[Kind],
    servers: Sequence[str],
    clients: Sequence[str],
    start_s: float,
    lasts_s: float,
) -> tuple[Fault, ...]:
    """The faults of one seed, in order of time."""
    rng = random.Random(f"{seed}/faults")
    if rng.random() < FAULTLESS_SEEDS or not servers:
        return ()
    drawn: list[Fault] = []
    for kind in kinds:
        own = random.Random(f"{seed}/faults/{kind.name}")  # So that one kind's draw does not move another's.
        if own.random() < 0.5:
            continue
        draw = DRAWS[kind]
        count = _count(own, draw.per_10_s * lasts_s / 10.0)
        drawn.extend(_draw_one(own, kind, draw, servers, clients, start_s, lasts_s) for _ in range(count))
    return tuple(sorted(drawn, key=lambda fault: (fault.at_s, fault.kind.name)))


def _draw_one(
    rng: random.Random,
    kind: Kind,
    draw: Draw,
    servers: Sequence[str],
    clients: Sequence[str],
    start_s: float,
    lasts_s: float,
) -> Fault:
    everyone = [*servers, *clients]
    node = rng.choice(everyone if draw.on_clients and rng.random() < 0.3 else servers)
    if kind is Kind.CLIENT_KILL:
        node = rng.choice(clients)
    others = [name for name in everyone if name != node]
    linked = kind in (Kind.PARTITION, Kind.CLOG, Kind.RESET)
    other = rng.choice([*others, "*"]) if linked and others else ""
    low, high = draw.lasts_s
    # Short ones are as likely as long ones: uniform in the exponent.
    lasts = low * (high / low) ** rng.random() if low else 0.0
    value_low, value_high = draw.value
    value = rng.uniform(value_low, value_high)
    if kind in (Kind.POWER_CUT_AT_OPERATION, Kind.KILL_AT_OPERATION, Kind.RESET_AT_SEGMENT):
        value = round(value_high ** rng.random())
    return Fault(
        at_s=round(start_s + rng.random() * lasts_s, 6),
        kind=kind,
        node=node,
        other=other,
        lasts_s=round(lasts, 6),
        value=float(round(value)),
        one_way=linked and rng.random() < 0.4,
    )


def _count(rng: random.Random, mean: float) -> int:
    """A whole number around ``mean``, at least one."""
    return max(1, int(mean * rng.uniform(0.3, 1.7) + rng.random()))


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """The smallest plan that still fails: delta debugging over the faults, then the weather calmed field by field."""
    if fails(replace(plan, faults=())):
        plan = replace(plan, faults=())
    pieces = 2
    while len(plan.faults) >= 2:
        smaller = _without_a_piece(plan, pieces, fails)
        if smaller is not None:
            plan, pieces = smaller, max(pieces - 1, 2)
        elif pieces >= len(plan.faults):
            break
        else:
            pieces = min(pieces * 2, len(plan.faults))
    for field in fields(Weather):
        calmer = replace(plan, weather=replace(plan.weather, **{field.name: getattr(CALM, field.name)}))
        if calmer != plan and fails(calmer):
            plan = calmer
    return plan


def _without_a_piece(plan: Plan, pieces: int, fails: Callable[[Plan], bool]) -> Plan | None:
    size = -(-len(plan.faults) // pieces)
    for start in range(0, len(plan.faults), size):
        smaller = replace(plan, faults=plan.faults[:start] + plan.faults[start + size :])
        if fails(smaller):
            return smaller
    return None
