"""Which messages go together. Pure: it decides, ``producer.py`` does.

Messages of one partition gather in the last of its *gatherings* until that is full; a gathering is sealed into a batch
when a frame has room for it. Invariants:

- a frame holds at most one batch of a partition, and batches of a partition leave in the order of their numbers;
- a partition with a refused batch that is tried again is *held*: none of its later ones leave before it;
- a refused batch keeps its number unless a later one may have been stored: the broker takes a number below the last it
  has stored for a repetition, so the batch gets a new one then, and is never taken for what it is not;
- partitions take turns: one that has more for the next frame queues up behind those that waited.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Protocol

from tidemill.encode import Bytes, encode, renumbered
from tidemill.errors import TidemillError
from tidemill.receipts import Part
from tidemill_wire.batch import BatchIds, Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Content
from tidemill_wire.limits import BATCH_MESSAGES_MAX

MESSAGE_OVERHEAD_BYTES = 64
"""What a waiting message costs besides its body, so that empty ones are not free."""


class Waiter(Protocol):
    """Who wants to know what became of messages."""

    def stored(self, place: int, part: Part) -> None: ...

    def failed(self, error: TidemillError) -> None: ...


class Claim(NamedTuple):
    """A waiter's share of a batch: ``messages`` of them from ``first`` on, its own from ``place`` on."""

    waiter: Waiter
    place: int
    first: int
    messages: int


class Extras(NamedTuple):
    """What a message has besides its body."""

    key: str | None = None
    tags: tuple[str, ...] | None = None
    properties: bytes | None = None


class Gathering:
    """Messages that will be one batch."""

    __slots__ = ("bodies", "claims", "deadline", "keys", "properties", "size", "tags")

    def __init__(self, deadline: float) -> None:
        self.bodies: list[bytes] = []
        self.keys: list[str | None] | None = None
        self.tags: list[tuple[str, ...]] | None = None
        self.properties: list[bytes] | None = None
        self.claims: list[Claim] = []
        self.size = 0
        self.deadline = deadline

    def note(self, extras: Extras) -> None:
        """The extras of the message whose body was added last. Columns begin when one is needed."""
        before = len(self.bodies) - 1
        if extras.key is not None and self.keys is None:
            self.keys = [None] * before
        if extras.tags is not None and self.tags is None:
            self.tags = [()] * before
        if extras.properties is not None and self.properties is None:
            self.properties = [b""] * before
        if self.keys is not None:
            self.keys.append(extras.key)
        if self.tags is not None:
            self.tags.append(extras.tags or ())
        if self.properties is not None:
            self.properties.append(extras.properties or b"")

    @property
    def plain(self) -> bool:
        """Nothing but bodies so far."""
        return self.keys is None and self.tags is None and self.properties is None


class Partition:
    """A subject as this producer knows it."""

    __slots__ = ("gatherings", "in_flight", "name", "raw", "reached", "refused", "sequence")

    def __init__(self, name: str) -> None:
        self.name = name
        self.raw = name.encode()
        self.sequence = 0
        """The number of the last batch."""
        self.reached = 0
        """The highest number that is stored, or may be."""
        self.in_flight = 0
        self.refused: list[Sealed] = []
        """Batches that are tried again, by their numbers."""
        self.gatherings: deque[Gathering] = deque()


@dataclass(slots=True, eq=False)
class Sealed:
    """A batch: its bytes do not change any more, however often it is sent."""

    partition: Partition
    data: Bytes
    number: int
    batch_id: bytes
    claims: list[Claim]
    size: int
    """What it counts in the memory bound."""
    deadline: float
    error: TidemillError | None = None
    """Why it was refused last."""

    def retried(self) -> Sealed:
        """Itself, ready to be sent again after a refusal."""
        partition = self.partition
        if self.number < partition.reached:
            partition.sequence += 1
            self.number = partition.sequence
            self.data = renumbered(self.data, self.number)
        return self

    def stored(self, first_sequence: int) -> None:
        """Tell everybody."""
        name, batch_id = self.partition.name, self.batch_id
        for waiter, place, first, messages in self.claims:
            sequence = first_sequence + first if first_sequence >= 0 else first_sequence
            waiter.stored(place, Part(name, batch_id, first, messages, sequence))

    def failed(self, error: TidemillError) -> None:
        """Tell everybody."""
        for claim in self.claims:
            claim.waiter.failed(error)


@dataclass(frozen=True, slots=True)
class Signature:
    """What is the same in all batches of a producer."""

    producer_id: int
    codec: Codec
    now_ms: Callable[[], int]


