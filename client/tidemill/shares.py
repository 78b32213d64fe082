"""How much of a consumer's inbox each of its brokers may fill. Pure.

A broker that gave all that was asked for has a backlog; one that gave nothing has none. Each has a part of a quarter of
the inbox for certain, so that what comes there is seen at once and none starves; the rest goes where the backlog is.
One broker alone has all of it.
"""

from __future__ import annotations

CERTAIN = 0.25
"""The part of the inbox that is divided evenly."""
MEMORY = 0.5
"""How much of what was known before counts beside an answer."""


class Shares:
    """See the module."""

    __slots__ = ("_backlogs", "_sum")

    def __init__(self) -> None:
        self._backlogs: dict[object, float] = {}
        """Of each broker how full its answers are: 0 to 1."""
        self._sum = 0.0

    def join(self, broker: object) -> None:
        """There is one more, or it is back. Nobody knows of its backlog: it begins as if it had one."""
        self._backlogs[broker] = 1.0
        self._sum = sum(self._backlogs.values())

    def rest(self, broker: object) -> None:
        """It is away, or has nothing to give: the others may have its part."""
        self._backlogs[broker] = 0.0
        self._sum = sum(self._backlogs.values())

    def answered(self, broker: object, asked: int, given: int) -> None:
        """A pull was answered."""
        if len(self._backlogs) > 1:
            before = self._backlogs[broker]
            self._backlogs[broker] = MEMORY * before + (1 - MEMORY) * min(1.0, given / asked)
            self._sum = sum(self._backlogs.values())

    def of(self, broker: object) -> float:
        """Its part of the inbox. Together they are one."""
        count = len(self._backlogs)
        if count <= 1:
            return 1.0
        even = 1 / count
        if self._sum <= 0:
            return even
        return CERTAIN * even + (1 - CERTAIN) * self._backlogs[broker] / self._sum
