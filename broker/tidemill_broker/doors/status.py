"""What the control plane tells about consumer groups.

What a consumer gave back unopened, and dead letters that were redriven and not tried yet, are with nobody: they count
as lag. So ``lag``, ``in_flight``, ``failed``, ``dead`` and ``acked`` have each message of a group in one place.
"""

from __future__ import annotations

from typing import Any

from tidemill_broker.graves import waiting
from tidemill_broker.group_settings import DEAD
from tidemill_broker.groups import Group
from tidemill_broker.state import State


def groups_of(state: State) -> list[dict[str, Any]]:
    """A row for each group; a twin in the dead letters is part of its group."""
    return [_row(state, group) for group in state.groups.values() if group.settings.consumption != DEAD]


def _row(state: State, group: Group) -> dict[str, Any]:
    twin = state.groups.get(state.dead.get(group.identity, 0))
    both = (group,) if twin is None else (group, twin)
    partition = state.partitions[group.partition]
    untried = sum(_untried(one) for one in both)
    return {
        "group": group.name,
        "subject": partition.name,
        "lag": max(0, partition.visible - group.reached) + untried,
        "in_flight": sum(one.in_flight for one in both),
        "failed": sum(one.failed_count() for one in both) - untried,
        "dead": waiting(state, group),
        "paused": group.paused[1] if group.paused is not None else None,
        "acked": sum(one.acked for one in both),
        "consumption": group.settings.consumption,
        "suspended": group.settings.suspended,
        "consumers": sum(1 for consumer in group.consumers.values() if consumer.peer),
    }


def _untried(group: Group) -> int:
    """Messages in the error log that never failed: they were handed back, or redriven."""
    return sum(failure.messages for failure in group.failed.values() if not failure.since_ms)
