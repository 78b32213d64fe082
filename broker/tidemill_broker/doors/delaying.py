"""Hands what comes over HTTP for later to a delay group of the cluster: meta says where their masters are.

Meta is asked when something is to be handed over and there is no connection, and a connection is kept while it lasts.
What was sent and not answered is not sent again here: who asked is told so, and repeats it with its idempotency key.
So what has such a key goes to the same delay group whoever else is there, for only that one would know it again.
What has none bears the gateway's own numbers and leaves in their order, also what waits for a connection: a number far
behind later ones counts as stored.

Who asks about messages that wait asks all delay groups, those that nobody leads among them: such a group may have them,
and "there is none" would not be true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import aiohttp

from tidemill_broker.doors.neighbour import AboutTimers, no_delay_service
from tidemill_host.calling import IN_CLEAR, Caller
from tidemill_host.refusals import HttpRefused
from tidemill_wire.batch import SINGLES_FROM, read_header
from tidemill_wire.commands import Command, Failed, SendBatches, Sent, Welcome, encode_command
from tidemill_wire.connection import Connection, Event, Received, Role
from tidemill_wire.errors import ProtocolError

ASK_SECONDS, CONNECT_SECONDS, ANSWER_SECONDS = 2.0, 3.0, 10.0

NOT_TAKEN = (
    "the delay service did not answer: it may have the messages, or not",
    "send them again, with the same Idempotency-Key if they had one",
)
NOT_ANSWERED = (
    "the delay service did not answer: it may have done it, or not",
    "ask again: to cancel twice, or to give the same time twice, does no harm",
)

Place: TypeAlias = tuple[str, int]
Told = TypeVar("Told")


class DelayGroups:
    """Those of one cluster."""

    def __init__(self, name: str, metas: Sequence[str], caller: Caller = IN_CLEAR) -> None:
        self._name = name
        self._caller = caller
        self._metas = list(metas)
        self._links: dict[str, Link] = {}
        self._named: list[str] = []
        """All delay groups, as meta said last."""
        self._order = asyncio.Lock()
        """Whoever comes first gets a connection first: what it sends leaves in the same turn of the loop."""
        self._unreached = 0
        """How often none was to be had for what has the gateway's numbers."""

    async def take(self, batch: bytearray) -> Sent:
        """Keep a batch until its messages are due."""
        producer = read_header(batch).producer_id
        link = await (self._in_turn(producer) if producer < SINGLES_FROM else self._reach(producer))
        if link is None:
            raise no_delay_service()
        answer = await link.ask(SendBatches(batch), NOT_TAKEN)
        assert isinstance(answer, Sent)
        return answer

    async def groups(self) -> list[str]:
        """All there are; those of before while no meta answers."""
        self._named = await self._all_named() or self._named
        if not self._named:
            raise no_delay_service()
        return self._named

    async def ask(self, group: str, question: AboutTimers) -> Command:
        """The answer of one of them."""
        link = self._links.get(group)
        if link is None or link.lost:
            place = (await self._masters()).get(group)
            link = None if place is None else await self._linked(group, place)
        if link is None:
            raise HttpRefused(
                503, "no_delay_service",
                f"the delay group {group} cannot be reached, and may have what is asked for",
                "wait a second and try again",
            )  # fmt: skip
        return await link.ask(question, NOT_ANSWERED)

    def close(self) -> None:
        """No connection is left."""
        for link in self._links.values():
            link.close()

    async def _in_turn(self, producer: int) -> Link | None:
        """A connection to any delay group, behind who asked before. When there is none, that holds for all who waited
        meanwhile: one after the other they would wait for as many failures.
        """
        unreached = self._unreached
        async with self._order:
            link = self._open()
            if link is None and self._unreached == unreached:
                link = await self._reach(producer)
                self._unreached += link is None
        return link

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
            link = await self._linked(group, masters[group])
            if link is not None:
                return link
        return None

    async def _linked(self, group: str, place: Place) -> Link | None:
        """A connection to its master, which is there."""
        link = self._known(group, place) or await self._dial(place)
        known = self._known(group, place)
        if link is not None and known is not None and known is not link:
            link.close()  # another request was faster
            return known
        if link is not None:
            if group in self._links and link is not self._links[group]:
                self._links[group].close()
            self._links[group] = link
        return link

    def _known(self, group: str, place: Place) -> Link | None:
        link = self._links.get(group)
        return None if link is None or link.lost or link.place != place else link

    async def _dial(self, place: Place) -> Link | None:
        link = Link(self._name, place, self._caller.token())
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._caller.connect(lambda: link, *place)
                await link.welcomed
        except (OSError, TimeoutError):
            link.close()
            return None
        return link

    async def _masters(self) -> dict[str, Place]:
        """Of each delay group that somebody leads."""
        return await self._from_meta("/v1/routes", places_of) or {}

    async def _all_named(self) -> list[str]:
        """The delay groups, whoever leads them."""
        return await self._from_meta("/v1/delays", names_of) or []

    async def _from_meta(self, path: str, read: Callable[[Any, str], Told]) -> Told | None:
        """What the first replica of meta says that answers."""
        timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for meta in list(self._metas):
                try:
                    asking = session.get(self._caller.url(meta, path), **self._caller.options())
                    async with asking as response:
                        response.raise_for_status()
                        return read(await response.json(content_type=None), meta)
                except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                    self._metas.append(self._metas.pop(0))  # it is asked last from now on
        return None


class Link(asyncio.Protocol):
    """One connection to a master of a delay group."""

    def __init__(self, name: str, place: Place, token: str = "") -> None:
        self.place = place
        self.lost = False
        self.welcomed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._greeting = name, token
        self._wire = Connection(Role.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._correlation = 0

    async def ask(self, question: SendBatches | AboutTimers, unanswered: tuple[str, str]) -> Command:
        """Its answer; or what it means that there is none, and what to do."""
        if self.lost or self._transport is None:
            raise no_delay_service()
        self._correlation += 1
        correlation = self._correlation
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = answer
        self._transport.write(encode_command(question, correlation))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                command = await answer
        except (TimeoutError, ConnectionError):
            self.close()
            raise HttpRefused(503, "no_delay_service", *unanswered) from None
        finally:
            self._waiting.pop(correlation, None)
        if isinstance(command, Failed):
            refusal = command.error
            if refusal.kind.name == "not_master":
                self.close()  # meta knows who is
            raise refusal
        return command

    def close(self) -> None:
        """Nobody asks by it any more."""
        self._end()
        if self._transport is not None:
            self._transport.abort()

    # What the loop says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._wire.greet(*self._greeting))

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


def names_of(answer: Any, _meta: str) -> list[str]:
    """The delay groups that there are, whoever leads them."""
    match answer:
        case [*rows]:
            found = (cast("Mapping[str, Any]", row) for row in rows if isinstance(row, dict))
            return sorted(str(row["group"]) for row in found if "group" in row)
        case _:
            raise ValueError("the answer is no list of delay groups: is this meta?")


def _place(row: Mapping[str, Any], meta: str) -> tuple[str, Place]:
    match row:
        case {"group": str(group), "host": None | str() as host, "port": int(port)}:
            return group, (host or meta.rpartition(":")[0].strip("[]"), port)
        case _:
            raise ValueError("a delay group without a place: is this meta?")
