"""Between a lane and its spool file: what goes in while no broker is there, and out when one is.

    state      event                             next
    idle       no broker for ``spool_after_s``   spooling   the lane is stopped; all it holds goes to the file
    spooling   a broker is there                 replaying  the file goes to the broker in its order, a frame at a time
    replaying  the broker is lost                spooling
    replaying  the file is empty                 idle       the lane goes on

While the file holds anything the lane is stopped, so a partition's batches reach the broker in the order of their
numbers. What has no route is spooled without a broker group. When there is one, a batch with order keys goes to the
spools of those who have them (``mover``), and so does one for whose name the route has no partition; for any other
``carrier`` finds a broker group, and it goes to no other until it is answered. Of a frame of which some was refused for
now, only that is sent again: the rest is stored, and may not go to another broker group beside it. A batch whose order
keys lie elsewhere is taken apart; it counts as sent when its pieces are in the spools of those who have them. A batch
that a broker refuses for good is set aside in ``<spool>.refused``, counted and logged: its sender has gone. One that
was written before, and is refused by who has not looked for it, may be stored: it goes to ``<spool>.doubted`` instead.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from tidemill.backoff import Backoff
from tidemill.errors import ConnectionLost, OutcomeUnknown, TidemillError, Unavailable, wait_of
from tidemill.lane import Lane
from tidemill.link import Answer, Link
from tidemill.settings import ClientSettings
from tidemill.spool import RECORD, Spool
from tidemill.spool_doubts import SpoolDoubts
from tidemill_wire.batch import partition_name, read_header
from tidemill_wire.columns import Batch
from tidemill_wire.commands import Sent
from tidemill_wire.fields import living_subject

T = TypeVar("T")
Carrier: TypeAlias = Callable[[str, str], Lane | None]
"""Who takes a batch of a subject now; or the broker group that it was sent to before."""
Mover: TypeAlias = Callable[[bytes, Lane], Awaitable[bool]]
"""Brings a batch that a lane's broker refuses for its route to where its order keys lie; whether that is known."""

OUTDATED = "route_outdated"
WAIT_S_MAX = 30.0
"""However long a broker says: a quota may be lifted meanwhile."""

log = logging.getLogger("tidemill")


class Sender(Protocol):
    """The producer, as spools know it."""

    def lane(self, group: str) -> Lane:
        """The lane to a broker group."""
        ...

    def carrier(self, subject: str, group: str = "") -> Lane | None:
        """Who takes a batch of a subject now; or the broker group that it was sent to before."""
        ...

    def pieces_of(self, batch: bytes, lane: Lane) -> list[tuple[str, bytes]]:
        """What of a batch goes to which broker group, which is refused where it went; nothing: that is not known."""
        ...


class Places(Protocol):
    """Where lanes keep what they cannot send."""

    def add(self, lane: Lane, sender: Sender) -> None:
        """A lane begins."""
        ...


