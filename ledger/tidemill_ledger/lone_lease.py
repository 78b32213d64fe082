"""The lease of a master that is in sync alone: without it, a person could elect another one while this one goes on.

    untold  --an appointment with a lease-->  told     it runs from when the heartbeat was sent, by this broker's clock
    told    --a later one-->                  told     it runs for longer
    told    --it is over, in sync alone-->    halted   nothing is taken from clients, and nothing is committed
    halted  --a later one, or others in sync--> told   as before; what waited goes on

Only whom meta has told of a lease heeds it. Others in sync make it needless: whoever is elected then has what was
committed. So does a group of one replica, for there is nobody to elect: it goes on for as long as meta is away.
"""

from __future__ import annotations

from tidemill_wire.appointments import Appointment
from tidemill_wire.errors import Unavailable
from tidemill_wire.replication import Appoint

UNTOLD = -1


class LoneLease:
    """Of one mastership."""

    def __init__(self, appoint: Appoint) -> None:
        self._until_ms = UNTOLD
        self.told(appoint)

    def told(self, appoint: Appoint) -> None:
        """What meta answered. Answers may overtake each other: a lease never gets shorter."""
        if appoint.lease_ms:
            self._until_ms = max(self._until_ms, appoint.asked_ms + appoint.lease_ms)

    def is_over(self, appointment: Appointment, now_ms: int) -> bool:
        """Whether the master must halt."""
        alone = len(appointment.in_sync) == 1 < len(appointment.replicas)
        return alone and UNTOLD < self._until_ms <= now_ms


def refusal(name: str) -> Unavailable:
    """What a client is told."""
    return Unavailable("not_master", f"{name} is in sync alone, and meta has not prolonged its lease")
