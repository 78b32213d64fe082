"""In whose hands a consumer is: of one task, or of one thread of a blocking one, until it asks for more or has ended.

    state    event                        next
    free     somebody asks                asked    one at a time: what wakes it wakes one
    asked    a delivery is there          taken    it is that task's
    taken    the same one asks            asked    what is in hand counts as handled, and is acked
    taken    another one asks             taken    refused, while the first one lives: it may still be at work
    taken    another one asks             asked    the first one has ended: well, and it is acked; else it failed too

So one task's asking for more never acks what another one has in its hands.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

Who: TypeAlias = "asyncio.Task[object] | threading.Thread | None"

ONE_LOOP = "one loop per consumer: give each task its own consume(), or take a Worker"


class Hands:
    """See the module."""

    __slots__ = ("_asked", "who")

    def __init__(self) -> None:
        self.who: Who = None
        """Who took the delivery in hand."""
        self._asked = False

    @contextmanager
    def asking(self, who: Who) -> Generator[BaseException | None]:
        """Nobody else asks meanwhile, and what comes of it is theirs. What another one that has ended did not handle is
        as one that left with this error.
        """
        if self._asked:
            raise RuntimeError(f"another task waits for this consumer's next message: {ONE_LOOP}")
        if self.who is not who and _lives(self.who):
            raise RuntimeError(f"another task has this consumer's message in its hands: {ONE_LOOP}")
        left = None if self.who is who else _end_of(self.who)
        self.who, self._asked = who, True
        try:
            yield left
        finally:
            self._asked = False

    def to_blame(self, error: BaseException | None) -> BaseException | None:
        """What the consumer is left with, as far as it is about what is in hand: another one may have that."""
        who = self.who
        if who is None or who in (asyncio.current_task(), threading.current_thread()):
            return error
        return asyncio.CancelledError() if _lives(who) else _end_of(who) or error


def _end_of(who: Who) -> BaseException | None:
    if not isinstance(who, asyncio.Task):
        return None
    return asyncio.CancelledError() if who.cancelled() else who.exception()


def _lives(who: Who) -> bool:
    match who:
        case None:
            return False
        case threading.Thread():
            return who.is_alive()
        case _:
            return not who.done()
