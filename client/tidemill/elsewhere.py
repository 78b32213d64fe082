"""Failures whose broker is away: they go with their whole messages to another broker of the subject, which gives them
to the group again while theirs is down.

    failure   event                                           next
    waits     no broker for ``spool_after_s``, another is up  offered   as ADOPT, under an id of its own
    offered   taken                                           moved     its own broker is told an ACK, when it is back
    offered   the connection ends, or nobody answers          waits     for that other broker, or for its own
    waits     refused there, or its own broker is back        told      as a NACK, as ever

A failure that was said to its own broker and not answered stays: it may have been heard, and would come from both. So
do those of groups in order, and of what could not be read. What moved is acked at its own broker; where that has given
the message up for lost meanwhile, it comes from there as well: that is at least once, and no more is promised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from tidemill.delivery import Delivery
from tidemill.errors import BrokerUnreachable, ConnectionLost, TidemillError, Unavailable
from tidemill.far import Far
from tidemill.link import Answer, Link
from tidemill.saying import Saying
from tidemill.settings import ClientSettings
from tidemill.whole import content_of, runs_of
from tidemill.why import Why
from tidemill_wire.adopting import Adopt
from tidemill_wire.batch import SINGLES_FROM, BatchIds, Flags, Origin
from tidemill_wire.columns import build_batch
from tidemill_wire.commands import Ack, Done, Nack
from tidemill_wire.fields import living_subject

ANSWER_S = 5.0
FIRST_SEQUENCE_AT = 8
"""Where a batch says its first sequence; a producer leaves it zero, and it is in no sum."""

log = logging.getLogger("tidemill")


class Elsewhere:
    """Of one broker of a consumer. ``other`` finds a connection to another one, by the subject."""

    def __init__(
        self,
        settings: ClientSettings,
        other: Callable[[str], Link | None],
        start: Callable[[Coroutine[Any, Any, None]], object],
        far: Far,
    ) -> None:
        self.moved = 0
        """Messages."""
        self.start = start
        self._far = far
        self._settings = settings
        self._other = other
        self._loop = asyncio.get_running_loop()

    async def keeps(self, of: Delivery | None, ranges: Sequence[int], why: Why, lease_s: float) -> int:
        """What waits for longer than a broker knows the delay service has, until then; 0: it has it not."""
        return 0 if of is None else await self._far.keep(of, ranges, why, lease_s)

    def there(self, saying: Saying) -> bool:
        """Whether it may move, and somebody could take it."""
        return saying.may_move and self._other(living_subject(saying.command.subject)) is not None

    async def offer(self, saying: Saying) -> bool:
        """Whether all of it was taken; then it is an ACK."""
        nack, delivery = saying.command, saying.of
        assert isinstance(nack, Nack)
        assert delivery is not None
        subject = living_subject(nack.subject)
        if saying.offers is None:
            saying.offers = list(self._offers(nack, delivery, subject))
        while saying.offers:
            link = self._other(subject)
            if link is None:
                return False
            answer = await self._ask(link, saying.offers[0])
            if not isinstance(answer, Done):
                if not isinstance(answer, ConnectionLost | Unavailable | BrokerUnreachable):
                    log.warning("failure_not_adopted %s: %s", subject, answer)
                    saying.of = None
                return False
            saying.offers.pop(0)
            self.moved += answer.count
        saying.command = Ack(nack.group, nack.consumer, nack.subject, nack.ranges)
        saying.tell(None)
        log.info("failure_adopted %s: another broker gives it out again", subject)
        return True

    async def _ask(self, link: Link, command: Adopt) -> Answer:
        future: asyncio.Future[Answer] = self._loop.create_future()
        try:
            link.ask(command, partial(_resolve, future))
            async with asyncio.timeout(ANSWER_S):
                return await future
        except TimeoutError:
            return BrokerUnreachable("it does not answer")
        except TidemillError as error:
            return error

    def _offers(self, nack: Nack, delivery: Delivery, subject: str) -> Iterator[Adopt]:
        for indexes in runs_of(delivery, nack.ranges):
            yield Adopt(
                nack.group, subject, delivery.attempts, nack.delay_ms, nack.reason, nack.error, nack.place,
                nack.reject, memoryview(self._batch_of(delivery, indexes, subject)),
            )  # fmt: skip

    def _batch_of(self, delivery: Delivery, indexes: Sequence[int], subject: str) -> bytearray:
        producer = SINGLES_FROM | self._settings.random.getrandbits(63)
        content = content_of(delivery, indexes)
        flags = Flags.REDELIVERED | (Flags(0) if content.order_keys is None else Flags.ORDERED)
        batch_id = BatchIds(producer).next(self._settings.now_ms())
        header = delivery.batch.header
        origin = Origin(
            subject.encode(), producer, 1, batch_id, delivery.created_ms(indexes[0]), self._settings.codec, flags,
            header.priority,
        )  # fmt: skip
        batch = build_batch(origin, content)
        first = max(0, delivery.sequence_of(indexes[0]))
        batch[FIRST_SEQUENCE_AT : FIRST_SEQUENCE_AT + 8] = first.to_bytes(8, "little")
        return batch


def _resolve(future: asyncio.Future[Answer], answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)
