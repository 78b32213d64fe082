"""One batch from its first message to its end, and the partition it is for. Pure.

    state       event                    next
    open        message                  open       it gathers company
    open        sealed                   sealed     it has a number, an id and bytes
    sealed      stored, spooled, failed  ended      its waiters are told, once
    sealed      refused                  sealed     ``retried`` makes it ready to be sent again

One object for all of them, and no list or tuple beside it that a single message can do without: of a round-robin over
thousands of subjects every message is a parcel, and what it leaves for the garbage collector to look through was a
quarter of the client's time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from tidemill.budget import Tally
from tidemill.encode import (
    Bytes,
    check_key,
    check_message,
    check_order_key,
    check_text,
    pack_properties,
    parse_tags,
    renamed,
    renumbered,
)
from tidemill.errors import Refused, TidemillError
from tidemill_wire.batch import aligned
from tidemill_wire.deduplication import NO_KEY, Duplicate, check_dedup_key, digest_of, read_rows
from tidemill_wire.limits import PRODUCER_BATCHES_REMEMBERED

if TYPE_CHECKING:
    from tidemill.lane import Lane
    from tidemill.spread import Spread

DUPLICATE = 1 << 30

Stored: TypeAlias = tuple[str, bytes, int, int, int]
"""Subject, batch id, index of the first message in the batch, how many messages, and the first one's sequence. An index
with ``DUPLICATE`` is that of a message that was stored before.
"""


class Waiter(Protocol):
    """Who wants to know what became of messages."""

    def stored(self, place: int, part: Stored) -> None: ...

    def failed(self, error: TidemillError) -> None: ...


Claim: TypeAlias = tuple[Waiter, int, int, int]
"""A waiter's share of a batch: the place of the first message in its call, its index in the batch, how many."""


class Extras(NamedTuple):
    """What a message has besides its body."""

    key: str | None = None
    tags: tuple[str, ...] | None = None
    properties: bytes | None = None
    order_key: str | None = None
    dedup_key: bytes | None = None
    """Its digest."""
    due_ms: int | None = None
    """When it is to be given out, of a message for later."""
    timer_key: str | None = None
    """By what such a message is found while it waits."""
    cron: bytes | None = None
    """How it recurs, as its batch says it, which it has for itself."""


NO_EXTRAS = Extras()


def extras_of(
    size: int,
    key: str | None,
    tags: Iterable[str] | None,
    properties: Mapping[str, Any] | None,
    order_key: str | None = None,
    dedup_key: str | None = None,
) -> Extras:
    """What a user gave besides a body of ``size``, within its limits. A dedup key is the order key, too, when there is
    no other: a message that is sent again has to go where the first one is.
    """
    parsed = parse_tags(tags) if tags else None
    packed = pack_properties(properties) if properties else None
    check_message(size + len(packed or b"") + sum(len(tag.encode()) for tag in parsed or ()))
    ordered = check_order_key(order_key) if order_key is not None else None
    if dedup_key is not None:
        check_text(dedup_key, "a dedup key")
    digest = digest_of(check_dedup_key(dedup_key)) if dedup_key is not None else None
    return Extras(check_key(key) if key is not None else None, parsed, packed, ordered or dedup_key, digest)


class Partition:
    """A partition of a subject as this producer knows it; each priority of it is one of its own."""

    __slots__ = (
        "add", "behind", "best_tried", "held", "in_flight", "lane", "name", "open", "ordered", "padded", "pinned",
        "priority", "raw", "reached", "refused", "sequence", "spread", "tally",
    )  # fmt: skip

    add: Callable[..., int]
    """``Gather.add`` of the lane: looked up once, and not with each message."""
    lane: Lane
    """Where its batches leave."""

    def __init__(self, name: str, priority: int = 0, stored_as: str = "") -> None:
        self.name = name
        """The subject's."""
        self.priority = priority
        self.raw = (stored_as or name).encode()
        """Its own name, which its batches bear: a further one of the subject has another."""
        self.padded = self.raw.ljust(aligned(len(self.raw)), b"\0")
        self.spread: Spread | None = None
        """There are others, which take turns with it."""
        self.tally = Tally()
        """Where they are counted; that of the producer, in a lane."""
        self.sequence = 0
        """The number of the last batch."""
        self.reached = 0
        """The highest number that is stored, or may be."""
        self.in_flight = 0
        self.open: deque[Parcel] = deque()
        self.refused: list[Parcel] = []
        """Those that are tried again, by their numbers."""
        self.ordered = False
        """It has seen an order key: one batch at a time, or one that is refused might be overtaken by the next."""
        self.best_tried = False
        """As its subject says: order keys may go elsewhere when their own partition fails."""
        self.pinned = False
        """It has seen a dedup key, which only this partition knows: nothing of it goes elsewhere."""
        self.held = False
        """Its order keys are about to go elsewhere: nothing leaves."""
        self.behind: list[Parcel] = []
        """It is ordered, and a batch was given up: what had been handed in behind it, and is given up with it."""

    @property
    def bound(self) -> bool:
        """Nothing of it goes anywhere else."""
        return self.ordered and (self.pinned or not self.best_tried)


