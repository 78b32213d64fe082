"""Where a slave that asks its master goes on: from where both logs are equal, or with a copy of the state."""

from __future__ import annotations

from tidemill_ledger.membership import common_ends
from tidemill_ledger.replicated import Replicated
from tidemill_wire.replication import Ends, Follow, Followed


def answer_to(follow: Follow, inner: Replicated, epoch: int, now_ms: int) -> tuple[Followed, bytes]:
    """Where a slave goes on, and the state it needs when the logs do not have their beginning any more."""
    logs = inner.logs
    starts, ends = Ends(logs.messages.start, logs.actions.start), Ends(logs.messages.end, logs.actions.end)
    common = common_ends(inner.epochs, ends, follow.history, follow.ends)
    if follow.ends == Ends(0, 0):
        if starts == Ends(0, 0):
            return Followed(epoch, starts), b""
        snapshot = inner.keeping.pack(*ends, now_ms)
        return Followed(epoch, _start(inner, starts), snapshot=len(snapshot), level=ends), snapshot
    if common is None:
        return Followed(epoch, Ends(0, 0), anew=True), b""
    late = common.message < starts.message or common.action < starts.action
    return Followed(epoch, common, anew=late), b""


def _start(inner: Replicated, starts: Ends) -> Ends:
    """Where the logs of a slave begin that gets the state, too: with what it has to serve, which is all messages where
    the state is not made of them alone, and with the history, unless some of that is gone anyway.
    """
    logs = inner.logs
    if inner.folds_messages:
        return Ends(logs.messages.open_base, logs.actions.open_base)
    return Ends(starts.message, logs.actions.open_base if starts.action else 0)


def is_empty(slave: Ends, start: Ends) -> bool:
    """Whether a slave whose message log is empty can begin there."""
    return slave.message == 0 and slave.action in (0, start.action)
