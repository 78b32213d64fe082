"""Messages of one batch that were granted to this consumer. Pure but for what it tells its settler.

Messages are handled from the front: those before ``done`` are settled; ``early`` holds indexes at or behind ``done``
that
were settled by hand before their turn. Index 0 is the first granted message, which may lie anywhere in its batch.
"""

from __future__ import annotations

import math
import struct
from itertools import chain
from typing import Any, Protocol, cast

import msgpack

from tidemill.errors import CorruptBatch
from tidemill_wire.columns import Batch, Column

REVOKED, DOUBTFUL = -1.0, 0.0
CHUNK = 64
"""Bodies of equal size that are cut by one ``struct``: enough to forget the loop, few enough to compile quickly."""


class Settler(Protocol):
    """Where the fate of messages is told: the broker they came from."""

    def ack(self, subject: str, ranges: list[int]) -> None: ...

    async def ack_now(self, subject: str, ranges: list[int]) -> None: ...

    async def nack(self, subject: str, ranges: list[int], delay_ms: int, reason: str) -> None: ...

    async def extend(self, subject: str, ranges: list[int]) -> None: ...

    def doubt(self, subject: str) -> None: ...

    def flush(self) -> None: ...

    def settled(self, delivery: Delivery) -> None: ...


class Delivery:
    """See the module."""

    __slots__ = (
        "_columns", "_data", "_first", "arrived", "attempts", "batch", "bodies", "count", "done", "early",
        "pull_sequence", "settler", "size", "subject", "until",
    )  # fmt: skip

    batch: Batch
    bodies: list[bytes]

    def __init__(
        self, subject: str, attempts: int, pull_sequence: int, place: tuple[memoryview, int, int]
    ) -> None:
        self._data, self._first, self.count = place
        self.subject = subject
        self.attempts = attempts
        self.pull_sequence = pull_sequence
        self.size = len(self._data)
        self.done = 0
        self.early: set[int] = set()
        self.arrived = 0.0
        self.until = math.inf
        """When messages may be begun no more without asking, as the event loop tells time; ``REVOKED`` for never."""
        self.settler: Settler
        self._columns: dict[str, Any] = {}

    def open(self) -> None:
        """Check the bytes and cut out the bodies, or ``CorruptBatch``."""
        self.batch = Batch(self._data)
        self.batch.check()
        self.bodies = cut_bodies(self.batch, self._first, self.count)

    # -- columns -----------------------------------------------------------------------------------------------

    def id_of(self, index: int) -> str:
        """The message's id."""
        return self.batch.message_id(self._first + index)

    def sequence_of(self, index: int) -> int:
        """The message's number in its subject."""
        return self.batch.header.first_sequence + self._first + index

    def keys(self) -> list[str | None]:
        """The keys; ``None`` where a message has none."""
        found: list[str | None] | None = self._columns.get("keys")
        if found is None:
            keys = self._part(self.batch.keys())
            found = [key or None for key in keys] if keys else list[str | None]([None]) * self.count
            self._columns["keys"] = found
        return found

    def tags_of(self, index: int) -> frozenset[str]:
        """The tags of a message."""
        if "tags" not in self._columns:
            self._columns["tags"] = self._part(self.batch.tags())
        tags = self._columns["tags"]
        return frozenset(tags[index]) if tags else frozenset()

    def properties_of(self, index: int) -> dict[str, Any]:
        """The properties of a message."""
        if "properties" not in self._columns:
            self._columns["properties"] = self._part(self.batch.properties())
        packed = self._columns["properties"]
        if not packed or not packed[index]:
            return {}
        try:
            found: object = cast("object", msgpack.unpackb(packed[index]))
        except (ValueError, msgpack.UnpackException) as error:
            raise CorruptBatch(
                f"the properties of message {self.id_of(index)} are not msgpack: {error}"
            ) from None
        if not isinstance(found, dict):
            raise CorruptBatch(f"the properties of message {self.id_of(index)} are no map")
        return cast("dict[str, Any]", found)

    def created_ms(self, index: int) -> int:
        """When the producer made a message."""
        if "created" not in self._columns:
            deltas = self.batch.numbers(Column.CREATED_DELTAS, "i", self.batch.header.messages)
            self._columns["created"] = self._part(deltas)
        deltas = self._columns["created"]
        return self.batch.header.created_at_ms + (deltas[index] if deltas else 0)

    def _part(self, column: list[Any] | None) -> list[Any] | None:
        return None if column is None else column[self._first : self._first + self.count]

    # -- settling ----------------------------------------------------------------------------------------------

    def settle(self, first: int, last: int) -> list[int]:
        """Messages ``first`` to ``last`` are settled; the ranges of pull sequences that were not yet."""
        if last < self.done:
            return []
        assert last < self.count
        base = self.pull_sequence
        if first <= self.done and not self.early:
            ranges = [base + max(first, self.done), base + last]
            self.done = last + 1
        else:
            ranges = list[int]()
            for index in range(max(first, self.done), last + 1):
                if index not in self.early:
                    self.early.add(index)
                    add_range(ranges, base + index, base + index)
            while self.done in self.early:
                self.early.remove(self.done)
                self.done += 1
        if self.done == self.count:
            self.settler.settled(self)
        return ranges

    def unsettled(self) -> list[int]:
        """The ranges of pull sequences whose lease matters still."""
        if not self.early:
            return [self.pull_sequence + self.done, self.pull_sequence + self.count - 1]
        ranges: list[int] = []
        for index in range(self.done, self.count):
            if index not in self.early:
                add_range(ranges, self.pull_sequence + index, self.pull_sequence + index)
        return ranges


def add_range(ranges: list[int], first: int, last: int) -> None:
    """Add a range behind the others; it melts with the last one when they touch."""
    if ranges and ranges[-1] + 1 == first:
        ranges[-1] = last
    else:
        ranges += (first, last)


def cut_bodies(batch: Batch, first: int, count: int) -> list[bytes]:
    """The bodies of ``count`` messages from index ``first`` on. Bodies of one size, which is common, are cut in C."""
    total = batch.header.messages
    offsets = batch.column(Column.BODY_OFFSETS)
    data = batch.column(Column.BODIES)
    if total >= CHUNK and offsets is not None and data is not None and len(offsets) == 4 * (total + 1):
        size = len(data) // total
        places = offsets.cast("i")
        # The first few decide for almost all batches; then all are looked at.
        likely = size and places[1] == size and places[CHUNK] == CHUNK * size and len(data) == total * size
        if likely and places.tolist() == list(range(0, total * size + 1, size)):
            return _cut_equal(data[first * size : (first + count) * size], size)
    return batch.bodies(first, first + count - 1)


def _cut_equal(data: memoryview, size: int) -> list[bytes]:
    whole = len(data) // (CHUNK * size) * CHUNK * size
    rows = struct.Struct(f"{size}s" * CHUNK).iter_unpack(data[:whole])
    bodies: list[bytes] = list(chain.from_iterable(rows))
    rest = (len(data) - whole) // size
    if rest:
        bodies += struct.Struct(f"{size}s" * rest).unpack(data[whole:])
    return bodies
