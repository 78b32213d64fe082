"""Consuming: what ``async with mq.consume(...) as messages`` gives.

    state     event                            next
    new       entered                          open      pullers start, one a broker
    open      advance                          open      the current message is acked, the next one is current
    open      left normally                    closed    the current one is acked
    open      left by an exception             closed    the current one is nacked, with the exception as the reason
    open      left by a cancellation           closed    the current one is released: nobody is to blame
    open      ``stop``                         stopped   what was not begun is released; what was taken keeps its lease
    stopped   left                             closed    what was taken and not settled is released

The current message is whose task asked for it (``hands.py``): what another task left unhandled is released.

``take`` is for whoever handles many messages at once and settles each by hand: nothing is acked by asking for more.

On the way to closed everything that was pulled and not begun is released, and all answers are awaited, for
``close_timeout_s`` at most. A crash leaves leases; the broker gives their messages out again when it notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self

from tidemill.allotment import Allotment
from tidemill.batches import Batches
from tidemill.chain import Chain
from tidemill.delivery import REVOKED, Delivery
from tidemill.errors import BrokerUnreachable, ClientClosed, CorruptBatch, LeaseLost, again
from tidemill.hands import Hands, Who
from tidemill.identity import Name, borrow_name
from tidemill.inbox import Inbox
from tidemill.keeper import Keeper
from tidemill.message import Message
from tidemill.puller import Identity, Puller
from tidemill.pullers import Pullers
from tidemill.router import Router
from tidemill.settings import ClientSettings
from tidemill.statistics import OpenConsumers, counted_of
from tidemill.subscription import Subscription
from tidemill.tasks import Tasks
from tidemill.why import why_of
from tidemill_wire.kinds import Mode

PutBack = Callable[[Delivery], None]
NOT_ENTERED = "a consumer is used inside of `async with`"
BREATHE_S = 0.01  # so long iteration goes on without letting the event loop turn


class Consumer:
    """Messages, one after the other; or batches of them."""

    def __init__(
        self,
        subscription: Subscription,
        settings: ClientSettings,
        router: Router,
        siblings: OpenConsumers,
        chain: Chain,
        keeper: Keeper | None,
    ) -> None:
        self._subscription = subscription
        self._settings = settings
        self._router = router
        self._siblings = siblings
        self._chain = chain
        self._keeper = keeper
        self.hands = Hands()
        self._tasks = Tasks(self._crashed)
        self._pullers: Pullers | None = None
        self._inbox: Inbox | None = None
        self._name: Name | None = None
        self._delivery: Delivery | None = None
        self._whole = False
        """The handler has all of the delivery in its hands, and not only the message at ``index``."""
        self._taking: tuple[Delivery, int] | None = None
        """Of the delivery that was in hand, what is next; also when who asked for it was cancelled meanwhile."""
        self._fence: Allotment | None = None
        """Of an exclusive consumer: what is asked before each message, where meta allots."""
        self._closing = False
        self._loop: asyncio.AbstractEventLoop
        self._breathe_at = 0.0
        self.index = -1
        """The message in hand; those of the delivery before it were handled."""
        self.timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        if self._inbox is not None:
            raise ClientClosed("a consumer is entered once: ask for a new one with consume()")
        settings = self._settings
        self._loop = self._router.home.check()
        if self._keeper is not None:
            await self._keeper.open()
        self._inbox = Inbox(settings.prefetch_messages, settings.prefetch_bytes)
        self._name = await borrow_name(self._subscription, settings)
        self._subscription = self._subscription.of_consumer(self._name.text)
        self._siblings[self] = None
        identity = Identity(self._subscription, self._name.text)
        self._pullers = Pullers(identity, settings, self._inbox, self._router, self._keeper, self._tasks)
        self._fence = self.allotment if self._subscription.mode is Mode.EXCLUSIVE else None
        self._tasks.start(self._brokers.run(), "tidemill brokers of a consumer")
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close(self.hands.to_blame(error))

    def __aiter__(self) -> Consumer:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Message]:
        # Who asks is who calls: what is called may run in a task of its own, as by ``asyncio.wait_for``.
        return self.following(asyncio.current_task())

    async def following(self, who: Who) -> Message:
        """The next one, for whoever asks."""
        now = 0.0 if self._delivery is None else self._loop.time()
        if now and now >= self._breathe_at:
            # With the one before in hand: a cancellation here takes none that nobody saw.
            await self._breathe()
        delivery, index = self._delivery, self.index + 1
        other = self.fenced or who is not self.hands.who
        if delivery is None or other or index >= delivery.count or now >= delivery.until:
            return Message(await self.next_delivery(who), self.index)
        self.index = index
        if self.timer is None:
            self.arm()
        return Message(delivery, index)

    def batches(self) -> Batches:
        """The same messages, by the batch: for handlers that take many at once."""
        return Batches(self)

    async def next_delivery(self, who: Who, *, whole: bool = False) -> Delivery:
        """Ack what is in hand, and take the next in hand: the first message of it that may be begun, or all."""
        with self.hands.asking(who) as error:
            for owner, subject, ranges in self._settle_current(error) if error is not None else []:
                owner.settler.release(subject, ranges)
            if self._delivery is not None:
                self._taking = self._delivery, self.index + 1
            self._advance()
            delivery, first = await self._take()
        self._delivery, self._whole = delivery, whole
        self.index = delivery.count - 1 if whole else first
        if self.fenced:
            delivery.begun.update(range(first, self.index + 1))
        return delivery

    async def take(self) -> Message:
        """One more message, to be settled by hand. ``StopAsyncIteration`` after ``stop``."""
        with self.hands.asking(None):
            delivery, index = await self._take()
        self._taking = (delivery, index + 1) if index + 1 < delivery.count else None
        if self.fenced:
            delivery.begun.add(index)
        return Message(delivery, index)

    @property
    def allotment(self) -> Allotment | None:
        """Of a consumer by key, and of an exclusive one: what meta allots to it."""
        return self._brokers.allotment

    @property
    def fenced(self) -> bool:
        """Whether meta is to be heard before each message: nothing is begun beside the handler's back."""
        return self._fence is not None and self._fence.governs

    def is_ours(self, message: Message) -> bool:
        """Whether what it is in is this consumer's own, as far as anybody said."""
        allotment, (settler, subject) = self.allotment, message.origin
        return allotment is None or allotment.is_ours(self._brokers.group_of(settler), subject)

    def may_begin(self, message: Message) -> bool:
        """Whether it is ours, and meta authorises us to begin it now."""
        allotment, (settler, subject) = self.allotment, message.origin
        return allotment is None or allotment.may_begin(self._brokers.group_of(settler), subject)

    def handled(self) -> None:
        """A message by key has ended."""
        self._brokers.look()

    def stop(self) -> None:
        """Nothing more is pulled, and what was not begun is given back at once."""
        if self._inbox is None:
            raise ClientClosed(NOT_ENTERED)
        rest = [*self._chain.close(), *self._inbox.close()]
        if self._taking is not None:
            (delivery, index), self._taking = self._taking, None
            if ranges := delivery.settle(index, delivery.count - 1):
                self._brokers.owner(delivery).settler.release(delivery.subject, ranges)
        self._brokers.stop(rest)

    async def _take(self) -> tuple[Delivery, int]:
        taking, found = self._taking, None
        if taking is not None:
            found = await self._rest_of(*taking)
            if self._taking is not taking:  # stopped meanwhile: it was given back
                raise StopAsyncIteration
            self._taking = None
        return found or (await self._next(), 0)

    async def _rest_of(
        self, delivery: Delivery, index: int, back: PutBack | None = None
    ) -> tuple[Delivery, int] | None:
        """What is left of a delivery, if it may be begun. Who is cancelled meanwhile, as by a timeout, puts it back."""
        if index >= delivery.count:
            return None
        begun: bool | None = None
        try:
            begun = await self._may_begin(delivery)
        finally:
            if begun is None and back is not None:
                back(delivery)
        if begun:
            return delivery, index
        if ranges := delivery.settle(index, delivery.count - 1):
            self._brokers.owner(delivery).settler.release(delivery.subject, ranges)
        return None

    async def _may_begin(self, delivery: Delivery) -> bool:
        """Whether the lease still runs; when that is not certain the broker is asked. And of an exclusive consumer
        whether meta authorises it still; until it does, or says that it is another's, nothing is begun.
        """
        inbox, fence = self._inbox, self._fence
        assert inbox is not None
        while True:
            while self._loop.time() >= delivery.until:
                if delivery.until == REVOKED or delivery.done == delivery.count:
                    return False  # it was taken back, or given back meanwhile
                try:
                    await delivery.settler.extend(delivery.subject, delivery.unsettled())
                except LeaseLost:
                    return False
            if fence is None or fence.may_begin(self._brokers.group_of(delivery.settler), delivery.subject):
                return True
            if inbox.closed or inbox.error is not None:
                return False
            await inbox.wait()

    def arm(self) -> None:
        """Something was handled: tell it soon."""
        if self.timer is None and self._inbox is not None and not self._inbox.closed:
            self.timer = self._loop.call_later(self._settings.ack_linger_ms / 1000, self._tell)

    @property
    def name(self) -> str:
        """The consumer's identity in its group."""
        if self._name is None:
            raise ClientClosed(NOT_ENTERED)
        return self._name.text

    @property
    def in_order(self) -> bool:
        """Whether a group of it is consumed in order; known as soon as something was given to it."""
        return any(puller.settler.ordered for puller in self._pullers or ())

    @property
    def statistics(self) -> dict[str, int]:
        """``lost``: settled after the lease had ended; ``corrupt``: messages that could not be read; acked without
        being shown: ``filtered``, because a filter said no, ``mismatched``, because only the hashes of tags were right;
        ``adopted``: they failed while their broker was away, and another one gives them out again.
        """
        return counted_of(list(self._pullers or ()), self._inbox, self._chain)

    @property
    def _brokers(self) -> Pullers:
        assert self._pullers is not None, "it was entered"
        return self._pullers

    # -- advancing ---------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Ack what was in hand."""
        delivery = self._delivery
        if delivery is not None:
            self._delivery = None
            if self._loop.time() >= delivery.until:
                delivery.settler.doubt(delivery.subject)
            if ranges := delivery.settle(0, self.index):
                delivery.settler.ack(delivery.subject, ranges)
            self.index = -1
            self._brokers.look()

    def _tell(self) -> None:
        """Ack what was handled before the current message."""
        # The timer first: the thread of a blocking consumer sets the index first, so one of both sees the other's.
        self.timer = None
        delivery = self._delivery
        if delivery is not None and not self._whole and (ranges := delivery.settle(0, self.index - 1)):
            delivery.settler.ack(delivery.subject, ranges)
            self._brokers.owner(delivery).settler.flush()

    async def _next(self) -> Delivery:
        inbox = self._inbox
        if inbox is None:
            raise ClientClosed(NOT_ENTERED)
        chain = self._chain
        while True:
            delivery = chain.pieces.popleft() if chain.pieces else None
            if delivery is not None:
                if await self._rest_of(delivery, 0, chain.pieces.appendleft) is not None:
                    return delivery
                continue
            if chain.rest:
                rest = chain.rest.popleft()
                if await self._rest_of(rest, 0, chain.rest.appendleft) is not None:
                    self._sift(rest)
                continue
            stuck, delivery = inbox.stuck, inbox.pop()
            if delivery is None:
                if stuck:
                    self._brokers.pull()
                if inbox.error is not None:
                    raise again(inbox.error)
                if inbox.closed:
                    raise StopAsyncIteration
                await inbox.wait()
                continue
            self._brokers.pull()
            if await self._rest_of(delivery, 0, inbox.put_back) is None:
                continue
            try:
                delivery.open()
            except CorruptBatch as error:
                self._brokers.owner(delivery).corrupted(delivery, error)
                continue
            if not chain.filters and not delivery.wanted:
                return delivery
            self._sift(delivery)
            if not chain.pieces:
                await self._breathe()

    def _sift(self, delivery: Delivery) -> None:
        """Let the filters look at a delivery. One that raises has failed like a handler: its message is nacked."""
        try:
            self._chain.sift(delivery)
        except CorruptBatch as error:
            first = self._chain.take_first()
            self._brokers.owner(first).corrupted(first, error)
        except Exception as error:
            first = self._chain.take_first()
            self._brokers.owner(first).settler.nack_soon(first.subject, first.settle(0, 0), why_of(error))
            raise

    async def _breathe(self) -> None:
        """A handler that never waits must not stop the connection, the leases and everybody else."""
        if self._loop.time() >= self._breathe_at:
            self._breathe_at = self._loop.time() + BREATHE_S
            await asyncio.sleep(0)

    def _crashed(self, error: BaseException) -> None:
        if self._inbox is not None:
            crashed = BrokerUnreachable(f"the consumer broke down: {error!r}")
            crashed.__cause__ = error
            self._inbox.fail(crashed)

    # -- the end -----------------------------------------------------------------------------------------------

    async def close(self, error: BaseException | None = None) -> None:
        """Settle what is in hand, give back the rest, and leave the group. Once is enough. Who calls it answers for
        what is in hand, also of another task.
        """
        inbox = self._inbox
        if inbox is None or self._closing:
            return
        self._closing = True
        self._brokers.close()
        rest = [*self._chain.close(), *inbox.close()]
        if self.timer is not None:
            self.timer.cancel()
        current = self._settle_current(error)
        try:
            await self._brokers.leave(rest, current)
        finally:
            self._siblings.leave(self)
            await self._tasks.close()
            if self._name is not None:
                self._name.give_back()

    def _settle_current(self, error: BaseException | None) -> list[tuple[Puller, str, list[int]]]:
        """What of the delivery in hand is to be released."""
        delivery = self._delivery
        if delivery is None:
            return []
        owner = self._brokers.owner(delivery)
        first = 0 if self._whole else self.index
        if ranges := delivery.settle(0, first - 1):
            delivery.settler.ack(delivery.subject, ranges)
        to_blame = error is None or isinstance(error, Exception)
        if to_blame and (ranges := delivery.settle(first, self.index)):
            if error is None:
                delivery.settler.ack(delivery.subject, ranges)
            else:
                owner.settler.nack_soon(delivery.subject, ranges, why_of(error))
        self._delivery = None
        if delivery.done == delivery.count:
            return []
        ranges = delivery.unsettled()
        delivery.settle(0, delivery.count - 1)
        return [(owner, delivery.subject, ranges)]