class Parcel:
    """See the module."""

    __slots__ = (
        "batch_id", "bodies", "company", "cron", "data", "deadline", "dedup_keys", "doubtful", "due", "error", "keys",
        "messages", "number", "order_keys", "partition", "place", "plain", "properties", "size", "tags", "timer_keys",
        "waiter",
    )  # fmt: skip

    number: int
    batch_id: bytes
    data: Bytes
    keys: list[str | None] | None
    tags: list[tuple[str, ...]] | None
    properties: list[bytes] | None
    order_keys: list[str | None] | None
    timer_keys: list[str | None] | None
    dedup_keys: list[bytes] | None
    cron: bytes | None

    def __init__(
        self,
        partition: Partition,
        bodies: list[bytes],
        waiter: Waiter,
        place: int,
        size: int,
        deadline: float,
    ) -> None:
        self.partition = partition
        self.bodies = bodies
        """Until it is sealed."""
        self.messages = len(bodies)
        self.waiter: Waiter | None = waiter
        """Who waits for the first messages, until nobody waits any more."""
        self.place = place
        self.company: list[Claim] | None = None
        """Who waits for those that joined."""
        self.size = size
        """What it counts in the memory bound."""
        self.deadline = deadline
        self.due: list[int] | None = None
        """When each message is due, of those for later."""
        self.plain = True
        """Nothing but bodies so far; the columns of extras are not even there."""
        self.error: TidemillError | None = None
        """Why it was refused last."""
        self.doubtful = False
        """It was refused, and what was written of it to a connection before may still arrive."""

    def add(self, body: bytes, waiter: Waiter, place: int, size: int) -> None:
        """One more message; ``note`` must follow when it, or one before, has extras."""
        self.join(waiter, place, 1)
        self.bodies.append(body)
        self.size += size

    def join(self, waiter: Waiter, place: int, messages: int) -> None:
        """The next messages are this waiter's."""
        if self.company is None:
            self.company = []
        self.company.append((waiter, place, self.messages, messages))
        self.messages += messages

    def note(self, extras: Extras) -> None:
        """The extras of the message that was added last. Columns begin when one is needed."""
        if self.plain:
            self.plain = False
            self.keys = self.tags = self.properties = self.order_keys = None
            self.timer_keys = self.dedup_keys = None
        before = len(self.bodies) - 1
        if extras.key is not None and self.keys is None:
            self.keys = list[str | None]([None]) * before
        if extras.tags is not None and self.tags is None:
            self.tags = list[tuple[str, ...]]([()]) * before
        if extras.properties is not None and self.properties is None:
            self.properties = [b""] * before
        if extras.order_key is not None:
            self.partition.ordered = True
            if self.order_keys is None:
                self.order_keys = list[str | None]([None]) * before
        if extras.timer_key is not None and self.timer_keys is None:
            self.timer_keys = list[str | None]([None]) * before
        if self.timer_keys is not None:
            self.timer_keys.append(extras.timer_key)
        if extras.dedup_key is not None:
            self.partition.pinned = True
            if self.dedup_keys is None:
                self.dedup_keys = [NO_KEY] * before
        if self.keys is not None:
            self.keys.append(extras.key)
        if self.tags is not None:
            self.tags.append(extras.tags or ())
        if self.properties is not None:
            self.properties.append(extras.properties or b"")
        if self.order_keys is not None:
            self.order_keys.append(extras.order_key)
        if self.dedup_keys is not None:
            self.dedup_keys.append(extras.dedup_key or NO_KEY)
        self.cron = extras.cron
        if extras.due_ms is not None:
            self.note_due(extras.due_ms)

    def note_due(self, due_ms: int) -> None:
        """All messages that were added since the last call are for later, and due then."""
        if self.due is None:
            self.due = []
        self.due += [due_ms] * (self.messages - len(self.due))

    @property
    def keyed(self) -> int:
        """How many of its messages have an order key."""
        keys = None if self.plain else self.order_keys
        return 0 if keys is None else len(keys) - keys.count(None)

    @property
    def passed(self) -> int:
        """How many later ones of its partition may be stored."""
        return max(0, self.partition.reached - self.number)

    def retried(self) -> Parcel:
        """Itself, ready to be sent again after a refusal.

        A refused batch that later ones may have overtaken gets a new number: with order keys, and far behind, and by
        brokers of earlier versions, its own would be taken for a repetition, answered as stored, and be lost. But what
        may still arrive over a former connection keeps its number as long as a broker would recognise it.
        """
        partition = self.partition
        keeps = self.doubtful and not partition.ordered and self.passed < PRODUCER_BATCHES_REMEMBERED
        if self.passed and not keeps:
            self.doubtful = False
            partition.sequence += 1
            self.number = partition.sequence
            self.data = renumbered(self.data, self.number)
        return self

    def rehomed(self, partition: Partition, producer_id: int) -> Parcel:
        """Itself for another partition. Only what no broker has stored may go there."""
        if partition.raw != self.partition.raw:
            self.data = renamed(self.data, partition.raw)
        self.partition, self.doubtful = partition, False
        partition.sequence = self.number = partition.sequence + 1
        self.data = renumbered(self.data, self.number, producer_id)
        return self

    def stored(self, first_sequence: int, duplicates: bytes = b"") -> None:
        """Tell everybody; a negative sequence is what ``receipts.py`` says it is."""
        partition = self.partition
        partition.reached = max(partition.reached, self.number)
        if self.waiter is None:
            return
        partition.tally.messages += self.messages
        partition.tally.batches += 1
        partition.tally.bytes += len(self.data)
        if duplicates:
            self._stored_beside(first_sequence, {one.row: one for one in read_rows(duplicates)})
            return
        name, batch_id = partition.name, self.batch_id
        alone = self.company[0][2] if self.company else self.messages
        self.waiter.stored(self.place, (name, batch_id, 0, alone, first_sequence))
        for waiter, place, first, messages in self.company or ():
            sequence = first_sequence + first if first_sequence >= 0 else first_sequence
            waiter.stored(place, (name, batch_id, first, messages, sequence))

    @property
    def claims(self) -> list[Claim]:
        """Who waits for which messages."""
        if self.waiter is None:
            return []
        alone = self.company[0][2] if self.company else self.messages
        return [(self.waiter, self.place, 0, alone), *(self.company or ())]

    def _stored_beside(self, first_sequence: int, known: Mapping[int, Duplicate]) -> None:
        """Of some messages it is known where they are; the others lie one behind the other. Each that has a dedup key
        is waited for alone.
        """
        dropped = sorted(known)
        for waiter, place, first, messages in self.claims:
            one = known.get(first) if messages == 1 else None
            if one is None:
                sequence = first_sequence
                if first_sequence >= 0:
                    sequence += first - bisect_left(dropped, first)
                waiter.stored(place, (self.partition.name, self.batch_id, first, messages, sequence))
            else:
                own = (one.batch_id, one.number) == (self.batch_id, first)
                index = one.number if own else one.number | DUPLICATE
                waiter.stored(place, (self.partition.name, one.batch_id, index, 1, one.sequence))

    def failed(self, error: TidemillError) -> None:
        """Tell everybody. What can never be stored holds up nobody; what may be stored later holds up all behind it."""
        partition = self.partition
        if partition.bound and not isinstance(error, Refused):
            partition.behind += partition.open
            partition.open.clear()
        if self.waiter is not None:
            partition.tally.failed += self.messages
            self.waiter.failed(error)
        for waiter, _, _, _ in self.company or ():
            waiter.failed(error)

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        self.waiter, self.company, self.size = None, None, 0
