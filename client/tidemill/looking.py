"""Asking the HTTP ports of brokers what they store: of the one that was named, or of all that meta knows.

Meta stores no messages. Where subjects have routes, an id is asked of each broker group until one knows it, and pages
of messages come from one partition after the other: within each in its order, and in none over all of them. A broker
group whose master does not answer is asked through a slave (``stand_ins.py``). What has to be asked of each broker that
holds a subject, and told apart by it, goes through ``holders``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, unquote, urlencode

from tidemill.atlas import listed, mapped
from tidemill.errors import BrokerUnreachable, Refused, TidemillError, Unavailable
from tidemill.router import Router
from tidemill.routes import Address, OpenPort
from tidemill.search import Look
from tidemill.servers import Servers
from tidemill.stand_ins import TIMEOUT_S, StandIns
from tidemill_wire.fields import living_subject

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
        self.stand_ins = StandIns(servers, router, open_port)
        self._servers = servers
        self._router = router

    async def look(self, path: str, parameters: Mapping[str, str]) -> Any:
        """The JSON at a path."""
        if not self._router.atlas.brokers:
            await self._router.refresh()
        if not self._router.atlas.routed:
            return await self._servers.get(_with(path, parameters), TIMEOUT_S)
        groups = await self._groups(path)
        if path.endswith("/messages"):
            return await self._page(self._places(groups, path), dict(parameters))
        return await self._first(groups, _with(path, parameters))

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
            return await self.stand_ins.of(address, _with(path, parameters))

        return look

    async def _groups(self, path: str) -> Sequence[str]:
        """Those that may have something of it, also while nobody leads them."""
        parts = path.split("/")
        if parts[2] == "subjects":
            subject = living_subject(unquote(parts[3]))
            await self._router.holding(subject)
            return list(self._router.atlas.sources([subject]))
        await self._router.refresh()
        return [group for group, one in self._router.atlas.brokers.items() if one.state != "W"]

    def _places(self, groups: Sequence[str], path: str) -> list[tuple[str, str]]:
        """What to ask of whom: of a subject for each of its partitions."""
        parts = path.split("/")
        if parts[2] != "subjects" or unquote(parts[3]) != living_subject(unquote(parts[3])):
            return [(group, path) for group in groups]
        names = self._router.atlas.sources([unquote(parts[3])])
        rest = "/".join(parts[4:])
        return [
            (group, f"/v1/subjects/{quote(name, safe='')}/{rest}")
            for group in groups
            for name in names[group]
        ]

    async def _first(self, groups: Sequence[str], path: str) -> Any:
        """Of a message, whoever has it."""
        unknown: TidemillError = Refused("not_found", f"no broker has {path}")
        for group in groups:
            try:
                answer = await self.stand_ins.ask(group, path)
            except Refused as error:
                if error.kind.name != "not_found":
                    raise
            except (BrokerUnreachable, Unavailable) as error:
                unknown = BrokerUnreachable(f"nobody else has it, and {error}")
            else:
                if answer is not None:
                    return answer
        raise unknown

    async def _page(self, places: Sequence[tuple[str, str]], parameters: dict[str, str]) -> Any:
        """Where a broker group cannot be asked, the others are; who asks for what is behind them is told."""
        at, after, missing = (*parameters.pop("after", "").split(BEHIND), "", "")[:3]
        number = int(at) if at.isdigit() else 0
        if after:
            parameters["after"] = after
        page: Mapping[str, Any] = {}
        if number < len(places):
            group, path = places[number]
            try:
                page = mapped(await self.stand_ins.ask(group, _with(path, parameters)))
            except Refused as error:
                if error.kind.name != "not_found" or len(places) == 1:
                    raise
            except (BrokerUnreachable, Unavailable):
                if len(places) == 1:
                    raise
                missing = ",".join(dict.fromkeys((*filter(None, missing.split(",")), group)))
        elif missing:
            raise BrokerUnreachable(
                f"{missing} cannot be asked now, what lies there is not shown: look with `tidemill status`"
            )
        left = page.get("after")
        behind = f"{number}{BEHIND}{left}" if left is not None else f"{number + 1}{BEHIND}"
        is_last = left is None and number + 1 >= len(places) and not missing
        return {
            "messages": listed(page, "messages"),
            "after": None if is_last else f"{behind}{BEHIND}{missing}",
        }


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