class Spooler:
    """See the module."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: ClientSettings,
        lane: Lane,
        carrier: Carrier,
        mover: Mover,
    ) -> None:
        self.refused = 0
        """Batches set aside: not stored."""
        self.doubted = 0
        """Batches set aside of which nobody knows whether they are stored."""
        self._doubts = SpoolDoubts()
        self._path = path
        self._settings = settings
        self._lane = lane
        self._eager = not lane.group or settings.shelf.exists(Path(path))
        """What is for one broker group begins when something is to be kept; what was left begins at once."""
        self._carrier = carrier
        self._mover = mover
        self._bound = ""
        """The broker group to which the first batches of the file were sent, when nobody knows what became of them."""
        self._bound_to = 0
        """The position behind those."""
        self._doubtful = False
        """A connection ended before it was answered: who refuses the whole frame has not looked what it has."""
        self._settled: set[bytes] = set()
        """Of the first batches of the file, what is stored or went elsewhere while others of its frame were refused."""
        self._loop = asyncio.get_running_loop()
        self._backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        self._spool: Spool | None = None
        self._turn = asyncio.Lock()
        """Whoever touches the file has it alone."""
        self._wanted = asyncio.Event()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        lane.keeper = self

    async def opened(self) -> None:
        """Until the file is open, or an error why it is not."""
        await asyncio.shield(self._opened)

    def needed(self) -> None:
        """Something changed: no broker for too long, or one that is back."""
        self._wanted.set()

    async def keep(self, batches: list[bytes]) -> bool:
        """Batches that were spooled for another broker group: whether they are in this file now. What is gathered here
        waits until they are sent.
        """
        self._eager = True
        self.needed()
        try:
            await self.opened()
            self._lane.stopped = True
            spool = self._spool
            return spool is not None and await self._blocking(lambda: spool.append(batches))
        except (TidemillError, OSError) as error:
            log.warning("spool_failed %s: %s", self._path, error)
            return False
        finally:
            self.needed()

    async def run(self) -> None:
        """Until cancelled."""
        while not (self._eager or self._lane.overdue):
            await self._wanted.wait()
            self._wanted.clear()
        try:
            spool = await self._open()
        except (TidemillError, OSError) as error:
            log.warning("spool_not_opened %s: %s", self._path, " ".join(str(error).split()))
            self._lane.keeper = None
            self._opened.set_exception(error)
            self._opened.exception()  # nobody may be waiting for it: then it was said above
            return
        self._lane.stopped = not spool.empty
        self._doubts.left(0 if spool.empty else spool.end)
        self._opened.set_result(None)
        self._wanted.set()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._lane.overdue:
                await self._take(spool)
            if not spool.empty:
                await self._replay(spool)
            if spool.empty and self._lane.stopped and not self._lane.overdue:
                self._lane.stopped = False
                self._lane.resume()

    async def _open(self) -> Spool:
        """In a thread, and to its end: a file that nobody knows of would stay locked."""
        settings = self._settings
        opening = self._loop.run_in_executor(
            None, Spool, self._path, settings.spool_bytes_max, settings.shelf
        )
        try:
            self._spool = spool = await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait([opening])
            if opening.exception() is None:
                opening.result().close()
            raise
        return spool

    async def close(self) -> None:
        """After ``run`` was cancelled."""
        if self._spool is not None:
            await self._blocking(self._spool.close)

    async def _take(self, spool: Spool) -> None:
        """All that the lane holds goes to the file."""
        self._lane.stopped = True
        written = self._lane.flights.written
        batches = self._lane.hand_over()
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
            self._doubts.unanswered(bytes(batch.data) for batch in batches if batch in written)
            self._lane.spooled(batches)
        else:
            self._lane.take_back(batches)

    async def _replay(self, spool: Spool) -> None:
        while not spool.empty:
            batches, position = await self._blocking(lambda: spool.read(self._settings.batch_bytes))
            if self._goes_elsewhere(batches[0]):
                if not await self._mover(batches[0], self._lane):
                    return
                await self._blocking(partial(spool.sent, position - size_of(batches[1:])))
                continue
            frame, position, lane = self._for_one(*_one_each(batches, position))
            batches = [batch for batch in frame if batch not in self._settled]
            link = lane.link if lane is not None else None
            if lane is None or link is None or link.lost.done():
                return
            self._bound, self._bound_to = lane.group, position
            answer = await self._send(batches, link)
            if isinstance(answer, ConnectionLost):
                self._doubts.unanswered(batches)
            self._doubtful = not isinstance(answer, Sent) and (
                self._doubtful or isinstance(answer, ConnectionLost)
            )
            if isinstance(answer, Sent) and len(answer.first_sequences) == len(batches):
                refused: dict[int, TidemillError] = dict(answer.errors)
                self._doubts.answered(batches, refused)
            elif isinstance(answer, TidemillError):
                refused = dict.fromkeys(range(len(batches)), answer)
            else:
                link.close()
                return
            tried = {index: error for index, error in refused.items() if not _is_outdated(error)}
            if not any(isinstance(error, ConnectionLost | Unavailable) for error in tried.values()):
                moved = [index for index in refused if index not in tried]
                refused = tried | await self._move(
                    [(index, refused[index], batches[index]) for index in moved], lane
                )
            if any(isinstance(error, ConnectionLost | Unavailable) for error in refused.values()):
                # What was refused is not stored, and may go to another broker group; the rest must not go with it.
                self._settled.update(batch for index, batch in enumerate(batches) if index not in refused)
                if not self._doubtful:
                    self._bound = ""
                wait_s = max(map(wait_of, refused.values()))
                await asyncio.sleep(max(self._backoff.next(), min(wait_s, WAIT_S_MAX)))
                continue
            self._backoff.reset()
            self._bound = ""
            begins = position - size_of(frame)
            for index, error in refused.items():
                await self._set_aside(spool, batches[index], begins, error)
            await self._blocking(partial(spool.sent, position))
            self._settled.difference_update(frame)
            self._doubts.gone(frame)
        self._doubts.left(0)

    async def _set_aside(self, spool: Spool, batch: bytes, begins: int, error: TidemillError) -> None:
        """Nobody will take it; whether nobody has is another question."""
        doubted = self._doubts.leave(batch, begins, error)
        if doubted:
            self.doubted += 1
            log.error("spooled_batch_in_doubt %s: it may be stored, or not: %s", self._path, error)
        else:
            self.refused += 1
            log.error("spooled_batch_refused %s: %s", self._path, error)
        await self._blocking(partial(spool.set_aside, batch, doubted=doubted))

    def _goes_elsewhere(self, batch: bytes) -> bool:
        """Whether a batch that was spooled without a route, and sent nowhere yet, is not for whoever carries it."""
        if self._lane.group or self._bound or self._settled:
            return False
        carrier = self._carrier(subject_of(batch), "")
        return carrier is not self._lane and (carrier is None or has_order_keys(batch))

    async def _move(
        self, outdated: list[tuple[int, TidemillError, bytes]], lane: Lane
    ) -> dict[int, TidemillError]:
        """Which of them stay, and why. Those that went are pieces somewhere; done again, it makes the same pieces."""
        return {index: error for index, error, batch in outdated if not await self._mover(batch, lane)}

    def _for_one(self, batches: list[bytes], position: int) -> tuple[list[bytes], int, Lane | None]:
        """As many of the batches as the lane of the first one takes, the position behind them, and that lane."""
        while (
            self._bound and position > self._bound_to
        ):  # what lies behind was sent nowhere, and has its own route
            batches, position = batches[:-1], position - size_of(batches[-1:])
        waiting = [index for index, batch in enumerate(batches) if batch not in self._settled]
        assert waiting, "a frame of which everything is settled was sent"
        first = self._carrier(subject_of(batches[waiting[0]]), self._bound)
        for index in waiting[1:]:
            lane = self._carrier(subject_of(batches[index]), self._bound)
            has_own_home = not (self._lane.group or self._bound or first is self._lane)
            if lane is not first or (has_own_home and has_order_keys(batches[index])):
                return batches[:index], position - size_of(batches[index:]), first
        return batches, position, first

    async def _send(self, batches: list[bytes], link: Link) -> Answer:
        future: asyncio.Future[Answer] = self._loop.create_future()
        try:
            link.send(batches, sum(map(len, batches)), lambda answer: _resolve(future, answer))
        except TidemillError as error:
            return error
        try:
            async with asyncio.timeout(self._settings.send_timeout_s):
                return await future
        except TimeoutError:
            link.close()  # It answers pings and no sends: a new connection may do better.
            return ConnectionLost("the broker did not answer what was spooled in time")

    async def _blocking(self, job: Callable[[], T]) -> T:
        async with self._turn:
            return await self._loop.run_in_executor(None, job)


def _is_outdated(error: TidemillError) -> bool:
    return isinstance(error, Unavailable) and error.kind.name == OUTDATED


def _resolve(future: asyncio.Future[Answer], answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)


def has_order_keys(batch: bytes) -> bool:
    """Whether some of its messages have one."""
    return any(Batch(batch).order_keys() or ())


def size_of(batches: list[bytes]) -> int:
    """Of their records."""
    return sum(RECORD.size + len(batch) for batch in batches)


def subject_of(batch: bytes) -> str:
    """Whose it is."""
    return living_subject(partition_name(batch, 0, read_header(batch)).decode())


def _one_each(batches: list[bytes], position: int) -> tuple[list[bytes], int]:
    """As many of the batches as have different partitions, and the position behind them."""
    seen: set[bytes] = set()
    for index, batch in enumerate(batches):
        name = partition_name(batch, 0, read_header(batch))
        if name in seen:
            return batches[:index], position - size_of(batches[index:])
        seen.add(name)
    return batches, position
