"""The same client for programs without an event loop: the same names, and every call returns when it is done.

    from tidemill.blocking import Client

    with Client("localhost:7401") as mq:
        mq.send("order.created", b"...")
        with mq.consume("order.created", group="billing") as messages:
            for message in messages:
                ...

An event loop runs in a thread of its own, which begins with the first call. All state lives there; callers may come
from any
thread. After a fork the child has no such thread: its first call begins a new one, with a new client and new
identities. What the parent had sent and not answered is the parent's; a consumer that was entered before a fork raises
``ClientClosed`` in the child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from tidemill import client, consumer, dead
from tidemill.background import Background, Until, found
from tidemill.chain import Filter, Match
from tidemill.dead import Chosen, DeadLetter
from tidemill.delivery import Delivery
from tidemill.encode import Body
from tidemill.errors import ClientClosed
from tidemill.message import Message as AsyncMessage
from tidemill.message import MessageBatch as AsyncBatch
from tidemill.message import Seen, SeenBatch
from tidemill.receipts import Receipt, Receipts
from tidemill.search import Bound, StoredMessage
from tidemill.settings import ClientSettings
from tidemill.steering import Moved, To
from tidemill.subscription import From

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
        self._lock = threading.Lock()
        self._running: tuple[Background, client.Client] | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        subject: str,
        body: Body,
        *,
        key: str | None = None,
        tags: Iterable[str] | None = None,
        properties: Mapping[str, Any] | None = None,
        priority: int = 0,
        order_key: str | None = None,
    ) -> Receipt:
        """Store one message; returns when it is as durable as its subject asks for."""
        background, mq = self._started()
        labels: dict[str, Any] = {"tags": tags, "properties": properties}
        return background.run(
            mq.send(subject, body, key=key, **labels, priority=priority, order_key=order_key)
        )

    def send_many(self, subject: str, bodies: Iterable[Body], *, priority: int = 0) -> Receipts:
        """Store many messages of one subject, in their order. An iterator is read in the loop's thread."""
        background, mq = self._started()
        return background.run(mq.send_many(subject, bodies, priority=priority))

    def send_each(self, messages: Iterable[tuple[str, Body]]) -> Receipts:
        """Store messages of many subjects in one go."""
        background, mq = self._started()
        return background.run(mq.send_each(messages))

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
        background, mq = self._started()
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

    def seek(self, subject: str, group: str, to: To, *, rehearsal: bool = False) -> Moved:
        """Let a group go on elsewhere: ``earliest``, ``latest``, a datetime or a sequence."""
        background, mq = self._started()
        return background.run(mq.seek(subject, group, to, rehearsal=rehearsal))

    def suspend(self, subject: str, group: str) -> None:
        """Give a group nothing more, until ``resume``."""
        background, mq = self._started()
        background.run(mq.suspend(subject, group))

    def resume(self, subject: str, group: str) -> None:
        """Let a suspended group go on."""
        background, mq = self._started()
        background.run(mq.resume(subject, group))

    def subjects(self) -> list[dict[str, Any]]:
        """The subjects there are."""
        background, mq = self._started()
        return background.run(mq.subjects())

    def groups(self) -> list[dict[str, Any]]:
        """The consumer groups there are."""
        background, mq = self._started()
        return background.run(mq.groups())

    def find(self, identity: str) -> StoredMessage | None:
        """The stored message with an id; ``None`` when there is none."""
        background, mq = self._started()
        return background.run(mq.find(identity))

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
        background, mq = self._started()
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
        background, mq = self._started()
        return found(background, mq.browse(subject, start=start, end=end, newest=newest, limit=limit))

    def why(self, identity: str) -> dict[str, Any] | None:
        """What became of a message, group by group."""
        background, mq = self._started()
        return background.run(mq.why(identity))

    def dead_letters(self, subject: str, group: str) -> DeadLetters:
        """What a group could not handle."""
        background, mq = self._started()
        return DeadLetters(mq.dead_letters(subject, group), background)

    def close(self) -> None:
        """Wait for what was sent to end, and leave."""
        with self._lock:
            running, self._running, self._closed = self._running, None, True
        if running is None or running[0].pid != os.getpid():
            return
        background, mq = running
        try:
            background.run(mq.close())
        finally:
            background.stop()

    def _started(self) -> tuple[Background, client.Client]:
        running = self._running
        if running is not None and running[0].pid == os.getpid():
            return running
        if running is not None:
            # A fork: the parent's thread is not here, and its lock may have been taken by nobody who is.
            self._running, self._lock = None, threading.Lock()
        with self._lock:
            if self._closed:
                raise ClientClosed("the client is closed")
            if self._running is None:
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

    def ack(self) -> bool:
        """It was handled. ``False``: no broker can be reached, and the spool keeps the ack until one is."""
        return self._background.run(AsyncMessage(self._delivery, self._index).ack())

    def nack(
        self,
        *,
        delay: float | None = None,
        reason: str = "",
        error: BaseException | None = None,
        reject: bool = False,
    ) -> bool:
        """It failed: give it out again, after ``delay`` seconds or as the group's policy says."""
        return self._background.run(
            AsyncMessage(self._delivery, self._index).nack(
                delay=delay, reason=reason, error=error, reject=reject
            )
        )

    def extend(self) -> None:
        """The lease begins anew."""
        self._background.run(AsyncMessage(self._delivery, self._index).extend())


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

    def ack(self) -> bool:
        """They were handled; ``False`` when only the spool knows."""
        return self._background.run(AsyncBatch(self._delivery).ack())

    def nack(
        self,
        *,
        delay: float | None = None,
        reason: str = "",
        error: BaseException | None = None,
        reject: bool = False,
    ) -> bool:
        """They failed."""
        return self._background.run(
            AsyncBatch(self._delivery).nack(delay=delay, reason=reason, error=error, reject=reject)
        )

    def extend(self) -> None:
        """The lease begins anew."""
        self._background.run(AsyncBatch(self._delivery).extend())


