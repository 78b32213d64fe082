"""Order keys, an exclusive group and broadcast, while meta's store goes back: consumers that were given partitions by
what is lost, and those that the store names, are never at work on one at a time.

What was declared is kept, for nobody would declare it again; allocations, appointments and all that is heard are lost.
"""

from __future__ import annotations

import asyncio

from sim.restored import GoingBack, Keeping, Remembering
from sim.seats import Seat
from sim.together import Together
from sim.whole import METAS
from sim.world import Env
from tidemill_wire.appointments import Appointment

SETTLED_S = 0.5
"""After the subjects were declared."""


class RejoinedSeat(Seat):
    """A broker group of whose masters more is remembered than meta knows."""

    def __init__(self, seed: str, group: str) -> None:
        super().__init__(seed, group)
        self.chronicle = self.book = Remembering(Appointment(group, 0, "", (), (), 0))


class Rejoined(GoingBack, Together):
    """The scenario."""

    probes = ("failovers", "hand_overs", "shared_out", "went_back", "lost_entries")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self._weeding = Keeping(self.cells[-1], METAS)

    def _seat(self, seed: str, group: str) -> Seat:
        return RejoinedSeat(seed, group)

    async def _kept_s(self, env: Env) -> float:
        await self.founded()
        await asyncio.sleep(SETTLED_S)
        return env.loop.now


def make(seed: str) -> Rejoined:
    return Rejoined(seed)
