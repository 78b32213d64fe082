"""What the machine is asked in a beat, for as long as a beat may wait.

FENCED comes when it is committed, and that may need meta to hear first that a slave is gone, or this broker to hear
that it leads no more. A beat that waited for it would be the last one: meta would take this broker for dead.
"""

from __future__ import annotations

import asyncio

from tidemill_host.local import LocalPeer
from tidemill_wire.commands import Command
from tidemill_wire.fencing import Fence
from tidemill_wire.replication import Appoint


class Obeying:
    """At most one FENCE waits for its answer."""

    def __init__(self, local: LocalPeer) -> None:
        self._local = local
        self._asked: tuple[Fence, asyncio.Future[Command]] | None = None

    async def ask(self, due: Appoint | Fence, patience_s: float) -> Command | None:
        """The answer; ``None``: it is not there yet, and a later beat may ask the same again."""
        if isinstance(due, Appoint):
            return await self._local.ask(due)
        if self._asked is None:
            self._asked = due, self._local.ask(due)
            self._asked[1].add_done_callback(_heard)
        fence, answer = self._asked
        await asyncio.wait([answer], timeout=patience_s)
        if not answer.done():
            return None
        self._asked = None
        said = answer.result()
        return said if fence == due else await self.ask(due, patience_s)


def _heard(answer: asyncio.Future[Command]) -> None:
    """Its error is for who asks next; nobody does when this broker becomes something else."""
    if not answer.cancelled():
        answer.exception()