class DeadLetters:
    """What a group could not handle: iterate over it, ``redrive`` it, ``purge`` it."""

    __slots__ = ("_background", "_letters")

    def __init__(self, letters: dead.DeadLetters, background: Background) -> None:
        self._letters = letters
        self._background = background

    def __iter__(self) -> Iterator[DeadLetter]:
        return self.chosen(Chosen())

    def status(self) -> dict[str, Any]:
        """How many wait, and what the group's messages failed of."""
        return self._background.run(self._letters.status())

    def chosen(self, chosen: Chosen, limit: int | None = None) -> Iterator[DeadLetter]:
        """Those that wait, the oldest first."""
        return found(self._background, self._letters.chosen(chosen, limit))

    def redrive(self, sequences: Iterable[int] | None = None) -> int:
        """Give them to the group again; ``None``: all. How many that were."""
        return self._background.run(self._letters.redrive(sequences))

    def purge(self, sequences: Iterable[int] | None = None) -> int:
        """Nobody wants them any more; ``None``: all. How many that were."""
        return self._background.run(self._letters.purge(sequences))


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
        delivery = self._delivery
        if (
            delivery is not None
            and self._index + 1 < delivery.count
            and delivery.until > self._background.loop.time()
        ):
            # Within a delivery nobody waits for the loop: it looks at the index, at most every few milliseconds.
            self._index += 1
            self._consumer.index = self._index
            if self._consumer.timer is None:
                self._background.loop.call_soon_threadsafe(self._consumer.arm)
        else:
            self._delivery = delivery = self._background.run(self._consumer.next_delivery())
            self._index = self._consumer.index
        return Message(delivery, self._index, self._background)

    def _next_batch(self) -> MessageBatch:
        self._delivery = None
        return MessageBatch(self._background.run(self._consumer.next_delivery(whole=True)), self._background)
