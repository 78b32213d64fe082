"""The client: one object a program has of one queue.

It is opened by its first use, and by ``async with``; nothing is connected before there is something to send or to
consume, so a program starts though the queue is away. Sends share one connection a broker; each ``consume`` has its
own, because the end of a consumer is the end of its connection. A client belongs to the event loop and the process in
which it was opened.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidemill import search, steering
from tidemill.bulk import Where, send_each, send_keyed, send_many
from tidemill.chain import Chain, Filter, Match, parse_match
from tidemill.consumer import Consumer
from tidemill.dead import DeadLetters
from tidemill.deciding import Deciding
from tidemill.encode import Body, as_body, check_body
from tidemill.errors import BrokerUnreachable, ClientClosed, TidemillError, again
from tidemill.groups import list_groups
from tidemill.keeper import Keeper
from tidemill.later import Delay, due_at, extras_with
from tidemill.looking import Looker
from tidemill.parcel import extras_of
from tidemill.producer import Producer
from tidemill.receipts import Receipt, Receipts, Single
from tidemill.recurring import ONE_TIME, Rule, due_of
from tidemill.router import Router
from tidemill.routes import ROUTES_TIMEOUT_S, Fetch, parse_servers, rows_of
from tidemill.search import Bound, Search, StoredMessage
from tidemill.security import secured
from tidemill.servers import Servers
from tidemill.settings import ClientSettings
from tidemill.spools import Spools
from tidemill.statistics import ClientStatistics, OpenConsumers, statistics_of
from tidemill.steering import Moved, To
from tidemill.subscription import From, Sharing, Subscription
from tidemill.tasks import Tasks
from tidemill.timers import Timing
from tidemill.transacting import Transacting
from tidemill_wire.fields import parse_group, parse_subject
from tidemill_wire.lanes import parse_priority
from tidemill_wire.steering import Suspend


class Client(Timing, Transacting):
    """``Client("localhost:7401")``: HOST:HTTP_PORT; without it TIDEMILL_SERVER, or this machine."""

    consumer_type = Consumer

    def __init__(
        self,
        server: str | None = None,
        *,
        settings: ClientSettings | None = None,
        spool: str | os.PathLike[str] | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        self.settings = secured(settings or ClientSettings(), server)
        self._servers = Servers(parse_servers(server), self.settings.open_port)
        self._router = Router(fetch or self._servers, self.settings, self._crashed)
        self._looker = Looker(self._servers, self._router, self.settings.open_port)
        self._pid = os.getpid()
        self._tasks = Tasks(self._crashed)
        self._deciding = Deciding(self._router, self.settings, self._tasks)
        self._consumers = OpenConsumers()
        self._producer: Producer | None = None
        self._closed: TidemillError | None = None
        self._hurried = False
        path = spool or self.settings.spool_path
        self._spools = None if path is None else Spools(Path(path), self.settings, self._tasks)
        self._keeper = (
            None if path is None else Keeper(Path(path), self.settings, self._router, self._crashed)
        )

    async def __aenter__(self) -> Self:
        if self._spools is not None:
            await self._spools.open(self._sender())
        if self._keeper is not None:
            await self._keeper.open()
        self._deciding.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hurried = not isinstance(error, Exception | None)  # cancelled, or Ctrl-C was pressed
        await self.close()

    # -- sending -----------------------------------------------------------------------------------------------

    async def send(
        self,
        subject: str,
        body: Body,
        *,
        key: str | None = None,
        tags: Iterable[str] | None = None,
        properties: Mapping[str, Any] | None = None,
        priority: int = 0,
        order_key: str | None = None,
        dedup_key: str | None = None,
        delay: Delay | None = None,
        at: datetime | None = None,
        timer_key: str | None = None,
        cron: str | None = None,
        time_zone: str | None = None,
        missed: str | None = None,
    ) -> Receipt:
        """Store one message; returns when it is as durable as its subject asks for.

        Messages with one ``order_key`` are stored in the order in which they are sent, and lie in one partition.
        Of messages with one ``dedup_key`` the first is stored, whoever sends the others within the subject's window
        (two minutes, unless it says otherwise); their receipts are ``duplicate``, and say where that one is.
        Messages of a higher ``priority``, 0 to 7, are given out before those of lower ones.
        With a ``delay`` (seconds, or a timedelta) or ``at`` a time it is kept until then, and stored in its subject not
        before; while it waits it is found, cancelled and rescheduled by its id, or by a ``timer_key`` of yours.
        With ``cron`` it recurs, by the clocks of ``time_zone`` (UTC), until its timer key is cancelled; of occurrences
        that were ``missed``, "once", "all" or "none" come. A send that is cancelled may be stored all the same.
        """
        if priority != 0:
            parse_priority(priority)
        if type(body) is not bytes:
            body = as_body(body)
        else:
            check_body(len(body))
        extras = None
        if key is not None or order_key is not None or dedup_key is not None or tags or properties:
            extras = extras_of(len(body), key, tags, properties, order_key, dedup_key)
        due_ms, recurs, rule = None, None, Rule(cron, time_zone, missed)
        if delay is not None or at is not None or timer_key is not None or rule != ONE_TIME:
            due_ms, recurs = due_of(rule, delay, at, (timer_key, dedup_key), self.settings.now_ms())
        producer = self._producer or self._sender()
        self._router.home.check()
        if self._spools is not None and not self._spools.opened:
            await self._spools.open(producer)
        keyed = extras is not None and extras.order_key is not None
        if keyed and due_ms is None and not producer.ways.known(subject):
            await producer.ways.learn(subject)
        if producer.full:
            await producer.room()
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        if due_ms is None:
            producer.put(subject, body, extras, Single(future), priority)
        else:
            self._check()
            extras = extras_with(extras, due_ms, timer_key, recurs)
            producer.later.put(subject, body, extras, Single(future), priority)
        return await future

    async def send_many(
        self,
        subject: str,
        bodies: Iterable[Body] | AsyncIterable[Body],
        *,
        priority: int = 0,
        dedup_keys: Sequence[str | None] | None = None,
        delay: Delay | None = None,
        at: datetime | None = None,
    ) -> Receipts:
        """Store many messages of one subject, in their order; the fastest way in.

        When one batch cannot be stored the call fails with its error, after the others have ended.
        With ``dedup_keys``, one or ``None`` for each of a list of bodies, those that are known are not stored again.
        """
        where = Where(subject, parse_priority(priority), due_at(delay, at, self.settings.now_ms()))
        producer = await self._ready()
        if dedup_keys is not None:
            if where.due_ms is None and not producer.ways.known(subject):
                await producer.ways.learn(subject)
            return await send_keyed(producer, where, bodies, dedup_keys)
        return await send_many(producer, where, bodies)

    async def send_each(self, messages: Iterable[tuple[str, Body]]) -> Receipts:
        """Store messages of many subjects in one go: ``[("subject.a", b"1"), ("subject.b", b"2")]``."""
        return await send_each(await self._ready(), messages)

    # -- consuming ---------------------------------------------------------------------------------------------

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
        """Messages for a consumer group: ``async with mq.consume(...) as messages: async for message in messages``.

        A subject may be a pattern, as ``"order.*"``: all that begin so, also those that come later. ``start``
        (earliest, latest, a datetime, ms) counts when the group is new to a subject. ``name`` is the consumer's
        identity in its group; without one it is random, and remembered in ``settings.state_dir``.

        With ``tags`` the group is given only messages with any, or ``match="all"``, of them: the broker passes over the
        others. ``filter`` is one function of a message or several: where one says no, the message is acked unseen.

        ``at_most_once``: what was pulled counts as handled, and never comes again. ``exclusive``: in order, one
        consumer of the group at a time, the others wait. ``broadcast``: each consumer has all messages, in order.
        """
        self._check()
        sharing = Sharing(at_most_once, exclusive, broadcast)
        subscription = Subscription.parse(subjects, group, start, name, sharing, parse_match(tags, match))
        return self.consumer_type(
            subscription, self.settings, self._router, self._consumers, Chain(filter), self._keeper
        )

    def consumer(self, subscription: Subscription, prefetch: int) -> Consumer:
        """A consumer that pulls at most ``prefetch`` messages ahead at once, under a name of its own.

        For a worker, who handles many at once. A remembered name would be harmful to it: after a kill, the next
        process under the same name would keep the leases of the killed one, and nobody would get their messages.
        """
        self._check()
        settings = replace(self.settings, prefetch_messages=prefetch, state_dir=None)
        return Consumer(subscription, settings, self._router, self._consumers, Chain(None), self._keeper)

    # -- steering ----------------------------------------------------------------------------------------------

    async def seek(self, subject: str, group: str, to: To, *, rehearsal: bool = False) -> Moved:
        """Let a group go on elsewhere: ``earliest``, ``latest``, a datetime or a sequence. What its consumers hold is
        void, and so is what failed. With ``rehearsal`` nothing is done, and what would be is answered.
        """
        self._check()
        return await steering.seek(
            self._router, self.settings, steering.parse_seek(subject, group, to, rehearsal)
        )

    async def suspend(self, subject: str, group: str) -> None:
        """Give a group nothing more, until ``resume``. What its consumers hold they may settle."""
        await self._suspend(Suspend(parse_group(group), parse_subject(subject), True))

    async def resume(self, subject: str, group: str) -> None:
        """Let a suspended group go on."""
        await self._suspend(Suspend(parse_group(group), parse_subject(subject), False))

    async def _suspend(self, command: Suspend) -> None:
        self._check()
        await steering.suspend(self._router, self.settings, command)

    # -- asking ------------------------------------------------------------------------------------------------

    async def subjects(self) -> list[dict[str, Any]]:
        """The subjects there are, as the server describes them."""
        return rows_of("subjects", await self._servers.get("/v1/subjects", ROUTES_TIMEOUT_S))

    async def groups(self) -> list[dict[str, Any]]:
        """The consumer groups there are, over all brokers. A row's ``away`` has the broker groups that could not be
        asked for their part.
        """
        self._check()
        return await list_groups(self._looker)

    async def find(self, identity: str) -> StoredMessage | None:
        """The stored message with an id, as its receipt says it; ``None`` when there is none."""
        self._check()
        return await search.find(self._look, identity)

    async def why(self, identity: str) -> dict[str, Any] | None:
        """What became of a message: for each group where it stands, a sentence that says so, and how it came there."""
        self._check()
        return await search.why(self._look, identity)

    def find_by_key(
        self,
        subject: str | None,
        key: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        newest: bool = False,
        limit: int | None = None,
    ) -> Search:
        """What was stored with exactly that key, in a subject or, with ``None``, in all; from start to before end."""
        self._check()
        return search.find_by_key(self._look, (subject, key), (start, end), newest, limit)

    def browse(
        self,
        subject: str,
        *,
        start: Bound | None = None,
        end: Bound | None = None,
        newest: bool = False,
        limit: int | None = None,
    ) -> Search:
        """A subject's stored messages, from ``start`` to before ``end``; each is a sequence or a datetime.

        Nothing is consumed: no group moves on, and nobody waits for an ack.
        """
        self._check()
        return search.browse(self._look, subject, (start, end), newest, limit)

    def dead_letters(self, subject: str, group: str) -> DeadLetters:
        """What a group could not handle: ``async for`` over it, ``redrive`` it, ``purge`` it."""
        self._check()
        return DeadLetters(self._looker.holders, self.settings, (subject, group))

    async def _look(self, path: str, parameters: Mapping[str, str]) -> Any:
        return await self._looker.look(path, parameters)

    @property
    def stand_ins(self) -> dict[str, str]:
        """Broker groups whose slave, by name, answered ``find``, ``browse`` or ``why`` because their master did not.
        What it shows is committed, and may lack the newest.
        """
        return dict(self._looker.stand_ins.asked)

    @property
    def unordered(self) -> int:
        """Messages with an order key that went to another partition than their own, because that one failed or was slow
        and their subject's strategy is BestTried. One that moved twice counts twice.
        """
        return 0 if self._producer is None else self._producer.unordered

    @property
    def later_is_away(self) -> bool:
        """No delay service could be reached for a second: what is sent for later waits for one."""
        producer = self._producer
        return producer is not None and "later" in vars(producer) and producer.later.away

    @property
    def spooled_acks(self) -> dict[str, int]:
        """Of what was settled while no broker could be reached, in messages: how many are ``waiting`` in the spool, and
        since the client began how many were ``spooled``, ``told``, told ``too_late``, ``dropped`` after a day, and
        ``unkept`` for want of room. Empty without a spool.
        """
        return {} if self._keeper is None else {"waiting": self._keeper.waiting, **self._keeper.counts}

    def statistics(self) -> ClientStatistics:
        """Numbers to watch."""
        return statistics_of(self, self._producer, self._consumers)

    # -- the end -----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the consumers, wait for what was sent to end, and leave."""
        self._router.home.check()
        for consumer in list(self._consumers):
            await consumer.close()
        if self._keeper is not None:
            await self._keeper.close()
        closed = ClientClosed("the client is closed")
        try:
            if self._producer is not None and self._closed is None:
                await self._producer.drain(self.settings.close_timeout_s if self._hurried else None)
        finally:
            self._closed = self._closed or closed
            if self._producer is not None:
                self._producer.fail(self._closed)
            if self._desk is not None:
                self._desk.close()
            self._deciding.fail(self._closed)
            await self._router.close()
            await self._tasks.close()
            if self._spools is not None:
                await self._spools.close()

    def _check(self) -> None:
        if self._closed is not None:
            raise again(self._closed)
        if os.getpid() != self._pid:
            raise ClientClosed("this client was made before a fork: make one in the child process")

    def _sender(self) -> Producer:
        self._check()
        if self._producer is None:
            self._router.begin()
            self._producer = Producer(self.settings, self._router, self._tasks, self._spools)
            self._deciding.open()
        return self._producer

    async def _ready(self) -> Producer:
        producer = self._producer or self._sender()
        self._check()
        self._router.home.check()
        if self._spools is not None and not self._spools.opened:
            await self._spools.open(producer)
        return producer

    def _crashed(self, error: BaseException) -> None:
        self._closed = BrokerUnreachable(f"the client broke down: {error!r}")
        self._closed.__cause__ = error
        if self._producer is not None:
            self._producer.fail(self._closed)
        self._deciding.fail(self._closed)
