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
    FencePut,
    Parked,
    Pulled,
    Released,
    Removed,
    Started,
    SubjectNamed,
    Synced,
)
from tidemill_broker.group_settings import DEAD
from tidemill_broker.transaction_actions import OfTransaction

if TYPE_CHECKING:
    from tidemill_broker.state import State


def touched_by(state: State, action: Action) -> Iterable[int]:
    """Their numbers, before the action is applied. Groups that it makes are not among them.

    What is one for all lanes and for the dead letters (settings, errors, a pause) stands in each of them, so a group is
    touched with all of these.
    """
    match action:
        case (
            Pulled() | Acked() | FailedDeliveries() | Extended() | Released() | Parked() | ConsumerForgotten()
        ):
            consumer = state.consumers.get(action.consumer)
            group = None if consumer is None else consumer.group
        case Started():
            return list(state.groups) if action.back_ms else ()
        case SubjectNamed() | Synced() | EpochBegun() | Removed() | FencePut() | OfTransaction():
            return ()
        case _:
            group = state.groups.get(action.group)
    if group is None:
        return ()
    family = state.family(group)
    if group.settings.consumption == DEAD or family[-1].identity in state.dead:
        family = state.everywhere(group)
    return [one.identity for one in family]
