"""Which rows this process is about to send itself. Pure.

    a row      event                        next
    told       its commit, or just before   pending
    pending    found in the table           delivered   stored, and deleted; or left as it is
    pending    not found, ``looks_max``     left        rolled back, or slow, or an earlier process has sent it
    pending    too old                      left        a send may take so long that the watchdog would begin it, too

What is *left* the watchdog sends, if it is there. So nothing depends on what this process remembers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tidemill.outbox.row import Written


class Pending:
    """See the module."""

    def __init__(self, pending_max: int, looks_max: int, look_s: Callable[[int], float]) -> None:
        self._pending_max = pending_max
        self._looks_max = looks_max
        self._look_s = look_s
        self._queues: list[deque[tuple[float, Written]]] = [deque() for _ in range(looks_max)]
        """By how often they were looked for: in each one the first is due first."""

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def add(self, written: Sequence[Written], now: float) -> int:
        """More of them; how many there was no room for."""
        room = max(0, self._pending_max - len(self))
        due = now + self._look_s(0)
        self._queues[0].extend((due, one) for one in written[:room])
        return len(written) - len(written[:room])

    def take(self, now: float, rows_max: int, began_after: float) -> list[tuple[int, Written]]:
        """Those that are due, with how often they were looked for. Older ones than that are dropped."""
        taken: list[tuple[int, Written]] = []
        for looks, queue in enumerate(self._queues):
            while queue and queue[0][0] <= now and len(taken) < rows_max:
                _, one = queue.popleft()
                if one.began > began_after:
                    taken.append((looks, one))
        return taken

    def missed(self, looked: Sequence[tuple[int, Written]], now: float) -> int:
        """They were not there: look again later, if not for the last time; how many are left."""
        left = 0
        for looks, one in looked:
            if looks + 1 < self._looks_max:
                self._queues[looks + 1].append((now + self._look_s(looks + 1), one))
            else:
                left += 1
        return left

    @property
    def next_due(self) -> float | None:
        """When the next one is to be looked up."""
        return min((queue[0][0] for queue in self._queues if queue), default=None)
