"""How fast a slave is fed that is not in sync: so that the clients of its master hardly notice, and it arrives.

    in sync, or wished in, or nearly there   as fast as it takes: somebody waits for it, or will at once
    the master has next to nothing to do     as fast as it takes: there is nobody to be slowed
    else                                     what comes in, and a share of the work, or the floor when that is more

What comes in is what any slave costs that follows. What goes beyond it is the price of copying; several slaves that
copy share it. Each is fed more than comes in, so each arrives. The master knows its work by counting: the bytes that it
appends and gives out, and so many for each command, however small.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from tidemill_wire.limits import CHUNKS_AHEAD_BYTES, MIB

WINDOW_MS = 1_000
"""Of traffic, over which it is averaged."""
LOOK_MS = 100
"""Between two looks at it, and what a slave may be sent at once when it was sent nothing for longer."""
COMMAND_BYTES = 32 * 1024
"""A small command costs the loop about as much as so many bytes appended."""


@dataclass(frozen=True, slots=True)
class Pacing:
    """The numbers of the rule; the simulator has smaller ones."""

    idle_bytes: int = 4 * MIB
    """Less work than that in a second is less than a hundredth of a core."""
    floor_bytes: int = 64 * MIB
    """So much in a second beyond what comes in costs the master a tenth of a core at most, however little it works."""
    share: int = 10
    """One of so many bytes of work: a byte copied costs half as much as one that is appended, or as much."""
    near_bytes: int = CHUNKS_AHEAD_BYTES
    """The last stretch, which may all be on its way at once."""


class Traffic(NamedTuple):
    """What a master does in a second, in bytes."""

    incoming: int
    work: int


def rate_of(traffic: Traffic, copying: int, pacing: Pacing) -> int:
    """Bytes a second for each of the slaves that copy; 0: as fast as they take it."""
    if traffic.work < pacing.idle_bytes:
        return 0
    return traffic.incoming + max(pacing.floor_bytes, traffic.work // pacing.share) // copying


class Watch:
    """The traffic of one master. Who copies is looked up again whenever it has looked."""

    def __init__(self, appended: int, now_ms: int) -> None:
        self.served = 0
        """Work that is not in the logs, counted by the master."""
        self._past: deque[tuple[int, int, int]] = deque([(now_ms, appended, 0)])

    def is_due(self, now_ms: int) -> bool:
        return now_ms - self._past[-1][0] >= LOOK_MS

    def look(self, appended: int, now_ms: int) -> Traffic:
        """So much was appended in the master's life. A pause of it counts as time, and not as rest."""
        past = self._past
        past.append((now_ms, appended, self.served))
        while len(past) > 2 and now_ms - past[1][0] >= WINDOW_MS:
            past.popleft()
        began_ms, before, served = past[0]
        passed_ms = max(WINDOW_MS, now_ms - began_ms)
        incoming, others = (1000 * (appended - before)) // passed_ms, 1000 * (self.served - served)
        return Traffic(incoming, incoming + others // passed_ms)


class Pace:
    """Of one feed: what may be sent now."""

    def __init__(self, now_ms: int) -> None:
        self.rate = 0
        """Bytes a second; 0: as fast as it is taken."""
        self._may = 0
        """In thousandths of bytes, as milliseconds add them. Below 0 by what a piece was larger: they go whole."""
        self._at_ms = now_ms

    def set(self, rate: int, now_ms: int) -> None:
        self._pass(now_ms)
        if not (rate and self.rate):
            self._may = 0
        self.rate = rate

    def allows(self, now_ms: int) -> bool:
        self._pass(now_ms)
        return not self.rate or self._may > 0

    def sent(self, size: int) -> None:
        if self.rate:
            self._may -= 1000 * size

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When more may be sent, later than now; ``None`` when that may be now."""
        return None if self.allows(now_ms) else now_ms + 1 + -self._may // self.rate

    def _pass(self, now_ms: int) -> None:
        self._may = min(self._may + self.rate * (now_ms - self._at_ms), self.rate * LOOK_MS)
        self._at_ms = now_ms
