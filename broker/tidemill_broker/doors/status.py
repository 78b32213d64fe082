"""What the control plane tells about consumer groups.

What a consumer gave back unopened, and dead letters that were redriven and not tried yet, are with nobody: they count
as lag. So ``lag``, ``in_flight``, ``failed``, ``dead`` and ``acked`` have each message of a group in one place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tidemill_broker.archiving import unarchived
from tidemill_broker.census import not_given
from tidemill_broker.graves import waiting
from tidemill_broker.group_settings import DEAD
from tidemill_broker.groups import Group
from tidemill_broker.lanes import base_of
from tidemill_broker.partitions import Partition
from tidemill_broker.state import State
from tidemill_wire.fields import DEAD_PREFIX, living_subject
from tidemill_wire.lanes import LANE_PREFIX
from tidemill_wire.leftovers import UNDONE, Leftover, Undone
from tidemill_wire.transacting import HALF_PARTITION

OWN_PREFIXES = (DEAD_PREFIX, LANE_PREFIX, HALF_PARTITION)
OVER_QUOTA: dict[str, Any] = {
    "type": ["string", "null"],
    "description": "whose quota of messages in flight is used up, and keeps messages back from the group",
}
"""As pages say it."""


def group_rows(state: State) -> Iterator[dict[str, Any]]:
    """A row for each group, one by one; its lanes, and its twin in the dead letters, are part of it. What is removed
    meanwhile is left out.
    """
    for identity, group in list(state.groups.items()):
        if state.groups.get(identity) is not group:
            continue
        if group.settings.consumption != DEAD and group is state.family(group)[-1]:
            yield _row(state, group)


def subject_rows(state: State) -> Iterator[dict[str, Any]]:
    """A row for each subject and further partition, one by one; its lanes are part of it."""
    for partition in list(state.by_name.values()):
        if (
            partition.name.startswith(OWN_PREFIXES)
            or state.by_name.get(partition.name.encode()) is not partition
        ):
            continue
        lanes = state.lanes.get(partition.identity, {})
        yield {
            "name": partition.name,
            "messages": sum(one.visible - one.first_kept for one in (partition, *lanes.values())),
            "first_sequence": partition.first_kept,
            "next_sequence": partition.next_sequence,
            "durability": partition.settings.durability,
            "groups": len(partition.groups),
        }


def _row(state: State, group: Group) -> dict[str, Any]:
    family = state.family(group)
    twin = state.groups.get(state.dead.get(group.identity, 0))
    all_of_it = (*family, *([] if twin is None else [twin]))
    untried = sum(one.untried for one in all_of_it)
    kept_back = state.holds.keeping(one.identity for one in all_of_it)
    beyond = sum(not_given(state.partitions[one.partition], one) for one in family)
    return {
        "group": group.name,
        "subject": state.partitions[group.partition].name,
        "lag": beyond + untried,
        "in_flight": sum(one.in_flight for one in all_of_it),
        "failed": sum(one.failed_count() for one in all_of_it) - untried,
        "dead": waiting(state, group),
        "paused": group.paused[1] if group.paused is not None else None,
        "acked": sum(one.acked for one in all_of_it),
        "consumption": group.settings.consumption,
        "suspended": group.settings.suspended,
        "over_quota": kept_back.name if kept_back is not None else None,
        "consumers": sum(1 for consumer in group.consumers.values() if consumer.peer),
    }


class Leftovers:
    """A look at what is left here of one subject, or of all of them; ``rows``, when all its ``steps`` were taken.

    A message goes from a pending transaction to what is not shown yet, and from there to a group; a group's own numbers
    are read at once. So a look that goes the same way may pause between two steps, and misses none.
    """

    def __init__(self, state: State, subject: str = "") -> None:
        self._state = state
        self._subject = subject
        self._rows: dict[str, Leftover] = {}
        self._begun: dict[str, set[str]] = {}

    def rows(self) -> list[Leftover]:
        """Subjects of which anything is left, or kept."""
        return [
            replace(row, begun=tuple(sorted(self._begun.get(row.subject, ())))) for row in self._rows.values()
        ]

    def steps(self) -> Iterator[None]:
        """One for each transaction, partition and group."""
        state = self._state
        for one in list(state.transactions.pending.values()):
            for part in one.parts.values():
                self._add(Leftover(living_subject(part.subject), pending=part.messages))
            yield
        for partition in list(state.by_name.values()):
            if partition.name != HALF_PARTITION:
                self._look_at(partition)
            yield
        for row in group_rows(state):
            counts = {name: int(row[name]) for name in UNDONE}
            if any(counts.values()):
                undone = Undone(row["group"], row["subject"], counts)
                self._add(Leftover(living_subject(row["subject"]), (undone,)))
            yield

    def _look_at(self, partition: Partition) -> None:
        base = base_of(partition)
        subject = living_subject(base.name)
        here = partition.next_sequence - partition.first_kept
        kept = 0 if base.name.startswith(DEAD_PREFIX) else here
        hidden = partition.next_sequence - partition.visible
        self._add(Leftover(subject, (), 0, hidden, unarchived(partition), kept))
        if kept:
            self._begun[subject] = self._begun.get(subject, set(base.groups)) & set(base.groups)

    def _add(self, more: Leftover) -> None:
        if self._subject not in {"", more.subject} or more == Leftover(more.subject):
            return
        known = self._rows.get(more.subject)
        self._rows[more.subject] = more if known is None else known.plus(more)


def left_of(state: State, subject: str) -> dict[str, Any]:
    """What is left of a subject here, for its removal: what its groups have not done with, and what is not shown yet;
    all messages that are kept; and the groups that are in each partition which keeps some.
    """
    look = Leftovers(state, subject)
    deque(look.steps(), maxlen=0)
    row = next(iter(look.rows()), Leftover(subject))
    left = row.pending + row.hidden + sum(sum(one.counts.values()) for one in row.undone)
    return {"subject": subject, "left": left, "kept": row.kept, "groups": list(row.begun)}
