"""Where a slave that asks its master goes on: from where both logs are equal, or with a copy of the state."""

from __future__ import annotations

from tidemill_ledger.membership import common_ends
from tidemill_ledger.replicated import Replicated
from tidemill_wire.replication import Ends, Follow, Followed


def answer_to(follow: Follow, inner: Replicated, epoch: int, now_ms: int) -> tuple[Followed, bytes]:
    """Where a slave goes on, and the state it needs when the logs do not have their beginning any more."""
    logs = inner.logs
    starts, ends = Ends(logs.messages.start, logs.actions.start), Ends(logs.messages.end, logs.actions.end)
    begins = starts.message == 0 or not inner.folds_messages
    """What is in the message log is enough."""
    common = common_ends(inner.epochs, ends, follow.history, follow.ends)
    if follow.ends == Ends(0, 0):
        if starts.action == 0 and begins:
            return Followed(epoch, Ends(starts.message, 0)), b""
        snapshot = inner.keeping.pack(*ends, now_ms)
        start = Ends(
            logs.messages.open_base if inner.folds_messages else starts.message, logs.actions.open_base
        )
        return Followed(epoch, start, snapshot=len(snapshot), level=ends), snapshot
    if common is None:
        return Followed(epoch, Ends(0, 0), anew=True), b""
    if follow.ends.message == 0 and common.action >= starts.action and begins:
        return Followed(epoch, Ends(starts.message, common.action)), b""
    late = common.message < starts.message or common.action < starts.action
    return Followed(epoch, common, anew=late), b""


def is_empty(slave: Ends, start: Ends) -> bool:
    """Whether a slave whose message log is empty can begin there."""
    return slave.message == 0 and slave.action in (0, start.action)
