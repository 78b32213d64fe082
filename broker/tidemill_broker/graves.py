"""What there is to know of a group's dead letters: how many wait, which were handled, what they died of."""

from __future__ import annotations

from tidemill_broker.groups import Group
from tidemill_broker.state import State
from tidemill_wire.fields import dead_subject
from tidemill_wire.ranges import pairs


def status_of(state: State, group: Group) -> dict[str, object]:
    """What is known of a group's dead letters."""
    name = dead_subject(state.partitions[group.partition].name, group.name)
    errors = [
        {
            **seen.detail._asdict(),
            "messages": seen.messages,
            "last_ms": seen.last_ms,
        }
        for seen in reversed(group.errors.values())
    ]
    status: dict[str, object] = {
        "subject": name,
        "first": 0,
        "next": 0,
        "waiting": 0,
        "handled": [],
        "errors": errors,
    }
    identity = state.dead.get(group.identity)
    if identity is not None:
        twin = state.groups[identity]
        grave = state.partitions[twin.partition]
        first, end = grave.first_kept, grave.visible
        status |= {
            "first": first,
            "next": end,
            "waiting": waiting(state, group),
            "handled": list(twin.handled),
        }
    return status


def waiting(state: State, group: Group) -> int:
    """Dead letters of a group that were neither redriven nor purged, and are kept still."""
    identity = state.dead.get(group.identity)
    if identity is None:
        return 0
    twin = state.groups[identity]
    grave = state.partitions[twin.partition]
    kept = [(max(first, grave.first_kept), last) for first, last in pairs(twin.handled)]
    gone = sum(last + 1 - first for first, last in kept if last >= first)
    return grave.visible - grave.first_kept - gone
