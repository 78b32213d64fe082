"""Whether the operator works: the probes, the numbers, and what an autoscaler asks.

A process that answers may still have stopped to look: a watch that is silent for ever looks like a quiet cluster.
So when no watch has said anything for a while the *sentinel* is touched, a ConfigMap of the operator's own, and must
come back through watch, queue and worker.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from tidemill_operator import marks
from tidemill_operator.autoscaling import said_of, wanted_of
from tidemill_operator.doors.advising import Advisor, Group, Lookup, Unasked
from tidemill_operator.doors.api import Api, Refused
from tidemill_operator.doors.metrics import Metrics
from tidemill_operator.doors.runtime import SENTINEL, Runtime
from tidemill_operator.kinds import CONFIG_MAP, CONSUMER_GROUP, Kind
from tidemill_operator.settings import OperatorSettings
from tidemill_operator.store import Key

logger = logging.getLogger("tidemill.operator")

LAGGING_S = 5.0
TICK_S = 1.0


class Sentinel:
    """See the module."""

    def __init__(self, api: Api, settings: OperatorSettings, namespace: str, runtime: Runtime) -> None:
        self.name = f"{settings.lease_name}-sentinel"
        self._api = api
        self._namespace = namespace
        self._runtime = runtime
        self._quiet_s = settings.stuck_ms / 2000
        self._heard_s = time.monotonic()
        """When a watch last said anything."""
        self._touched_s: float | None = None
        """When the sentinel was touched that has not come back yet."""
        runtime.sentinel_seen = self._came_back

    def heard(self, kind: Kind, change: str | None, written: Mapping[str, Any]) -> None:
        """Between a watch and the passes: any word proves that watches speak."""
        self._heard_s = time.monotonic()
        metadata = marks.metadata(written)
        if (
            kind is CONFIG_MAP
            and metadata.get("name") == self.name
            and metadata.get("namespace") == self._namespace
        ):
            if change != "DELETED":
                self._runtime.add(Key(SENTINEL, self._namespace, self.name))
            return
        self._runtime.heard(kind, change, written)

    def waits_s(self) -> float:
        """For how long a sentinel has not come back."""
        return 0.0 if self._touched_s is None else time.monotonic() - self._touched_s

    async def run(self) -> None:
        """Touch it when it is quiet."""
        while True:
            await asyncio.sleep(self._quiet_s / 3)
            if self._touched_s is None and time.monotonic() - self._heard_s > self._quiet_s:
                self._touched_s = time.monotonic()
                await self._touch()

    def _came_back(self) -> None:
        self._touched_s = None

    async def _touch(self) -> None:
        body = {
            "apiVersion": CONFIG_MAP.api_version,
            "kind": CONFIG_MAP.kind,
            "metadata": {"name": self.name, "namespace": self._namespace},
            "data": {"touched": marks.timestamp(time.time_ns() // 1_000_000)},
        }
        try:
            await self._api.apply(CONFIG_MAP.path(self._namespace, self.name), body, marks.MANAGER)
        except Refused as refused:
            logger.warning("sentinel_untouched why=%s", refused)
            self._touched_s = None  # nothing was asked of the watch


class Health:
    """The HTTP port."""

    def __init__(
        self, runtime: Runtime, metrics: Metrics, settings: OperatorSettings, lookup: Lookup, advisor: Advisor
    ) -> None:
        self.ready = False
        """Whether it works: it has the lease, and watches."""
        self.stands_by: Callable[[], bool] = lambda: False
        """Whether it would go on if another one ended; then it is ready, too."""
        self.sentinel: Sentinel | None = None
        self._runtime = runtime
        self._metrics = metrics
        self._lookup = lookup
        self._advisor = advisor
        self._stuck_s = settings.stuck_ms / 1000
        self._ticked_s = time.monotonic()
        self._runner: web.AppRunner | None = None

    async def listen(self, host: str, port: int) -> int:
        """Which port it became."""
        application = web.Application()
        application.add_routes([
            web.get("/livez", self._live),
            web.get("/readyz", self._is_ready),
            web.get("/healthz/sentinel", self._works),
            web.get("/metrics", self._numbers),
            web.get("/v1/scaling/{namespace}/{name}", self._scaling),
        ])  # fmt: skip
        runner = self._runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, host, port)
        await site.start()
        return int(runner.addresses[0][1])

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def tick(self) -> None:
        """Notice how late the loop is."""
        while True:
            await asyncio.sleep(TICK_S)
            self._ticked_s = time.monotonic()

    async def _live(self, _: web.Request) -> web.Response:
        late_s = time.monotonic() - self._ticked_s - TICK_S
        return _probe("" if late_s < LAGGING_S else f"the loop is {late_s:.0f} s late")

    async def _is_ready(self, _: web.Request) -> web.Response:
        able = self.ready or self.stands_by()
        return _probe("" if able else "the lease is not watched, or the watches have not begun")

    async def _works(self, _: web.Request) -> web.Response:
        oldest_s = self._runtime.queue.oldest_ms(_now_ms()) / 1000
        if oldest_s > self._stuck_s:
            return _probe(f"a change has been waiting for {oldest_s:.0f} s")
        waits_s = self.sentinel.waits_s() if self.sentinel is not None else 0.0
        return _probe(
            f"the sentinel has not come back for {waits_s:.0f} s" if waits_s > self._stuck_s else ""
        )

    async def _numbers(self, _: web.Request) -> web.Response:
        now_ms = _now_ms()
        self._metrics.depth.set(self._runtime.queue.depth(now_ms))
        self._metrics.oldest.set(self._runtime.queue.oldest_ms(now_ms) / 1000)
        return web.Response(body=self._metrics.page(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _scaling(self, request: web.Request) -> web.Response:
        """How long a group needs to drain, and how many consumers it should have."""
        key = Key(CONSUMER_GROUP.kind, request.match_info["namespace"], request.match_info["name"])
        try:
            resource = await self._lookup.resource(key)
            if resource is None:
                return web.json_response({"error": "there is no such ConsumerGroup"}, status=404)
            status = marks.status(resource)
            names = status.get("subjectName", ""), status.get("groupName", "")
            if not all(names):
                return web.json_response({"error": "meta has not got it yet: see its status"}, status=503)
            group = Group(key.namespace, marks.cluster_of(resource), *names)
            advice = await self._advisor.advise(group, wanted_of(resource))
        except Unasked as error:
            return web.json_response({"error": str(error)}, status=503)
        return web.json_response(said_of(advice))


def _probe(problem: str) -> web.Response:
    return web.json_response({"status": problem or "ok"}, status=503 if problem else 200)


def _now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)
