"""Which order keys a partition takes no more, as meta says it; what a broker has closed, and who is done with it.

FENCE and FENCED never cross a wire: a broker's own process says the one, and its machine the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

from tidemill_wire.fields import Fields, malformed, parse_group, parse_stored
from tidemill_wire.kinds import Kind
from tidemill_wire.limits import FENCES_MAX
from tidemill_wire.routes import LOGICAL_PARTITIONS, Ranges

REFUSED_MAX = 1_000
"""Characters of why a fence could not be put up."""
_I63 = 0x7FFF_FFFF_FFFF_FFFF


class FenceRow(NamedTuple):
    """By fence ``number`` a partition takes order keys of these logical partitions, and of no others."""

    partition: str
    number: int
    ranges: Ranges


class Passed(NamedTuple):
    """A group has done with all that lay in a partition when the fence of that number was put up."""

    partition: str
    group: str
    number: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Take order keys as these rows say from now on, unless a later number was said. Answered with FENCED."""

    kind: ClassVar = Kind.FENCE
    rows: Sequence[FenceRow]

    def fields(self) -> dict[str, Any]:
        return {
            "rows": [
                [row.partition, row.number, [edge for pair in row.ranges for edge in pair]]
                for row in self.rows
            ]
        }


@dataclass(frozen=True, slots=True)
class Fenced:
    """Partitions with the number of their fence, and groups in order that have done with what lay before one. All of
    it is as certain as an answer of the class ``high``: no failover takes it back. ``refused``: of which partition no
    fence could be put up, and why; of several the first. All others are as if that one had not been asked for.
    """

    kind: ClassVar = Kind.FENCED
    closed: Sequence[tuple[str, int]]
    passed: Sequence[Passed]
    refused: str = ""

    def fields(self) -> dict[str, Any]:
        said = {"closed": [list(row) for row in self.closed], "passed": [list(row) for row in self.passed]}
        return said | ({"refused": self.refused} if self.refused else {})


def parse_fence_row(row: Any) -> FenceRow:
    """A row from outside."""
    match row:
        case [str(name), int(number), [*edges]] if 0 < number <= _I63:
            return FenceRow(parse_stored(name), number, _ranges(edges))
        case _:
            raise malformed(f"{str(row)[:60]!r} is no fence")


def _ranges(given: Sequence[Any]) -> Ranges:
    edges: list[int] = [edge for edge in given if type(edge) is int]
    if len(edges) % 2 or len(edges) < len(given):
        raise malformed("a fence has ranges of logical partitions")
    if edges != sorted(set(edges)) or not all(0 <= edge <= LOGICAL_PARTITIONS for edge in edges):
        raise malformed("the ranges of a fence grow, and do not touch each other")
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def parse_fenced(closed_rows: Sequence[object], passed_rows: Sequence[object]) -> Fenced:
    """What came of fences, from outside."""
    closed: list[tuple[str, int]] = []
    passed: list[Passed] = []
    for row in closed_rows:
        match row:
            case [str(name), int(number)]:
                closed.append((parse_stored(name), number))
            case _:
                raise malformed("field 'closed' does not hold partitions and numbers")
    for row in passed_rows:
        match row:
            case [str(name), str(group), int(number)]:
                passed.append(Passed(parse_stored(name), parse_group(group), number))
            case _:
                raise malformed("field 'passed' does not hold partitions, groups and numbers")
    return Fenced(closed, passed)


Fencing: TypeAlias = Fence | Fenced

PARSERS: dict[int, Callable[[Fields, bytearray], Fencing]] = {
    Kind.FENCE: lambda f, _body: Fence([parse_fence_row(row) for row in f.items("rows", FENCES_MAX)]),
    Kind.FENCED: lambda f, _body: replace(
        parse_fenced(f.items("closed", FENCES_MAX), f.items("passed", FENCES_MAX)),
        refused=f.text("refused", REFUSED_MAX, ""),
    ),
}
