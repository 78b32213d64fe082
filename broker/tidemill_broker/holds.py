"""What is in flight here, of each subject and to each identity that has a quota of it, and whom that keeps waiting.

A *hold* counts deliveries, from the pull that gives them out until they are settled: acked, failed, handed back, taken
back, or void. Whose a delivery is was known when it was given out. A life of the broker begins without knowing it; what
consumers held before is theirs who pull for them first.

    room            as much of it is given out as there is room for
    full            a pull waits, as it does when there is nothing; the group is noted as kept back
    full            the wait of such a pull is over: it is told ``over_quota``
    full            something is settled: those that are kept back have their turns again, the longest first

Bounds are what the last pull, or the last declaration, said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from sys import maxsize
from typing import TYPE_CHECKING

from tidemill_broker.partitions import Partition
from tidemill_wire.fields import living_subject
from tidemill_wire.quotas import Bound

if TYPE_CHECKING:
    from tidemill_broker.groups import Group


class Hold:
    """Of a subject, or somebody."""

    __slots__ = ("count", "most", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        """As a sentence has it."""
        self.most = 0
        """0: any number."""
        self.count = 0

    @property
    def room(self) -> int:
        """How many messages more may be given out; none or less when it is full."""
        return self.most - self.count if self.most else maxsize

    @property
    def bound(self) -> Bound:
        """As it is told."""
        return Bound(self.name, self.most)


class Holds:
    """Of one state."""

    def __init__(self) -> None:
        self._subjects: dict[str, Hold] = {}
        self._identities: dict[str, Hold] = {}
        self._waiting: dict[Hold, dict[int, None]] = {}
        """Groups that are kept back, the longest first."""
        self._keeping: dict[int, Hold] = {}
        """Group -> what it waits for."""

    def of_subject(self, partition: Partition) -> Hold:
        """Of the subject of a partition: all its partitions here, lanes and dead letters have one."""
        subject = living_subject(partition.name)
        hold = self._subjects.get(subject)
        if hold is None:
            hold = self._subjects[subject] = Hold(f"subject {subject}")
        return hold

    def declare(self, partition: Partition) -> None:
        """What is declared of a subject is so in its own partition; dead letters have settings of their own."""
        if living_subject(partition.name) == partition.name:
            self.of_subject(partition).most = partition.settings.in_flight_max

    def of_identity(self, bound: Bound) -> Hold:
        """Of somebody, who may have so much from now on."""
        hold = self._identities.get(bound.name)
        if hold is None:
            hold = self._identities[bound.name] = Hold(bound.name)
        hold.most = bound.most
        return hold

    def keep_back(self, group: int, hold: Hold) -> None:
        """A group has something to give, and may not."""
        self._waiting.setdefault(hold, {})[group] = None
        self._keeping[group] = hold

    def freed(self) -> Iterator[int]:
        """Groups that may have something to give again, one by one: each may use up the room."""
        for hold, groups in list(self._waiting.items()) if self._waiting else ():
            while groups and hold.room > 0:
                group = next(iter(groups))
                del groups[group]
                self._keeping.pop(group, None)
                yield group
            if not groups:
                self._waiting.pop(hold, None)

    def keeping(self, groups: Iterable[int]) -> Hold | None:
        """What keeps messages back from one of these groups, if anything does."""
        if not self._keeping:
            return None
        found = (self._keeping.get(group) for group in groups)
        return next((hold for hold in found if hold is not None and hold.room <= 0), None)

    def check(self, groups: Iterable[Group]) -> None:
        """What is counted is what is there."""
        counted = Counter[Hold]()
        for group in groups:
            counted[group.subject_hold] += group.in_flight
            for delivery in (one for consumer in group.consumers.values() for one in consumer.held()):
                if delivery.hold is not None:
                    counted[delivery.hold] += delivery.count
        for hold in (*self._subjects.values(), *self._identities.values()):
            assert hold.count == counted[hold], (hold.name, hold.count, counted[hold])
