"""What there is to know of a group's dead letters: how many wait, which were handled, what they died of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill_broker.groups import Group
from tidemill_broker.state import State
from tidemill_wire.fields import dead_subject
from tidemill_wire.ranges import pairs


def status_of_all(state: State, groups: Sequence[Group]) -> dict[str, Any]:
    """What is known of the dead letters of one group in all partitions of a subject, its own first.

    The places are those of the first one, as they always were; how many wait is of all.
    """
    places = [_place_of(state, group) for group in groups]
    return {
        **{name: places[0][name] for name in ("subject", "first", "next", "handled")},
        "waiting": sum(one["waiting"] for one in places),
        "partitions": places,
        "errors": _errors_of(groups),
    }


def _errors_of(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """What messages failed of, newest first; of one mistake in several partitions the newest words."""
    merged: dict[str, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = [
        {**seen.detail._asdict(), "messages": seen.messages, "last_ms": seen.last_ms}
        for group in groups
        for seen in reversed(group.errors.values())
    ]
    for row in sorted(rows, key=lambda row: int(row["last_ms"]), reverse=True):
        known = merged.setdefault(row["fingerprint"], row)
        if known is not row:
            known["messages"] += row["messages"]
    return list(merged.values())


def _place_of(state: State, group: Group) -> dict[str, Any]:
    partition = state.partitions[group.partition].name
    status: dict[str, Any] = {
        "partition": partition,
        "subject": dead_subject(partition, group.name),
        "first": 0,
        "next": 0,
        "waiting": 0,
        "handled": [],
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
