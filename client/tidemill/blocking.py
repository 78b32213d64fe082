"""The same client for programs without an event loop: the same names, and every call returns when it is done.

    from tidemill.blocking import Client

    with Client("localhost:7401") as mq:
        mq.send("order.created", b"...")
        with mq.consume("order.created", group="billing") as messages:
            for message in messages:
                ...

An event loop runs in a thread of its own, which begins with the first call. All state lives there; callers may come
from any thread; an iterator of bodies is read in the loop's. After a fork the child has no such thread: its first call
begins a new one, with a new client and new identities. What the parent had sent and not answered is the parent's; a
consumer that was entered before a fork raises ``ClientClosed`` in the child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar

from tidemill import client, consumer, dead
from tidemill.background import Background, Lock, Until, done, found
from tidemill.blocking_transactions import PlainCheckBack, Transaction, in_a_thread
from tidemill.chain import Filter, Match
from tidemill.dead import Chosen, DeadLetter
from tidemill.delivery import Delivery
from tidemill.errors import ClientClosed
from tidemill.message import Message as AsyncMessage
from tidemill.message import MessageBatch as AsyncBatch
from tidemill.message import Seen, SeenBatch
from tidemill.search import Bound, StoredMessage
from tidemill.settings import ClientSettings
from tidemill.statistics import ClientStatistics
from tidemill.subscription import From
from tidemill.timers import Timer

__all__ = ["Client", "Consumer", "Message", "MessageBatch"]

T = TypeVar("T")


class Client:
    """``Client("localhost:7401")``: HOST:HTTP_PORT; without it TIDEMILL_SERVER, or this machine."""

    def __init__(
        self,
        server: str | None = None,
        *,
        settings: ClientSettings | None = None,
        spool: str | os.PathLike[str] | None = None,
        make: Callable[[], client.Client] | None = None,
    ) -> None:
        self._make = make or (lambda: client.Client(server, settings=settings, spool=spool))
        self._lock = Lock()
        self._running: tuple[Background, client.Client] | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    send = done(client.Client.send)
    send_many = done(client.Client.send_many)
    send_each = done(client.Client.send_each)
    seek = done(client.Client.seek)
    suspend = done(client.Client.suspend)
    resume = done(client.Client.resume)
    subjects = done(client.Client.subjects)
    groups = done(client.Client.groups)
    find = done(client.Client.find)
    why = done(client.Client.why)
    cancel = done(client.Client.cancel)
    reschedule = done(client.Client.reschedule)
    timer = done(client.Client.timer)
    undecided = done(client.Client.undecided)
    decide = done(client.Client.decide)

    def transaction(self, group: str) -> Transaction:
        """Messages that are seen together when its block ends, and never when an exception leaves it."""
        background, _ = self._behind()
        return Transaction(background, self._look(lambda mq: mq.transaction(group)))

    def check_back(self, group: str) -> Callable[[PlainCheckBack], PlainCheckBack]:
        """The function below answers for a producer group, from now until the client is closed; in a thread of its own.
        It returns ``commit``, ``rollback``, or ``unknown`` when it cannot say yet.
        """

        def register(handler: PlainCheckBack) -> PlainCheckBack:
            self._look(lambda mq: mq.check_back(group)(in_a_thread(handler)))
            return handler

        return register

    def consume(
        self,
        subjects: str | Iterable[str],
        *,
        group: str,
        start: From = "earliest",
        name: str | None = None,
        at_most_once: bool = False,
        exclusive: bool = False,
        broadcast: bool = False,
        tags: Iterable[str] = (),
        match: Match = "any",
        filter: Filter | Iterable[Filter] | None = None,  # noqa: A002  # the word that users look for
    ) -> Consumer:
        """Messages for a consumer group: ``with mq.consume(...) as messages: for message in messages``.

        ``filter`` runs in the thread of the event loop: it must not wait, nor use this client.
        """
        background, mq = self._behind()
        messages = mq.consume(
            subjects,
            group=group,
            start=start,
            name=name,
            at_most_once=at_most_once,
            exclusive=exclusive,
            broadcast=broadcast,
            tags=tags,
            match=match,
            filter=filter,
        )
        return Consumer(background, messages)

    def find_by_key(
        self,
        subject: str | None,
        key: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        newest: bool = False,
        limit: int | None = None,
    ) -> Iterator[StoredMessage]:
        """Stored messages with exactly that key, of a subject or, with ``None``, of all."""
        background, mq = self._behind()
        return found(
            background, mq.find_by_key(subject, key, start=start, end=end, newest=newest, limit=limit)
        )

    def browse(
        self,
        subject: str,
        *,
        start: Bound | None = None,
        end: Bound | None = None,
        newest: bool = False,
        limit: int | None = None,
    ) -> Iterator[StoredMessage]:
        """A subject's stored messages, from ``start`` to before ``end``: sequences or datetimes."""
        background, mq = self._behind()
        return found(background, mq.browse(subject, start=start, end=end, newest=newest, limit=limit))

    def timers(
        self,
        subject: str,
        prefix: str = "",
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> Iterator[Timer]:
        """A subject's messages that wait under timer keys, of those that begin with ``prefix``."""
        background, mq = self._behind()
        return found(background, mq.timers(subject, prefix, since=since, until=until, limit=limit))

    def dead_letters(self, subject: str, group: str) -> DeadLetters:
        """What a group could not handle."""
        background, mq = self._behind()
        return DeadLetters(mq.dead_letters(subject, group), background)

    @property
    def stand_ins(self) -> dict[str, str]:
        """Broker groups whose slave, by name, was asked in place of their master."""
        return self._look(lambda mq: mq.stand_ins)

    @property
    def unordered(self) -> int:
        """Messages with an order key that went to another partition than their own."""
        return self._look(lambda mq: mq.unordered)

    @property
    def spooled_acks(self) -> dict[str, int]:
        """Of what was settled while no broker could be reached, in messages; as that of the client for asyncio."""
        return self._look(lambda mq: mq.spooled_acks)

    def statistics(self) -> ClientStatistics:
        """Numbers to watch; as those of the client for asyncio."""
        return self._look(lambda mq: mq.statistics())

    def close(self) -> None:
        """Wait for what was sent to end, and leave."""
        self._leave(None)

    def _leave(self, error: BaseException | None) -> None:
        with self._lock.of_this_process():
            running, self._running, self._closed = self._running, None, True
        if running is None or running[0].pid != os.getpid():
            return
        background, mq = running
        try:
            background.run(mq.__aexit__(None, error, None))
        finally:
            background.stop()

    def _look(self, look: Callable[[client.Client], T]) -> T:
        """What the client for asyncio says at once, asked in the thread of its loop."""
        background, mq = self._behind()

        async def looked() -> T:
            return look(mq)

        return background.run(looked())

    def _behind(self) -> tuple[Background, client.Client]:
        running = self._running
        if running is not None and running[0].pid == os.getpid():
            return running
        with self._lock.of_this_process():
            if self._closed:
                raise ClientClosed("the client is closed")
            if self._running is None or self._running[0].pid != os.getpid():
                mq = (
                    self._make()
                )  # before its loop: when it refuses its arguments, nothing is left to be closed
                background = Background()
                try:
                    background.run(mq.__aenter__())
                except BaseException:
                    background.stop()
                    raise
                self._running = background, mq
            return self._running


class Message(Seen):
    """One message, under a lease."""

    __slots__ = ("_background",)

    def __init__(self, delivery: Delivery, index: int, background: Background) -> None:
        super().__init__(delivery, index)
        self._background = background

    ack = done(AsyncMessage.ack)
    nack = done(AsyncMessage.nack)
    extend = done(AsyncMessage.extend)

    def _behind(self) -> tuple[Background, AsyncMessage]:
        return self._background, AsyncMessage(self._delivery, self._index)


class MessageBatch(SeenBatch):
    """Messages that came in one batch, handled and settled together."""

    __slots__ = ("_background",)

    def __init__(self, delivery: Delivery, background: Background) -> None:
        super().__init__(delivery)
        self._background = background

    def __iter__(self) -> Iterator[Message]:
        return (Message(self._delivery, index, self._background) for index in range(len(self)))

    def __getitem__(self, index: int) -> Message:
        return Message(self._delivery, range(len(self))[index], self._background)

    ack = done(AsyncBatch.ack)
    nack = done(AsyncBatch.nack)
    extend = done(AsyncBatch.extend)

    def _behind(self) -> tuple[Background, AsyncBatch]:
        return self._background, AsyncBatch(self._delivery)


class DeadLetters:
    """What a group could not handle: iterate over it, ``redrive`` it, ``purge`` it."""

    __slots__ = ("_background", "_letters")

    def __init__(self, letters: dead.DeadLetters, background: Background) -> None:
        self._letters = letters
        self._background = background

    def __iter__(self) -> Iterator[DeadLetter]:
        return self.chosen(Chosen())

    status = done(dead.DeadLetters.status)
    redrive = done(dead.DeadLetters.redrive)
    purge = done(dead.DeadLetters.purge)

    def chosen(self, chosen: Chosen, limit: int | None = None) -> Iterator[DeadLetter]:
        """Those that wait, the oldest first."""
        return found(self._background, self._letters.chosen(chosen, limit))

    def _behind(self) -> tuple[Background, dead.DeadLetters]:
        return self._background, self._letters


class Consumer:
    """Messages, one after the other; or batches of them."""

    def __init__(self, background: Background, messages: consumer.Consumer) -> None:
        self._background = background
        self._consumer = messages
        self._delivery: Delivery | None = None
        self._index = 0

    def __enter__(self) -> Self:
        self._background.run(self._consumer.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._background.stopped:
            return  # the client was closed before, and its consumers with it
        # A thread of ours is no task: the consumer is told whose hands it is to leave.
        thread = threading.current_thread()
        if self._consumer.hands.who is thread:
            self._consumer.hands.who = None
        self._background.run(self._consumer.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[Message]:
        return Until(self._next_message)

    def batches(self) -> Iterator[MessageBatch]:
        """The same messages, by the batch."""
        return Until(self._next_batch)

    @property
    def name(self) -> str:
        """The consumer's identity in its group."""
        return self._consumer.name

    @property
    def statistics(self) -> dict[str, int]:
        """As that of the client for asyncio: ``lost``, ``corrupt``, ``filtered``, ``mismatched``."""
        return self._consumer.statistics

    def _next_message(self) -> Message:
        delivery, thread = self._delivery, threading.current_thread()
        if (
            delivery is not None
            and self._consumer.hands.who is thread
            and self._index + 1 < delivery.count
            and delivery.until > self._background.loop.time()
            and not self._consumer.fenced
        ):
            # Within a delivery nobody waits for the loop: it looks at the index, at most every few milliseconds.
            self._index += 1
            self._consumer.index = self._index
            if self._consumer.timer is None:
                self._background.loop.call_soon_threadsafe(self._consumer.arm)
        else:
            self._delivery = delivery = self._background.run(self._consumer.next_delivery(thread))
            self._index = self._consumer.index
        return Message(delivery, self._index, self._background)

    def _next_batch(self) -> MessageBatch:
        following = self._consumer.next_delivery(threading.current_thread(), whole=True)
        self._delivery = None
        return MessageBatch(self._background.run(following), self._background)
