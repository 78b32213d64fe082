"""Sends what is committed: the sender, at once, what this process has written; the watchdog what others left.

    watchdog    event                             next
    waiting     the lease is free, or over        leading    it sends what is due, and what has an order key
    leading     renewed in time                   leading
    leading     somebody else has it              waiting    a batch under way goes on; at worst it is sent twice
    leading     ``close``                         none       the next one leads at once
    leading     the process dies                  none       the next one leads when the lease is over

Two leaders at one moment lose nothing and reorder nothing: each begins every key with its oldest row, so of two rows
the older one is stored first, whoever stores it. The lease keeps them from doing all the work twice.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.backoff import Backoff
from tidemill.client import Client
from tidemill.outbox.database import Database, DatabaseAway
from tidemill.outbox.delivering import Fates, deliver
from tidemill.outbox.ledger import Ledger
from tidemill.outbox.pace import Pace
from tidemill.outbox.pending import Pending
from tidemill.outbox.row import Row, Written
from tidemill.tasks import Tasks

logger = logging.getLogger("tidemill.outbox")

DATABASE_BACKOFF_S = (0.1, 5.0)
HINTED_LOOKS = 3
"""How often a leader looks after a hint of a row with an order key, before it waits for its next poll."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Times that follow from the pace and the client together, in seconds."""

    send: float
    grace: float
    lease: float


