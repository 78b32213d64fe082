"""The delay service beside a lone broker: in its process, on a port of its own, in a folder of its own.

The broker serves first. What is for later is taken as soon as this one has read what it has: a client that asks before
is told of nobody who takes it, and asks again. When its folder cannot be used, that is said and tried again, and the
broker goes on without.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from tidemill_broker.doors.neighbour import AboutTimers, House, no_delay_service
from tidemill_broker.machine import Broker
from tidemill_delay.bounds import BoundOf, any_time
from tidemill_delay.doors.service import DelayService, recover
from tidemill_delay.settings import read_settings
from tidemill_host.clock import RealClock
from tidemill_host.disk import RealDisk
from tidemill_host.local import LocalPeer
from tidemill_host.log import warning
from tidemill_host.process import make_lanes, note, tell_recovered
from tidemill_host.refusals import HttpRefused
from tidemill_journal.errors import JournalError
from tidemill_wire.commands import Command, SendBatches, Sent
from tidemill_wire.errors import TidemillError
from tidemill_wire.limits import BACKLOG_BYTES_MAX
from tidemill_wire.settings import settings_line

FOLDER = "delay"
AGAIN_SECONDS = 2.0


class DelayBeside:
    """See the module."""

    def __init__(self, house: House, broker: str) -> None:
        self._folder = os.path.join(house.data, FOLDER)
        self._host = house.host
        self._locks = house.locks
        self._group = broker.partition("-")[0]
        self._settings = read_settings(os.environ)
        note(settings_line("delay", self._settings))
        self._service: DelayService | None = None
        self._peer: tuple[DelayService, LocalPeer] | None = None
        """What the gateway sends by, to the service of this life."""
        self._port = 0
        self._bound_of: BoundOf = any_time
        self._said = ""

    def obey(self, broker: Broker) -> None:
        """What is declared of subjects the broker keeps, also while meta cannot use its database."""

        def bound_of(subject: str) -> int | None:
            known = broker.state.by_name.get(subject.encode())
            return None if known is None else known.settings.later_seconds

        self._bound_of = bound_of

    def rows(self) -> list[dict[str, Any]]:
        """Who takes messages for later, as ``/v1/routes`` lists it: without a host, which is the one that was asked."""
        if self._service is None:
            return []
        group = self._settings.name.partition("-")[0]
        return [
            {"group": group, "name": self._settings.name, "host": None, "port": self._port, "state": "RW"}
        ]

    def metrics(self) -> bytes:
        """Its numbers."""
        from tidemill_delay.doors.metrics import render_metrics

        return b"" if self._service is None else render_metrics(self._service)

    async def take(self, batch: bytearray) -> Sent:
        """Keep a batch, as if it had come to the port: this is what somebody without a client sends for later."""
        answer = await self._asking().ask(SendBatches(batch))
        assert isinstance(answer, Sent)
        return answer

    async def groups(self) -> list[str]:
        """This one."""
        self._asking()
        return [self._settings.name.partition("-")[0]]

    async def ask(self, group: str, question: AboutTimers) -> Command:
        """What became of messages that wait, or which these are."""
        return await self._asking().ask(question)

    def judge_again(self) -> None:
        """Who is connected may have lost what they had."""
        if self._service is not None:
            self._service.server.judge_again()

    def _asking(self) -> LocalPeer:
        """What asks the service of this life."""
        service = self._service
        if service is None:
            raise no_delay_service()
        if service.turn.backlog_bytes > BACKLOG_BYTES_MAX:
            raise HttpRefused(
                503, "overloaded", "more waits for the delay service's disk than may",
                "wait a second and try again",
            )  # fmt: skip
        if self._peer is None or self._peer[0] is not service:
            self._peer = service, LocalPeer(service.server, lambda _: None)
        return self._peer[1]

    async def keep(self, broker_port: int) -> None:
        """Serve until it is cancelled; begin again after a failure."""
        while True:
            try:
                await self._live(broker_port)
            except (JournalError, TidemillError, OSError) as error:
                self._say_once(
                    f"the delay service cannot use {self._folder} ({error}), the broker serves without: mend it, or "
                    "stop the queue and move that folder away"
                )
            self._service = None
            await asyncio.sleep(AGAIN_SECONDS)

    async def _live(self, broker_port: int) -> None:
        """One life, to its failure."""
        os.makedirs(self._folder, exist_ok=True)
        disk, clock = RealDisk(self._folder), RealClock()
        began = clock.seconds()
        delay, report = await asyncio.to_thread(recover, disk, self._settings, clock.now_ms())
        tell_recovered(report, self._folder)
        service = DelayService(delay, disk, make_lanes(), clock)
        delay.intake.bound_of = self._bound_of
        self._locks.guard(service.server, service="delay")
        service.began(report, clock.seconds() - began)
        try:
            self._port = await service.listen(self._host, 0)
            service.everywhere(self._group)
            self._service, self._said = service, ""
            async with asyncio.TaskGroup() as tasks:
                stalls = tasks.create_task(service.stalls.keep())
                reaching = tasks.create_task(service.reach(self._host, broker_port))
                error = await service.ended()
                reaching.cancel()
                stalls.cancel()
            known = isinstance(error, OSError | TidemillError | JournalError)
            raise error if known else TidemillError(f"it made a mistake: {error!r}")
        except asyncio.CancelledError:
            await service.drain()
            raise

    def _say_once(self, sentence: str) -> None:
        said = " ".join(sentence.split())
        if said != self._said:
            self._said = said
            warning("delay", said)
