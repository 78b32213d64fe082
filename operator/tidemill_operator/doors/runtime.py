"""The passes: what changed is queued, looked at, planned, done and said.

    heard        a watch says something of an object: the store notes it, and queues whoever is to look
    a pass       view → plan → steps, in order, up to the first that fails → status → events
    the resync   queues everything, every 60 to 120 seconds: what no watch told is found then, and what is gone by now
                 (``looking.py``)

Nothing of a pass is remembered but when its object last asked meta for something, so that the next one sees what came
of it; a process that is killed anywhere begins with the resync.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill_operator import marks
from tidemill_operator.asking import Asked
from tidemill_operator.conditions import next_status, ready, stalled
from tidemill_operator.doors.api import Api
from tidemill_operator.doors.apply import Applier
from tidemill_operator.doors.looking import Looking
from tidemill_operator.doors.meta import Link, Metas
from tidemill_operator.doors.metrics import Metrics
from tidemill_operator.doors.namespaces import Namespaces
from tidemill_operator.kinds import CONSUMER_GROUP, OURS, QUEUE_CLUSTER, Kind, kind_of
from tidemill_operator.planners import Planner
from tidemill_operator.refusals import Failure, conditions_of, is_news, is_said
from tidemill_operator.settings import OperatorSettings
from tidemill_operator.steps import (
    Apply,
    Ask,
    Condition,
    Consumed,
    Create,
    Delete,
    Event,
    Hold,
    Manifest,
    Plan,
    Seek,
    Seen,
    Step,
)
from tidemill_operator.store import Key, Store, extract, service_of
from tidemill_operator.telling import Told
from tidemill_operator.vanishing import TRIES_MAX, VANISHED, cluster_key, goodbye, vanished
from tidemill_operator.work import WorkQueue

logger = logging.getLogger("tidemill.operator")

SENTINEL = "Sentinel"
UNASKED = frozenset({"ReferenceNotFound", "NotPermitted"})
"""Why the operator cannot speak with a meta: what it needs for that is not there, or not believed."""
SWEEP_RESYNCS = 4
MISTAKES = (LookupError, TypeError, ValueError, AttributeError, AssertionError)
"""What a planner raises that cannot read an object. The others must not stand still for it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the passes work with."""

    api: Api
    applier: Applier
    metas: Metas
    metrics: Metrics
    planners: Mapping[str, Planner]


class Runtime:
    """See the module."""

    def __init__(
        self, parts: Parts, settings: OperatorSettings, namespaces: Iterable[str], chance: random.Random
    ) -> None:
        self.store = Store()
        self.queue: WorkQueue[Key] = WorkQueue(chance)
        self.sentinel_seen: Callable[[], None] = lambda: None
        self._parts = parts
        self._settings = settings
        self.looking = Looking(parts.api, self.store, tuple(namespaces), self.heard, self._queue)
        self._chance = chance
        self._wake = asyncio.Event()
        self._active = 0
        self._asked = Asked()
        self._told = Told()
        self._going = Namespaces(parts.api)

    # -- what is heard -----------------------------------------------------------------------------------------

    def heard(self, kind: Kind, change: str | None, written: Mapping[str, Any]) -> None:
        """A watch says that something is there, is other, or is gone (``DELETED``)."""
        self._parts.metrics.watched.labels(kind.plural).set(time.time())
        metadata, told = marks.metadata(written), vanished(kind, change, written)
        if told is not None:
            self.add(told)
        if change == "DELETED":
            where = metadata.get("namespace", ""), metadata["name"]
            self._queue(self.store.drop(kind.kind, *where, metadata.get("uid", "")))
        else:
            self._queue(self.store.put(extract(written, kind)))

    def learn(self, answer: Mapping[str, Any] | None) -> None:
        """An answer of the API server says how an object is now."""
        if answer is not None and "metadata" in answer:
            self._queue(self.store.put(extract(answer, kind_of(answer["apiVersion"], answer["kind"]))))

    def add(self, key: Key) -> None:
        self._queue((key,))

    def _queue(self, keys: Iterable[Key]) -> None:
        now_ms = _now_ms()
        for key in keys:
            resource = self.store.get(key)
            self.queue.add(key, now_ms, urgent=resource is not None and marks.goes(resource))
        self._wake.set()

    # -- loops -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Passes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._resync(), name="resync")
            tasks.create_task(self._lags(), name="lags")
            while True:
                key = self.queue.take(_now_ms()) if self._active < self._settings.workers else None
                if key is not None:
                    self._active += 1
                    tasks.create_task(self._work(key), name=f"{key.kind} {key.namespace}/{key.name}")
                    continue
                self._wake.clear()
                due_ms = self.queue.next_ms() if self._active < self._settings.workers else None
                pause_s = None if due_ms is None else max(0, due_ms - _now_ms()) / 1000
                try:
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()
                except TimeoutError:
                    pass  # a key has become due

    async def _resync(self) -> None:
        turn = 0
        while True:
            await asyncio.sleep(self._settings.resync_ms / 1000 * self._chance.uniform(2 / 3, 4 / 3))
            turn += 1
            await self.looking.again(sweep=turn % SWEEP_RESYNCS == 0)
            keys = self.store.keys(one.kind for one in OURS)
            self._queue(keys)
            for kind in OURS:
                self._parts.metrics.objects.labels(kind.kind).set(
                    sum(1 for key in keys if key.kind == kind.kind)
                )
            clusters = self.store.of_kind(QUEUE_CLUSTER.kind)
            self._parts.metas.keep_only(clusters)

    async def _lags(self) -> None:
        """Ask brokers for the lag of groups, as long as there are any."""
        while True:
            await asyncio.sleep(self._settings.lag_ms / 1000)
            if not self.store.keys((CONSUMER_GROUP.kind,)):
                continue
            async with asyncio.TaskGroup() as tasks:
                for link in self._parts.metas.links():
                    tasks.create_task(self._ask_lags(link))

    async def _ask_lags(self, link: Link) -> None:
        try:
            changed = await link.ask_lags()
        except Failure as failure:
            level = logging.WARNING if self._is_news(f"lag {link.endpoint}", failure) else logging.DEBUG
            logger.log(level, "lag_unknown meta=%s why=%s", link.endpoint, failure)
            return
        self._told.well(f"lag {link.endpoint}")
        groups = self.store.keys((CONSUMER_GROUP.kind,))
        self._queue(key for key in groups if self._lag_names(key) in changed)

    def _lag_names(self, key: Key) -> tuple[str, str]:
        status = marks.status(self.store.get(key) or {})
        return status.get("subjectName", ""), status.get("groupName", "")

    # -- one pass ----------------------------------------------------------------------------------------------

    async def _work(self, key: Key) -> None:
        began_s = time.monotonic()
        metrics = self._parts.metrics
        try:
            again_ms = await self._pass(key)
        except Failure as failure:
            metrics.passes.labels(key.kind, failure.kind).inc()
            metrics.requeues.labels(failure.reason).inc()
            await self._failed(key, failure)
        else:
            metrics.passes.labels(key.kind, "done").inc()
            self._told.well(f"pass {key}")
            self.queue.done(key, _now_ms(), again_ms)
        finally:
            self._active -= 1
            metrics.pass_seconds.labels(key.kind).observe(time.monotonic() - began_s)
            self._wake.set()

    async def _pass(self, key: Key) -> int | None:
        if key.kind == SENTINEL:
            self.sentinel_seen()
            return None
        if key.kind == VANISHED:
            await self._say_goodbye(key)
            return None
        resource, planner = self.store.get(key), self._parts.planners.get(key.kind)
        if resource is None or planner is None:
            self._asked.settle(key)
            return None
        seen = await self._view(key, resource, planner)
        now_ms = time.time_ns() // 1_000_000
        plan = self._decide(planner, seen, now_ms)
        if not any(isinstance(one, Ask) for one in plan.steps):
            self._asked.settle(key)
        for step in plan.steps:
            await self._do(key, step, seen)
        await self._say(key, plan, now_ms)
        return plan.again_ms

    async def _say_goodbye(self, key: Key) -> None:
        """For a pod of consumers that is gone; given up when meta does not hear it soon."""
        link = self._link(self.store.get(cluster_key(key)))
        if link is None or self.queue.failures(key) >= TRIES_MAX:
            return
        try:
            await link.ask(goodbye(key), goes=True)
        except Failure as failure:
            if failure.kind == "passing":
                raise

    def _decide(self, planner: Planner, seen: Seen, now_ms: int) -> Plan:
        try:
            return planner.decide(seen, now_ms)
        except MISTAKES as error:
            logger.exception("planner_failed object=%s", marks.metadata(seen.resource).get("name"))
            sentence = (
                f"this operator cannot read the object ({type(error).__name__}: {error}): look at its log"
            )
            return Plan(conditions=stalled("Unsupported", sentence[:300]))

    async def _view(self, key: Key, resource: Manifest, planner: Planner) -> Seen:
        cluster, objects = self.store.cluster(resource), self.store.around(resource)
        meta, lag, unheard = None, None, None
        link = self._link(cluster)
        paths = planner.asks(resource, objects)
        if link is not None:
            try:
                meta = await link.see(paths, self._asked.since_s(key))
            except Failure as failure:
                unheard = ready(failure.reason, failure.sentence) if failure.reason in UNASKED else None
                # What runs meta must not wait for it; what meta keeps need not say so at once.
                if (
                    planner.declared
                    and link.silent_ms() < self._settings.grace_ms
                    and not marks.goes(resource)
                ):
                    raise
            if planner.wants_lag:
                lag = await self._lag_of(link, key, resource)
        going = marks.goes(resource) and await self._going.goes(key.namespace)
        return Seen(
            self.store.get(key) or resource,
            cluster,
            objects,
            meta,
            await link.left(resource, meta) if link is not None and meta is not None else {},
            self._settings.image,
            going,
            lag,
            self.looking.served,
            self._settings.spark_image,
            self._settings.address,
            # What goes is taken back whatever its Secrets say.
            await self._parts.metas.keys.digests(
                key.namespace, () if marks.goes(resource) else planner.secrets(resource)
            ),
            unheard,
        )

    def _link(self, cluster: Manifest | None) -> Link | None:
        service = None if cluster is None else self.store.get(service_of(cluster))
        return self._parts.metas.link(cluster, service)

    async def _lag_of(self, link: Link, key: Key, resource: Manifest) -> Mapping[str, Any] | None:
        """Of a group that is to be moved the numbers of this moment, for they decide whether it may be."""
        if marks.command(resource, marks.SEEK) is not None:
            await link.ask_lags()
        return link.lag(*self._lag_names(key))

    # -- what a plan asks --------------------------------------------------------------------------------------

    async def _do(self, key: Key, step: Step, seen: Seen) -> None:
        applier, resource = self._parts.applier, self.store.get(key) or seen.resource
        match step:
            case Apply(manifest):
                metadata = marks.metadata(manifest)
                where = Key(manifest["kind"], metadata.get("namespace", ""), metadata["name"])
                self.learn(await applier.apply(manifest, self.store.get(where)))
            case Create(manifest):
                self.learn(await applier.create(manifest))
            case Delete():
                await applier.delete(step)
            case Ask() | Seek():
                link = self._link(seen.cluster)
                if link is None:
                    raise Failure("passing", "ClusterUnavailable", "nobody knows yet where meta listens")
                if isinstance(step, Seek):
                    await link.seek(step)
                else:
                    await self._ask(key, link, step, goes=marks.goes(resource))
            case Hold(held):
                self.learn(await applier.hold(resource, held=held))
            case Consumed(annotation):
                self.learn(await applier.consume(resource, annotation))

    async def _ask(self, key: Key, link: Link, step: Ask, *, goes: bool) -> None:
        self._asked.check(key)
        try:
            await link.ask(step, goes=goes)
        except Failure as failure:
            if failure.kind != "gone":
                raise
        self._asked.note(key, asyncio.get_running_loop().time())

    async def _say(self, key: Key, plan: Plan, now_ms: int) -> None:
        resource = self.store.get(key)
        if resource is None:
            return
        status = next_status(resource, plan, now_ms)
        if status is not None:
            self.learn(await self._parts.applier.write_status(resource, status))
            self._told.well(f"status {key}")
        for event in plan.events:
            await self._parts.applier.say(resource, event, marks.micro_timestamp(now_ms))
            if event.reason == "DriftReverted":
                self._parts.metrics.drift.labels(key.kind).inc()

    async def _failed(self, key: Key, failure: Failure) -> None:
        """Say why, where it is worth a word, and try again: soon, later each time, or when a person was there."""
        resource, planner = self.store.get(key), self._parts.planners.get(key.kind)
        news = is_news(failure, resource) and self._is_news(f"pass {key}", failure)
        logger.log(
            logging.WARNING if news else logging.DEBUG,
            "pass_failed object=%s/%s/%s kind=%s reason=%s why=%s",
            key.kind, key.namespace, key.name, failure.kind, failure.reason, failure.sentence,
        )  # fmt: skip
        if resource is not None and planner is not None and failure.reason != "ClusterUnavailable":
            try:
                await self._explain(key, resource, conditions_of(failure, declared=planner.declared), failure)
            except Failure as second:
                level = logging.WARNING if self._is_news(f"status {key}", second) else logging.DEBUG
                logger.log(level, "status_unwritten object=%s/%s why=%s", key.namespace, key.name, second)
        if failure.kind == "standing":
            self.queue.done(key, _now_ms(), failure.after_ms)
        else:
            self.queue.failed(key, _now_ms(), failure.after_ms)

    def _is_news(self, about: str, failure: Failure) -> bool:
        return self._told.is_news(about, failure.sentence, time.monotonic())

    async def _explain(
        self, key: Key, resource: Manifest, conditions: tuple[Condition, ...], failure: Failure
    ) -> None:
        event = Event("Rejected", failure.sentence, warning=True)
        news = conditions and not is_said(failure, resource)
        plan = Plan(conditions=conditions, events=(event,) if news else ())
        await self._say(key, plan, time.time_ns() // 1_000_000)


def _now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)
