"""The worker: a program's handlers, and the life they are called in.

state      event                       next
serving    ``stop``, SIGTERM, SIGINT   draining   nothing is pulled, what was not begun is given back at once
serving    refused by the broker       draining   the same; FAILED
draining   all handlers ended          ended      DRAINED
draining   ``drain_seconds`` over      ended      what still runs is given back; GIVEN_BACK
draining   ``abort``, second signal    ended      the same at once; FORCED
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from enum import IntEnum
from typing import Any, TypeVar

from tidemill.caught import Caught
from tidemill.chain import Match
from tidemill.client import Client
from tidemill.exporter import metrics_page
from tidemill.message import Message
from tidemill.routes import parse_server
from tidemill.settings import ClientSettings
from tidemill.subscription import From, Sharing
from tidemill.why import why_of
from tidemill.worker import leaving
from tidemill.worker.context import Context
from tidemill.worker.handler import (
    CONCURRENCY_DEFAULT,
    GIVE_UP_AFTER_DEFAULT,
    Handler,
    Hook,
    Mode,
    Pool,
    RetryDelay,
    Wish,
    called,
)
from tidemill.worker.idempotence import Idempotent
from tidemill.worker.middleware import Chain, Middleware
from tidemill.worker.processes import pickled
from tidemill.worker.statistics import Counts, Statistics
from tidemill.worker.subscriber import ABORT_S, Listeners, Subscriber

DRAIN_SECONDS = 30.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("tidemill.worker")


class Ended(IntEnum):
    """How a worker ended, and the exit code that says so."""

    DRAINED = 0
    FAILED = 1
    GIVEN_BACK = 3
    FORCED = 4


class Worker:
    """``worker = Worker("localhost:7401")``, then ``@worker.on("order.created", group="billing")``."""

    def __init__(
        self,
        server: str | None = None,
        *,
        settings: ClientSettings | None = None,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        if server is not None:
            parse_server(server)
        if drain_seconds < 0:
            raise ValueError(f"drain_seconds {drain_seconds} is negative")
        self.server = server
        self.drain_seconds = drain_seconds
        self.handlers: list[Handler] = []
        self.client_type = Client
        """What it makes its client of."""
        self.listeners: list[Callable[[Message, BaseException], None]] = []
        """Told of each failure; for tests."""
        self._settings = settings
        self._chain = Chain()
        self._acked: list[Hook] = []
        self._startup: list[Hook] = []
        self._shutdown: list[Hook] = []
        self._counts: dict[str, Counts] = {}
        self._stopping = asyncio.Event()
        self._aborting = asyncio.Event()
        self._failed = False
        self._client: Client | None = None

    # -- what is registered ------------------------------------------------------------------------------------

    def on(
        self,
        subjects: str | Iterable[str],
        *,
        group: str,
        concurrency: int = CONCURRENCY_DEFAULT,
        timeout: float | None = None,
        start: From = "earliest",
        pool: Pool | None = None,
        tags: Iterable[str] = (),
        match: Match = "any",
        retry_after: RetryDelay = None,
        prefetch: int | None = None,
        name: str | None = None,
        at_most_once: bool = False,
        exclusive: bool = False,
        broadcast: bool = False,
        by_key: bool = False,
        give_up_after: int | None = GIVE_UP_AFTER_DEFAULT,
    ) -> Callable[[F], F]:
        """The decorated function handles the messages of ``subjects`` for ``group``. It stays as it is.

        ``tags``, ``match`` and those from ``name`` to ``broadcast`` are those of ``Client.consume``. Where a group is
        consumed in order its messages are handled one after the other, whatever the concurrency is.

        ``by_key`` makes it exclusive, and handles messages of different order keys side by side, those of one in their
        order. What fails is tried again here, and its key waits for it; after ``give_up_after`` attempts it becomes a
        dead letter, ``None`` is never.
        """
        names = subjects if isinstance(subjects, str) else tuple(subjects)
        sharing = Sharing(at_most_once, exclusive, broadcast, by_key)
        calling = (concurrency, timeout, pool, tags, match, retry_after, prefetch)
        wish = Wish(*calling, sharing, name, by_key, give_up_after if by_key else None)

        def register(function: F) -> F:
            handler = Handler.parse(function, names, group, start, wish)
            self._check_new(handler)
            self.handlers.append(handler)
            self._counts[handler.name] = Counts()
            return function

        return register

    def use(self, middleware: Middleware) -> Middleware:
        """Surround every handler: called with message and context, it gives an async context manager."""
        self._chain.middlewares.append(middleware)
        return middleware

    def filter(self, function: F) -> F:
        """Called with message and context: ``False`` acknowledges the message without handling it."""
        self._chain.filters.append(function)
        return function

    def before(self, function: F) -> F:
        """Called with message and context, before the handler."""
        self._chain.before.append(function)
        return function

    def after(self, function: F) -> F:
        """Called with message and context, when the handler has returned; the ack follows."""
        self._chain.after.append(function)
        return function

    def error(self, function: F) -> F:
        """Called with message, context and exception, when the handler has failed; the nack follows."""
        self._chain.errors.append(function)
        return function

    def acked(self, function: F) -> F:
        """Called with message and context, when the broker has answered the ack: it will not come again."""
        self._acked.append(function)
        return function

    def on_startup(self, function: F) -> F:
        """Called without arguments before anything is pulled. What it raises ends the worker."""
        self._startup.append(function)
        return function

    def on_shutdown(self, function: F) -> F:
        """Called without arguments when all handlers have ended; the last one first."""
        self._shutdown.append(function)
        return function

    @property
    def client(self) -> Client:
        """The client while the worker serves: to send with."""
        if self._client is None:
            raise RuntimeError(
                "the worker does not serve: its client is there from on_startup to on_shutdown"
            )
        return self._client

    def limit(self, concurrency: int) -> None:
        """Another concurrency for every handler, as ``tidemill worker --concurrency`` asks for."""
        self.handlers = [one.with_concurrency(concurrency) for one in self.handlers]

    def number(self, number: int) -> None:
        """It is one of several processes, from 0: each has a spool of its own."""
        settings = self._settings
        if number and settings is not None and settings.spool_path is not None:
            self._settings = replace(settings, spool_path=f"{settings.spool_path}.{number}")

    def statistics(self) -> Statistics:
        """What was done so far."""
        spool = {} if self._client is None else self._client.spooled_acks
        return Statistics(self._counts, spool)

    # -- life --------------------------------------------------------------------------------------------------

    def run(self, *, metrics_port: int | None = None) -> None:
        """Serve until SIGTERM or SIGINT. Returns when all was drained, else exits with a code of ``Ended``."""
        ended = leaving.run(self.serve(signals=True, metrics_port=metrics_port))
        if ended is not Ended.DRAINED:
            sys.exit(int(ended))

    async def serve(
        self, client: Client | None = None, *, signals: bool = False, metrics_port: int | None = None
    ) -> Ended:
        """Handle messages until ``stop``. Without a client the worker has one of its own."""
        self._check_ready()
        self._stopping, self._aborting, self._failed = asyncio.Event(), asyncio.Event(), False
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            if signals:
                for number in SIGNALS:
                    loop.add_signal_handler(number, self._signalled, number)
                    stack.callback(loop.remove_signal_handler, number)
            mq = client or await stack.enter_async_context(
                self.client_type(self.server, settings=self._settings)
            )
            self._client = mq
            stack.callback(self._without_client)
            page = nullcontext() if metrics_port is None else metrics_page(metrics_port, self.statistics)
            port = await stack.enter_async_context(page)
            if port is not None:
                log.info("metrics_page http port %d, /metrics", port)
            for hook in self._shutdown:
                stack.push_async_callback(self._shut_down, hook)
            return await self._consume(self.client) if await self._started() else Ended.DRAINED
        raise AssertionError("no context manager of a worker swallows")

    def stop(self) -> None:
        """Begin to drain. To be called in the worker's event loop."""
        self._stopping.set()

    def abort(self) -> None:
        """Do not wait for handlers that run: give their messages back."""
        self._stopping.set()
        self._aborting.set()

    async def _started(self) -> bool:
        """Whether all hooks have returned before somebody wanted the end: one may wait for a database that is away."""
        async with _cut_off(self._stopping, 0.0) as limit:
            for hook in self._startup:
                await called(hook)
        return not limit.expired()

    async def _shut_down(self, hook: Hook) -> None:
        """A second signal means hooks, too: then they have ``ABORT_S`` more."""
        async with _cut_off(self._aborting, ABORT_S):
            await called(hook)

    async def _consume(self, mq: Client) -> Ended:
        tell = Listeners(self._was_acked, self._has_failed, self._crashed)
        subscribers = [
            Subscriber(handler, mq, self._chain, self._counts[handler.name], tell)
            for handler in self.handlers
        ]
        async with asyncio.TaskGroup() as group:
            runs = [
                group.create_task(self._subscribed(one), name="tidemill subscriber") for one in subscribers
            ]
            over = group.create_task(self._over(group, subscribers, runs), name="tidemill worker's end")
        return Ended.FAILED if self._failed else over.result()

    async def _subscribed(self, subscriber: Subscriber) -> None:
        """One that fails ends the others in good order."""
        with Caught() as caught:
            await subscriber.run()
        if caught.error is not None:
            log.error("subscription_failed %s", why_of(caught.error).line)
            self._failed = True
            self.stop()

    async def _over(
        self, group: asyncio.TaskGroup, subscribers: list[Subscriber], runs: list[asyncio.Task[None]]
    ) -> Ended:
        await self._stopping.wait()
        for one in subscribers:
            one.stop()
        abort = group.create_task(self._aborting.wait())
        left = group.create_task(_all_of(runs))
        await asyncio.wait([abort, left], timeout=self.drain_seconds, return_when=asyncio.FIRST_COMPLETED)
        ended = Ended.DRAINED
        if not left.done():
            ended = Ended.FORCED if self._aborting.is_set() else Ended.GIVEN_BACK
            running = self.statistics().total.in_progress
            log.warning("worker_ends_early handlers=%d: their messages are given back", running)
            await asyncio.gather(*(one.abort() for one in subscribers))
            await asyncio.wait(runs, timeout=ABORT_S)
            for run in runs:
                run.cancel()
        abort.cancel()
        left.cancel()
        return ended

    def _signalled(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            log.warning("worker_stops_now %s: the second signal", number.name)
            self.abort()
        else:
            running = self.statistics().total.in_progress
            log.info(
                "worker_drains %s handlers=%d drain_seconds=%g", number.name, running, self.drain_seconds
            )
            self.stop()

    # -- what subscribers say ----------------------------------------------------------------------------------

    async def _was_acked(self, context: Context) -> None:
        for hook in self._acked:
            await called(hook, context.message, context)

    def _has_failed(self, message: Message, error: BaseException) -> None:
        for listener in self.listeners:
            listener(message, error)

    def _crashed(self, error: BaseException) -> None:
        """Not a handler's failure but one of the worker itself."""
        log.critical("worker_broke_down %s", why_of(error).line, exc_info=error)
        self._failed = True
        self.abort()

    # -- checks ------------------------------------------------------------------------------------------------

    def _check_new(self, handler: Handler) -> None:
        for other in self.handlers:
            if other.subscription.group != handler.subscription.group:
                continue
            if both := set(other.subscription.subjects) & set(handler.subscription.subjects):
                raise ValueError(
                    f"{other.name} and {handler.name} both handle {min(both)}: each would get some of its messages; "
                    "choose two groups"
                )
            if other.name == handler.name:
                raise ValueError(f"{handler.name} is there already: name all its subjects in one on([...])")

    def _check_ready(self) -> None:
        if not self.handlers:
            raise ValueError(
                "the worker has no handler: decorate a function with @worker.on(subject, group=...)"
            )
        if self._client is not None:
            raise RuntimeError("the worker serves already")
        for handler in self.handlers:
            if handler.mode is Mode.PROCESS:
                pickled(handler.function)
            for middleware in self._chain.middlewares:
                if isinstance(middleware, Idempotent):
                    middleware.check(handler)

    def _without_client(self) -> None:
        self._client = None


@asynccontextmanager
async def _cut_off(event: asyncio.Event, later_s: float) -> AsyncGenerator[asyncio.Timeout]:
    """Cancel what is inside, so long after the event."""
    limit = asyncio.timeout(None)

    async def watch() -> None:
        await event.wait()
        limit.reschedule(asyncio.get_running_loop().time() + later_s)

    watching = asyncio.create_task(
        watch(), name="tidemill worker's hooks"
    )  # in a group errors would be wrapped
    try:
        async with limit:
            yield limit
    except TimeoutError:
        if not limit.expired():
            raise
        log.warning("worker_ends_early in a hook, which is cancelled")
    finally:
        watching.cancel()


async def _all_of(runs: list[asyncio.Task[None]]) -> None:
    await asyncio.wait(runs)
