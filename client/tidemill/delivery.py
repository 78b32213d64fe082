"""Messages of one batch that were granted to this consumer. Pure but for what it tells its settler.

Messages are handled from the front: those before ``done`` are settled; ``early`` holds indexes at or behind ``done``
that
were settled by hand before their turn. Index 0 is the first granted message, which may lie anywhere in its batch;
others may lie between it and the next one, when the group has a filter. The pull sequences have no gap.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any, Protocol, cast

import msgpack

from tidemill.errors import CorruptBatch
from tidemill.why import Why
from tidemill_wire.batch import GATHERED, Flags
from tidemill_wire.columns import Batch, Column
from tidemill_wire.fields import DEAD_PREFIX, DEAD_PROPERTY
from tidemill_wire.filters import EVERYTHING
from tidemill_wire.ranges import pairs
from tidemill_wire.sums import check_sums, message_sums

REVOKED, DOUBTFUL = -1.0, 0.0
CHUNK = 64
"""Bodies of equal size that are cut by one ``struct``: enough to forget the loop, few enough to compile quickly."""


class Settler(Protocol):
    """Where the fate of messages is told: the broker they came from."""

    def ack(self, subject: str, ranges: list[int]) -> None: ...

    async def ack_now(self, subject: str, ranges: list[int]) -> bool: ...

    async def nack(self, subject: str, ranges: list[int], why: Why, of: Delivery | None = None) -> bool: ...

    async def extend(self, subject: str, ranges: list[int], parked: Why | None = None) -> None: ...

    def release(self, subject: str, ranges: list[int]) -> None: ...

    def doubt(self, subject: str) -> None: ...

    def nack_soon(self, subject: str, ranges: list[int], why: Why) -> None: ...

    def parted(self, delivery: Delivery, into: list[Delivery]) -> None: ...


class Delivery:
    """See the module."""

    __slots__ = (
        "_columns", "_data", "_first", "_indexes", "_rows", "arrived", "attempts", "batch", "begun", "bodies", "count",
        "done", "early", "gone", "over", "pull_sequence", "settler", "size", "subject", "until", "wanted",
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
        self.begun: set[int] = set()
        """Indexes that are at work, of what meta allots: their leases are kept over a new connection, too."""
        self.over: set[int] = set()
        """Of these, the indexes whose lease the broker calls lost: there is none to keep any more."""
        self.gone = False
        """The broker has said that all that is left of it is lost."""
        self.arrived = 0.0
        self.until = math.inf
        """When messages may be begun no more without asking, as the event loop tells time; ``REVOKED`` for never."""
        self.settler: Settler
        self.wanted = EVERYTHING
        """The filter of the group."""
        self._columns: dict[str, Any] = {}
        self._rows: Sequence[int] | None = None
        self._indexes: list[int] | None = None

    def mask(self, rows: Sequence[int]) -> None:
        """Only these messages of the batch were granted."""
        assert len(rows) == self.count
        self._rows = rows

    def open(self) -> None:
        """Check the bytes and cut out the bodies, or ``CorruptBatch``."""
        self.batch = Batch(self._data)
        self.batch.check()
        if self.batch.header.flags & GATHERED:
            self._indexes = self.batch.numbers(Column.INDEXES, "i", self.batch.header.messages)
            if self._indexes is None or min(self._indexes) < 0:
                raise CorruptBatch("a gathered batch that does not say where its messages were")
            check_gathered(self.batch)
        if self._rows is None:
            self.bodies = cut_bodies(self.batch, self._first, self.count)
        else:
            bodies = cut_bodies(self.batch, 0, self.batch.header.messages)
            self.bodies = [bodies[row] for row in self._rows]

    def part(self, first: int, end: int) -> Delivery:
        """Messages ``first`` to ``end`` (not included) of an opened delivery of which nothing is settled yet."""
        assert self.done == 0
        assert not self.early
        place = self._data, self._first + first, end - first
        part = Delivery(self.subject, self.attempts, self.pull_sequence + first, place)
        part.settler, part.wanted, part.arrived = self.settler, self.wanted, self.arrived
        part.until = self.until
        part.batch, part.bodies = self.batch, self.bodies[first:end]
        part._columns, part._indexes = self._columns, self._indexes
        part._rows = None if self._rows is None else self._rows[first:end]
        return part

    # -- columns -----------------------------------------------------------------------------------------------

    def id_of(self, index: int) -> str:
        """The message's id; that of the original when this is a copy, as dead letters are."""
        if self.batch.flags & Flags.REDELIVERED:
            origins = self._column("origins", self.batch.origins)
            if origins:
                return str(origins[self._row(index)])
        sources = self._column("sources", self._read_sources)
        return self.batch.message_id(sources[self._row(index)] if sources else self._place(index))

    def sequence_of(self, index: int) -> int:
        """The message's number in its subject; of a dead letter that of the original."""
        if self.subject.startswith(DEAD_PREFIX):
            known: object = self.properties_of(index).get(DEAD_PROPERTY)
            original = cast("dict[str, Any]", known).get("original", -1) if isinstance(known, dict) else None
            if isinstance(original, int):
                return original
        return self.batch.header.first_sequence + self._place(index)

    def keys(self) -> list[str | None]:
        """The keys; ``None`` where a message has none."""
        keys = self._column("keys", self.batch.keys)
        if not keys:
            return [None] * self.count
        return [keys[self._row(index)] or None for index in range(self.count)]

    def key_of(self, index: int) -> str | None:
        """The key of a message."""
        keys = self._column("keys", self.batch.keys)
        return (keys[self._row(index)] or None) if keys else None

    def order_key_of(self, index: int) -> str | None:
        """The order key of a message."""
        keys = self._column("order_keys", self.batch.order_keys)
        return (keys[self._row(index)] or None) if keys else None

    def timer_key_of(self, index: int) -> str | None:
        """The timer key of a message that was sent for later."""
        keys = self._column("timer_keys", self.batch.timer_keys)
        return (keys[self._row(index)] or None) if keys else None

    def tags_of(self, index: int) -> frozenset[str]:
        """The tags of a message."""
        tags = self._column("tags", self.batch.tags)
        return frozenset(tags[self._row(index)]) if tags else frozenset()

    def properties_of(self, index: int) -> dict[str, Any]:
        """The properties of a message."""
        mine = self.packed_of(index)
        if not mine:
            return {}
        try:
            found: object = cast("object", msgpack.unpackb(mine))
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
            raise CorruptBatch(
                f"the properties of message {self.id_of(index)} are not msgpack: {error}"
            ) from None
        if not isinstance(found, dict):
            raise CorruptBatch(f"the properties of message {self.id_of(index)} are no map")
        return cast("dict[str, Any]", found)

    def packed_of(self, index: int) -> bytes:
        """The properties of a message as they came."""
        packed = self._column("properties", self.batch.properties)
        return bytes(packed[self._row(index)]) if packed else b""

    def created_ms(self, index: int) -> int:
        """When the producer made a message."""
        messages = self.batch.header.messages
        deltas = self._column("created", lambda: self.batch.numbers(Column.CREATED_DELTAS, "i", messages))
        return self.batch.header.created_at_ms + (deltas[self._row(index)] if deltas else 0)

    def _column(self, name: str, read: Callable[[], list[Any] | None]) -> list[Any] | None:
        """A column of the whole batch, read once, also for the parts of a delivery."""
        if name not in self._columns:
            self._columns[name] = read()
        column: list[Any] | None = self._columns[name]
        return column

    def _read_sources(self) -> list[int] | None:
        return self.batch.numbers(Column.SOURCES, "i", self.batch.header.messages)

    def _row(self, index: int) -> int:
        """The place of a message in the batch that came."""
        return self._first + index if self._rows is None else self._rows[index]

    def _place(self, index: int) -> int:
        """The place of a message in the batch that its producer made."""
        row = self._row(index)
        return row if self._indexes is None else self._indexes[row]

    @property
    def at_work(self) -> list[int]:
        """Pull sequences of what is begun and not settled, as ranges, as far as they have a lease."""
        base = self.pull_sequence
        return [bound for index in sorted(self.begun - self.over) for bound in (base + index, base + index)]

    def keep(self, at_work: AbstractSet[int]) -> None:
        """Those of its messages that this consumer is at, under an earlier delivery: begun, as these are."""
        try:
            if not hasattr(self, "bodies"):
                self.open()
            left = (index for index in range(self.done, self.count) if index not in self.early)
            self.begun |= {index for index in left if self.sequence_of(index) in at_work}
        except CorruptBatch:
            return  # whoever begins with it finds that, and says so

    def revoke(self) -> bool:
        """All that is left of it is lost, as the broker says: whether that is news."""
        news = self.until != REVOKED
        self.until, self.gone = REVOKED, True
        return news

    def lose(self, lost: Sequence[int]) -> None:
        """These pull sequences have no lease any more."""
        places = [(first - self.pull_sequence, last - self.pull_sequence) for first, last in pairs(lost)]
        self.over |= {one for one in self.begun for first, last in places if first <= one <= last}

    # -- settling ----------------------------------------------------------------------------------------------

    def settle(self, first: int, last: int) -> list[int]:
        """Messages ``first`` to ``last`` are settled; the ranges of pull sequences that were not yet."""
        if self.begun:
            self.begun.difference_update(range(first, last + 1))
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
            self.settler.parted(self, [])
        return ranges

    def give_back(self) -> None:
        """All that is left of it was not begun."""
        if ranges := self.settle(0, self.count - 1):
            self.settler.release(self.subject, ranges)

    @property
    def leased(self) -> list[int]:
        """What the broker is told of: all that is not settled; of what is ours no more only what is at work."""
        return self.at_work if self.until == REVOKED else self.unsettled()

    def unsettled(self) -> list[int]:
        """The ranges of pull sequences whose lease matters still."""
        if not self.early:
            return [self.pull_sequence + self.done, self.pull_sequence + self.count - 1]
        ranges: list[int] = []
        for index in range(self.done, self.count):
            if index not in self.early:
                add_range(ranges, self.pull_sequence + index, self.pull_sequence + index)
        return ranges


def idle(deliveries: Iterable[Delivery], subject: str) -> list[tuple[Delivery, list[int]]]:
    """What of a subject is not begun, by its indexes: it may go to somebody else.

    A message whose lease was lost may have been given out again to this consumer, which is at it still. The broker
    knows nothing of that handler, so what it gave last stays until it has ended: given back, it would be begun beside.
    """
    mine = [one for one in deliveries if one.subject == subject]
    at_work = {one.sequence_of(index) for one in mine for index in one.begun}
    for one in mine if at_work else ():
        one.keep(at_work)
    return [(one, [index for index in range(one.count) if index not in one.begun]) for one in mine]


def add_range(ranges: list[int], first: int, last: int) -> None:
    """Add a range behind the others; it melts with the last one when they touch."""
    if ranges and ranges[-1] + 1 == first:
        ranges[-1] = last
    else:
        ranges += (first, last)


def check_gathered(batch: Batch) -> None:
    """A broker made the batch, the producer the sums of its messages: they are what it says, or ``CorruptBatch``."""
    found = message_sums(batch.bodies(), batch.keys(), batch.tags() or [], batch.properties())
    check_sums(found, batch.column(Column.SUMS))


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
