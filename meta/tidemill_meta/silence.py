"""Runs of archives and replays that nobody hears of any more. While they are at work their drivers speak now and then.

    Running   its driver speaks                                                 Running
    Running   ten times it did not, and this replica listened all the while     Lost, with when it was last heard
    Running   it never said how often it speaks: a job of an earlier version    Running, for nobody knows
    Lost      it is heard again                                                 Running, or as it ended

However long a run takes, its driver speaks: it is not judged by how slow it is. Lost is what is said to who asks, and
stored nowhere: a replica that did not hear the others, or was without its database, begins to count anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill_meta.asked import Asked

RUNNING, LOST = "Running", "Lost"
BEAT_FIELDS = frozenset({"every_ms"})
EVERY_MS_MAX = 3_600_000
BEATS_MISSED = 10


def beaten(said: Mapping[str, Any], asked: Asked, now_ms: int) -> Mapping[str, Any]:
    """What is known of a run whose driver has spoken; what has ended stays as it is."""
    if said.get("state") != RUNNING:
        return said
    return {**said, "every_ms": asked.whole("every_ms", high=EVERY_MS_MAX), "heard_at": now_ms}


def heard(said: Mapping[str, Any], former: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """What a run has said of itself, with what is known of how often it speaks."""
    every_ms = former.get("every_ms") if said.get("state") == RUNNING else None
    return {**said} if every_ms is None else {**said, "every_ms": every_ms, "heard_at": now_ms}


def as_it_stands(said: Mapping[str, Any], now_ms: int, listening_since_ms: int) -> dict[str, Any]:
    """For who asks."""
    row = {name: value for name, value in said.items() if name != "every_ms"}
    every_ms = said.get("every_ms")
    if said.get("state") == RUNNING and every_ms is not None:
        silent_since_ms = max(int(said["heard_at"]), listening_since_ms)
        if now_ms - silent_since_ms > BEATS_MISSED * every_ms:
            row["state"] = LOST
    return row
