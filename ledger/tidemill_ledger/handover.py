"""A planned hand-over: a master takes no more work, and says when a slave has all that it has.

master  --HANDOVER-->           leaving   what clients ask is refused with `not_master`; nothing more is written
leaving --the slave has all, on its disk-->  left  DONE: it can be appointed, and nothing is lost or repeated
leaving, left --HANDOVER_MS-->  master    as before; who waits for DONE is told so

On its disk, for who asked stops next, in most cases: the slave alone has all then, and may have lost its power a moment
ago without anybody knowing.
"""

from __future__ import annotations

from tidemill_host.machine import Peer
from tidemill_wire import limits
from tidemill_wire.errors import Unavailable
from tidemill_wire.replication import Ends, Reached


class Leaving:
    """One hand-over under way."""

    def __init__(self, to: str, asker: tuple[Peer, int], now_ms: int) -> None:
        self.to = to
        self.asker = asker
        self.left: Ends | None = None
        """What the slave had when it had all, and whoever asked was told so; without what a goodbye writes later."""
        self._until_ms = now_ms + limits.HANDOVER_MS

    def refusal(self) -> Unavailable:
        """What a client is told."""
        return Unavailable("not_master", f"this broker hands over to {self.to}")

    def leave(self, reached: Reached | None, ends: Ends, committed: Ends) -> bool:
        """Whether to say DONE now."""
        if self.left is not None or reached is None or reached.synced != ends or committed != ends:
            return False
        self.left = ends
        return True

    def is_over(self, now_ms: int) -> bool:
        """Nobody was appointed in time."""
        return now_ms >= self._until_ms
