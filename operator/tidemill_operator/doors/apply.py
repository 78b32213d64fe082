"""Steps on Kubernetes objects: the only place that changes any, but for the lease.

Field managers, one for each concern: ``tidemill-operator`` for what we make, ``-status`` for the status of our kinds,
``-finalizer`` for our finalizer. What would change nothing is not sent.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, cast

from tidemill_operator import marks
from tidemill_operator.conditions import MESSAGE_MAX
from tidemill_operator.doors.api import Api, Refused
from tidemill_operator.doors.metrics import Metrics
from tidemill_operator.drift import is_applied, stamped
from tidemill_operator.kinds import EVENT, QUEUE_CLUSTER, Kind, kind_of
from tidemill_operator.names import identity
from tidemill_operator.refusals import STANDING_MS, Failure
from tidemill_operator.steps import Delete, Event, Manifest

STATUS_MANAGER = f"{marks.MANAGER}-status"
FINALIZER_MANAGER = f"{marks.MANAGER}-finalizer"
CONTROLLER = f"{QUEUE_CLUSTER.group}/operator"
SAID_MAX = 10_000
"""Events that are remembered as said; when there are more, the oldest may be said again."""
SAID_MS = 3_600_000
"""So long the API server keeps an event, by default: after that nobody can read it any more."""
SENT_MAX = 50_000


class Applier:
    """See the module. What an answer says of an object is returned: the next pass need not wait for its watch."""

    def __init__(self, api: Api, metrics: Metrics, instance: str) -> None:
        self._api = api
        self._metrics = metrics
        self._instance = instance
        self._said: OrderedDict[str, int] = OrderedDict()
        """By name, when it was said; the latest is last."""
        self._sent: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        """By path and concern: a sum of what was last sent and what came of it, where these two never become alike."""

    async def apply(self, manifest: Manifest, standing: Manifest | None) -> dict[str, Any] | None:
        """Make it so; None when it is so already."""
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        metadata = marks.metadata(manifest)
        path = kind.path(metadata.get("namespace", ""), metadata["name"])
        wanted = stamped(manifest)
        if is_applied(wanted, standing) or self._came_of(path, "apply", wanted, standing):
            self._metrics.applies.labels(kind.kind, "noop").inc()
            return None
        try:
            answer = await self._api.apply(path, wanted, marks.MANAGER)
        except Refused as refused:
            self._metrics.applies.labels(kind.kind, "rejected").inc()
            raise made_nowhere(kind, refused) from None
        self._note(path, "apply", wanted, answer)
        self._metrics.applies.labels(kind.kind, "changed" if standing is not None else "created").inc()
        return answer

    async def create(self, manifest: Manifest) -> dict[str, Any] | None:
        """Make it; None when there is one of its name, whose it may be."""
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        try:
            answer = await self._api.post(kind.path(marks.metadata(manifest)["namespace"]), manifest)
        except Refused as refused:
            if refused.failure.kind == "changed":
                self._metrics.applies.labels(kind.kind, "noop").inc()
                return None
            self._metrics.applies.labels(kind.kind, "rejected").inc()
            raise made_nowhere(kind, refused) from None
        self._metrics.applies.labels(kind.kind, "created").inc()
        return answer

    async def write_status(self, resource: Manifest, status: Mapping[str, Any]) -> dict[str, Any] | None:
        """Say it; None when it was said and the API server wrote down something else."""
        path = path_of(resource)
        if self._came_of(path, "status", status, resource):
            return None
        body = {**identity(resource), "status": status}
        try:
            answer = await self._api.apply(f"{path}/status", body, STATUS_MANAGER)
        except Refused as refused:
            raise refused.failure from None
        self._note(path, "status", status, answer)
        return answer

    async def hold(self, resource: Manifest, *, held: bool) -> dict[str, Any] | None:
        """Our finalizer, there or not."""
        finalizers = marks.finalizers(resource)
        if (marks.FINALIZER in finalizers) == held:
            return None
        path = path_of(resource)
        try:
            if held:
                body = identity(resource, finalizers=[marks.FINALIZER])
                return await self._api.apply(path, body, FINALIZER_MANAGER)
            place = f"/metadata/finalizers/{finalizers.index(marks.FINALIZER)}"
            return await self._api.patch(path, [
                {"op": "test", "path": "/metadata/uid", "value": marks.metadata(resource)["uid"]},
                {"op": "test", "path": place, "value": marks.FINALIZER},
                {"op": "remove", "path": place},
            ])  # fmt: skip
        except Refused as refused:
            raise stale(refused).failure from None

    async def consume(self, resource: Manifest, annotation: str) -> dict[str, Any] | None:
        """Take a command away, unless there is another one by now."""
        written = marks.command(resource, annotation)
        if written is None:
            return None
        place = f"/metadata/annotations/{annotation.replace('~', '~0').replace('/', '~1')}"
        try:
            return await self._api.patch(path_of(resource), [
                {"op": "test", "path": "/metadata/uid", "value": marks.metadata(resource)["uid"]},
                {"op": "test", "path": place, "value": written},
                {"op": "remove", "path": place},
            ])  # fmt: skip
        except Refused as refused:
            raise stale(refused).failure from None

    async def delete(self, step: Delete) -> None:
        """This very object; that it is gone already is as good."""
        where = step.reference
        path = kind_of(where.api_version, where.kind).path(where.namespace, where.name)
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": step.uid},
            "propagationPolicy": "Orphan" if step.orphan else "Background",
        }
        try:
            await self._api.delete(path, options)
        except Refused as refused:
            if refused.failure.kind != "gone":
                raise refused.failure from None

    async def say(self, resource: Manifest, event: Event, at: str) -> None:
        """An event, unless it was said within the hour. Its name is made of what it says, so that also the operator's
        next life does not repeat it: the API server refuses the name.
        """
        metadata = marks.metadata(resource)
        namespace = metadata.get("namespace", "default")
        note = event.message[:MESSAGE_MAX]
        text = "\n".join((metadata["uid"], event.reason, note))
        name = f"{metadata['name'][:200]}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        now_ms = marks.moment(at) or 0
        while self._said and now_ms - next(iter(self._said.values())) >= SAID_MS:
            self._said.popitem(last=False)
        if name in self._said:
            return
        body = {
            **EVENT.header,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": at,
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance[:128],
            "action": event.reason,
            "reason": event.reason,
            "note": note,
            "type": "Warning" if event.warning else "Normal",
            "regarding": {
                "apiVersion": resource["apiVersion"],
                "kind": resource["kind"],
                "namespace": namespace,
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        }
        try:
            await self._api.post(EVENT.path(namespace), body)
        except Refused as refused:
            # Said already, or its namespace goes: nobody is worse off, and no object waits for a word about it.
            if refused.failure.kind not in {"changed", "standing", "gone"}:
                raise refused.failure from None
        self._said[name] = now_ms
        if len(self._said) > SAID_MAX:
            self._said.popitem(last=False)

    # -- what does not settle ----------------------------------------------------------------------------------

    def _came_of(self, path: str, concern: str, wanted: object, standing: Manifest | None) -> bool:
        """Whether exactly this was sent last, and what stands there is what came of it: once more changes nothing."""
        return standing is not None and self._sent.get((path, concern)) == _sum(concern, wanted, standing)

    def _note(self, path: str, concern: str, wanted: object, answer: Manifest) -> None:
        self._sent[path, concern] = _sum(concern, wanted, answer)
        self._sent.move_to_end((path, concern))
        if len(self._sent) > SENT_MAX:
            self._sent.popitem(last=False)


def _sum(concern: str, wanted: object, standing: Manifest) -> bytes:
    metadata = marks.metadata(standing)
    part: object = standing.get("status")
    if concern != "status":
        rest = {name: value for name, value in standing.items() if name not in {"metadata", "status"}}
        part = [metadata.get("labels"), metadata.get("annotations"), rest]
    return hashlib.sha256(repr((metadata.get("uid"), _ordered(wanted), _ordered(part))).encode()).digest()


def _ordered(value: Any) -> Any:
    """Mappings as sorted pairs, so that two that are equal are written alike."""
    if isinstance(value, Mapping):
        block = cast("Mapping[str, Any]", value)
        return [(name, _ordered(block[name])) for name in sorted(block)]
    if isinstance(value, list | tuple):
        return [_ordered(one) for one in cast("Sequence[Any]", value)]
    return value


def stale(refused: Refused) -> Refused:
    """A patch whose tests do not hold is refused with 422: the object is not what was seen, and is looked at again."""
    if refused.status == 422:
        return Refused("PATCH", "", 409, str(refused), 0.0)
    return refused


def made_nowhere(kind: Kind, refused: Refused) -> Failure:
    """Of something that would have been made: not it is missing, but its kind or its namespace."""
    if refused.status != 404:
        return refused.failure
    sentence = f"the API server has no {kind.plural} of {kind.api_version} here"
    return Failure("standing", "ApplyRejected", sentence, STANDING_MS)


def path_of(resource: Manifest) -> str:
    metadata = marks.metadata(resource)
    return kind_of(resource["apiVersion"], resource["kind"]).path(
        metadata.get("namespace", ""), metadata["name"]
    )
