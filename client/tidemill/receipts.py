"""What a producer gets for its messages."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from typing import overload

from tidemill.errors import TidemillError
from tidemill.parcel import Stored
from tidemill_wire.batch import message_id

UNKNOWN = -1
"""Stored, but the broker does not remember where: the second sending of a batch came late."""

SPOOLED = -2
"""The sequence of what lies in the spool file."""


class Receipt:
    """One message was stored, or spooled."""

    __slots__ = ("_batch_id", "_index", "_sequence", "subject")

    def __init__(self, subject: str, batch_id: bytes, index: int, sequence: int) -> None:
        self.subject = subject
        self._sequence = sequence
        self._batch_id = batch_id
        self._index = index

    @property
    def id(self) -> str:
        """The message's id: what ``why`` and the query by id take."""
        return message_id(self._batch_id, self._index)

    @property
    def sequence(self) -> int:
        """Its number in the subject; -1 when that is not known, as it is for what was spooled."""
        return max(UNKNOWN, self._sequence)

    @property
    def spooled(self) -> bool:
        """No broker was reached: it lies in the spool file and is sent when one is back."""
        return self._sequence == SPOOLED

    def __repr__(self) -> str:
        return f"Receipt(subject={self.subject!r}, sequence={self.sequence}, id={self.id!r})"


def receipt_of(part: Stored, at: int) -> Receipt:
    """That of message ``at`` of a part of a batch."""
    subject, batch_id, first, _, sequence = part
    return Receipt(subject, batch_id, first + at, sequence + at if sequence >= 0 else sequence)


class Receipts(Sequence[Receipt]):
    """The receipts of many messages in the order they were given; made when looked at."""

    __slots__ = ("_ends", "_parts")

    def __init__(self, parts: list[Stored]) -> None:
        self._parts = parts
        self._ends: list[int] = []
        end = 0
        for part in parts:
            end += part[3]
            self._ends.append(end)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, at: int) -> Receipt: ...
    @overload
    def __getitem__(self, at: slice) -> list[Receipt]: ...
    def __getitem__(self, at: int | slice) -> Receipt | list[Receipt]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        index = at + len(self) if at < 0 else at
        if not 0 <= index < len(self):
            raise IndexError(f"receipt {at} of {len(self)}")
        row = bisect_right(self._ends, index)
        part = self._parts[row]
        return receipt_of(part, index - (self._ends[row] - part[3]))

    @property
    def first_id(self) -> str:
        """The id of the first message."""
        return self[0].id

    @property
    def last_id(self) -> str:
        """The id of the last message."""
        return self[-1].id

    @property
    def spooled(self) -> bool:
        """At least one of them lies in the spool file."""
        return any(part[4] == SPOOLED for part in self._parts)

    def __repr__(self) -> str:
        return f"Receipts({len(self)} messages in {len(self._parts)} batches)"


class Single:
    """Waits for one message."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[Receipt]) -> None:
        self.future = future

    def stored(self, place: int, part: Stored) -> None:
        """It is in a batch that was stored."""
        del place
        if not self.future.done():
            self.future.set_result(receipt_of(part, 0))

    def failed(self, error: TidemillError) -> None:
        """It is not, or nobody knows."""
        if not self.future.done():
            self.future.set_exception(error)


class Many:
    """Waits for the messages of one call: one future, however many there are."""

    __slots__ = ("_complete", "_error", "_open", "_parts", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Receipts] = loop.create_future()
        self._parts: dict[int, Stored] = {}
        self._open = 0
        self._complete = False
        self._error: TidemillError | None = None

    def expect(self, parts: int) -> None:
        """So many more parts are handed in now; each will be stored, or fail."""
        self._open += parts

    def handed_in(self) -> None:
        """No more parts will come."""
        self._complete = True
        self._look()

    @property
    def error(self) -> TidemillError | None:
        """The first failure: the caller may stop handing in."""
        return self._error

    def stored(self, place: int, part: Stored) -> None:
        """The part that begins at message ``place`` of the call was stored."""
        self._parts[place] = part
        self._open -= 1
        if not self._open:
            self._look()

    def failed(self, error: TidemillError) -> None:
        """A part was not stored. The others go on; the call fails when all have ended."""
        self._error = self._error or error
        self._open -= 1
        self._look()

    def _look(self) -> None:
        if self._open or not self._complete or self.future.done():
            return
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(Receipts([self._parts[place] for place in sorted(self._parts)]))
