"""How a group in order takes a failure: in place, or later."""

from __future__ import annotations

from tidemill_broker.groups import Group
from tidemill_broker.state import State


def in_place(state: State, group: Group) -> bool:
    """Whether a message that failed comes again before anything newer does, as the subject's strategy says."""
    return group.ordered and not state.partitions[group.partition].settings.best_tried
