"""What a consumer handles: a message, or a batch of them. Everything but the body is looked up when it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from tidemill.delivery import DOUBTFUL, REVOKED, Delivery, Settler
from tidemill.errors import LeaseLost
from tidemill.why import GROUPS_POLICY, Why, sayable, why_of
from tidemill_wire.counted import counted
from tidemill_wire.fields import living_subject
from tidemill_wire.limits import DELAY_MS_MAX


class Seen:
    """What there is to see of a message."""

    __slots__ = ("_delivery", "_index", "body")

    def __init__(self, delivery: Delivery, index: int) -> None:
        self.body = delivery.bodies[index]
        self._delivery = delivery
        self._index = index

    @property
    def id(self) -> str:
        """The same as on its receipt."""
        return self._delivery.id_of(self._index)

    @property
    def subject(self) -> str:
        """Where it was sent."""
        return living_subject(self._delivery.subject)

    @property
    def sequence(self) -> int:
        """Its number in the subject."""
        return self._delivery.sequence_of(self._index)

    @property
    def key(self) -> str | None:
        """What the producer gave it to be found by."""
        return self._delivery.key_of(self._index)

    @property
    def order_key(self) -> str | None:
        """Messages of a subject that have the same one are handled in order, where the group is consumed in order."""
        return self._delivery.order_key_of(self._index)

    @property
    def timer_key(self) -> str | None:
        """What a message that was sent for later was found by while it waited."""
        return self._delivery.timer_key_of(self._index)

    @property
    def tags(self) -> frozenset[str]:
        """What the producer marked it with."""
        return self._delivery.tags_of(self._index)

    @property
    def packed_properties(self) -> bytes:
        """As they came, whatever they are."""
        return self._delivery.packed_of(self._index)

    @property
    def properties(self) -> dict[str, Any]:
        """What the producer wrote on it."""
        return self._delivery.properties_of(self._index)

    @property
    def priority(self) -> int:
        """What the producer sent it with, 0 to 7: higher ones are given out before lower ones."""
        return self._delivery.batch.header.priority

    @property
    def attempts(self) -> int:
        """How often it was given out before, as the broker counts."""
        return self._delivery.attempts

    @property
    def epoch(self) -> int:
        """The mastership of its broker group in which it was stored: it grows with each failover and hand-over."""
        return self._delivery.batch.header.epoch

    @property
    def stored_at(self) -> datetime:
        """When the broker stored it."""
        return _time(self._delivery.batch.header.stored_at_ms)

    @property
    def created_at(self) -> datetime:
        """When the producer made it, by its own clock."""
        return _time(self._delivery.created_ms(self._index))

    def __repr__(self) -> str:
        size = counted(len(self.body), "byte")
        return f"{type(self).__name__}(subject={self.subject!r}, sequence={self.sequence}, body={size})"


class Message(Seen):
    """One message, under a lease."""

    __slots__ = ()

    async def ack(self) -> bool:
        """It was handled: returns when the broker has noted that. ``LeaseLost``: it is given out again all the same.

        ``False``: no broker can be reached, and the spool keeps the ack until one is. A second call says nothing.
        """
        delivery, index = self._delivery, self._index
        if ranges := delivery.settle(index, index):
            return await delivery.settler.ack_now(delivery.subject, ranges)
        return True

    async def nack(
        self,
        *,
        delay: float | None = None,
        reason: str = "",
        error: BaseException | None = None,
        reject: bool = False,
    ) -> bool:
        """It failed: give it out again, after ``delay`` seconds or as the group's policy says.

        ``error`` is the exception that was raised: failures of one kind are counted together. ``reject`` sends it to
        the dead letters at once. ``False`` as of ``ack``.
        """
        return await self.fail(parse_why(delay, reason, error, reject=reject))

    async def fail(self, why: Why) -> bool:
        """It failed, and this is what is known."""
        delivery, index = self._delivery, self._index
        if ranges := delivery.settle(index, index):
            return await delivery.settler.nack(delivery.subject, ranges, why, delivery)
        return True

    def fail_soon(self, why: Why) -> None:
        """The same without waiting, for who leaves: what the broker answers changes nothing any more."""
        delivery, index = self._delivery, self._index
        if ranges := delivery.settle(index, index):
            delivery.settler.nack_soon(delivery.subject, ranges, why)

    @property
    def origin(self) -> tuple[Settler, str]:
        """For who gathers acks: where to say them, and of what. Of a dead letter that is not ``subject``."""
        return self._delivery.settler, self._delivery.subject

    def settle(self) -> int | None:
        """For who gathers acks: the pull sequence to be acked, once; ``None`` when it was settled before."""
        ranges = self._delivery.settle(self._index, self._index)
        return ranges[0] if ranges else None

    def release(self) -> None:
        """It was not begun: it is given to somebody else at once, and no attempt is counted."""
        delivery, index = self._delivery, self._index
        if ranges := delivery.settle(index, index):
            delivery.settler.release(delivery.subject, ranges)

    async def still_held(self) -> bool:
        """Whether it may be begun: its lease runs for certain, or the broker says so. For who takes messages and begins
        them later.
        """
        delivery = self._delivery
        if asyncio.get_running_loop().time() < delivery.until:
            return True
        if delivery.until != REVOKED or self._index in delivery.begun:
            with suppress(LeaseLost):
                await self.extend()
                if delivery.until != REVOKED:
                    delivery.until = DOUBTFUL  # of the others of its delivery nothing was said
                return True
        delivery.settler.doubt(delivery.subject)  # perhaps all behind it were lost, too
        return False

    @property
    def kept(self) -> bool:
        """Whether it counts as begun."""
        return self._index in self._delivery.begun

    def begin(self) -> None:
        """It is at work until it is settled, and what is at work is kept over a new connection."""
        self._delivery.begun.add(self._index)

    def rest(self) -> None:
        """It failed, and waits to be begun again. Over a new connection it comes again like all others; but one that
        was kept over one is kept on, for those behind it came anew.
        """
        if self._delivery.until != REVOKED:
            self._delivery.begun.discard(self._index)

    async def extend(self) -> None:
        """The lease begins anew. Nobody needs to: it is renewed while the consumer lives."""
        sequence = self._delivery.pull_sequence + self._index
        await self._delivery.settler.extend(self._delivery.subject, [sequence, sequence])

    async def park(self, why: Why) -> None:
        """It failed, and is begun again after ``why.delay_ms``: the lease begins anew, and the broker knows why."""
        sequence = self._delivery.pull_sequence + self._index
        await self._delivery.settler.extend(self._delivery.subject, [sequence, sequence], why)


class SeenBatch:
    """What there is to see of messages that came in one batch."""

    __slots__ = ("_delivery", "bodies")

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self.bodies: list[bytes] = delivery.bodies

    def __len__(self) -> int:
        return self._delivery.count

    @property
    def subject(self) -> str:
        """Where they were sent."""
        return living_subject(self._delivery.subject)

    @property
    def first_sequence(self) -> int:
        """The number of the first one. The others follow; with a filter there may be gaps (``sequences``)."""
        return self._delivery.sequence_of(0)

    @property
    def sequences(self) -> list[int]:
        """Their numbers."""
        return [self._delivery.sequence_of(index) for index in range(self._delivery.count)]

    @property
    def priority(self) -> int:
        """What they were sent with."""
        return self._delivery.batch.header.priority

    @property
    def attempts(self) -> int:
        """How often they were given out before."""
        return self._delivery.attempts

    @property
    def stored_at(self) -> datetime:
        """When the broker stored them."""
        return _time(self._delivery.batch.header.stored_at_ms)

    @property
    def ids(self) -> list[str]:
        """Their ids."""
        return [self._delivery.id_of(index) for index in range(self._delivery.count)]

    @property
    def keys(self) -> list[str | None]:
        """Their keys."""
        return self._delivery.keys()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(subject={self.subject!r}, {counted(len(self), 'message')})"


class MessageBatch(SeenBatch):
    """Messages that came in one batch, handled and settled together."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Message]:
        return (Message(self._delivery, index) for index in range(self._delivery.count))

    def __getitem__(self, index: int) -> Message:
        count = self._delivery.count
        at = index + count if index < 0 else index
        if not 0 <= at < count:
            raise IndexError(f"message {index} of {count}")
        return Message(self._delivery, at)

    async def ack(self) -> bool:
        """They were handled; returns when the broker has noted that, or ``False`` when the spool has."""
        delivery = self._delivery
        if ranges := delivery.settle(0, delivery.count - 1):
            return await delivery.settler.ack_now(delivery.subject, ranges)
        return True

    async def nack(
        self,
        *,
        delay: float | None = None,
        reason: str = "",
        error: BaseException | None = None,
        reject: bool = False,
    ) -> bool:
        """They failed; ``False`` as of ``ack``."""
        delivery = self._delivery
        why = parse_why(delay, reason, error, reject=reject)
        if ranges := delivery.settle(0, delivery.count - 1):
            return await delivery.settler.nack(delivery.subject, ranges, why, delivery)
        return True

    async def extend(self) -> None:
        """The lease begins anew."""
        await self._delivery.settler.extend(self._delivery.subject, self._delivery.unsettled())


def parse_why(delay: float | None, reason: str, error: BaseException | None, *, reject: bool) -> Why:
    """What a caller says of a failure."""
    if error is None:
        return Why(sayable(reason), delay_ms=parse_delay(delay), reject=reject)
    why = why_of(error)._replace(delay_ms=parse_delay(delay), reject=reject)
    return why._replace(reason=sayable(reason)) if reason else why


def parse_delay(delay: float | None) -> int:
    """Seconds as the wire's milliseconds."""
    if delay is None:
        return GROUPS_POLICY
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        raise TypeError(f"a delay is seconds, not {delay!r}")
    delay_ms = round(delay * 1000)
    if not 0 <= delay_ms <= DELAY_MS_MAX:
        raise ValueError(f"a delay of {delay} s is not within 0 and {DELAY_MS_MAX // 1000}")
    return delay_ms


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
