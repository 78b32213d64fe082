"""How a cluster or a lone queue stands, read once: what `tidemill doctor`, `top` and the `show` commands judge.

Values only. ``reading.py`` makes them, the checks and screens take them, and neither asks anybody again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from tidemill_wire.fields import living_subject

Row: TypeAlias = Mapping[str, Any]

NUMBER = re.compile(r"^([a-z_]+(?:\{[^}\n]*\})?) (-?[0-9.e+-]+)$", re.MULTILINE)
REASON = re.compile(r'reason="([^"]*)"')
SUMS = ("lag", "in_flight", "failed", "dead", "acked")


class System(NamedTuple):
    """What a process says of itself at ``/v1/system``, and how far its clock is from ours."""

    version: str
    pid: int
    files_open: int
    files_max: int
    memory_bytes: int
    began_ms: int
    ahead_ms: int
    """Of the clock of whoever looks; behind when negative."""
    unsure_ms: int
    """The answer took so long: the clock may be as much nearer or further."""
    cpu_ms: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """One process that serves: a broker, a delay service, or meta."""

    service: str
    """broker, delay or meta."""
    group: str
    name: str
    http: str
    role: str = "master"
    alive: bool = True
    """Whether meta has heard of it of late."""
    in_sync: bool = True
    system: System | None = None
    """``None``: it did not answer."""
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    groups: Sequence[Row] = ()
    """Consumer groups, of a master."""
    subjects: Sequence[Row] = ()

    def number(self, name: str) -> float | None:
        return self.numbers.get(name)

    def by_reason(self, name: str) -> dict[str, float]:
        """A family of numbers with one label each."""
        found = (
            (REASON.search(key), value) for key, value in self.numbers.items() if key.startswith(name + "{")
        )
        return {reason[1]: value for reason, value in found if reason is not None}

    @property
    def leads(self) -> bool:
        return self.alive and self.role == "master" and self.service != "meta"


@dataclass(frozen=True, slots=True)
class Picture:
    """One look. ``groups`` and ``delays`` are as meta says them, empty for a lone broker."""

    server: str
    at_s: float
    """Of a clock that does not jump; two pictures give rates."""
    at_ms: int
    """Of the wall clock of whoever looked."""
    nodes: Sequence[Node]
    groups: Sequence[Row] = ()
    delays: Sequence[Row] = ()
    clients: Sequence[Row] = ()
    archives: Sequence[Row] = ()
    errors: Mapping[tuple[str, str], Sequence[Row]] = field(
        default_factory=dict[tuple[str, str], Sequence[Row]]
    )
    """Of groups that are paused, or with messages that failed: of what they fail, by subject and group."""
    is_lone: bool = False
    has_meta: bool = True
    """Whether whoever was asked could speak for clients and subjects."""
    canary: Row | None = None
    """The page of a canary, when one was named."""

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes if node.service == "broker"]

    @property
    def masters(self) -> list[Node]:
        return [node for node in self.brokers if node.leads]

    def total(self, name: str) -> float:
        """A number of all masters together."""
        return sum(node.number(name) or 0.0 for node in self.masters)


def numbers_of(page: str) -> dict[str, float]:
    """A page of metrics, by name and labels; what is no number is left out."""
    return {name: float(value) for name, value in NUMBER.findall(page)}


def group_sums(picture: Picture) -> dict[tuple[str, str], dict[str, Any]]:
    """Consumer groups by subject and name, all brokers together; ``brokers`` says which have something of it."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for node, row in rows_of(picture):
        names = living_subject(str(row["subject"])), str(row["group"])
        one = found.setdefault(
            names,
            {
                "group": names[1], "subject": names[0], **dict.fromkeys(SUMS, 0), "paused": None,
                "suspended": False, "over_quota": None, "consumers": 0, "consumption": row["consumption"],
                "brokers": [],
            },
        )  # fmt: skip
        for name in SUMS:
            one[name] += row[name]
        one["paused"] = one["paused"] or row["paused"]
        one["suspended"] = one["suspended"] or row["suspended"]
        one["over_quota"] = one["over_quota"] or row.get("over_quota")
        one["consumers"] = max(one["consumers"], row["consumers"])
        if node.group not in one["brokers"]:
            one["brokers"].append(node.group)
    return found


def after_death(group: Row, name: str) -> str:
    """What to do about a dead broker. Who may have what nobody else has must not be forgotten."""
    if group["problem"]:
        return "start it again, and forget none of this group's: nobody who lives has all that was answered"
    return f"start it again; when it will not come back, `tidemill brokers forget {group['group']} {name}`"


def rows_of(picture: Picture) -> Iterator[tuple[Node, Row]]:
    for node in picture.masters:
        for row in node.groups:
            yield node, row


@dataclass(frozen=True, slots=True)
class Pace:
    """What of a group happens in a second, by two looks; and how long it needs to have done all of it.

    Its numbers have each message in one place, so their sum grows by what arrives, and what is acked or dead by what is
    handled. ``drains_in_s`` is ``None`` when no more is handled than arrives: never.
    """

    undone: int
    arrives: float
    handled: float
    drains_in_s: float | None


def pace_of(before: Row, now: Row, seconds: float) -> Pace | None:
    """``None`` when the looks say nothing: a broker came or went, or the group was moved."""
    assert seconds > 0
    undone, was = (sum(row[name] for name in ("lag", "in_flight", "failed")) for row in (now, before))
    done = sum(now[name] - before[name] for name in ("acked", "dead"))
    arrived = undone - was + done
    if done < 0 or arrived < 0 or before["brokers"] != now["brokers"]:
        return None
    arrives, handled = arrived / seconds, done / seconds
    drains = 0.0 if not undone else undone / (handled - arrives) if handled > arrives else None
    return Pace(undone, arrives, handled, drains)
