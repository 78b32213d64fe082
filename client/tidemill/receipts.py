"""What a producer gets for its messages."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, overload

from tidemill.errors import TidemillError
from tidemill.parcel import DUPLICATE, Stored
from tidemill_wire.batch import message_id
from tidemill_wire.counted import counted

UNKNOWN = -1
"""Stored, but the broker does not remember where: the second sending of a batch came late."""

STORED_FIELDS = 5
"""Of ``Stored``."""

SPOOLED = -2
"""The sequence of what lies in the spool file."""


class Receipt:
    """One message is stored, or spooled."""

    __slots__ = ("_batch_id", "_index", "_sequence", "subject")

    def __init__(self, subject: str, batch_id: bytes, index: int, sequence: int) -> None:
        self.subject = subject
        self._sequence = sequence
        self._batch_id = batch_id
        self._index = index

    @property
    def id(self) -> str:
        """The message's id: what ``why`` and the query by id take; of a duplicate, that of the one that is stored."""
        return message_id(self._batch_id, self._index & ~DUPLICATE)

    @property
    def sequence(self) -> int:
        """Its number in the subject; -1 when that is not known, as it is for what was spooled."""
        return max(UNKNOWN, self._sequence)

    @property
    def duplicate(self) -> bool:
        """A message with its dedup key was stored before: nothing was stored now, and this says where that one is."""
        return self._index & DUPLICATE != 0

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


def part_at(fields: list[Any], row: int) -> Stored:
    """A part of those that lie in ``fields`` one behind the other."""
    subject, batch_id, first, messages, sequence = fields[row * STORED_FIELDS : (row + 1) * STORED_FIELDS]
    return subject, batch_id, first, messages, sequence


class Receipts(Sequence[Receipt]):
    """The receipts of many messages in the order they were given; made when looked at."""

    __slots__ = ("_ends", "_fields")

    def __init__(self, fields: list[Any]) -> None:
        self._fields = fields
        """Of all parts, one behind the other: what would be a tuple each is one list for the garbage collector."""
        self._ends: list[int] = list(accumulate(fields[3::STORED_FIELDS]))

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
        part = part_at(self._fields, row)
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
        return SPOOLED in self._fields[4::STORED_FIELDS]

    def __repr__(self) -> str:
        return f"Receipts({counted(len(self), 'message')} in {counted(len(self._ends), 'batch', 'batches')})"


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

    __slots__ = ("_complete", "_error", "_fields", "_open", "_places", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Receipts] = loop.create_future()
        self._places: list[int] = []
        self._fields: list[Any] = []
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
        self._places.append(place)
        self._fields += part
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
            self.future.set_result(Receipts(self._in_order()))

    def _in_order(self) -> list[Any]:
        """The fields of all parts in the order of their places, which is mostly the order in which they came."""
        places, fields = self._places, self._fields
        if places == sorted(places):
            return fields
        rows = sorted(range(len(places)), key=places.__getitem__)
        return [field for row in rows for field in part_at(fields, row)]


class Placed:
    """Waits for one message of a call."""

    __slots__ = ("_many", "_place")

    def __init__(self, many: Many, place: int) -> None:
        self._many = many
        self._place = place

    def stored(self, place: int, part: Stored) -> None:
        """It is in a batch that was stored."""
        del place
        self._many.stored(self._place, part)

    def failed(self, error: TidemillError) -> None:
        """It is not, or nobody knows."""
        self._many.failed(error)
