"""Pulls that name patterns: which subjects those are, and where a group begins in a subject that came later.

A group that begins at the latest message does so once. A subject that came after the group's first pull of a pattern
is consumed from its first message on, or what made the subject would be missed.
"""

from __future__ import annotations

from collections import OrderedDict

from tidemill_broker.partitions import Partition
from tidemill_broker.state import State
from tidemill_wire import limits
from tidemill_wire.commands import Start
from tidemill_wire.errors import Refused
from tidemill_wire.filters import matches_pattern

PATTERNS_KEPT = 1024
BEGUN_KEPT = 10_000
"""Of groups and patterns; one that is forgotten is told from the groups that its subjects have."""


class Patterns:
    """Patterns and the subjects they stand for."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.shown = len(state.partitions)
        """Subjects that the pulls that wait were told of; a subject's number is their count when it came."""
        self._found: OrderedDict[str, tuple[int, list[Partition]]] = OrderedDict()
        self._begun: OrderedDict[tuple[str, str], int] = OrderedDict()

    def partitions(self, pattern: str) -> list[Partition]:
        """All subjects that match. Only those are looked at that came since the last time."""
        seen, found = self._found.pop(pattern, (0, []))
        count = len(self._state.partitions)
        for identity in range(seen + 1, count + 1):
            partition = self._state.partitions[identity]
            if matches_pattern(pattern, partition.name):
                found.append(partition)
        self._found[pattern] = count, found
        if len(self._found) > PATTERNS_KEPT:
            self._found.popitem(last=False)
        tombs = self._state.tombs.by_name
        return [one for one in found if one.raw_name not in tombs] if tombs else found

    def begin(self, group: str, pattern: str) -> None:
        """A pull of a group names a pattern: note it when it is the first one."""
        key = group, pattern
        if key in self._begun:
            self._begun.move_to_end(key)
            return
        known = any(group in partition.groups for partition in self.partitions(pattern))
        self._begun[key] = 0 if known else len(self._state.partitions)
        if len(self._begun) > BEGUN_KEPT:
            self._begun.popitem(last=False)

    def start(self, group: str, pattern: str, partition: Partition, start: int) -> int:
        """Where a group begins in a subject that is new to it."""
        later = partition.identity > self._begun.get((group, pattern), len(self._state.partitions))
        return Start.EARLIEST if start == Start.LATEST and later else start

    def new(self) -> list[Partition]:
        """Subjects that came since this was asked last."""
        count = len(self._state.partitions)
        came = [self._state.partitions[identity] for identity in range(self.shown + 1, count + 1)]
        self.shown = count
        revived, self._state.tombs.revived = self._state.tombs.revived, set()
        return [*came, *(self._state.partitions[identity] for identity in sorted(revived))]

    @property
    def has_new(self) -> bool:
        """Whether subjects came since, or are there again."""
        return self.shown < len(self._state.partitions) or bool(self._state.tombs.revived)


def check_bound(pattern: str, subjects: int) -> None:
    """A pull that would be of too many subjects is refused: none of them is left out in silence."""
    if subjects > limits.PULL_SUBJECTS_MAX:
        raise Refused(
            "limit_exceeded",
            f"with {pattern!r} a pull would be of {subjects} subjects, {limits.PULL_SUBJECTS_MAX} are allowed",
        )
