"""The two logs of a broker: a ledger whose records are actions."""

from __future__ import annotations

from tidemill_broker.action_records import encode_action
from tidemill_broker.actions import Action
from tidemill_ledger import logs


class Logs(logs.Logs):
    """Message log and action log, write side."""

    def act(self, action: Action, now_ms: int) -> None:
        """Write an action; the caller applies it."""
        kind, body = encode_action(action)
        self.record(kind, body, now_ms)
