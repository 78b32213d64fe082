"""Finds brokers for a delay service in a cluster: meta says who leads each broker group, and which take a subject.

Meta is asked each second, as any client asks it: ``GET /v1/routes`` for the masters, and a heartbeat that names what is
to be delivered, so that a subject which nobody has used yet is made. A connection is kept to the master of each broker
group that takes something; when another one leads, that one is dialled. Meta away changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, cast

import aiohttp

from tidemill_delay.doors.service import DelayService
from tidemill_delay.routing import Ways
from tidemill_host.log import warning
from tidemill_wire.errors import WireError
from tidemill_wire.routes import PartitionSet

EVERY_SECONDS = 1.0
PATIENCE_SECONDS = 2.0
NAMED_MAX = 500
"""Subjects in one heartbeat; those without a route come first, the others in turns."""


class Finding:
    """One delay service that leads. ``keep`` runs until it is cancelled."""

    def __init__(self, service: DelayService, metas: Sequence[str]) -> None:
        self._service = service
        self._metas = list(metas)
        self._dialers: dict[str, tuple[tuple[str, int], asyncio.Task[None]]] = {}
        self._turn: list[str] = []
        self._complaint = ""

    async def keep(self) -> None:
        """Question after question."""
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            while True:
                try:
                    await self._look(session, tasks)
                    self._complaint = ""
                except (aiohttp.ClientError, TimeoutError, OSError, ValueError, WireError) as error:
                    self._complain(error)
                    self._metas.append(self._metas.pop(0))
                await asyncio.sleep(EVERY_SECONDS)

    async def _look(self, session: aiohttp.ClientSession, tasks: asyncio.TaskGroup) -> None:
        said = await self._ask(session, "GET", "/v1/routes", None)
        masters = {str(row["group"]): _place(row, self._metas[0]) for row in rows_of(said, "brokers")}
        open_now = [str(row["group"]) for row in rows_of(said, "brokers") if "W" in str(row["state"])]
        self._dial(masters, tasks)
        names = self._named()
        if names:
            beat = {"client": self._service.delay.settings.name, "produces": names, "known": 0}
            answer = await self._ask(session, "POST", "/v1/clients/heartbeat", beat)
            for row in rows_of(answer, "routes"):
                self._service.found(str(row["subject"]), groups_of(row, open_now), ways_of(row, masters))
            for subject in gone_of(answer):
                self._service.gone(subject)

    def _named(self) -> list[str]:
        """Subjects to ask for now."""
        courier = self._service.delay.courier
        self._turn = [name for name in self._turn if name in courier.routes] or list(courier.routes)
        wanted = sorted(courier.wanted)[:NAMED_MAX]
        known = list(islice(self._turn, NAMED_MAX - len(wanted)))
        self._turn = self._turn[len(known) :]
        return [*wanted, *known]

    def _dial(self, masters: Mapping[str, tuple[str, int]], tasks: asyncio.TaskGroup) -> None:
        for group, (place, task) in list(self._dialers.items()):
            if masters.get(group) != place:
                task.cancel()
                del self._dialers[group]
        for group, place in masters.items():
            if group not in self._dialers:
                self._dialers[group] = place, tasks.create_task(self._service.reach(*place))

    async def _ask(self, session: aiohttp.ClientSession, method: str, path: str, body: object) -> Any:
        timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
        caller = self._service.server.caller
        url = caller.url(self._metas[0], path)
        async with session.request(method, url, json=body, timeout=timeout, **caller.options()) as response:
            if response.status >= 400:
                raise ValueError(f"{method} {path} was answered {response.status}: {await response.text()}")
            return await response.json(content_type=None)

    def _complain(self, error: Exception) -> None:
        """Once for each thing that is wrong."""
        said = f"meta at {self._metas[0]}: {' '.join(str(error).split())[:300] or type(error).__name__}"
        if said != self._complaint:
            self._complaint = said
            warning("meta", said)


def groups_of(route: Mapping[str, Any], open_now: Sequence[str]) -> list[str]:
    """The broker groups that take a subject's messages under its own name, and now; all of them when none does, for
    then it is waited for.
    """
    subject = route["subject"]
    found = [str(one["group"]) for one in rows_of(route, "partitions") if one.get("name") == subject]
    return [group for group in found if group in open_now] or found


def gone_of(answer: Any) -> list[str]:
    """Subjects that were removed, or are to be declared before they are used."""
    return [str(row["subject"]) for row in rows_of(answer, "refused") if row.get("code") == "unknown_subject"]


def ways_of(route: Mapping[str, Any], listed: Iterable[str]) -> Ways:
    """Where its order keys lie, and lay; a broker group that meta does not list is forgotten."""
    sets = [*rows_of(route, "former"), route]
    return Ways(tuple(PartitionSet.from_map(one) for one in sets), frozenset(listed))


def rows_of(answer: Any, name: str) -> list[Mapping[str, Any]]:
    """A list of maps in an answer."""
    found: object = cast("Mapping[str, Any]", answer).get(name) if isinstance(answer, dict) else None
    if isinstance(found, list):
        return [
            cast("Mapping[str, Any]", row) for row in cast("list[object]", found) if isinstance(row, dict)
        ]
    raise ValueError(f"the answer has no list of {name}: is this meta?")


def _place(row: Mapping[str, Any], meta: str) -> tuple[str, int]:
    """Where a master listens; without a host where meta is."""
    return str(row["host"] or meta.rpartition(":")[0].strip("[]")), int(row["port"])
