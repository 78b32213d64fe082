"""How many consumers a group should have: one answer for whoever asks, over gRPC or HTTP.

Each question needs meta and the masters of all broker groups. Autoscalers ask twice and more for each group, of
hundreds of groups at the same time, so all of one QueueCluster share a look:

    a look is under way      who comes meanwhile waits for it, and has what comes of it, a failure too
    one ended well           it is as good for those who come within a second of its beginning
    one failed               who comes later looks anew

A replica that waits for the lease answers, too: what its store has not got it asks the API server for.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from tidemill_operator.doors.api import Api, Refused
from tidemill_operator.doors.meta import Metas
from tidemill_operator.draining import MASTER_PATHS
from tidemill_operator.kinds import OURS, QUEUE_CLUSTER, SERVICE
from tidemill_operator.observed import META_PATHS, leader_of
from tidemill_operator.scaling import Advice, Course, Wanted, figures_of, of_nobody
from tidemill_operator.steps import Manifest
from tidemill_operator.store import Key, Store, service_of

COURSES_MAX = 10_000
LOOKS_MAX = 1_000
SHARED_SECONDS = 1.0

Ask: TypeAlias = Callable[[str, str], Awaitable[Any]]
"""Server and path, and what JSON it answers to GET; the server is HOST:PORT of a broker's HTTP port, empty for meta."""
Find: TypeAlias = Callable[[str, str], Awaitable[Ask | None]]
"""By namespace and name of a QueueCluster, how to ask there; None: there is no such cluster, or it has no meta yet."""


class Group(NamedTuple):
    """Which consumer group."""

    namespace: str
    cluster: str
    subject: str
    group: str


class Unasked(Exception):
    """Somebody who has to be asked does not answer."""


@dataclass(slots=True)
class Look:
    """The last one at a QueueCluster: what its masters say of their consumer groups, or why nobody knows."""

    rows: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    failure: Unasked | None = None
    began_s: float | None = None
    ended_s: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Advisor:
    """See the module. ``now_s`` is a clock that only goes forward."""

    def __init__(self, find: Find, now_s: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._now_s = now_s
        self._looks: OrderedDict[tuple[str, str], Look] = OrderedDict()
        self._courses: OrderedDict[Group, Course] = OrderedDict()

    async def advise(self, group: Group, wanted: Wanted) -> Advice:
        """What is recommended now. The first answer of a group knows no rates."""
        look = await self._look(group.namespace, group.cluster)
        assert look.began_s is not None
        figures = figures_of(look.rows, group.subject, group.group, look.began_s)
        if figures is None:
            return of_nobody(wanted)
        course = self._courses.setdefault(group, Course())
        _keep(self._courses, group, COURSES_MAX)
        course.look(figures)
        return course.advice(wanted)

    async def _look(self, namespace: str, cluster: str) -> Look:
        came_s = self._now_s()
        look = self._looks.setdefault((namespace, cluster), Look())
        _keep(self._looks, (namespace, cluster), LOOKS_MAX)
        async with look.lock:
            if look.began_s is not None and came_s <= look.ended_s and look.failure is not None:
                raise Unasked(str(look.failure))
            young = look.began_s is not None and (
                came_s <= look.ended_s or self._now_s() - look.began_s < SHARED_SECONDS
            )
            if young and look.failure is None:
                return look
            began_s = self._now_s()
            failure: Unasked | None = None
            try:  # who is cancelled here leaves nothing behind, and the next one looks
                look.rows = await self._rows(namespace, cluster)
            except Unasked as error:
                failure = error
            look.failure, look.began_s, look.ended_s = failure, began_s, self._now_s()
            if failure is not None:
                raise failure
        return look

    async def _rows(self, namespace: str, cluster: str) -> list[Mapping[str, Any]]:
        """Of all masters that serve subjects."""
        ask = await self._find(namespace, cluster)
        if ask is None:
            raise Unasked(f"there is no QueueCluster {cluster} in {namespace} that has a meta")
        found: list[Mapping[str, Any]] = []
        for group in await _answer(ask, "", META_PATHS["broker"]):
            if group["retired"]:
                continue
            master = leader_of(group)
            if master is None:
                raise Unasked(f"{group['group']} has no master that knows what is left: {group['problem']}")
            found += await _answer(ask, master["addresses"]["control"], MASTER_PATHS["broker"])
        return found


async def _answer(ask: Ask, server: str, path: str) -> Any:
    try:
        return await ask(server, path)
    except (OSError, TimeoutError) as error:
        raise Unasked(f"{server or 'meta'} does not answer {path}: {error}") from None


def _keep(places: OrderedDict[Any, Any], key: object, most: int) -> None:
    """As the last one used; those that were used longest ago are forgotten."""
    places.move_to_end(key)
    while len(places) > most:
        places.popitem(last=False)


class Lookup:
    """Objects, and how their metas are asked, also while this replica waits for the lease."""

    def __init__(self, store: Store, api: Api, metas: Metas) -> None:
        self._store = store
        self._api = api
        self._metas = metas

    async def resource(self, key: Key) -> Manifest | None:
        """One of our kinds, or a Service; ``Unasked`` when nobody knows whether it is there."""
        known = self._store.get(key)
        if known is not None:
            return known
        [kind] = [one for one in (*OURS, SERVICE) if one.kind == key.kind]
        try:
            return await self._api.get(kind.path(key.namespace, key.name))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise Unasked(str(refused)) from None

    async def answers(self, namespace: str, cluster: str) -> Ask | None:
        """How the meta and the brokers of a QueueCluster are asked."""
        found = await self.resource(Key(QUEUE_CLUSTER.kind, namespace, cluster))
        service = None if found is None else await self.resource(service_of(found))
        link = self._metas.link(found, service)
        return link.answer if link is not None else None
