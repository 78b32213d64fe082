"""Which messages go together. Pure: it decides, ``producer.py`` does.

Messages of one partition gather in the last of its open parcels until that is full; a parcel is sealed into a batch
when
a frame has room for it. Invariants:

- a frame holds at most one batch of a partition, and batches of a partition leave in the order of their numbers;
- while a refused batch of a partition is to be tried again, none of its later ones leave;
- of a partition with order keys one batch is on its way at a time, and when one is given up, all that waits behind it
  is, too: a message never overtakes the one before it;
- partitions take turns: one that has more for the next frame queues up behind those that waited.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tidemill.encode import encode_single
from tidemill.parcel import NO_EXTRAS, Extras, Parcel, Partition, Waiter
from tidemill_wire.batch import BatchIds, Flags, Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.limits import BATCH_MESSAGES_MAX, DEDUP_BATCH_KEYS_MAX

MESSAGE_OVERHEAD_BYTES = 64
"""What a waiting message costs besides its body, so that empty ones are not free."""

FRAME_BATCHES_MAX = 1000
"""So that the broker begins with the first thousand subjects while the next are still being encoded."""


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
            size += len(extras.order_key or "") + len(extras.timer_key or "")
        queue = partition.open
        if queue and self._fits(queue[-1], size, 1) and _has_room(queue[-1], extras):
            parcel = queue[-1]
            parcel.add(body, waiter, place, size)
        else:
            parcel = Parcel(partition, [body], waiter, place, size, deadline)
            queue.append(parcel)
            self._waiting[partition] = None
        if extras is not None or not parcel.plain:
            parcel.note(extras or NO_EXTRAS)
        return size

    def add_many(
        self, partition: Partition, bodies: list[bytes], place: int, waiter: Waiter, deadline: float
    ) -> int:
        """Messages with nothing but bodies, at most a batch of them. The list is the parcel's from now on."""
        size = sum(map(len, bodies)) + MESSAGE_OVERHEAD_BYTES * len(bodies)
        queue = partition.open
        if queue and queue[-1].plain and self._fits(queue[-1], size, len(bodies)):
            parcel = queue[-1]
            parcel.join(waiter, place, len(bodies))
            parcel.bodies += bodies
            parcel.size += size
        else:
            queue.append(Parcel(partition, bodies, waiter, place, size, deadline))
            self._waiting[partition] = None
        return size

    def take(self) -> list[Parcel]:
        """The batches of the next frame: at most one a partition, at least one if any may leave."""
        frame: list[Parcel] = []
        room = self._batch_bytes
        now_ms = self._signature.now_ms()
        for partition in self._waiting:
            if not partition.open or partition.refused or partition.held:
                continue
            if partition.ordered and (partition.in_flight or partition.behind):
                continue
            parcel = partition.open[0]
            if parcel.size > room and frame:
                break
            room -= parcel.size
            self._seal(parcel, now_ms)
            frame.append(parcel)
            if room <= 0 or len(frame) == FRAME_BATCHES_MAX:
                break
        for parcel in frame:
            partition = parcel.partition
            partition.open.popleft()
            del self._waiting[partition]
            if partition.open:
                self._waiting[partition] = None
            if partition.spread is not None:
                partition.spread.turn()
        return frame

    @property
    def waiting(self) -> list[Partition]:
        """Those with something that was not sealed."""
        return list(self._waiting)

    def give_up(self, partition: Partition) -> list[Parcel]:
        """What waits for a partition, taken out: it goes somewhere else."""
        if not partition.behind:  # they are still to be told so
            self._waiting.pop(partition, None)
        given = list(partition.open)
        partition.open.clear()
        return given

    def adopt(self, partition: Partition, parcels: Sequence[Parcel]) -> None:
        """They go here now. What is to end first stays in front, for deadlines are looked at from there."""
        for parcel in parcels:
            parcel.partition = partition
        partition.open = deque(sorted((*partition.open, *parcels), key=_deadline))
        if partition.open:
            self._waiting[partition] = None

    def expired(self, now: float) -> list[Parcel]:
        """Those whose deadline is over, taken out."""
        gone: list[Parcel] = []
        for partition in list(self._waiting):
            gone += partition.behind
            partition.behind = []
            while partition.open and partition.open[0].deadline <= now:
                gone.append(partition.open.popleft())
            if not partition.open:
                del self._waiting[partition]
        return gone

    def _fits(self, parcel: Parcel, size: int, messages: int) -> bool:
        return parcel.size + size <= self._batch_bytes and parcel.messages + messages <= BATCH_MESSAGES_MAX

    def _seal(self, parcel: Parcel, now_ms: int) -> None:
        signature, partition = self._signature, parcel.partition
        partition.sequence = parcel.number = partition.sequence + 1
        parcel.batch_id = self._ids.next(now_ms)
        named = (signature.producer_id, parcel.number, parcel.batch_id, now_ms)
        alone = parcel.plain and parcel.messages == 1 and parcel.due is None
        if alone and signature.codec is Codec.NONE and not partition.priority:
            parcel.data = encode_single(partition.padded, len(partition.raw), named, parcel.bodies[0])
        else:
            content = Content(parcel.bodies)
            if not parcel.plain:
                content = Content(
                    parcel.bodies, parcel.keys, parcel.tags, parcel.order_keys, parcel.properties,
                    timer_keys=parcel.timer_keys, dedup_keys=parcel.dedup_keys, cron=parcel.cron,
                )  # fmt: skip
            flags = Flags.ORDERED if content.order_keys is not None else Flags(0)
            if content.dedup_keys is not None:
                flags |= Flags.DEDUPLICATED
            if parcel.due is not None:
                flags |= Flags.DELAYED
                content.deliver_deltas = [due_ms - now_ms for due_ms in parcel.due]
            origin = Origin(partition.raw, *named, signature.codec, flags, priority=partition.priority)
            parcel.data = build_batch(origin, content)
        del parcel.bodies  # they are in the batch: nothing is held twice


def _has_room(parcel: Parcel, extras: Extras | None) -> bool:
    """For a dedup key more, of which a batch has no more than an answer can tell of; what recurs has its own."""
    if (not parcel.plain and parcel.cron is not None) or (extras is not None and extras.cron is not None):
        return False
    return extras is None or extras.dedup_key is None or parcel.messages < DEDUP_BATCH_KEYS_MAX


def _deadline(parcel: Parcel) -> float:
    return parcel.deadline


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