class Gather:
    """All that waits to be sealed."""

    def __init__(self, signature: Signature, batch_bytes: int) -> None:
        self._signature = signature
        self._ids = BatchIds(signature.producer_id)
        self._batch_bytes = batch_bytes
        self._waiting: dict[Partition, None] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(
        self,
        partition: Partition,
        body: bytes,
        extras: Extras | None,
        waiter: Waiter,
        deadline: float,
        place: int = 0,
    ) -> int:
        """One message; how many bytes it counts."""
        size = len(body) + MESSAGE_OVERHEAD_BYTES
        if extras is not None:
            size += len(extras.key or "") + sum(map(len, extras.tags or ())) + len(extras.properties or b"")
        gathering = self._room(partition, size, deadline)
        index = len(gathering.bodies)
        gathering.bodies.append(body)
        if extras is not None or not gathering.plain:
            gathering.note(extras or Extras())
        gathering.claims.append(Claim(waiter, place, index, 1))
        gathering.size += size
        return size

    def add_many(
        self, partition: Partition, bodies: list[bytes], place: int, waiter: Waiter, deadline: float
    ) -> int:
        """Messages with nothing but bodies, at most a batch of them. The list is the gathering's from now on."""
        size = sum(map(len, bodies)) + MESSAGE_OVERHEAD_BYTES * len(bodies)
        gathering = self._room(partition, size, deadline)
        index = len(gathering.bodies)
        if not gathering.plain or len(gathering.bodies) + len(bodies) > BATCH_MESSAGES_MAX:
            gathering, index = self._new(partition, deadline), 0
        if index:
            gathering.bodies.extend(bodies)
        else:
            gathering.bodies = bodies
        gathering.claims.append(Claim(waiter, place, index, len(bodies)))
        gathering.size += size
        return size

    def take(self) -> list[Sealed]:
        """The batches of the next frame: at most one a partition, at least one if any may leave."""
        frame: list[Sealed] = []
        again: list[Partition] = []
        room = self._batch_bytes
        now_ms = self._signature.now_ms()
        for partition in self._waiting:
            if partition.refused:
                continue
            gathering = partition.gatherings[0]
            if frame and gathering.size > room:
                break
            room -= gathering.size
            partition.gatherings.popleft()
            frame.append(self._seal(partition, gathering, now_ms))
            again.append(partition)
            if room <= 0:
                break
        for partition in again:
            del self._waiting[partition]
            if partition.gatherings:
                self._waiting[partition] = None
        return frame

    def expired(self, now: float) -> list[Gathering]:
        """Those whose deadline is over, taken out."""
        gone: list[Gathering] = []
        for partition in list(self._waiting):
            while partition.gatherings and partition.gatherings[0].deadline <= now:
                gone.append(partition.gatherings.popleft())
            if not partition.gatherings:
                del self._waiting[partition]
        return gone

    def _room(self, partition: Partition, size: int, deadline: float) -> Gathering:
        gatherings = partition.gatherings
        if gatherings:
            last = gatherings[-1]
            if last.size + size <= self._batch_bytes and len(last.bodies) < BATCH_MESSAGES_MAX:
                return last
        return self._new(partition, deadline)

    def _new(self, partition: Partition, deadline: float) -> Gathering:
        gathering = Gathering(deadline)
        partition.gatherings.append(gathering)
        self._waiting[partition] = None
        return gathering

    def _seal(self, partition: Partition, gathering: Gathering, now_ms: int) -> Sealed:
        signature = self._signature
        partition.sequence += 1
        batch_id = self._ids.next(now_ms)
        origin = Origin(
            partition.raw, signature.producer_id, partition.sequence, batch_id, now_ms, signature.codec
        )
        content = Content(gathering.bodies, gathering.keys, gathering.tags, None, gathering.properties)
        data = encode(origin, content)
        return Sealed(
            partition,
            data,
            partition.sequence,
            batch_id,
            gathering.claims,
            gathering.size,
            gathering.deadline,
        )


def cut(bodies: Sequence[bytes], batch_bytes: int) -> list[int]:
    """Where to cut a row of bodies so that each piece is about a batch: the index behind the last of each piece."""
    sums = list(accumulate(map(len, bodies), initial=0))
    ends: list[int] = []
    start = 0
    while start < len(bodies):
        bound = sums[start] + MESSAGE_OVERHEAD_BYTES * start + batch_bytes
        fits = bisect_right(
            range(len(sums)), bound, lo=start, key=lambda at: sums[at] + MESSAGE_OVERHEAD_BYTES * at
        )
        start = min(max(fits - 1, start + 1), start + BATCH_MESSAGES_MAX)
        ends.append(start)
    return ends
