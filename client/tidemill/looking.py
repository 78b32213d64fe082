"""Asking the HTTP ports of brokers what they store: of the one that was named, or of all that meta knows.

Meta stores no messages. Where subjects have routes, an id is asked of each broker until one knows it, and pages of
messages come from one partition after the other: within each in its order, and in none over all of them. What has to be
asked of each broker that holds a subject, and told apart by it, goes through ``holders``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, unquote, urlencode

from tidemill.atlas import listed, mapped
from tidemill.errors import BrokerUnreachable, Refused
from tidemill.router import Router
from tidemill.routes import Address, OpenPort, parse_server
from tidemill.search import Look
from tidemill.servers import Servers
from tidemill_wire.fields import living_subject

TIMEOUT_S = 30.0
"""For a page of stored messages: a broker may have to read much, and others may have asked before."""
BEHIND = "~"
"""Between the number of a place and its broker's own word for where a page ended."""
ASKED_AT_ONCE = 8
"""Brokers. A large cluster is asked in parts: nobody is in such a hurry."""

T = TypeVar("T")


class Holder(NamedTuple):
    """A broker that can be asked: over its data port, and what its HTTP port says."""

    address: Address
    look: Look


class Holders(NamedTuple):
    """Of one subject, or of all that there is."""

    there: Sequence[Holder]
    away: Sequence[str]
    """Broker groups that have something of it, too, and that no broker serves now."""


FindHolders: TypeAlias = Callable[[str], Awaitable[Holders]]


class Looker:
    """See the module."""

    def __init__(self, servers: Servers, router: Router, open_port: OpenPort) -> None:
        self._servers = servers
        self._router = router
        self._open_port = open_port

    async def look(self, path: str, parameters: Mapping[str, str]) -> Any:
        """The JSON at a path."""
        if not self._router.atlas.brokers:
            await self._router.refresh()
        if not self._router.atlas.routed:
            return await self._servers.get(_with(path, parameters), TIMEOUT_S)
        brokers = await self._brokers(path)
        if path.endswith("/messages"):
            return await self._page(self._places(brokers, path), dict(parameters))
        return await self._first(brokers, _with(path, parameters))

    async def holders(self, subject: str) -> Holders:
        """Who holds something of a subject."""
        brokers = await self._router.holding(subject)
        if not self._router.atlas.routed:
            return Holders([Holder(one, self.look) for one in brokers[:1]], ())
        return Holders(
            [Holder(one, self._look_of(one)) for one in brokers], absent(self._router, subject, brokers)
        )

    async def everybody(self) -> Holders:
        """All brokers that can be read, of each broker group the one that leads."""
        brokers = await self._router.readable()
        if not self._router.atlas.routed:
            return Holders([Holder(one, self.look) for one in brokers[:1]], ())
        led = {one.group for one in self._router.atlas.brokers.values()}
        registered = [mapped(row) for row in await self._servers.get("/v1/brokers", TIMEOUT_S)]
        away = [str(row["group"]) for row in registered if not row.get("retired") and row["group"] not in led]
        return Holders([Holder(one, self._look_of(one)) for one in brokers], away)

    async def declared(self) -> Sequence[Mapping[str, Any]]:
        """The groups that meta has heard of; none where there is no meta."""
        if not self._router.atlas.routed:
            return ()
        return [mapped(row) for row in await self._servers.get("/v1/groups", TIMEOUT_S)]

    def _look_of(self, address: Address) -> Look:
        async def look(path: str, parameters: Mapping[str, str]) -> Any:
            return await self._ask(address, _with(path, parameters))

        return look

    async def _brokers(self, path: str) -> Sequence[Address]:
        parts = path.split("/")
        if parts[2] != "subjects":
            return await self._router.readable()
        return await self._router.holding(living_subject(unquote(parts[3])))

    def _places(self, brokers: Sequence[Address], path: str) -> list[tuple[Address, str]]:
        """What to ask of whom: of a subject for each of its partitions."""
        parts = path.split("/")
        if parts[2] != "subjects" or unquote(parts[3]) != living_subject(unquote(parts[3])):
            return [(one, path) for one in brokers]
        names = self._router.atlas.sources([unquote(parts[3])])
        rest = "/".join(parts[4:])
        return [
            (one, f"/v1/subjects/{quote(name, safe='')}/{rest}")
            for one in brokers
            for name in names.get(one.group, ())
        ]

    async def _first(self, brokers: Sequence[Address], path: str) -> Any:
        """Of a message, whoever has it. Of a subject's groups, the only one who may."""
        if len(brokers) > 1 and not path.startswith("/v1/messages/"):
            names = ", ".join(f"{one.group} at {one.control}" for one in brokers)
            raise Refused(
                "limit_exceeded",
                f"{path.partition('?')[0]} is on {len(brokers)} broker groups, of which each has its own: ask {names}",
            )
        unknown = Refused("not_found", f"no broker has {path}")
        for address in brokers:
            try:
                return await self._ask(address, path)
            except Refused as error:
                if error.kind.name != "not_found":
                    raise
                unknown = error
        raise unknown

    async def _page(self, places: Sequence[tuple[Address, str]], parameters: dict[str, str]) -> Any:
        at, _, after = parameters.pop("after", "").partition(BEHIND)
        number = int(at) if at.isdigit() else 0
        if after:
            parameters["after"] = after
        page: Mapping[str, Any] = {"messages": [], "after": None}
        if number < len(places):
            address, path = places[number]
            try:
                page = mapped(await self._ask(address, _with(path, parameters)))
            except Refused as error:
                if error.kind.name != "not_found" or len(places) == 1:
                    raise
        left = page.get("after")
        if left is not None:
            return {"messages": listed(page, "messages"), "after": f"{number}{BEHIND}{left}"}
        behind = f"{number + 1}{BEHIND}" if number + 1 < len(places) else None
        return {"messages": listed(page, "messages"), "after": behind}

    async def _ask(self, address: Address, path: str) -> Any:
        try:
            host, port = parse_server(address.control)
        except ValueError:
            raise BrokerUnreachable(f"meta does not know the HTTP port of {address.group}") from None
        return await self._open_port(host, port).get(path, TIMEOUT_S)


def absent(router: Router, subject: str, found: Iterable[Address]) -> list[str]:
    """Broker groups that a subject lies on, besides those that were found."""
    known = {address.group for address in found}
    return [group for group in router.atlas.sources([subject]) if group not in known]


async def gathered(questions: Iterable[Awaitable[T]]) -> list[T]:
    """The answers, in their order; not more than a few are asked at once."""
    turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def asked(question: Awaitable[T]) -> T:
        async with turns:
            return await question

    return await asyncio.gather(*map(asked, questions))


def _with(path: str, parameters: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(parameters)}" if parameters else path
