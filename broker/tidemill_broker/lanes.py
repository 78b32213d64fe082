"""Priority lanes: the messages of one priority of a subject, and a group in all lanes of a subject.

A lane is a partition like any other, with its own sequences and rows, made when the first message of its priority
comes. A group of the subject has a namesake in each lane: cursor, deliveries and failures are the lane's, for they are
about its messages; what is declared of the group, whether it stands still, how well it is, how much it may hold, who
has its lock and which errors it met are one for all of them.

The subject's own partition has the messages without a priority, and its group is the *head* of its *kin*. Subjects
that never saw a priority have no lanes, and their groups no kin.

Which lane is next: the highest that has something waiting; but of ``LANE_SHARE`` messages that others are given while
it waits, a lane is owed one, and who is owed most comes first, with as many messages as it is owed. What is owed is in
memory only: after a restart it begins at nothing.
"""

from __future__ import annotations

from tidemill_broker.groups import Group
from tidemill_broker.partitions import Partition, SubjectSettings
from tidemill_broker.pull_log import Consumer
from tidemill_wire.lanes import first_of_lane, lane_name
from tidemill_wire.limits import IN_FLIGHT_MAX, LANE_SHARE

IDENTITY_BITS = 28
"""Above them, the number of a group in a lane holds the priority; below, it is that of its head."""


class Lane(Partition):
    """The messages of one priority."""

    __slots__ = ("base", "priority")

    def __init__(self, identity: int, base: Partition, priority: int, settings: SubjectSettings) -> None:
        super().__init__(identity, lane_name(base.name, priority), settings)
        self.base = base
        self.priority = priority
        self.next_sequence = self.visible = first_of_lane(priority)


def base_of(partition: Partition) -> Partition:
    """The subject of a lane; any other partition is its own."""
    return partition.base if isinstance(partition, Lane) else partition


def group_in(lane: Lane, head: Group, start: tuple[int, int]) -> Group:
    """The namesake of a group in a lane. Its number follows from the head's, so no record has to give it one."""
    assert head.identity >> IDENTITY_BITS == 0
    identity = head.identity | lane.priority << IDENTITY_BITS
    return Group(identity, lane.identity, head.name, *start, head.settings)


class Kin:
    """A group in all lanes of its subject."""

    __slots__ = ("_waiting", "groups", "head", "owed", "owing")

    def __init__(self, head: Group) -> None:
        self.head = head
        self.groups: list[Group] = [head]
        """The highest priority first, and so the head at last."""
        self.owed: dict[int, int] = {}
        """Group -> messages that others were given while it waited, less ``LANE_SHARE`` for each that it was given."""
        self.owing: Group | None = None
        """Who comes before higher ones now."""
        self._waiting: list[Group] = []

    def join(self, group: Group) -> None:
        """The group in a lane, new or from a checkpoint."""
        group.settings = self.head.settings
        group.share(self.head)
        self.groups.append(group)
        self.groups.sort(key=lambda one: -(one.identity >> IDENTITY_BITS))

    @property
    def in_flight(self) -> int:
        """Messages that are delivered, in all lanes."""
        return sum(group.in_flight for group in self.groups)

    def room_of(self, group: Group) -> int:
        """How many messages more a lane may give out: what the whole group has room for, or what is owed."""
        settings = self.head.settings
        room = 0 if settings.suspended else settings.in_flight_max - self.in_flight
        return min(room, self.owed[group.identity] // LANE_SHARE) if group is self.owing else room

    def held_by_others(self, consumer: Consumer) -> bool:
        """Whether a consumer of another name holds messages, in any lane."""
        return any(
            any(other.held())
            for group in self.groups
            for other in group.consumers.values()
            if other.name != consumer.name
        )

    def turns(self, waiting: list[Group]) -> list[Group]:
        """In which order to look at the lanes that have something; ``waiting`` is the highest priority first."""
        self.owed = {one.identity: self.owed.get(one.identity, 0) for one in waiting}
        self._waiting, self.owing = waiting, None
        lower = waiting[1:]
        most = max(lower, key=lambda one: self.owed[one.identity], default=None)
        if most is None or self.owed[most.identity] < LANE_SHARE:
            return waiting
        self.owing = most
        return [most, *(one for one in waiting if one is not most)]

    def gave(self, group: Group, messages: int) -> None:
        """A lane was asked as ``turns`` said, and has given so many: those that wait are owed a share of it."""
        if self.owing is not None and self.owing is not group:
            self.owed[self.owing.identity] = 0  # nothing of it was wanted
        for other in self._waiting[1:]:
            if other is not group:
                self.owed[other.identity] = min(
                    self.owed[other.identity] + messages, LANE_SHARE * IN_FLIGHT_MAX
                )
        if group.identity in self.owed:
            left = self.owed[group.identity] - LANE_SHARE * messages
            self.owed[group.identity] = left if self.owing is group else 0
        self.owing = None

    def check(self) -> None:
        """What is one for all is the same in all."""
        for group in self.groups:
            assert group.health is self.head.health
            assert group.errors is self.head.errors
            assert (group.settings, group.paused) == (self.head.settings, self.head.paused), group.name
            assert group is self.head or not group.owner
