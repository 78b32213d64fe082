"""Who is given what lies in dead letters and is due again: the consumers of the group whose message it was, and those
of the same group in the subject's other partitions here. A failure from another broker is copied where the group was
met first, and that may be a partition that nobody consumes any more, for the subject's route leads elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill_broker.further import Further
from tidemill_broker.groups import Group
from tidemill_broker.lanes import Lane
from tidemill_broker.partitions import Partition
from tidemill_broker.pull_log import Consumer
from tidemill_broker.state import State
from tidemill_wire.fields import EXPANDED, living_subject


def graves_of(state: State, further: Further, consumers: Iterable[Consumer]) -> list[Partition]:
    """The dead-letter subjects from which consumers are given something, too."""
    twins = {
        state.dead[one.identity]: None
        for consumer in consumers
        for one in namesakes_of(state, further, consumer.group)
        if one.identity in state.dead
    }
    return [state.partitions[state.groups[twin].partition] for twin in twins]


def namesakes_of(state: State, further: Further, group: Group) -> Iterator[Group]:
    """The group itself, and in all partitions of its subject when it keeps no order: who has a partition in order has
    its dead letters, too, and nobody else.
    """
    yield group
    partition = state.partitions[group.partition]
    if group.ordered or isinstance(partition, Lane):
        return
    name = living_subject(partition.name) if EXPANDED.fullmatch(partition.name) else partition.name
    for other in further.whole(name):
        identity = other.groups.get(group.name)
        if identity is not None and identity != group.identity and not state.groups[identity].ordered:
            yield state.groups[identity]
