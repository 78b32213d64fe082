"""Batches that somebody else has built: of an archive, where thousands of messages come as columns.

    async with Prepared("localhost:7401") as target:
        places = await target.places("order.paid")
        await target.send(places[0], batch)

They go as they are, to the broker group of a partition, where each finds the partition that it names, and are said
again with the same bytes until they are answered. A batch of a producer that sends nothing else (``SINGLES_FROM``) is
recognised then, also when another process says it again, as long as no 1,024 others came between; with order keys,
whoever calls has one at a time on its way.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from tidemill.backoff import Backoff
from tidemill.callers import Callers, Say
from tidemill.errors import BrokerUnreachable, OutcomeUnknown, TidemillError, Unavailable, wait_of
from tidemill.link import Link, OnAnswer
from tidemill.router import Router
from tidemill.routes import parse_servers
from tidemill.security import secured
from tidemill.servers import Servers
from tidemill.settings import ClientSettings
from tidemill.tasks import Tasks
from tidemill.ways import Ways
from tidemill_wire.commands import Sent
from tidemill_wire.fields import parse_subject
from tidemill_wire.routes import LOGICAL_PARTITIONS, Partition


class Prepared:
    """See the module. It belongs to the event loop in which it is opened."""

    def __init__(self, server: str | None = None, settings: ClientSettings | None = None) -> None:
        self.settings = secured(settings or ClientSettings(), server)
        self._router = Router(
            Servers(parse_servers(server), self.settings.open_port), self.settings, self._crashed
        )
        self._tasks = Tasks(self._crashed)
        self._callers = Callers(self._router, self.settings, self._tasks)
        self._ways = Ways(self._router, self.settings.send_timeout_s)
        self._router.listeners.append(self._ways.news)

    async def __aenter__(self) -> Self:
        self._router.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ways.close()
        await self._router.close()
        await self._tasks.close()

    async def places(self, subject: str) -> tuple[Partition, ...]:
        """The partitions of a subject, with the logical ones that each has, in an order that stays."""
        await self._router.refresh()
        await self._ways.learn(parse_subject(subject))
        atlas = self._router.atlas
        if subject in self._router.refused:
            raise self._router.refused[subject]
        if not atlas.routed:
            return tuple(
                Partition(group, subject, ((0, LOGICAL_PARTITIONS),)) for group in sorted(atlas.brokers)
            )[:1]
        route = atlas.routes.get(subject)
        if route is None:
            raise BrokerUnreachable(
                f"nobody says within {self.settings.send_timeout_s:g} s where {subject} lies"
            )
        return tuple(sorted(route.current.partitions, key=lambda one: one.key))

    async def send(self, place: Partition, batch: bytes | bytearray) -> int:
        """Store a batch; the sequence of its first message, also when it had been stored before."""
        settings = self.settings
        backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        deadline = asyncio.get_running_loop().time() + settings.send_timeout_s
        while True:
            answer = await self._callers.to(place.group).say(_sending(batch), "SEND", settings.send_timeout_s)
            if not isinstance(answer, Sent):
                raise OutcomeUnknown(f"{place.group} answered a SEND with {type(answer).__name__}")
            if not answer.refused:
                return answer.first_sequences[0]
            error = answer.errors[0]
            wait_s = max(backoff.next(), wait_of(error))
            if not isinstance(error, Unavailable) or asyncio.get_running_loop().time() + wait_s >= deadline:
                raise error
            await asyncio.sleep(wait_s)

    def _crashed(self, error: BaseException) -> None:
        closed: TidemillError = BrokerUnreachable(f"the client broke down: {error!r}")
        closed.__cause__ = error
        self._callers.fail(closed)


def _sending(batch: bytes | bytearray) -> Say:
    def say(link: Link, heard: OnAnswer) -> None:
        link.send([batch], len(batch), heard)

    return say
