"""Removes what people removed at meta: a subject with all that is derived of it, or a consumer group.

Meta numbers removals; one that was obeyed is in the log with its number, so what is told twice is done once, and what
was made again since under the same name stays. Who waits for messages is answered with nothing, and hears with the next
request that the name was removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill_broker.actions import ConsumerForgotten, GroupForgotten, Removed, Sought, Unlocked
from tidemill_broker.desk import Desk
from tidemill_broker.gate import Removal
from tidemill_broker.group_settings import BROADCAST, DEAD
from tidemill_broker.groups import Group
from tidemill_broker.lanes import Lane, base_of
from tidemill_broker.members import Members
from tidemill_broker.partitions import Partition
from tidemill_broker.serving import Serving
from tidemill_broker.tombs import removal_key
from tidemill_wire.fields import dead_letters_of, living_subject


class Removing:
    """Of one broker."""

    def __init__(self, desk: Desk, members: Members, serving: Serving) -> None:
        self._desk = desk
        self._state = desk.state
        self._members = members
        self._serving = serving

    def obey(self, removals: Iterable[Removal], now_ms: int) -> None:
        """Those that were not obeyed yet."""
        for removal in removals:
            key = removal_key(removal.subject, removal.group)
            if removal.number > self._state.tombs.numbers.get(key, 0):
                self._remove(removal, now_ms)

    def _remove(self, removal: Removal, now_ms: int) -> None:
        """Group after group, and at last what says that it is done: when a crash comes before, all is done again."""
        emptied = [
            one for one in self._of_subject(removal.subject) if not removal.group or _keeps(one, removal)
        ]
        for group in self._groups(removal, emptied):
            self._forget(group, now_ms)
        floors = [(one.identity, max(one.next_sequence, self._state.tombs.floor(one))) for one in emptied]
        self._desk.act(Removed(removal.subject, removal.group, removal.number, floors), now_ms)

    def _of_subject(self, subject: str) -> Iterator[Partition]:
        """All its partitions here, their lanes, and dead letters of any of its groups."""
        for partition in self._state.by_name.values():
            if living_subject(base_of(partition).name) == subject:
                yield partition

    def _groups(self, removal: Removal, emptied: list[Partition]) -> list[Group]:
        """Heads, the living before their twins in the dead letters."""
        partitions = [one for one in self._of_subject(removal.subject) if not isinstance(one, Lane)]
        groups = [
            self._state.groups[identity]
            for partition in partitions
            for identity in partition.groups.values()
            if partition in emptied or _is_of(self._state.groups[identity], removal.group)
        ]
        return sorted(groups, key=lambda group: group.settings.consumption == DEAD)

    def _forget(self, head: Group, now_ms: int) -> None:
        family = list(self._state.family(head))
        for group in family:
            for consumer in group.consumers.values():
                self._serving.give_up(consumer, now_ms)
        if head.owner:
            self._desk.act(Unlocked(head.identity, now_ms), now_ms)
        for group in family:
            self._desk.act(Sought(group.identity, group.cursor, 0), now_ms)
            for consumer in list(group.consumers.values()):
                self._members.forget(consumer)
                gone = ConsumerForgotten(consumer.identity, group.identity, consumer.name)
                self._desk.act(gone, now_ms)
        self._desk.act(GroupForgotten(head.identity), now_ms)


def _keeps(partition: Partition, removal: Removal) -> bool:
    """Whether it holds dead letters of the group that is removed."""
    return dead_letters_of(base_of(partition).name, removal.group) is not None


def _is_of(group: Group, name: str) -> bool:
    """Whether it is the group of that name, or one that a broadcast consumer of it has to itself."""
    own = group.settings.consumption == BROADCAST and group.name.startswith(f"{name}.")
    return group.name == name or own
