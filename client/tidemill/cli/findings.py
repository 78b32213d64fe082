"""What a check of `tidemill doctor` finds: something that is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from tidemill.cli.picture import Picture, Row, group_sums

NAMED_MAX = 10
"""Of one check; where more is wrong, it is one trouble."""


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """Something does not work, or the next loss would be one of messages."""
    WARNING = "warning"
    """It works, and somebody should look."""


class Finding(NamedTuple):
    """One thing that is wrong."""

    severity: Severity
    about: str
    """Whose trouble it is: a broker, a group, a subject."""
    what: str
    advice: str


@dataclass(frozen=True, slots=True)
class Case:
    """What the checks judge: one picture, and how it was some seconds before, when somebody looked twice."""

    now: Picture
    before: Picture | None = None

    @property
    def seconds(self) -> float:
        return 0.0 if self.before is None else self.now.at_s - self.before.at_s

    def groups(self) -> Iterator[tuple[Row, Row | None]]:
        """Consumer groups, each with what it was before."""
        earlier = {} if self.before is None else group_sums(self.before)
        for names, row in sorted(group_sums(self.now).items()):
            yield row, earlier.get(names)

    def grew(self, node: str, number: str) -> float:
        """By how much a number of a process has grown since; 0 when nobody looked, or it was started again."""
        if self.before is None:
            return 0.0
        was = next((one for one in self.before.nodes if one.name == node), None)
        now = next(one for one in self.now.nodes if one.name == node)
        if was is None or was.system is None or now.system is None or was.system.pid != now.system.pid:
            return 0.0
        return max(0.0, (now.number(number) or 0.0) - (was.number(number) or 0.0))


Check: TypeAlias = Callable[[Case], Iterator[Finding]]


def error(about: str, what: str, advice: str) -> Finding:
    return Finding(Severity.ERROR, about, what, advice)


def warning(about: str, what: str, advice: str) -> Finding:
    return Finding(Severity.WARNING, about, what, advice)
