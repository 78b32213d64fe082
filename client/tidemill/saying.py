"""One thing that a settler says to its broker, who awaits the answer, and where it is kept meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidemill.ack_spool import Fate
from tidemill.delivery import Delivery
from tidemill.errors import TidemillError
from tidemill_wire.commands import Adopt, Extend, Nack
from tidemill_wire.ranges import pairs


class Shelf(Protocol):
    """What the spool holds of one consumer."""

    async def keep(self, fates: Sequence[Fate]) -> Sequence[int]:
        """Write them: their numbers; none when that could not be, which was logged."""
        ...

    def told(self, number: int, lost: int) -> None:
        """The broker has answered it, ``lost`` of its messages as too late."""
        ...

    def start(self, job: Coroutine[Any, Any, None]) -> None:
        """Run it beside the caller."""
        ...

    async def leave(self) -> None:
        """The consumer has ended: somebody else tells the rest."""
        ...


@dataclass(slots=True, eq=False)
class Saying:
    """A command and who awaits its answer."""

    command: Fate | Extend
    at: float = 0.0
    """When it was said: a lease that is extended runs from then on at least."""
    era: int = 0
    waiters: list[asyncio.Future[bool]] = field(default_factory=list[asyncio.Future[bool]])
    number: int = 0
    """Of its record in the spool; 0: it has none."""
    over: bool = False
    """It was answered, ``lost`` of its messages as too late."""
    lost: int = 0
    of: Delivery | None = None
    """Of a failure: the messages, which may go to another broker."""
    offers: list[Adopt] | None = None
    """What that is still to be told."""

    @property
    def may_move(self) -> bool:
        """A failure that was never said, and is known whole: nobody can have heard of it."""
        return isinstance(self.command, Nack) and self.of is not None and not self.at and not self.number

    def tell(self, error: TidemillError | None, *, told: bool = True) -> None:
        """Whoever waits need not any more: the broker was ``told``, or will be out of the spool."""
        for future in self.waiters:
            if future.done():
                continue
            if error is None:
                future.set_result(told)
            else:
                future.set_exception(error)


def within(inner: Sequence[int], outer: Sequence[int], *, whole: bool) -> bool:
    """Whether the ranges of ``inner`` lie in those of ``outer``, or touch them if not as a ``whole``."""
    spans = pairs(outer)
    return all(
        any((a <= first and last <= b) if whole else (a <= last and first <= b) for a, b in spans)
        for first, last in pairs(inner)
    )


def joined(spans: Iterable[tuple[int, int]], ranges_max: int) -> list[int]:
    """Spans as ranges, in their order and so many at most."""
    ranges: list[int] = []
    for first, last in sorted(spans):
        if ranges and (first <= ranges[-1] + 1 or len(ranges) >= 2 * ranges_max):
            # Touching, or too many to name: what is named beyond what is held ends with its lease.
            ranges[-1] = max(ranges[-1], last)
        else:
            ranges += (first, last)
    return ranges
