"""How far a broker group has come: both ends of the logs behind each ``Ready``, and what of it everybody has."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tidemill_wire.replication import Ends


class Numbers:
    """How far the group has come, in numbers of ``Ready``s; -1: not even with what the master began with."""

    def __init__(self, ends: Ends) -> None:
        self._ahead: deque[tuple[int, Ends]] = deque([(0, ends)])
        self.number = -1
        self.ends = Ends(0, 0)

    def note(self, number: int, ends: Ends) -> None:
        """The logs end there behind that ``Ready``."""
        self._ahead.append((number, ends))

    def reach(self, local: int, others: Sequence[Ends]) -> None:
        """This broker has come as far as ``local``, the others to these ends."""
        ahead = self._ahead
        while ahead and ahead[0][0] <= local and all(has(one, ahead[0][1]) for one in others):
            self.number, self.ends = ahead.popleft()


def has(reached: Ends, ends: Ends) -> bool:
    return reached.message >= ends.message and reached.action >= ends.action
