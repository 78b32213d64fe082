"""Between the producer and its spool file: what goes in while no broker is there, and out when one is.

    state      event                             next
    idle       no broker for ``spool_after_s``   spooling   the producer is stopped; all it holds goes to the file
    spooling   a broker is there                 replaying  the file goes to the broker in its order, a frame at a time
    replaying  the broker is lost                spooling
    replaying  the file is empty                 idle       the producer goes on

While the file holds anything the producer is stopped, so a partition's batches reach the broker in the order of their
numbers. A batch that a broker refuses for good is set aside in ``<spool>.refused``, counted and logged: its sender
has gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tidemill.backoff import Backoff
from tidemill.errors import ConnectionLost, OutcomeUnknown, TidemillError, Unavailable, wire_error
from tidemill.link import Answer, Link
from tidemill.producer import Producer
from tidemill.settings import ClientSettings
from tidemill.spool import Spool
from tidemill_wire.batch import partition_name, read_header
from tidemill_wire.commands import Sent

T = TypeVar("T")

log = logging.getLogger("tidemill")


class Spooler:
    """See the module."""

    def __init__(self, path: str | os.PathLike[str], settings: ClientSettings, producer: Producer) -> None:
        self.refused = 0
        """Batches set aside."""
        self._path = path
        self._settings = settings
        self._producer = producer
        self._loop = asyncio.get_running_loop()
        self._backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        self._spool: Spool | None = None
        self._wanted = asyncio.Event()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        producer.keeper = self

    async def opened(self) -> None:
        """Until the file is open, or an error why it is not."""
        await asyncio.shield(self._opened)

    def needed(self) -> None:
        """Something changed: no broker for too long, or one that is back."""
        self._wanted.set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            spool = self._spool = await self._blocking(
                lambda: Spool(self._path, self._settings.spool_bytes_max)
            )
        except (TidemillError, OSError) as error:
            self._opened.set_exception(error)
            return
        self._producer.stopped = not spool.empty
        self._opened.set_result(None)
        self._wanted.set()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            link = self._producer.link
            if link is None:
                await self._take(spool)
            elif not spool.empty:
                await self._replay(spool, link)
            if spool.empty and self._producer.stopped and self._producer.link is not None:
                self._producer.stopped = False
                self._producer.wake()

    async def close(self) -> None:
        """After ``run`` was cancelled."""
        if self._spool is not None:
            await self._blocking(self._spool.close)

    async def _take(self, spool: Spool) -> None:
        """All that the producer holds goes to the file."""
        if not self._producer.overdue:
            return
        self._producer.stopped = True
        batches = self._producer.hand_over()
        if not batches:
            return
        kept = False
        try:
            kept = await self._blocking(lambda: spool.append([batch.data for batch in batches]))
        except OSError as error:
            log.warning("spool_failed %s: %s", self._path, error)
        except asyncio.CancelledError:
            for batch in batches:
                batch.failed(OutcomeUnknown("the client was closed while a message went to the spool"))
            raise
        if kept:
            self._producer.spooled(batches)
        else:
            self._producer.take_back(batches)

    async def _replay(self, spool: Spool, link: Link) -> None:
        while not spool.empty and not link.lost.done():
            batches, position = await self._blocking(lambda: spool.read(self._settings.batch_bytes))
            batches, position = _one_each(batches, position)
            answer = await self._send(batches, link)
            if isinstance(answer, Sent) and len(answer.first_sequences) == len(batches):
                refused: dict[int, TidemillError] = {
                    index: wire_error(number, detail) for index, number, detail in answer.refused
                }
            elif isinstance(answer, TidemillError):
                refused = dict.fromkeys(range(len(batches)), answer)
            else:
                link.close()
                return
            if any(isinstance(error, ConnectionLost | Unavailable) for error in refused.values()):
                # All of the frame again: what of it was stored is recognised.
                await asyncio.sleep(self._backoff.next())
                continue
            self._backoff.reset()
            for index, error in refused.items():
                self.refused += 1
                log.error("spooled_batch_refused %s: %s", self._path, error)
                await self._blocking(partial(spool.set_aside, batches[index]))
            await self._blocking(partial(spool.sent, position))

    async def _send(self, batches: list[bytes], link: Link) -> Answer:
        future: asyncio.Future[Answer] = self._loop.create_future()
        try:
            link.send(batches, sum(map(len, batches)), lambda answer: _resolve(future, answer))
        except TidemillError as error:
            return error
        return await future

    async def _blocking(self, job: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(None, job)


def _resolve(future: asyncio.Future[Answer], answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)


def _one_each(batches: list[bytes], position: int) -> tuple[list[bytes], int]:
    """As many of the batches as have different partitions, and the position behind them."""
    seen: set[bytes] = set()
    for index, batch in enumerate(batches):
        name = partition_name(batch, 0, read_header(batch))
        if name in seen:
            return batches[:index], position - sum(8 + len(rest) for rest in batches[index:])
        seen.add(name)
    return batches, position
