"""What is left on a broker group that is drained, and waiting until nothing is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tidemill.cli.asking import ask, control_of
from tidemill.cli.failures import CommandFailed
from tidemill_wire.errors import Refused
from tidemill_wire.leftovers import PATH, Leftover, groups_by_subject, parse_leftovers

LOOK_SECONDS = 0.5
QUIET_SECONDS = 3.0
"""So long nothing is to come: who sends learns within a second that the group takes nothing."""
SAY_SECONDS = 10.0
UNDONE = ("lag", "in_flight", "failed")
"""Of what groups have not done with: dead letters keep a group from being retired, and not from being drained."""


async def left_on(
    server: str,
    group: Mapping[str, Any],
    counts: Sequence[str] = UNDONE,
    subject: str = "",
    consumer_group: str = "",
) -> list[str]:
    """What would be lost with a broker group, one sentence each; ``counts`` of what its consumer groups have not done
    with. Of one subject when it is named, and of one consumer group alone.
    """
    master = next((one for one in group["brokers"] if one["name"] == group["master"]), None)
    if master is None:
        raise CommandFailed(f"{group['group']} has no master that knows what is left: {group['problem']}")
    control = control_of(master, server)
    try:
        _, found = parse_leftovers(await ask(control, "GET", PATH))
    except Refused as error:
        raise CommandFailed(
            f"{control} does not say what is left ({error.detail}): upgrade it first"
        ) from None
    rows = [one for one in found if subject in {"", one.subject}]
    if consumer_group:
        rows = [
            Leftover(one.subject, tuple(undone for undone in one.undone if undone.group == consumer_group))
            for one in rows
        ]
    left = [said for one in rows for said in one.sentences(counts)]
    if left or not any(one.kept for one in rows):
        return left
    groups = groups_by_subject(await ask(server, "GET", "/v1/groups"))
    return [said for one in rows for said in one.late(groups.get(one.subject, ()))]


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
