"""Which groups an action changes: what was made of them before is not good any more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidemill_broker.actions import (
    Acked,
    Action,
    ConsumerForgotten,
    EpochBegun,
    Extended,
    FailedDeliveries,
    Parked,
    Pulled,
    Released,
    Started,
    SubjectNamed,
    Synced,
)

if TYPE_CHECKING:
    from tidemill_broker.state import State


def touched_by(state: State, action: Action) -> Iterable[int]:
    """Their numbers, before the action is applied. Groups that it makes are not among them.

    What is one for all lanes (settings, errors, a pause) stands in each of them, so a group is touched with its kin.
    """
    match action:
        case (
            Pulled() | Acked() | FailedDeliveries() | Extended() | Released() | Parked() | ConsumerForgotten()
        ):
            consumer = state.consumers.get(action.consumer)
            group = None if consumer is None else consumer.group
        case Started():
            return list(state.groups) if action.back_ms else ()
        case SubjectNamed() | Synced() | EpochBegun():
            return ()
        case _:
            group = state.groups.get(action.group)
    if group is None:
        return ()
    kin = state.kin.get(group.identity)
    return (group.identity,) if kin is None else [one.identity for one in kin.groups]
