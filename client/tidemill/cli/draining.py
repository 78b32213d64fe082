"""What is left on a broker group that is drained, and waiting until nothing is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tidemill.cli.asking import ask, control_of
from tidemill.cli.failures import CommandFailed

LOOK_SECONDS = 0.5
QUIET_SECONDS = 3.0
"""So long nothing is to come: who sends learns within a second that the group takes nothing."""
SAY_SECONDS = 10.0
UNDONE = ("lag", "in_flight", "failed")
WORDS = {"lag": "to consume", "in_flight": "in flight", "failed": "to be tried again", "dead": "dead letters"}


async def left_on(
    server: str,
    group: Mapping[str, Any],
    counts: Sequence[str] = UNDONE,
    concerns: Callable[[Mapping[str, Any]], bool] = lambda _row: True,
) -> list[str]:
    """What its consumer groups have not done with, one sentence each; of those that it ``concerns``."""
    master = next((one for one in group["brokers"] if one["name"] == group["master"]), None)
    if master is None:
        raise CommandFailed(f"{group['group']} has no master that knows what is left: {group['problem']}")
    rows: list[dict[str, Any]] = await ask(control_of(master, server), "GET", "/v1/groups")
    left: list[str] = []
    for row in rows:
        said = [f"{row[name]:,} {WORDS[name]}" for name in counts if row[name]]
        if said and concerns(row):
            left.append(f"{row['group']} of {row['subject']}: {', '.join(said)}")
    return left


class Draining:
    """One wait. What is left is said when it is another than before, and not more often than a person reads."""

    def __init__(self, server: str, group: str) -> None:
        self._server = server
        self._group = group
        self._said: list[str] = []
        self._said_at = 0.0

    async def watch(self, find: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """Until nothing was left, and nothing came, for a while."""
        end, since = -1, time.monotonic()
        while True:
            found = await find()
            left = await left_on(self._server, found)
            reached = max(one["positions"]["messages"] for one in found["brokers"])
            now = time.monotonic()
            if left or reached != end:
                end, since = reached, now
            self._say(left, now)
            if now - since >= QUIET_SECONDS:
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _say(self, left: list[str], now: float) -> None:
        if left and left != self._said and now - self._said_at >= (SAY_SECONDS if self._said else 0.0):
            self._said, self._said_at = left, now
            for line in left:
                print(f"  left on {self._group}: {line}", flush=True)
