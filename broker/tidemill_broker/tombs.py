"""What people removed: a subject with all its partitions, or a consumer group with its dead letters.

The batches lie in the message log beside those of others, and go with their segment. So a partition that was removed
stays known by its number, under the name it had, with the sequence below which nothing of it is there any more (its
*floor*). Declared again it is the same partition, empty: what comes next has sequences that were never used, and who
sent what below the floor is forgotten, for a slave that begins when the log has lost it cannot know.

    there  --Removed-->  removed  --SubjectNamed-->  there, with nothing below its floor
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill_broker.actions import Removed
from tidemill_broker.lanes import Lane
from tidemill_broker.partitions import Partition, SubjectSettings
from tidemill_journal.entries import Rows
from tidemill_wire.errors import Refused

if TYPE_CHECKING:
    from tidemill_broker.state import State


class Tombs:
    """Of one state."""

    __slots__ = ("by_name", "floors", "numbers", "revived")

    def __init__(self) -> None:
        self.by_name: dict[bytes, Partition] = {}
        """Partitions that are removed."""
        self.floors: dict[int, int] = {}
        """Partition -> its floor, of those that were removed once."""
        self.numbers: dict[str, int] = {}
        """Subject, or ``subject/group`` -> the number of its last removal."""
        self.revived: set[int] = set()
        """Partitions that are there again since somebody looked, and took them out."""

    def floor(self, partition: Partition) -> int:
        """What is below it is removed."""
        return self.floors.get(partition.identity, 0)

    def again(self, name: str, settings: SubjectSettings) -> Partition | None:
        """The partition of that name, if it was removed: it is there again."""
        partition = self.by_name.pop(name.encode(), None)
        if partition is not None:
            partition.configure(settings)
            self.revived.add(partition.identity)
        return partition

    def check_subject(self, subject: str) -> None:
        """``Refused`` for a subject that is not here because somebody removed it."""
        if subject in self.numbers:
            raise Refused("removed", f"subject {subject!r} was removed")

    def check_group(self, subject: str, group: str) -> None:
        """The same of a group."""
        if removal_key(subject, group) in self.numbers:
            raise Refused("removed", f"group {group!r} of subject {subject!r} was removed")


def removal_key(subject: str, group: str = "") -> str:
    """By what a removal is remembered."""
    return f"{subject}/{group}" if group else subject


def remove(state: State, action: Removed) -> None:
    """Change the state: the partitions are empty, and there no more. Their groups were forgotten before."""
    tombs, key = state.tombs, removal_key(action.subject, action.group)
    if not action.group:  # who removes a subject has removed its groups, and makes them with it again
        for one in [one for one in tombs.numbers if one.startswith(f"{key}/")]:
            del tombs.numbers[one]
    tombs.numbers[key] = action.number
    for identity, floor in action.floors:
        partition = state.partitions[identity]
        tombs.floors[identity] = floor
        state.fences.removed(identity)
        state.deduplication.removed(identity)
        partition.runs, partition.recent = [], Rows()
        partition.producers.clear()
        partition.singles.clear()
        entomb(state, partition)


def entomb(state: State, partition: Partition) -> None:
    """It is there no more, until its name is named again."""
    del state.by_name[partition.raw_name]
    state.tombs.by_name[partition.raw_name] = partition
    state.tombs.revived.discard(partition.identity)
    if isinstance(partition, Lane):
        lanes = state.lanes[partition.base.identity]
        del lanes[partition.priority]
        if not lanes:
            del state.lanes[partition.base.identity]
