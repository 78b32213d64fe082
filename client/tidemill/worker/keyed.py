"""Keys side by side, each in its order: which message a subscriber of a group in order begins next.

    message   event                          next
    taken     its key is free, a slot is     begun     if its lease still runs; else it is dropped, and comes again
    begun     handled, skipped, filtered     over      the next one of its key may be begun
    begun     failed                         parked    it is begun again after a while; its key waits, others go on
    begun     failed as often as may be      over      a dead letter; the next one of its key may be begun
    parked    ``stop``                       over      nacked with its error, so that the broker counts it
    taken     ``stop``                       over      given back

A failed message stays in this consumer's hands, under its lease: the broker hears of it when it is given up. So no
other message is taken back for it, and what a crash leaves is given out again in order.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from tidemill.consumer import Consumer
from tidemill.errors import TidemillError
from tidemill.message import Message
from tidemill.strands import Strand, Strands
from tidemill.tasks import Tasks
from tidemill.why import Why
from tidemill_wire.limits import NACK_DELAY_MS_MAX

PARKED_MAX = 1000
"""Messages that are taken and not begun. When parked keys have filled that, nothing more is taken."""
BACKOFF_S_MAX = 600.0

log = logging.getLogger("tidemill.worker")


@dataclass(frozen=True, slots=True)
class Begun:
    """A message whose key is its own until it has ended."""

    keyed: Keyed
    strand: Strand[Message]
    message: Message

    def done(self) -> None:
        """It has ended."""
        self.keyed.done(self.strand)

    def again(self, why: Why, delay_s: float) -> None:
        """It failed, and is begun again after that."""
        self.keyed.again(self, why, delay_s)


class Keyed:
    """See the module."""

    def __init__(self, consumer: Consumer, tasks: Tasks) -> None:
        self._consumer = consumer
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._strands: Strands[Message] = Strands(PARKED_MAX)
        self._reasons: dict[Strand[Message], Why] = {}
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._stopped = False

    @property
    def parked(self) -> int:
        """Keys that wait for another try of their message."""
        return self._strands.parked

    def start(self) -> None:
        """Begin to take."""
        if self._consumer.allotment is not None:
            self._consumer.allotment.listeners.append(self._news.set)
        self._tasks.start(self._feed(), "tidemill takes by key")

    async def next(self) -> Begun:
        """A message whose key is free. ``StopAsyncIteration`` after ``stop``."""
        while True:
            self._strands.wake(self._loop.time())
            allotment = self._consumer.allotment
            taken = self._strands.take() if allotment is None or allotment.authorised else None
            if taken is not None:
                self._room.set()
                strand, message = taken
                if await self._may_begin(message):
                    message.begin()
                    return Begun(self, strand, message)
                if self._stopped or message.kept or not self._consumer.is_ours(message):
                    message.release()
                else:
                    message.settle()  # lost, so it comes again by itself: as this one it is nobody's any more
                self.done(strand)
                continue
            if self._stopped:
                raise StopAsyncIteration
            self._news.clear()
            due = self._strands.next_due
            handle = None if due is None else self._loop.call_at(due, self._news.set)
            await self._news.wait()
            if handle is not None:
                handle.cancel()

    async def _may_begin(self, message: Message) -> bool:
        """Whether it is ours, and may be begun in this very turn of the loop."""
        while await message.still_held():
            if self._stopped or not self._consumer.is_ours(message):
                return False
            if self._consumer.may_begin(message):
                return True
            self._news.clear()
            await self._news.wait()
        return False

    def done(self, strand: Strand[Message]) -> None:
        """Its message has ended."""
        self._reasons.pop(strand, None)
        self._strands.done(strand)
        self._consumer.handled()
        self._news.set()

    def again(self, begun: Begun, why: Why, delay_s: float) -> None:
        """It failed, and is begun again after that."""
        strand, message = begun.strand, begun.message
        if self._stopped or not self._consumer.is_ours(message):
            message.fail_soon(why)
            self.done(strand)
            return
        message.rest()
        self._reasons[strand] = why
        self._strands.again(strand, message, self._loop.time() + delay_s)
        self._news.set()
        self._tasks.start(self._tell(message, why, delay_s), "tidemill says what is parked")

    async def _tell(self, message: Message, why: Why, delay_s: float) -> None:
        """The broker knows what holds a key up. Whether the message is still held is asked when it is begun again."""
        delay_ms = min(NACK_DELAY_MS_MAX, round(1000 * delay_s))
        try:
            await message.park(why._replace(delay_ms=delay_ms))
        except TidemillError as error:
            log.warning("key_parked_unsaid %s %d: %s", message.subject, message.sequence, error)

    def stop(self) -> None:
        """Begin nothing more. What failed is said on the way out, where a lease that has ended is no matter."""
        if self._stopped:
            return
        self._stopped = True
        untried, failed = self._strands.clear()
        for message in untried:
            message.release()
        self._news.set()
        self._room.set()
        for strand, message in failed:
            message.fail_soon(self._reasons.pop(strand))

    async def _feed(self) -> None:
        while not self._stopped:
            if self._strands.full:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                message = await self._consumer.take()
            except StopAsyncIteration:
                self.stop()
                return
            self._accept(message)

    def _accept(self, message: Message) -> None:
        if self._stopped:
            message.release()
            return
        self._strands.add(message.order_key, message)
        self._news.set()


def backoff_s(attempts: int) -> float:
    """How long a key waits after so many attempts, when nobody says otherwise: 1 s, doubled each time."""
    return min(BACKOFF_S_MAX, 2.0 ** min(attempts - 1, 20))
