"""How late the event loop is: whoever asks for something while it is busy waits as long.

A clock is looked at ten times a second, so a stall that is longer than a tenth of a second is always seen, a shorter
one as often as its length says; as seen by one of many requests.
"""

from __future__ import annotations

import asyncio

from tidemill_wire.metrics.powers import Powers

LOOK_SECONDS = 0.1


class Stalls:
    """``keep`` runs beside everything else on the loop; ``late`` is what it has seen."""

    def __init__(self) -> None:
        self.late = Powers(1e-3, 14)  # a millisecond to 8 seconds

    async def keep(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
            self.late.add(max(0.0, loop.time() - due))
