"""Which partitions of a group in order are this consumer's, until when, and how they are let go. Pure.

    partition  event                                      next
    strange    an answer of meta names it                 ours      it is pulled from, by the version of that answer
    ours       an answer does not name it                 leaving   it is pulled no more, nothing of it is begun; what
                                                                    was not begun is given back at once, all of it
    ours       the broker says that the version is over   leaving   the same; meta is asked at once
    leaving    an answer names it again                   ours      if nothing was yielded yet
    leaving    ``drained``: no handler runs, all settled  yielding  YIELD is said to its broker
    yielding   ``yielded``: the broker has answered, or   strange   the next heartbeat says so: only then the next
               the connection ended                                 consumer is granted it

Beyond its authorisation a consumer begins nothing, whatever is its own; what runs goes on. The authorisation counts
from the moment at which the heartbeat was sent, on both clocks that a process has: the steady one stands still while
the machine sleeps, the wall clock may be set back, and neither of the two lengthens what the other one says is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Moment(NamedTuple):
    """The time in seconds, of the steady clock and of the wall clock."""

    steady: float
    wall: float

    def later(self, seconds: float) -> Moment:
        """So many seconds later, on clocks that nobody sets."""
        return Moment(self.steady + seconds, self.wall + seconds)

    def before(self, other: Moment) -> bool:
        """Earlier by both clocks."""
        return self.steady < other.steady and self.wall < other.wall


NEVER = Moment(float("-inf"), float("-inf"))


class Stage(Enum):
    """Where a partition is."""

    OURS = "ours"
    LEAVING = "leaving"
    YIELDING = "yielding"


@dataclass(slots=True)
class _Held:
    stage: Stage
    version: int
    """Of the allocation that granted it last."""


class Tenure:
    """See the module."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self.version = 0
        """Of the allocation that was heard of last."""
        self._sent = NEVER.steady
        self._until = NEVER
        self._refused: dict[str, int] = {}
        self.lapses = 0
        """How often an authorisation was over before the next one came. What was in hand then may have been another
        consumer's meanwhile, also when it is ours again: it is begun only when the broker says that it is ours still.
        """
        self.applied = 0
        """For the next heartbeat: what this version took from us, we have let go."""

    def answered(self, sent: Moment, version: int, partitions: Iterable[str], authorised_s: float) -> None:
        """A heartbeat that was sent at that moment was answered: these partitions are ours, for so long."""
        if version < self.version:
            return  # it was overtaken by a later one
        self.version = version
        named = dict.fromkeys(one for one in partitions if self._refused.get(one, -1) < version)
        self._refused = {one: past for one, past in self._refused.items() if past >= version}
        if self._held and not sent.before(self._until):
            self.lapses += 1
        if sent.steady >= self._sent:
            self._sent, self._until = sent.steady, sent.later(authorised_s)
        for partition in named:
            held = self._held.get(partition)
            if held is None:
                self._held[partition] = _Held(Stage.OURS, version)
            elif held.stage is not Stage.YIELDING:
                held.stage, held.version = Stage.OURS, version
        for partition, held in self._held.items():
            if partition not in named and held.stage is Stage.OURS:
                held.stage = Stage.LEAVING
        self._note_applied()

    def outdated(self, partition: str) -> None:
        """Its broker knows of a later version of the allocation than ours, by which it is somebody else's."""
        held = self._held.get(partition)
        if held is not None:
            self._refused[partition] = held.version
            if held.stage is Stage.OURS:
                held.stage = Stage.LEAVING

    def drained(self, partition: str) -> bool:
        """No handler of it runs and all is settled: whether to say YIELD."""
        held = self._held.get(partition)
        if held is None or held.stage is not Stage.LEAVING:
            return False
        held.stage = Stage.YIELDING
        return True

    def yielded(self, partition: str) -> None:
        """Its broker has answered, or the connection to it has ended."""
        held = self._held.get(partition)
        if held is not None and held.stage is Stage.YIELDING:
            del self._held[partition]
            self._note_applied()

    def may_begin(self, partition: str, now: Moment) -> bool:
        """Whether a message of it may be begun."""
        return self.is_ours(partition) and self.authorised(now)

    def authorised(self, now: Moment) -> bool:
        """Whether anything may be begun."""
        return now.before(self._until)

    def to_pull(self, now: Moment) -> dict[str, int]:
        """The partitions to pull from, each with the version to name."""
        return self.ours if self.authorised(now) else {}

    def is_ours(self, partition: str) -> bool:
        """Whether messages of it are to be kept; those of others that still come are given back at once."""
        held = self._held.get(partition)
        return held is not None and held.stage is Stage.OURS

    @property
    def ours(self) -> dict[str, int]:
        """What is our own, whether anything may be begun now or not, each with the version to name."""
        return {name: held.version for name, held in self._held.items() if held.stage is Stage.OURS}

    @property
    def leaving(self) -> list[str]:
        """Partitions that are to be drained."""
        return [name for name, held in self._held.items() if held.stage is Stage.LEAVING]

    @property
    def held(self) -> frozenset[str]:
        """All that is not let go yet."""
        return frozenset(self._held)

    def _note_applied(self) -> None:
        if all(held.stage is Stage.OURS for held in self._held.values()):
            self.applied = self.version
