"""Somebody who hears of what a broker does with messages, before its state knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill_broker.actions import Action


def before_applied(state: Any, note: Callable[[Action], None]) -> None:
    """Tell ``note`` of each action; of several who listen, the last one to come hears first."""
    apply = state.apply

    def note_and_apply(action: Action) -> int:
        note(action)
        return int(apply(action))

    state.apply = note_and_apply
