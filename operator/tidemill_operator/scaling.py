"""How long a consumer group needs to drain, and how many consumers it should have. On paper.

A group's numbers have each message in one place: to be given out, in flight, to be tried again, dead, or acked. So
their sum grows by what arrives, and what is acked or dead is handled; two looks at them give both rates.

    arrives a second    what the sum grew by
    handled a second    what acked and dead letters grew by
    drains in           undone / (handled - arrives); never, when no more is handled than arrives
    one consumer can    the most that was handled a second by each, in any stretch that is remembered
    recommended         ceil((arrives + undone / wanted seconds) / one consumer can), within the bounds

What one consumer can is only seen while there is something to do, which is why the most counts. Nobody knows it before
anything was handled: then those that are there are enough, and one is when nobody is; where it is said for how many
undone messages there should be one more, as many as that makes. When nothing is undone and nothing comes nobody is
needed.

The ScaledObject that a ConsumerGroup has made, the operator's HTTP port and KEDA's external scaler all say this number.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

STRETCH_SECONDS = 5.0
"""Two looks that are nearer to each other say nothing of a rate."""
LOOKS_MAX = 32
REPLICAS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Figures:
    """A consumer group at a moment, all its brokers together."""

    at_s: float
    undone: int
    handled: int
    """Acked, and given up: since it was made, or a broker of it came or went."""
    consumers: int

    @property
    def arrived(self) -> int:
        return self.undone + self.handled


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person wants of the scaling of a group."""

    drain_seconds: float = 60.0
    least: int = 0
    most: int = 100
    undone_each: int | None = None
    """For so many that are undone one more, as long as nobody knows what one consumer can."""
    idle: int | None = None
    """When nothing is undone and nothing comes; ``least`` when absent."""

    def __post_init__(self) -> None:
        assert self.drain_seconds > 0
        assert 0 <= self.least <= self.most <= REPLICAS_MAX
        assert self.undone_each is None or self.undone_each > 0

    @property
    def at_rest(self) -> int:
        return self.least if self.idle is None else self.idle


@dataclass(frozen=True, slots=True)
class Advice:
    """What is known of a group, and what follows. ``None``: nobody knows it yet; of ``drains_in_s``: or never."""

    undone: int
    consumers: int
    arrives: float | None
    handled: float | None
    drains_in_s: float | None
    replicas: int

    @property
    def is_active(self) -> bool:
        """Whether anybody has to be there."""
        return self.undone > 0 or bool(self.arrives)


class Course:
    """The looks at one group, the newest last."""

    def __init__(self) -> None:
        self._looks: deque[Figures] = deque(maxlen=LOOKS_MAX)

    def look(self, figures: Figures) -> None:
        """What was seen now. Numbers that have become smaller are of other brokers than those before."""
        last = self._looks[-1] if self._looks else None
        if last is not None and (figures.handled < last.handled or figures.arrived < last.arrived):
            self._looks.clear()
        elif len(self._looks) > 1 and self._looks[-1].at_s - self._looks[-2].at_s < STRETCH_SECONDS:
            self._looks.pop()  # too near to the one before to say anything by itself
        self._looks.append(figures)

    def advice(self, wanted: Wanted) -> Advice:
        """By all that was seen."""
        now = self._looks[-1]
        stretch = next((one for one in reversed(self._looks) if now.at_s - one.at_s >= STRETCH_SECONDS), None)
        if stretch is None:
            return Advice(
                now.undone, now.consumers, None, None, None, _bounded(_unlearned(now, wanted), wanted)
            )
        passed_s = now.at_s - stretch.at_s
        arrives = (now.arrived - stretch.arrived) / passed_s
        handled = (now.handled - stretch.handled) / passed_s
        can = self._one_can()
        wish = arrives + now.undone / wanted.drain_seconds
        replicas = _unlearned(now, wanted) if can <= 0 else max(1, math.ceil(wish / can - 1e-9))
        drains = 0.0 if not now.undone else now.undone / (handled - arrives) if handled > arrives else None
        needed = _bounded(replicas, wanted) if wish > 0 else wanted.at_rest
        return Advice(now.undone, now.consumers, arrives, handled, drains, needed)

    def _one_can(self) -> float:
        """Handled a second by each consumer, at most."""
        best = 0.0
        looks = list(self._looks)
        for place, later in enumerate(looks):
            earlier = next(
                (one for one in reversed(looks[:place]) if later.at_s - one.at_s >= STRETCH_SECONDS), None
            )
            if earlier is not None and (there := max(earlier.consumers, later.consumers)):
                rate = (later.handled - earlier.handled) / (later.at_s - earlier.at_s)
                best = max(best, rate / there)
        return best


def _unlearned(now: Figures, wanted: Wanted) -> int:
    """Nobody knows what one consumer can."""
    wished = 0 if wanted.undone_each is None else -(-now.undone // wanted.undone_each)
    return max(now.consumers, wished, 1 if now.undone else 0)


def of_nobody(wanted: Wanted) -> Advice:
    """For a group that nobody has consumed with yet."""
    return Advice(0, 0, None, None, None, wanted.at_rest)


def _bounded(replicas: int, wanted: Wanted) -> int:
    return max(wanted.least, min(wanted.most, replicas))


def figures_of(rows: Iterable[Mapping[str, Any]], subject: str, group: str, at_s: float) -> Figures | None:
    """From what brokers say of their consumer groups (``GET /v1/groups``); ``None``: none of them has the group. A
    consumer is connected to several brokers, and asks for several partitions.
    """
    mine = [row for row in rows if row["group"] == group and row["subject"].partition("#")[0] == subject]
    if not mine:
        return None
    undone = sum(row["lag"] + row["in_flight"] + row["failed"] for row in mine)
    handled = sum(row["acked"] + row["dead"] for row in mine)
    return Figures(at_s, undone, handled, max(row["consumers"] for row in mine))
