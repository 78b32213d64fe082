"""Where a subject is stored: its partitions, and which logical partitions each of them takes.

A message's order key is hashed onto one of ``LOGICAL_PARTITIONS``; a route gives each of those to one partition. A
route is immutable: an expansion makes the next version of it, and the former ones stay known, so that a consumer of
ordered messages can finish what was sent by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, cast

from tidemill_wire.fields import malformed

LOGICAL_PARTITIONS = 1024

State: TypeAlias = Literal["RW", "R", "W", "NRW"]
"""What a broker, a broker group or a subject takes: reads and writes, one of the two, or neither."""

STATES: tuple[State, ...] = ("RW", "R", "W", "NRW")
_RIGHTS: dict[State, frozenset[str]] = {
    "RW": frozenset("RW"),
    "R": frozenset("R"),
    "W": frozenset("W"),
    "NRW": frozenset(),
}
_STATE_OF: dict[frozenset[str], State] = {rights: state for state, rights in _RIGHTS.items()}

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Logical partitions: from the first number of each pair to before the second."""


def both(one: State, other: State) -> State:
    """What is allowed by two states together."""
    return _STATE_OF[_RIGHTS[one] & _RIGHTS[other]]


def writable(state: State) -> bool:
    return "W" in _RIGHTS[state]


def readable(state: State) -> bool:
    return "R" in _RIGHTS[state]


@dataclass(frozen=True, slots=True)
class Partition:
    """A subject's storage on one broker group."""

    group: str
    name: str
    ranges: Ranges

    @property
    def key(self) -> str:
        return f"{self.group}/{self.name}"

    @property
    def size(self) -> int:
        """How many logical partitions it has."""
        return sum(end - first for first, end in self.ranges)

    def to_map(self) -> dict[str, Any]:
        return {"group": self.group, "name": self.name, "ranges": [list(pair) for pair in self.ranges]}

    @classmethod
    def from_map(cls, given: Mapping[str, Any]) -> Partition:
        match given:
            case {"group": str(group), "name": str(name), "ranges": [*pairs]}:
                return cls(group, name, tuple(_pair(pair) for pair in pairs))
            case _:
                raise malformed("a partition has a group, a name and ranges")


def _pair(given: object) -> tuple[int, int]:
    match given:
        case [int(first), int(end)] if 0 <= first < end <= LOGICAL_PARTITIONS:
            return first, end
        case _:
            raise malformed(f"{str(given)[:60]!r} is no range of logical partitions")


@dataclass(frozen=True, slots=True)
class PartitionSet:
    """A version of a route. Each logical partition is in exactly one of its partitions."""

    version: int
    partitions: tuple[Partition, ...]

    def of(self, logical: int) -> Partition:
        """The partition of a logical one."""
        assert 0 <= logical < LOGICAL_PARTITIONS
        return next(
            partition
            for partition in self.partitions
            if any(first <= logical < end for first, end in partition.ranges)
        )

    def check(self) -> None:
        """What always holds."""
        taken = sorted(pair for partition in self.partitions for pair in partition.ranges)
        assert taken[0][0] == 0
        assert taken[-1][1] == LOGICAL_PARTITIONS
        assert all(one[1] == other[0] for one, other in pairwise(taken))
        assert len({partition.key for partition in self.partitions}) == len(self.partitions)

    def to_map(self) -> dict[str, Any]:
        return {"version": self.version, "partitions": [one.to_map() for one in self.partitions]}

    @classmethod
    def from_map(cls, given: Mapping[str, Any]) -> PartitionSet:
        match given:
            case {"version": int(version), "partitions": [*rows]}:
                partitions = tuple(
                    Partition.from_map(cast("Mapping[str, Any]", row) if isinstance(row, dict) else {})
                    for row in rows
                )
                return cls(version, partitions)
            case _:
                raise malformed("a route has a version and partitions")
