"""The canary of a queue: one patrol for each broker group, over one ordinary client.

Its subjects are declared once, through the public door, each on its broker group and no other. Where it may not
declare, or somebody moved them, it says so and sends nothing there: it would measure another broker group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NoReturn, cast
from urllib.parse import quote

from tidemill.canary.options import CanarySettings
from tidemill.canary.page import CanaryStatistics
from tidemill.canary.patrol import Patrol
from tidemill.canary.probes import group_manifest, subject_manifest, subject_of
from tidemill.client import Client
from tidemill.errors import BrokerUnreachable, Refused, TidemillError
from tidemill.routes import ROUTES_TIMEOUT_S, parse_routes, parse_servers, rows_of
from tidemill.security import secured
from tidemill.servers import Servers
from tidemill.settings import ClientSettings

log = logging.getLogger("tidemill.canary")

PREFETCH = 256
DRAINED = "the broker group is drained"


class Canary:
    """``async with Canary.over(server, settings) as canary``."""

    def __init__(self, mq: Client, servers: Servers, settings: CanarySettings) -> None:
        self._mq = mq
        self._servers = servers
        self._settings = settings
        self._runs: dict[str, asyncio.Task[None]] = {}
        self.patrols: dict[str, Patrol] = {}
        self._takes_later = False
        """Somebody who takes messages for later was seen, and is missed from then on when there is nobody."""
        self.problem = "nobody has said yet which broker groups there are"
        """Why it is not known which broker groups there are; empty when it is."""

    @classmethod
    @asynccontextmanager
    async def over(cls, server: str | None, settings: CanarySettings) -> AsyncGenerator[Canary]:
        """One that is at work."""
        given = secured(ClientSettings(name=f"canary-{settings.name}", prefetch_messages=PREFETCH), server)
        servers = Servers(parse_servers(server), given.open_port)
        async with Client(server, settings=given) as mq, asyncio.TaskGroup() as tasks:
            canary = cls(mq, servers, settings)
            keeping = tasks.create_task(canary._keep(tasks))
            try:
                yield canary
            finally:
                keeping.cancel()
                for run in canary._runs.values():
                    run.cancel()

    @property
    def hindered(self) -> str:
        """Why it cannot do its work; empty: it can. What a broker group cannot do is no hindrance but what is looked
        for, and meta that is silent later hinders nothing that is under way.
        """
        if not self.patrols:
            return self.problem or "there is no broker group yet"
        found = {group: patrol.hindered for group, patrol in sorted(self.patrols.items()) if patrol.hindered}
        return "; ".join(f"{group}: {why}" for group, why in found.items())

    def to_map(self) -> dict[str, Any]:
        """For a page."""
        return {
            "name": self._settings.name,
            "problem": self.problem,
            "groups": [
                {"group": group, "subject": subject_of(group), "problem": patrol.problem,
                 **patrol.judge.to_map(patrol.now_ms())}
                for group, patrol in sorted(self.patrols.items())
            ],
        }  # fmt: skip

    def statistics(self) -> CanaryStatistics:
        """Numbers to watch."""
        judges = {group: patrol.judge for group, patrol in self.patrols.items()}
        troubled = frozenset(group for group, patrol in self.patrols.items() if patrol.problem)
        return CanaryStatistics(judges, troubled, round(1000 * asyncio.get_running_loop().time()))

    async def _keep(self, tasks: asyncio.TaskGroup) -> NoReturn:
        while True:
            try:
                await self._look(tasks)
                self.problem = ""
            except TidemillError as error:
                self._trouble(str(error))
            except (TimeoutError, OSError) as error:
                self._trouble(f"{type(error).__name__}: {error}")
            await asyncio.sleep(self._settings.look_s)

    async def _look(self, tasks: asyncio.TaskGroup) -> None:
        """Begin where there is a new broker group, and leave those that are gone."""
        rows, wanted = await self._groups(), self._settings.groups
        groups = {str(row["group"]): row for row in rows if not wanted or row["group"] in wanted}
        for group in self.patrols.keys() - groups.keys():
            self._runs.pop(group).cancel()
            del self.patrols[group]
        self._takes_later = self._takes_later or await self._has_delays()
        for group, row in groups.items():
            await self._look_at(group, row, tasks)
            self.patrols[group].send_later(taken=self._takes_later)

    async def _look_at(self, group: str, row: Mapping[str, Any], tasks: asyncio.TaskGroup) -> None:
        patrol = self.patrols.get(group)
        try:
            why_not = await self._why_not(group, row)
        except TidemillError as error:
            if patrol is not None:
                return  # nothing was said of it, so it goes on as it did
            why_not = f"its subject cannot be looked up or declared: {error}"
        if patrol is None:
            patrol = self.patrols[group] = Patrol(self._mq, subject_of(group), self._settings)
            if why_not:
                patrol.pause(why_not, meant=why_not == DRAINED)
            self._runs[group] = tasks.create_task(patrol.run(), name=f"canary of {group}")
        elif why_not:
            patrol.pause(why_not, meant=why_not == DRAINED)
        else:
            patrol.resume()

    async def _has_delays(self) -> bool:
        """Whether a delay service is there."""
        return bool((await self._servers.get("/v1/routes", ROUTES_TIMEOUT_S)).get("delays"))

    async def _groups(self) -> list[dict[str, Any]]:
        """Broker groups as meta tells them; where there is no meta, those that list themselves."""
        try:
            rows = rows_of("brokers", await self._servers.get("/v1/brokers", ROUTES_TIMEOUT_S))
        except Refused as refused:
            if refused.kind.name != "not_found":
                raise
            answer = await self._servers.get("/v1/routes", ROUTES_TIMEOUT_S)
            return [{"group": one.group, "alone": True} for one in parse_routes(answer, self._servers.host)]
        if not all(isinstance(row.get("group"), str) for row in rows):
            raise BrokerUnreachable("the answer to GET /v1/brokers names no broker groups: is this meta?")
        return [row for row in rows if not row.get("retired")]

    async def _why_not(self, group: str, row: Mapping[str, Any]) -> str:
        """Why nothing is sent there now; empty: something is."""
        if row.get("alone"):
            return ""
        if row.get("draining"):
            return DRAINED
        path = f"/v1/subjects/{quote(subject_of(group))}/route"
        try:
            route = await self._servers.get(path, ROUTES_TIMEOUT_S)
        except Refused as refused:
            if refused.kind.name not in {"not_found", "unknown_subject"}:
                raise
            await self._declare(subject_manifest(group, self._settings.retention_seconds))
            route = await self._servers.get(path, ROUTES_TIMEOUT_S)
        places = [str(one.get("group")) for one in cast("dict[str, Any]", route)["partitions"]]
        if places != [group]:
            return f"{subject_of(group)} lies on {', '.join(places)}: remove it, and it is declared anew"
        if group not in self.patrols:
            with suppress(Refused):  # it may be made by its use instead, with the patience of any other
                await self._declare(group_manifest(group, self._settings.name))
        return ""

    async def _declare(self, manifest: dict[str, object]) -> None:
        await self._servers.post("/v1/declarations", manifest, ROUTES_TIMEOUT_S)

    def _trouble(self, said: str) -> None:
        if said != self.problem:
            log.warning("canary_trouble %s", said)
        self.problem = said