class Relay:
    """The sender and the watchdog of one process, in one event loop."""

    def __init__(self, database: Database, ledger: Ledger, mq: Client, pace: Pace, spans: Spans) -> None:
        self._database = database
        self._ledger = ledger
        self._mq = mq
        self._pace = pace
        self._spans = spans
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(self._crashed)
        self._pending = Pending(pace.pending_max, pace.looks_max, pace.look_s)
        self._news, self._hint = asyncio.Event(), asyncio.Event()
        self._idle, self._rested = asyncio.Event(), asyncio.Event()
        self._closing = False
        self._owner = secrets.token_hex(16)
        self._error: BaseException | None = None
        self.leading = False
        self._until = 0.0
        """A leader begins no send later than that."""
        self.counts = {"sent": 0, "recovered": 0, "postponed": 0, "aside": 0, "left": 0}

    # -- life --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        self._idle.set()
        self._rested.set()
        if self._pace.sender:
            self._tasks.start(self._sending(), "outbox sender")
        if self._pace.watchdog:
            self._rested.clear()
            self._tasks.start(self._watching(), "outbox watchdog")

    async def close(self) -> None:
        """Send what was committed before, for ``close_s`` at most, and end. The rest is for other processes."""
        await asyncio.sleep(0)  # what has just been committed is told in the next turn of the loop
        self._closing = True
        self._hint.set()
        try:
            async with asyncio.timeout(self._pace.close_s):
                await self._idle.wait()
                await self._rested.wait()  # a batch that was sent is deleted, too
        except TimeoutError:
            logger.info("the outbox leaves %d rows to the watchdog", len(self._pending))
        await self._tasks.close()
        if self.leading:
            try:
                await self._database.run(self._ledger.resign, self._owner)
            except DatabaseAway as error:
                logger.info("the lease of the outbox ends by itself: %s", error)
        if self._error is not None:
            raise self._error

    def _crashed(self, error: BaseException) -> None:
        logger.error("the outbox sends nothing any more in this process", exc_info=error)
        self._error = error
        self._idle.set()
        self._rested.set()

    # -- what this process wrote -------------------------------------------------------------------------------

    def committed(self, written: Sequence[Written]) -> None:
        """They are, or will be in a moment. From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told, list(written))

    def _told(self, written: list[Written]) -> None:
        if any(one.ordered for one in written) and self.leading:
            for looks in range(HINTED_LOOKS):
                self._loop.call_later(self._pace.look_s(looks), self._hint.set)
        loose = [one for one in written if not one.ordered]
        if loose and self._pace.sender:
            self.counts["left"] += self._pending.add(loose, self._now())
            self._idle.clear()
            self._news.set()

    async def _sending(self) -> None:
        backoff = Backoff(*DATABASE_BACKOFF_S, self._mq.settings.random)
        while True:
            due = self._pending.next_due
            if due is None:
                self._idle.set()
                self._news.clear()
                await self._news.wait()
            elif due > self._now():
                await asyncio.sleep(due - self._now())
            else:
                await self._send_own(backoff)

    async def _send_own(self, backoff: Backoff) -> None:
        # What is older the watchdog may take before our send has ended.
        age_max = self._spans.grace - self._spans.send
        looked = self._pending.take(self._now(), self._pace.batch_rows, self._now() - age_max)
        if not looked:
            return
        ours = [one for _, one in looked]
        rows = await self._database.insist(backoff, self._ledger.committed, ours)
        young = {one.identity for one in ours if one.began > self._now() - age_max}
        rows = [row for row in rows if row.identity in young]
        found = {row.identity for row in rows}
        missing = [(looks, one) for looks, one in looked if one.identity not in found]
        self.counts["left"] += self._pending.missed(missing, self._now())
        if rows:
            self._pace.reached("sender read")
            until = min(one.began for one in ours if one.identity in found) + age_max
            fates = await deliver(self._mq, rows, until)
            self.counts["left"] += len(fates.later)
            fates.later.clear()  # they are due when their grace is over
            await self._settle(fates, backoff, "sender")

    # -- what others left --------------------------------------------------------------------------------------

    async def _watching(self) -> None:
        backoff = Backoff(*DATABASE_BACKOFF_S, self._mq.settings.random)
        while not self._closing:
            more = await self._turn(backoff)
            if not more and not self._closing:
                await self._pause()
            self._hint.clear()
        self._rested.set()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._pace.poll_s):
                await self._hint.wait()
        except TimeoutError:
            return

    async def _turn(self, backoff: Backoff) -> bool:
        """Renew the lease and send a batch of each kind; whether there may be more at once."""
        more = False
        for read in (self._ledger.in_order, self._ledger.due):
            if not await self._lead(backoff):
                return False
            rows = await self._database.insist(backoff, read)
            if rows and not self._closing:
                self._pace.reached("watchdog read")
                more |= await self._recover(rows, backoff)
        return more

    async def _lead(self, backoff: Backoff) -> bool:
        """Whether a send that begins now ends within our lease. It is renewed when half of that time is over."""
        room = self._spans.lease - self._spans.send
        asked = self._now()
        if self.leading and asked < self._until - room / 2:
            return True
        lease_ms = round(self._spans.lease * 1000)
        leading = await self._database.insist(backoff, self._ledger.lead, self._owner, lease_ms)
        if leading != self.leading:
            self.leading = leading
            logger.debug("the outbox is %s by this process", "led" if leading else "not led")
        if leading:
            self._until = asked + room
            self._pace.reached("watchdog leading")
        return leading and self._now() < self._until

    async def _recover(self, rows: Sequence[Row], backoff: Backoff) -> bool:
        fates = await deliver(self._mq, rows, self._until)
        self.counts["recovered"] += len(fates.stored)
        self.counts["postponed"] += len(fates.later)
        await self._settle(fates, backoff, "watchdog")
        return bool(fates.stored or fates.refused)

    async def _settle(self, fates: Fates, backoff: Backoff, who: str) -> None:
        self._pace.reached(f"{who} sent")
        if not fates:
            return
        await self._database.insist(backoff, self._ledger.settle, fates)
        self._pace.reached(f"{who} settled")
        self.counts["sent"] += len(fates.stored)
        self.counts["aside"] += len(fates.refused)
        for number, reason in fates.refused.items():
            logger.warning(
                "row %d of the outbox is set aside, see `tidemill outbox status`: %s", number, reason
            )

    def _now(self) -> float:
        return time.monotonic()
