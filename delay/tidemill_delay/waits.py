"""Steps that wait until the disk has something, in the order in which they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from tidemill_delay.keeping import Keeping
from tidemill_host.machine import Mark
from tidemill_ledger.logs import Logs

Step: TypeAlias = Callable[[int], None]


class Waits:
    """See the module."""

    def __init__(self, logs: Logs, keeping: Keeping) -> None:
        self._logs = logs
        self._keeping = keeping
        self._steps: deque[tuple[int, Step]] = deque()
        self._placed_in = 0
        """The ``Ready`` that writes what was placed last."""
        self._turns: deque[int] = deque()
        """Those that write something for which somebody wants a turn."""

    def placed(self) -> None:
        """The next ``Ready`` writes messages."""
        self._placed_in = self._logs.number + 1

    def persisted(self, mark: Mark, now_ms: int) -> bool:
        """The disk has come further; whether a turn is wanted: one, however much was placed."""
        while self._steps and self._steps[0][0] <= mark.synced:
            self._steps.popleft()[1](now_ms)
        wanted = False
        while self._turns and self._turns[0] <= mark.synced:
            self._turns.popleft()
            wanted = True
        return wanted

    def turn_after_placed(self) -> None:
        """When all that was placed so far is there to stay."""
        if not self._turns or self._turns[-1] != self._placed_in:
            self._turns.append(self._placed_in)

    def after_placed(self, step: Step, now_ms: int) -> None:
        """Do it when all that was placed so far is there to stay: if a message that was sent went with the power, the
        next one would have its number, and count as sent.
        """
        if self._placed_in <= self._logs.mark.synced:
            step(now_ms)
        else:
            self._steps.append((self._placed_in, step))

    def after_sync(self, step: Step, now_ms: int) -> None:
        """Do it when all that was written so far is there to stay, soon."""
        number = self._logs.number + (1 if self._logs.has_writes else 0)
        if number <= self._logs.mark.synced:
            step(now_ms)
        else:
            self._steps.append((number, step))
            self._keeping.sync_now = True
