"""One handler's messages, from the pull to the verdict.

    state      event                  next
    pulling    ``stop``               draining   what was not begun is given back at once; handlers go on
    draining   all handlers ended     left       acks are answered, GOODBYE
    draining   ``abort``              left       async handlers are cancelled, processes killed, threads left behind;
                                                 their messages are given back

A slot is held from before a message is taken until its handler has ended. So no more than ``concurrency`` handlers
run, and a thread that does not come back in time keeps its slot. In a group that is consumed in order a message is
taken only when the handler of the one before has ended, also when it was a thread that took too long; by key that holds
for the messages of a key (``keyed.py``).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from tidemill.caught import Caught
from tidemill.client import Client
from tidemill.consumer import Consumer
from tidemill.errors import LeaseLost, Refused, TidemillError
from tidemill.message import Message, parse_delay
from tidemill.tasks import Tasks
from tidemill.why import GROUPS_POLICY, Why, sayable, why_of
from tidemill.worker.acks import Acks
from tidemill.worker.context import Context
from tidemill.worker.handler import Handler, Mode, check_found
from tidemill.worker.keyed import Begun, Keyed, backoff_s
from tidemill.worker.middleware import Chain
from tidemill.worker.plain import PlainMessage
from tidemill.worker.processes import Processes
from tidemill.worker.statistics import Counts
from tidemill.worker.threads import Threads
from tidemill.worker.verdicts import (
    HandlerCancelled,
    HandlerTimeout,
    Reject,
    RetryAfter,
    Skip,
)

ABORT_S = 2.0
"""How long a cancelled handler may take to end."""

log = logging.getLogger("tidemill.worker")


@dataclass(frozen=True, slots=True)
class Listeners:
    """Whom a subscriber tells."""

    acked: Callable[[Context], Awaitable[None]]
    failed: Callable[[Message, BaseException], None]
    crashed: Callable[[BaseException], None]


class Subscriber:
    """See the module."""

    def __init__(
        self, handler: Handler, client: Client, chain: Chain, counts: Counts, tell: Listeners
    ) -> None:
        self._handler = handler
        self._client = client
        self._chain = chain
        self._counts = counts
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(handler.concurrency)
        self._running = Tasks(tell.crashed)
        self._stuck: set[asyncio.Future[object]] = set()
        self._tasks = Tasks(tell.crashed)
        self._threads = Threads(handler.name) if handler.mode is Mode.THREAD else None
        self._processes = Processes(handler.function) if handler.mode is Mode.PROCESS else None
        self._acks = Acks(client.settings.ack_linger_ms / 1000, self._acked, counts, self._tasks)
        self._keyed: Keyed | None = None
        self._consumer: Consumer | None = None
        self._stopped = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Until ``stop`` and all handlers have ended, or ``abort``. An error of the broker that stays is raised."""
        consumer = self._client.consumer(self._handler.subscription, self._handler.prefetch)
        try:
            async with consumer:
                self._consumer = consumer
                if self._stopped.is_set():
                    consumer.stop()
                with suppress(StopAsyncIteration):
                    await (self._pull_by_key if self._handler.by_key else self._pull)(consumer)
                await self._idle.wait()
                await self._acks.drained()
        finally:
            await self._running.close()
            await self._tasks.close()
            if self._threads is not None:
                self._threads.close()
            if self._processes is not None:
                await self._processes.close()

    async def _pull(self, consumer: Consumer) -> None:
        while True:
            await self._slots.acquire()
            if consumer.in_order:
                await self._idle.wait()
            message = await consumer.take()
            self._begin(message)

    async def _pull_by_key(self, consumer: Consumer) -> None:
        self._keyed = keyed = Keyed(consumer, self._tasks)
        keyed.start()
        while True:
            await self._slots.acquire()
            begun = await keyed.next()
            self._begin(begun.message, begun)

    def stop(self) -> None:
        """Pull no more, and give back what was not begun."""
        self._stopped.set()
        if self._consumer is not None:
            self._consumer.stop()
        if self._keyed is not None:
            self._keyed.stop()

    async def abort(self) -> None:
        """End what still runs; its messages are given back."""
        self.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(ABORT_S):
                await self._running.close()
        for future in self._stuck:
            future.cancel()
        self._idle.set()

    def _begin(self, message: Message, begun: Begun | None = None) -> None:
        self._counts.in_progress += 1
        self._idle.clear()
        entered: list[bool] = []
        task = self._running.start(
            self._handle(message, entered, begun), f"tidemill handles {self._handler.name}"
        )
        task.add_done_callback(lambda _task: self._ended(message, entered, begun))

    def _ended(self, message: Message, entered: list[bool], begun: Begun | None) -> None:
        """Of a task that was cancelled before its first step the task itself never hears."""
        if entered:
            return
        self._counts.released += 1
        message.release()
        if begun is not None:
            begun.done()
        self._free()

    # -- one message -------------------------------------------------------------------------------------------

    async def _handle(self, message: Message, entered: list[bool], begun: Begun | None) -> None:
        entered.append(True)
        parked = False
        began = self._loop.time()
        context = Context(self._client, self._handler, message, self._loop)
        try:
            with Caught() as caught, _own_cancellations():
                await self._attempt(message, context)
            self._counts.seconds += self._loop.time() - began
            if begun is not None and context.stuck is not None:
                await asyncio.wait([context.stuck])  # nothing of its key is begun while a thread is at it
                self._late(context.stuck)
                context.stuck = None
            parked = begun is not None and self._park(begun, caught.error)
            if not parked:
                await self._settle(context, caught.error)
        except asyncio.CancelledError:
            self._counts.released += 1
            message.release()
            raise
        finally:
            if begun is not None and not parked:
                begun.done()
            if context.stuck is None:
                self._free()
            else:
                self._counts.stuck += 1
                self._stuck.add(context.stuck)
                context.stuck.add_done_callback(self._back)

    async def _attempt(self, message: Message, context: Context) -> None:
        handler = self._handler
        if not await self._chain.wanted(message, context):
            raise Filtered
        async with self._chain.around(message, context):
            match handler.mode:
                case Mode.LOOP:
                    await self._in_loop(message, context)
                case Mode.THREAD:
                    await self._in_thread(message, context)
                case Mode.PROCESS:
                    await self._in_process(message)

    async def _in_loop(self, message: Message, context: Context) -> None:
        arguments = (message, context)
        start = partial(self._handler.function, *arguments[: 1 + self._handler.takes_context])
        await self._awaited(start, self._handler.timeout_s)

    async def _awaited(self, start: Callable[[], Awaitable[object]], timeout_s: float | None) -> None:
        limit = asyncio.timeout(timeout_s)
        try:
            with _own_cancellations():
                async with limit:
                    await start()
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self._over() from error

    async def _in_thread(self, message: Message, context: Context) -> None:
        assert self._threads is not None
        arguments = (PlainMessage.of(message), context)
        began = self._loop.time()
        future = self._threads.submit(self._handler.function, *arguments[: 1 + self._handler.takes_context])
        context.in_thread = True
        done, _ = await asyncio.wait([future], timeout=self._handler.timeout_s)
        context.in_thread = not done
        if not done:
            context.stuck = future
            raise self._over()
        found = future.result()
        if inspect.isawaitable(found):  # a lambda around a method that is async: nothing of it has run yet
            timeout_s = self._handler.timeout_s
            await self._awaited(
                lambda: found, timeout_s and max(0.0, timeout_s - (self._loop.time() - began))
            )
        check_found(self._handler.function, found)

    async def _in_process(self, message: Message) -> None:
        assert self._processes is not None
        try:
            await self._processes.call(PlainMessage.of(message), self._handler.timeout_s)
        except TimeoutError as error:  # ours: what the handler raises is of another kind
            raise self._over() from error

    def _over(self) -> HandlerTimeout:
        return HandlerTimeout(f"the handler did not return within {self._handler.timeout_s:g} s")

    # -- what became of it -------------------------------------------------------------------------------------

    async def _settle(self, context: Context, error: BaseException | None) -> None:
        counts, message = self._counts, context.message
        match error:
            case None:
                counts.handled += 1
                self._acks.add(context)
            case Filtered():
                counts.filtered += 1
                self._acks.add(context)
            case Skip():
                counts.skipped += 1
                self._acks.add(context)
            case RetryAfter():
                counts.retried += 1
                log.info("handler_retries %s: %s", self._about(message), " ".join(error.reason.split()))
                await self._nack(message, Why(sayable(error.reason), delay_ms=error.delay_ms))
            case Reject():
                counts.rejected += 1
                log.warning("handler_rejects %s: %s", self._about(message), " ".join(error.reason.split()))
                self._tell.failed(message, error)
                await self._nack(message, why_of(error, self._handler.function)._replace(reject=True))
            case _:
                counts.failed += 1
                counts.timed_out += isinstance(error, HandlerTimeout)
                why = why_of(error, self._handler.function)
                log.warning("handler_failed %s: %s", self._about(message), why.line)
                log.debug("handler_failed %s", self._about(message), exc_info=error)
                self._tell.failed(message, error)
                given_up = self._handler.give_up_after is not None  # by key, what is not given up is parked
                delay_ms = self._delay_ms(message.attempts)
                await self._nack(message, why._replace(delay_ms=delay_ms, reject=given_up))

    def _park(self, begun: Begun, error: BaseException | None) -> bool:
        """Whether a message that failed is tried again here, and its key waits for it."""
        message, attempts = begun.message, begun.message.attempts + begun.strand.tries + 1
        match error:
            case None | Filtered() | Skip() | Reject():
                return False
            case RetryAfter():
                self._counts.retried += 1
                delay_s = error.delay_ms / 1000
            case _:
                limit = self._handler.give_up_after
                if limit is not None and attempts >= limit:
                    return False
                self._counts.failed += 1
                self._counts.timed_out += isinstance(error, HandlerTimeout)
                self._tell.failed(message, error)
                delay_ms = self._delay_ms(attempts - 1)
                delay_s = delay_ms / 1000 if delay_ms >= 0 else backoff_s(attempts)
        why = why_of(error, self._handler.function)
        log.warning(
            "key_parked %s key=%s tries=%d: %s", self._about(message), begun.strand.key, attempts, why.line
        )
        begun.again(why, delay_s)
        return True

    async def _nack(self, message: Message, why: Why) -> None:
        try:
            if not await message.fail(why):
                self._counts.spooled += 1
        except LeaseLost as error:
            self._counts.lost += 1
            log.warning("nack_too_late %s: %s", self._about(message), error)
        except Refused as error:  # the broker was told, and gives it out as the group's policy says
            log.warning("retry_after_refused %s: %s", self._about(message), error)
        except TidemillError as error:
            log.warning("nack_unanswered %s: %s", self._about(message), error)

    def _delay_ms(self, attempts: int) -> int:
        with Caught() as caught:
            return parse_delay(self._handler.delay(attempts))
        assert caught.error is not None
        log.error("retry_after_failed %s: %s", self._handler.name, why_of(caught.error).line)
        return GROUPS_POLICY

    def _about(self, message: Message) -> str:
        return f"{self._handler.name} {message.subject} {message.sequence} attempts={message.attempts}"

    async def _acked(self, contexts: list[Context]) -> None:
        for context in contexts:
            with Caught() as caught:
                await self._tell.acked(context)
            if caught.error is not None:
                log.error("acked_hook_failed %s: %s", self._handler.name, why_of(caught.error).line)

    def _back(self, future: asyncio.Future[object]) -> None:
        self._stuck.discard(future)
        self._counts.stuck -= 1
        self._late(future)
        self._free()

    def _late(self, future: asyncio.Future[object]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            log.warning("handler_failed_late %s: %s", self._handler.name, why_of(error).line)

    def _free(self) -> None:
        self._counts.in_progress -= 1
        self._slots.release()
        if not self._counts.in_progress:
            self._idle.set()


@contextmanager
def _own_cancellations() -> Generator[None]:
    """A cancellation that is not the worker's doing is a failure: something that the user's code awaited was cancelled.
    Released, its message would come at once, and again.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise HandlerCancelled("something that the handler awaited was cancelled") from error


class Filtered(Exception):
    """A filter said no."""
