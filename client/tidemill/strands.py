"""The messages of one order key in a consumer's hands: a strand. Pure.

    strand    event                       next
    waiting   ``take``                    busy      its first message is begun; no other of it is
    busy      ``done``                    waiting   the next one may be begun; without one the strand is over
    busy      ``again``                   parked    the message that failed stays in front
    parked    ``wake``, its time came     waiting   the same message is begun again, before anything behind it

Strands take turns in the order in which they became ready, so one with many messages holds up no other. A message
without an order key is a strand of its own.

Invariants: of a strand one message is begun at a time, in the order of ``add``; a parked strand holds up itself alone,
but for the room it takes: beyond ``room`` messages nothing more is to be added.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Strand(Generic[T]):
    """See the module."""

    __slots__ = ("busy", "key", "messages", "parked", "tries")

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.messages: deque[T] = deque()
        """Those that are not begun, and the one that is tried again."""
        self.busy = False
        self.parked = False
        self.tries = 0
        """How often the first message was begun here and failed."""


class Strands(Generic[T]):
    """See the module."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._by_key: dict[str, Strand[T]] = {}
        self._ready: deque[Strand[T]] = deque()
        self._due: list[tuple[float, int, Strand[T]]] = []
        self._number = 0
        self.waiting = 0
        """Messages that are not begun."""
        self.parked = 0
        """Strands that wait for another try."""

    @property
    def full(self) -> bool:
        """There is room for no more messages."""
        return self.waiting >= self._room

    @property
    def next_due(self) -> float | None:
        """When the next parked strand may go on."""
        return self._due[0][0] if self._due else None

    def add(self, key: str | None, message: T) -> None:
        """One more message, behind all others of its key."""
        strand = self._by_key.get(key) if key is not None else None
        if strand is None:
            strand = Strand[T](key)
            if key is not None:
                self._by_key[key] = strand
        strand.messages.append(message)
        self.waiting += 1
        if len(strand.messages) == 1 and not strand.busy:
            self._ready.append(strand)

    def take(self) -> tuple[Strand[T], T] | None:
        """A message that may be begun now."""
        if not self._ready:
            return None
        strand = self._ready.popleft()
        assert not strand.busy
        assert not strand.parked
        strand.busy = True
        self.waiting -= 1
        return strand, strand.messages.popleft()

    def done(self, strand: Strand[T]) -> None:
        """Its message has ended, one way or the other."""
        assert strand.busy
        strand.busy, strand.tries = False, 0
        if strand.messages:
            self._ready.append(strand)
        elif strand.key is not None:
            del self._by_key[strand.key]

    def again(self, strand: Strand[T], message: T, at: float) -> None:
        """Its message failed: it is begun again then, and nothing behind it before."""
        assert strand.busy
        strand.busy, strand.parked = False, True
        strand.tries += 1
        strand.messages.appendleft(message)
        self.waiting += 1
        self.parked += 1
        self._number += 1
        heapq.heappush(self._due, (at, self._number, strand))

    def wake(self, now: float) -> None:
        """Parked strands whose time has come may go on."""
        while self._due and self._due[0][0] <= now:
            strand = heapq.heappop(self._due)[2]
            strand.parked = False
            self.parked -= 1
            self._ready.append(strand)

    def clear(self) -> tuple[list[T], list[tuple[Strand[T], T]]]:
        """Nothing more is begun: those that were never tried, and those that failed and would be tried again."""
        strands = {id(strand): strand for strand in (*self._by_key.values(), *self._ready)}
        strands |= {id(strand): strand for _, _, strand in self._due}
        untried, failed = list[T](), list[tuple[Strand[T], T]]()
        for strand in strands.values():
            if strand.parked:
                strand.parked = False
                failed.append((strand, strand.messages.popleft()))
            untried += strand.messages
            strand.messages.clear()
        self._ready.clear()
        self._due.clear()
        self._by_key = {key: strand for key, strand in self._by_key.items() if strand.busy}
        self.waiting = self.parked = 0
        return untried, failed

    def check(self) -> None:
        """The invariants in the module's docstring."""
        ready = {id(strand) for strand in self._ready}
        assert len(ready) == len(self._ready)
        for key, strand in self._by_key.items():
            assert strand.key == key
            assert strand.busy + strand.parked + (id(strand) in ready) == 1, (key, strand.busy, strand.parked)
            assert strand.messages or strand.busy
        alone = [strand for strand in self._ready if strand.key is None]
        alone += [strand for _, _, strand in self._due if strand.key is None]
        waiting = sum(len(strand.messages) for strand in (*self._by_key.values(), *alone))
        assert waiting == self.waiting
        assert self.parked == len(self._due)
