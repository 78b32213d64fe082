"""What the control plane tells about consumer groups.

What a consumer gave back unopened, and dead letters that were redriven and not tried yet, are with nobody: they count
as lag. So ``lag``, ``in_flight``, ``failed``, ``dead`` and ``acked`` have each message of a group in one place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidemill_broker.census import not_given
from tidemill_broker.graves import waiting
from tidemill_broker.group_settings import DEAD
from tidemill_broker.groups import Group
from tidemill_broker.lanes import base_of
from tidemill_broker.state import State
from tidemill_wire.fields import DEAD_PREFIX, living_subject
from tidemill_wire.lanes import LANE_PREFIX
from tidemill_wire.transacting import HALF_PARTITION

OWN_PREFIXES = (DEAD_PREFIX, LANE_PREFIX, HALF_PARTITION)
UNDONE = ("lag", "in_flight", "failed", "dead")
OVER_QUOTA: dict[str, Any] = {
    "type": ["string", "null"],
    "description": "whose quota of messages in flight is used up, and keeps messages back from the group",
}
"""As pages say it."""


def groups_of(state: State) -> list[dict[str, Any]]:
    """A row for each group; its lanes, and its twin in the dead letters, are part of it."""
    return list(group_rows(state))


def group_rows(state: State) -> Iterator[dict[str, Any]]:
    """The same one by one; what is removed meanwhile is left out."""
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


def left_of(state: State, subject: str) -> dict[str, Any]:
    """What is left of a subject here: what its groups have not done with, and what is not shown yet; all messages that
    are kept; and the groups that are in each partition which keeps some.
    """
    rows = (row for row in groups_of(state) if living_subject(row["subject"]) == subject)
    left = sum(row[name] for row in rows for name in UNDONE)
    parts = (part for one in state.transactions.pending.values() for part in one.parts.values())
    left += sum(part.messages for part in parts if living_subject(part.subject) == subject)
    kept, groups = 0, list[set[str]]()
    for partition in state.by_name.values():
        base = base_of(partition)
        if living_subject(base.name) != subject:
            continue
        left += partition.next_sequence - partition.visible
        here = partition.next_sequence - partition.first_kept
        if here and not base.name.startswith(DEAD_PREFIX):
            kept += here
            groups.append(set(base.groups))
    common = set[str].intersection(*groups) if groups else set[str]()
    return {"subject": subject, "left": left, "kept": kept, "groups": sorted(common)}
