"""Whom a client goes to: asks who serves, hears what changes, and keeps the last good answer while nobody says.

    state      event                          next
    unknown    a broker lists itself          flat       asked again each time somebody dials
    unknown    meta answers with routes       routed     a watch stream, heartbeats, and the same
    routed     the stream is lost             routed     another server's stream, after a wait; a poll meanwhile

A client names what it produces and consumes (``want``, ``join``) and looks into the ``atlas``; ``listeners`` are called
when that has changed. In heartbeats meta is told those names: it makes subjects that are not there yet. Nothing here
ends because meta does: who is known stays known, and is asked for again with every dial.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeAlias
from urllib.parse import urlencode

from tidemill.atlas import Atlas, listed, mapped, whole
from tidemill.backoff import Backoff
from tidemill.errors import BrokerUnreachable, Refused, TidemillError, WireError, again
from tidemill.naming import TOLD_MAX, Member, Naming
from tidemill.routes import ROUTES_TIMEOUT_S, Address, Fetch, Routes, Web
from tidemill.routes_cache import RoutesCache, default_path, packed
from tidemill.servers import Servers
from tidemill.settings import ClientSettings
from tidemill.tasks import Home, Tasks

KNOWN_TIMEOUT_S = 1.0
"""How long a server is asked when there is something to go by without it."""
SILENCE_S = 25.0
"""Meta says a line every ten seconds."""
ASKED_MAX = 50
"""Subjects in one question."""
REWATCH_S = 1.0
"""What is named within it goes into one new stream; its routes are asked for at once."""
BEAT_S = 10.0
ALLOTTED_S = 0.3
"""Until a consumer by key that has just begun asks again what meta allots to it."""
SAVE_S = 0.5
"""What is heard within it is kept at once."""
SAVE_PAUSE_S = 4.5
GONE = "unknown_subject"
"""The refusal of a subject that waiting does not help with."""

log = logging.getLogger("tidemill")


OnCrash: TypeAlias = Callable[[BaseException], None]


def _raise(error: BaseException) -> None:
    raise error


class Router:
    """See the module."""

    def __init__(
        self,
        ask: Fetch | Servers,
        settings: ClientSettings | None = None,
        on_crash: OnCrash = _raise,
    ) -> None:
        self._settings = settings = settings or ClientSettings()
        self._servers = ask if isinstance(ask, Servers) else None
        self._fetch = ask if not isinstance(ask, Servers) else None
        self._cache = _cache_of(settings, self._servers)
        self.atlas = Atlas()
        self.listeners: list[Callable[[], None]] = []
        self.refused: dict[str, Refused] = {}
        """Subjects that meta does not make, and why."""
        self.hindrance: BrokerUnreachable | None = None
        """Why it does not make another one now."""
        self._client = f"{settings.name}-{settings.random.getrandbits(64):016x}"
        self._naming = Naming()
        self._turn = asyncio.Lock()
        self._asked: tuple[float, TidemillError | None] = (-1.0, None)
        """When it was asked last, and what came of it."""
        self._revision = 0
        self._beat_s = BEAT_S
        self._routed = asyncio.Event()
        self._named = asyncio.Event()
        self._changed = asyncio.Event()
        self._scope: asyncio.Timeout | None = None
        self.home = Home()
        self._tasks = Tasks(on_crash)
        self._begun = self._said = False
        self._kept = b""

    # -- asking ------------------------------------------------------------------------------------------------

    async def refresh(self) -> Routes:
        """The brokers; the last good ones when nobody answers, an error when there never were any."""
        self.home.check()
        loop = asyncio.get_running_loop()
        wanted_at = loop.time()
        async with self._turn:
            if self._asked[0] < wanted_at:  # else somebody asked while this one waited
                began, error = loop.time(), None
                try:
                    await self._ask_brokers()
                except (BrokerUnreachable, TimeoutError, OSError) as failed:
                    silence = f"no answer from {self._servers or 'it'} within {ROUTES_TIMEOUT_S:g} s"
                    said = f"nobody says who serves: {str(failed) or silence}"
                    error = failed if isinstance(failed, TidemillError) else BrokerUnreachable(said)
                self._asked = began, error
                if error is not None and not self.atlas.brokers and self._cache is not None:
                    await self._remember(self._cache)
            failure = self._asked[1]
        if failure is not None and not self.atlas.brokers:
            raise again(failure)
        return tuple(self.atlas.brokers.values())

    async def _remember(self, cache: RoutesCache) -> None:
        """Nobody has ever answered: what a process before knew is better than nothing."""
        kept = await asyncio.get_running_loop().run_in_executor(None, cache.load)
        if kept.brokers:
            self.atlas.remember(kept)
            log.warning("routes_remembered: nobody says who serves, and the last good routes may be old")
            self._told(True)

    async def _ask_brokers(self) -> None:
        if self._servers is not None:
            self._servers.prepare()
        async with asyncio.timeout(ROUTES_TIMEOUT_S):
            if self._fetch is not None:
                self._told(self.atlas.list_brokers(await self._fetch()))
                return
            assert self._servers is not None
            answer = await self._servers.get("/v1/routes", self._patience_s)
            self._told(self.atlas.tell(answer, self._servers.host))

    @property
    def _patience_s(self) -> float:
        if self.atlas.brokers or self._servers is None:
            return KNOWN_TIMEOUT_S
        return max(KNOWN_TIMEOUT_S, ROUTES_TIMEOUT_S / len(self._servers))

    async def writable(self) -> Address:
        """The broker to send to, where subjects have no routes."""
        for address in await self.refresh():
            if "W" in address.state and address.state != "NRW":
                return address
        raise BrokerUnreachable("no broker takes messages now")

    async def readable(self) -> Routes:
        """The brokers that can be read."""
        return tuple(one for one in await self.refresh() if one.state in {"RW", "R"})

    async def of_group(self, group: str) -> Address:
        """The broker that serves a broker group now."""
        await self.refresh()
        address = self.atlas.brokers.get(group)
        if address is None:
            raise BrokerUnreachable(f"no broker serves the broker group {group} now")
        return address

    async def of_delays(self, group: str) -> Address:
        """The master of a delay group, whatever it takes now."""
        await self.refresh()
        for address in self.atlas.delays:
            if address.group == group and address.state != "NRW":
                return address
        raise BrokerUnreachable(f"no delay service serves the delay group {group} now")

    async def delays(self) -> Routes:
        """Who takes messages for later now."""
        await self.refresh()
        return self.atlas.open_delays

    async def holding(self, subject: str) -> Routes:
        """The brokers with something of a subject, those that take its messages first."""
        readable = await self.readable()
        if not self.atlas.routed:
            return readable
        if subject not in self.atlas.routes:
            await self._ask_routes([subject])
        sources = self.atlas.sources([subject])
        return tuple(one for group in sources for one in readable if one.group == group)

    # -- naming ------------------------------------------------------------------------------------------------

    def want(self, subject: str) -> None:
        """It is sent to."""
        if subject not in self._naming.produced:
            self._naming.produced[subject] = None
            self._name_soon()

    def join(self, who: object, member: Member) -> None:
        """A consumer begins."""
        self._naming.members[who] = member
        self._name_soon()

    def beat_soon(self) -> None:
        """There is something to tell meta at once."""
        self._named.set()

    def leave(self, who: object) -> None:
        """A consumer has ended: meta gives what was its own to others."""
        self._naming.members.pop(who, None)
        self.beat_soon()

    def _name_soon(self) -> None:
        self._named.set()
        scope = self._scope
        if (
            scope is not None
            and not scope.expired()
            and scope.when() is None
            and len(self._naming.produced) <= TOLD_MAX
        ):
            scope.reschedule(asyncio.get_running_loop().time() + REWATCH_S)

    def _names(self) -> list[str]:
        """Every subject that was named, those without a route first."""
        return sorted(self._naming.names(), key=lambda name: name in self.atlas.routes)

    # -- hearing -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Hear what changes, until ``close``. Where a broker lists itself, there is nothing to hear."""
        self.home.check()
        if not self._begun:
            self._begun = True
            self._tasks.start(self._keep(), "tidemill hears of routes")

    async def close(self) -> None:
        """The client ends: meta need not wait to miss it."""
        await self._tasks.close()
        if self._cache is not None and self._changed.is_set():
            await self._save(self._cache)
        if self._servers is not None and self._said:
            with suppress(BrokerUnreachable, WireError, OSError):
                await self._servers.post("/v1/clients/leave", {"client": self._client}, KNOWN_TIMEOUT_S)

    async def _keep(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            if self._cache is not None:
                tasks.create_task(self._saving(self._cache), name="tidemill keeps routes")
            await self._routed.wait()
            if self._servers is not None:
                tasks.create_task(self._beating(self._servers), name="tidemill beats")
                tasks.create_task(self._watching(self._servers), name="tidemill watches")

    async def _watching(self, servers: Servers) -> None:
        settings = self._settings
        backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        loop = asyncio.get_running_loop()
        poll_at = loop.time()
        while True:
            try:
                async with asyncio.timeout(None) as self._scope:
                    await self._follow(servers, backoff)
            except TimeoutError:
                continue  # more was named
            except (BrokerUnreachable, WireError, OSError) as error:
                log.debug("routes_not_watched: %s", error)
            finally:
                self._scope = None
            if loop.time() >= poll_at:
                poll_at = loop.time() + settings.routes_poll_s * (0.75 + settings.random.random() / 2)
                with suppress(BrokerUnreachable, WireError, OSError):
                    await self.refresh()
                    await self._ask_routes(self._names())
            await asyncio.sleep(backoff.next())

    async def _follow(self, servers: Servers, backoff: Backoff) -> None:
        """One stream, to its end."""
        interest = self._naming.interest(self._names())
        first = True
        async with aclosing(servers.lines("/v1/watch", interest, SILENCE_S)) as lines:
            async for line in lines:
                backoff.reset()
                self._told(self.atlas.tell(line, servers.host, believed=True, whole=first))
                first = False
                self._naming.hear(map(mapped, listed(mapped(line), "allocations")))
                if self._naming.behind:
                    self.beat_soon()

    async def _beating(self, servers: Servers) -> None:
        settings = self._settings
        backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        while True:
            self._named.clear()
            wait_s = self._beat_s
            try:
                if self._naming or self._said:
                    await self._beat(servers)
                    wait_s = self._beat_s
                if self._naming.waits:
                    wait_s = min(wait_s, ALLOTTED_S)
                if any(self._waits(name) for name in self._names()):
                    wait_s = backoff.next()
                else:
                    backoff.reset()
            except (BrokerUnreachable, WireError, OSError) as error:
                log.debug("meta_not_told: %s", error)
                wait_s = backoff.next()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._named.wait()

    async def _beat(self, servers: Servers) -> None:
        """Say what is produced and consumed, and be told the routes of it."""
        names = self._names()
        beat = self._naming.beat(self._client, self._revision, names)
        said = mapped(await servers.post("/v1/clients/heartbeat", beat.body, self._patience_s))
        beat.answered(map(mapped, listed(said, "consumes")))
        news = self._refusals([mapped(row) for row in listed(said, "refused")])
        self._said = True
        self._revision = whole(said, "revision", 0)
        self._beat_s = max(0.05, whole(said, "beat_ms", int(1000 * BEAT_S)) / 1000)
        self._told(self.atlas.tell({"routes": listed(said, "routes")}, servers.host, whole=False) or news)
        await self._ask_routes([name for name in names if self._waits(name)])

    def _refusals(self, rows: Iterable[Mapping[str, Any]]) -> bool:
        """What could not be made: whether that is news."""
        before = set(self.refused)
        said = {str(row.get("subject")): (row.get("code"), str(row.get("detail"))) for row in rows}
        self.refused = {
            name: Refused("unknown_subject", why) for name, (code, why) in said.items() if code == GONE
        }
        hindered = [f"{code}: {why}" for code, why in said.values() if code != GONE]
        self.hindrance = BrokerUnreachable(hindered[0]) if hindered else None
        return set(self.refused) != before or bool(hindered)

    def _waits(self, name: str) -> bool:
        return name not in self.atlas.routes and name not in self.refused

    async def _ask_routes(self, subjects: Sequence[str]) -> None:
        """What meta knows of them; one that it does not know is passed over."""
        servers = self._servers
        if servers is None or not self.atlas.routed:
            return
        for at in range(0, len(subjects), ASKED_MAX):
            some = subjects[at : at + ASKED_MAX]
            try:
                answers = [await self._routes_of(servers, some)]
            except Refused:
                answers = [
                    answer for one in some if (answer := await self._route_of(servers, one)) is not None
                ]
            for answer in answers:
                self._told(self.atlas.tell(answer, servers.host))

    async def _routes_of(self, servers: Servers, subjects: Iterable[str]) -> Any:
        query = urlencode([("subject", name) for name in subjects])
        return await servers.get(f"/v1/routes?{query}", self._patience_s)

    async def _route_of(self, servers: Servers, subject: str) -> Any:
        try:
            return await self._routes_of(servers, [subject])
        except Refused:
            return None

    def _told(self, changed: bool) -> None:
        if not changed:
            return
        self._changed.set()
        if self.atlas.routed:
            self._routed.set()
        for listener in list(self.listeners):
            listener()

    async def _saving(self, cache: RoutesCache) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(SAVE_S)
            await self._save(cache)
            await asyncio.sleep(SAVE_PAUSE_S)

    async def _save(self, cache: RoutesCache) -> None:
        """Where a broker lists itself there is nothing to remember: it says so itself, or is away."""
        self._changed.clear()
        if self.atlas.routed and self.atlas.brokers:
            data = packed(self.atlas)
            if data != self._kept:
                await asyncio.get_running_loop().run_in_executor(None, cache.save, data)
                self._kept = data


def _cache_of(settings: ClientSettings, servers: Servers | None) -> RoutesCache | None:
    chosen = settings.routes_cache
    if not isinstance(chosen, bool):
        return RoutesCache(chosen)
    if not chosen or servers is None or (settings.open_port is not Web and settings.security is None):
        return (
            None  # whoever brings ports of their own, as a simulator does, does not mean this machine's disk
        )
    path = default_path(servers.places)
    return RoutesCache(path) if path is not None else None
