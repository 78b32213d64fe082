"""Hands what comes over HTTP for later to a delay group of the cluster: meta says where their masters are.

Meta is asked when something is to be handed over and there is no connection, and a connection is kept while it lasts.
What was sent and not answered is not sent again here: who asked is told so, and repeats it with its idempotency key.
So what has such a key goes to the same delay group whoever else is there, for only that one would know it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import aiohttp

from tidemill_broker.doors.gateway_times import nobody
from tidemill_host.refusals import HttpRefused
from tidemill_wire.batch import SINGLES_FROM, read_header
from tidemill_wire.commands import Command, Failed, SendBatches, Sent, Welcome, encode_command
from tidemill_wire.connection import Connection, Event, Received, Role
from tidemill_wire.errors import ProtocolError, wire_error

ASK_SECONDS, CONNECT_SECONDS, ANSWER_SECONDS = 2.0, 3.0, 10.0

Place: TypeAlias = tuple[str, int]


class DelayGroups:
    """Those of one cluster."""

    def __init__(self, name: str, metas: Sequence[str]) -> None:
        self._name = name
        self._metas = list(metas)
        self._links: dict[str, Link] = {}

    async def take(self, batch: bytearray) -> Sent:
        """Keep a batch until its messages are due."""
        producer = read_header(batch).producer_id
        link = self._open() if producer < SINGLES_FROM else None
        link = link or await self._reach(producer)
        if link is None:
            return await nobody(batch)
        return await link.ask(batch)

    def close(self) -> None:
        """No connection is left."""
        for link in self._links.values():
            link.close()

    def _open(self) -> Link | None:
        """A connection to any delay group."""
        return next((link for link in self._links.values() if not link.lost), None)

    async def _reach(self, producer: int) -> Link | None:
        """A connection to the delay group of a producer's id; where any will do, to the first that answers."""
        masters = await self._masters()
        groups = sorted(masters)
        begin = producer % len(groups) if groups else 0
        turns = [*groups[begin:], *groups[:begin]]
        for group in turns[:1] if producer >= SINGLES_FROM else turns:
            link = self._known(group, masters[group]) or await self._dial(masters[group])
            known = self._known(group, masters[group])
            if link is not None and known is not None and known is not link:
                link.close()  # another request was faster
                return known
            if link is not None:
                if group in self._links and link is not self._links[group]:
                    self._links[group].close()
                self._links[group] = link
                return link
        return None

    def _known(self, group: str, place: Place) -> Link | None:
        link = self._links.get(group)
        return None if link is None or link.lost or link.place != place else link

    async def _dial(self, place: Place) -> Link | None:
        link = Link(self._name, place)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: link, *place)
                await link.welcomed
        except (OSError, TimeoutError):
            link.close()
            return None
        return link

    async def _masters(self) -> dict[str, Place]:
        """Of each delay group; of the first replica of meta that answers."""
        timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for meta in list(self._metas):
                try:
                    async with session.get(f"http://{meta}/v1/routes") as response:
                        response.raise_for_status()
                        return places_of(await response.json(content_type=None), meta)
                except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                    self._metas.append(self._metas.pop(0))  # it is asked last from now on
        return {}


class Link(asyncio.Protocol):
    """One connection to a master of a delay group."""

    def __init__(self, name: str, place: Place) -> None:
        self.place = place
        self.lost = False
        self.welcomed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._name = name
        self._wire = Connection(Role.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._correlation = 0

    async def ask(self, batch: bytearray) -> Sent:
        """Its answer to a batch."""
        if self.lost or self._transport is None:
            return await nobody(batch)
        self._correlation += 1
        correlation = self._correlation
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = answer
        self._transport.write(encode_command(SendBatches(batch), correlation))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                command = await answer
        except (TimeoutError, ConnectionError):
            self.close()
            raise HttpRefused(
                503, "no_delay_service",
                "the delay service did not answer: it may have the messages, or not",
                "send them again, with the same Idempotency-Key if they had one",
            ) from None  # fmt: skip
        finally:
            self._waiting.pop(correlation, None)
        if isinstance(command, Failed):
            refusal = wire_error(command.number, command.detail)
            if refusal.kind.name == "not_master":
                self.close()  # meta knows who is
            raise refusal
        assert isinstance(command, Sent)
        return command

    def close(self) -> None:
        """Nobody asks by it any more."""
        self._end()
        if self._transport is not None:
            self._transport.abort()

    # What the loop says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._wire.greet(self._name))

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._wire.feed(data):
                self._heard(event)
        except ProtocolError:
            self.close()  # whoever waits is told that nobody answered

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _heard(self, event: Event) -> None:
        if not isinstance(event, Received):
            self.close()
        elif isinstance(event.command, Welcome):
            if not self.welcomed.done():
                self.welcomed.set_result(None)
        else:
            answer = self._waiting.get(event.correlation)
            if answer is not None and not answer.done():
                answer.set_result(event.command)

    def _end(self) -> None:
        self.lost = True
        if not self.welcomed.done():
            self.welcomed.set_exception(ConnectionResetError("it has ended"))
            self.welcomed.exception()  # nobody may wait any more
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("it has ended"))


def places_of(answer: Any, meta: str) -> dict[str, Place]:
    """Where the masters of delay groups listen; one without a host is where meta is."""
    match answer:
        case {"delays": [*rows]}:
            return dict(_place(cast("Mapping[str, Any]", row), meta) for row in rows if isinstance(row, dict))
        case _:
            raise ValueError("the answer has no list of delays: is this meta?")


def _place(row: Mapping[str, Any], meta: str) -> tuple[str, Place]:
    match row:
        case {"group": str(group), "host": None | str() as host, "port": int(port)}:
            return group, (host or meta.rpartition(":")[0].strip("[]"), port)
        case _:
            raise ValueError("a delay group without a place: is this meta?")
