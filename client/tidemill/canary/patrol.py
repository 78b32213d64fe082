"""One broker group's canary at work: it sends probes, consumes them, and tells the judge. Decides nothing itself.

A crash of the process leaves probes that nobody expects any more: the next run knows them by their run, and acks them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

from tidemill.canary.judge import Judge, Sighting
from tidemill.canary.options import CanarySettings
from tidemill.canary.probes import Body, parse_body
from tidemill.client import Client
from tidemill.errors import TidemillError
from tidemill.message import Message

log = logging.getLogger("tidemill.canary")

ORDER_KEY = "canary"
"""Of probes that are to come at once: what has one is stored in the order in which it is sent."""
LOOK_S = 1.0
RETRY_S = 2.0
ACKS_MAX = 256
"""Acks that are under way; more probes are not taken."""


class Patrol:
    """See the module."""

    def __init__(self, mq: Client, subject: str, settings: CanarySettings) -> None:
        self._mq = mq
        self._subject = subject
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._run = f"{mq.settings.random.getrandbits(64):016x}"
        self._began_ms = mq.settings.now_ms()
        self._first_own: int | None = None
        """Where the first probe of this run lies that came."""
        self._acks = asyncio.Semaphore(ACKS_MAX)
        self._going = asyncio.Event()
        self._going.set()
        self._taken_later = asyncio.Event()
        self._taken_later.set()
        self.hindered = ""
        """Why nothing is sent, where that is not meant."""
        self._troubles: dict[str, str] = {}
        """Why something cannot be done, by what it is, in the words of the last error."""
        self.judge = Judge(
            self.now_ms(),
            patience_ms=round(1000 * settings.patience_s),
            slow_ms=round(1000 * settings.slow_s),
            gaps_ms=settings.gaps_ms,
            kept_ms=settings.kept_ms,
        )

    def now_ms(self) -> int:
        """Of a clock that does not jump."""
        return round(1000 * self._loop.time())

    @property
    def problem(self) -> str:
        """What cannot be done, and why; empty: all can."""
        return "; ".join(f"{what}: {why}" for what, why in self._troubles.items())

    def pause(self, why: str, *, meant: bool = False) -> None:
        """Send nothing more for now; what is expected is still taken. ``meant``: so it is wanted."""
        self._going.clear()
        self.hindered = "" if meant else why
        self.judge.rest(self.now_ms(), rests=meant)
        self._trouble("nothing is sent", why)

    def resume(self) -> None:
        """Send again."""
        self._going.set()
        self.hindered = ""
        self.judge.rest(self.now_ms(), rests=False)
        self._troubles.pop("nothing is sent", None)

    def send_later(self, *, taken: bool) -> None:
        """Whether there is somebody who takes messages for later; else none are sent, and none are missed."""
        if taken:
            self._taken_later.set()
        else:
            self._taken_later.clear()

    async def run(self) -> None:
        """Until it is cancelled."""
        settings = self._settings
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._consume(tasks))
            tasks.create_task(self._send_every(settings.interval_s, None, tasks))
            if settings.later_every_s:
                tasks.create_task(self._send_every(settings.later_every_s, settings.later_s, tasks))
            tasks.create_task(self._look())

    async def _send_every(
        self, interval_s: float, delay_s: float | None, tasks: asyncio.TaskGroup
    ) -> NoReturn:
        at = self._loop.time()
        while True:
            await self._going.wait()
            if delay_s is not None:
                await self._taken_later.wait()
            now_ms = self.now_ms()
            due_ms = None if delay_s is None else now_ms + round(1000 * delay_s)
            number = self.judge.send(now_ms, due_ms)
            if number is not None:
                tasks.create_task(self._send(number, delay_s))
            # Who stood still sends none of what it did not send.
            at = max(at + interval_s, self._loop.time())
            await asyncio.sleep(at - self._loop.time())

    async def _send(self, number: int, delay_s: float | None) -> None:
        later = delay_s is not None
        body = Body(self._settings.name, self._run, later, number, self._mq.settings.now_ms()).to_bytes()
        order_key = None if later else ORDER_KEY
        what = "a send for later failed" if later else "a send failed"
        try:
            receipt = await self._mq.send(self._subject, body, order_key=order_key, delay=delay_s)
        except TidemillError as error:
            self.judge.failed(number, self.now_ms(), later=later)
            self._trouble(what, said(error))
        else:
            self.judge.answered(number, self.now_ms(), receipt.id, later=later)
            self._troubles.pop(what, None)

    async def _consume(self, tasks: asyncio.TaskGroup) -> NoReturn:
        while True:
            try:
                async with self._mq.consume(self._subject, group=self._settings.name) as messages:
                    while True:
                        message = await messages.take()
                        self._troubles.pop("consuming failed", None)
                        self._seen(message)
                        await self._acks.acquire()
                        tasks.create_task(self._ack(message))
            except TidemillError as error:
                self._trouble("consuming failed", said(error))
                await asyncio.sleep(RETRY_S)

    def _seen(self, message: Message) -> None:
        body, now_ms = parse_body(message.body), self.now_ms()
        if body is None or body.name != self._settings.name:
            return
        if body.run != self._run:
            if body.sent_ms > self._began_ms or self._is_behind_own(message, body):
                self.judge.crowded(now_ms)
            return
        if not body.later and self._first_own is None:
            self._first_own = message.sequence
        seen = Sighting(body.later, body.number, message.sequence, message.epoch, message.attempts)
        self.judge.seen(seen, now_ms)

    def _is_behind_own(self, message: Message, body: Body) -> bool:
        """Whether it was stored after one of this run, whatever its sender's clock says. Those for later are stored
        when they are due, also when their run is over.
        """
        return not body.later and self._first_own is not None and message.sequence > self._first_own

    async def _ack(self, message: Message) -> None:
        body = parse_body(message.body)
        try:
            if await message.ack() and body is not None and body.run == self._run:
                self.judge.acked(body.number, later=body.later)
        except TidemillError as error:
            log.debug("canary_ack_failed %s: %s", self._subject, error)  # it comes again
        finally:
            self._acks.release()

    async def _look(self) -> NoReturn:
        while True:
            await asyncio.sleep(LOOK_S)
            for probe in self.judge.look(self.now_ms()):
                log.error(
                    "canary_lost %s: %s was stored, says its answer, and never came",
                    self._subject,
                    probe.identity,
                )

    def _trouble(self, what: str, why: str) -> None:
        if self._troubles.get(what) != why:
            log.warning("canary_trouble %s: %s: %s", self._subject, what, why)
        self._troubles[what] = why


def said(error: TidemillError) -> str:
    """By whose fault, and how."""
    return f"{type(error).__name__}: {error}"
