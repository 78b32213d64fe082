"""A broker group as it is: pods as Kubernetes has them, put together with brokers as meta has them.

Neither alone says whether a broker serves. A pod is ready as soon as its process answers, which is before meta has
heard of the new life; and meta takes a broker for alive until it has been silent for some seconds. So a broker is
*well* only when both say so, and the pod has said so for longer than meta takes to notice that it is another life.
What is not known is not well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tidemill_operator import marks
from tidemill_operator.desired.wanted import Group, Service
from tidemill_operator.kinds import CLAIM, POD, STATEFUL_SET
from tidemill_operator.marks import condition_of, moment, part, rows
from tidemill_operator.names import claim_name, label_value, pod_name
from tidemill_operator.steps import Manifest, Seen
from tidemill_wire.schema import ManifestError, Size

SETTLED_MS = 10_000
"""Twice the silence after which meta takes a broker for dead: what it says of one that is ready for longer is of its
present life.
"""
RESIZE_PATIENCE_MS = 60_000
"""A file system that grows while it is mounted has done so by then; another one waits for a new pod."""
META_PATHS: Mapping[Service, str] = {"broker": "/v1/brokers", "delay": "/v1/delays"}
REVISION_LABEL = "controller-revision-hash"


@dataclass(frozen=True, slots=True)
class Broker:
    """One of a group: the pod of an ordinal, and the row at meta of the name that goes with it."""

    ordinal: int
    name: str
    pod_name: str
    pod: Manifest | None
    row: Mapping[str, Any] | None
    claim: Manifest | None
    revision: str
    """That pods are to have; empty: it is not known now."""
    epoch: int
    """Of the group, as meta has it."""

    @property
    def is_there(self) -> bool:
        return self.pod is not None

    @property
    def goes(self) -> bool:
        return marks.goes(self.pod)

    @property
    def runs(self) -> bool:
        """Whether its process may be there: a pod that is pending, or waits to be started again, takes nothing away."""
        return any("running" in part(one, "state") for one in rows(self.pod, "status", "containerStatuses"))

    @property
    def ready_since_ms(self) -> int | None:
        """Since when its pod is ready; None: it is not."""
        found = condition_of(self.pod, "Ready")
        if self.goes or found.get("status") != "True":
            return None
        return moment(found.get("lastTransitionTime"))

    @property
    def is_outdated(self) -> bool:
        """Whether its pod is of another template than the one that is wanted, as far as is known."""
        if self.pod is None or not self.revision:
            return False
        return marks.label(self.pod, REVISION_LABEL) != self.revision

    @property
    def is_alive(self) -> bool:
        return self.row is not None and self.row.get("alive") is True

    @property
    def is_in_sync(self) -> bool:
        return self.row is not None and self.row.get("in_sync") is True

    @property
    def messages(self) -> int:
        return int(part(self.row, "positions").get("messages", 0))

    def settles_in_ms(self, now_ms: int) -> int | None:
        """After which time what meta says of it counts, 0: it does; None: its pod is not ready."""
        since = self.ready_since_ms
        return None if since is None else min(SETTLED_MS, max(0, since + SETTLED_MS - now_ms))

    def is_well(self, now_ms: int) -> bool:
        """Whether it serves in its group, for sure."""
        settled = self.settles_in_ms(now_ms) == 0
        followed = self.row is not None and self.row.get("epoch", self.epoch) == self.epoch
        return settled and self.is_alive and self.is_in_sync and followed

    def waits_for_resize(self, now_ms: int) -> bool:
        """Whether its volume has grown, and its file system will only with a new pod: one that was made since then
        would gain nothing by another.
        """
        found = condition_of(self.claim, "FileSystemResizePending")
        since = moment(found.get("lastTransitionTime")) if found.get("status") == "True" else None
        made = moment(part(self.pod, "metadata").get("creationTimestamp"))
        return since is not None and made is not None and made < since < now_ms - RESIZE_PATIENCE_MS


@dataclass(frozen=True, slots=True)
class Observed:
    """A group, as far as it was seen."""

    brokers: tuple[Broker, ...]
    """By their ordinals: those that are wanted, those that are there, and those that are to be made."""
    heard: bool
    """Whether meta was."""
    row: Mapping[str, Any] | None
    """The group at meta; None: it does not know it."""
    workload: Manifest | None
    claims: tuple[Manifest, ...]

    @property
    def master(self) -> Broker | None:
        """Who leads, as far as meta knows."""
        name = (self.row or {}).get("master")
        return next((one for one in self.brokers if one.name == name and name), None)

    @property
    def is_led(self) -> bool:
        return self.master is not None and self.master.is_alive

    @property
    def draining(self) -> bool:
        return bool((self.row or {}).get("draining"))

    @property
    def retired(self) -> bool:
        return bool((self.row or {}).get("retired"))

    @property
    def version(self) -> int:
        return int((self.row or {}).get("version", 0))

    @property
    def problem(self) -> str:
        return str((self.row or {}).get("problem", ""))

    def wanted(self, group: Group) -> tuple[Broker, ...]:
        return self.brokers[: group.replicas]

    def surplus(self, group: Group) -> tuple[Broker, ...]:
        """Beyond what is wanted, and still there: as a pod, as one that is to be made, or at meta."""
        run = replicas_of(self.workload)
        return tuple(
            one
            for one in self.brokers[group.replicas :]
            if one.is_there or one.ordinal < run or one.row is not None
        )


def observe(seen: Seen, group: Group) -> Observed:
    """Put together what was seen of a group."""
    mark = label_value(group.name)
    own = [one for one in seen.objects if marks.label(one, marks.BROKER_GROUP_LABEL) == mark]
    workload = next(
        (
            one
            for one in own
            if one["kind"] == STATEFUL_SET.kind and one["metadata"]["name"] == group.workload
        ),
        None,
    )
    pods = {one["metadata"]["name"]: one for one in own if one["kind"] == POD.kind}
    claims = {one["metadata"]["name"]: one for one in own if one["kind"] == CLAIM.kind}
    listed = listing_of(seen.meta, group.service)
    row = row_of(listed, group.group)
    members = {str(one["name"]): one for one in rows(row, "brokers")}
    count = max(group.replicas, replicas_of(workload))
    while any(
        pod_name(group.workload, one) in pods or group.broker(one) in members
        for one in range(count, count + SURPLUS_LOOK)
    ):
        count += 1
    revision, epoch = revision_of(workload), int((row or {}).get("epoch", 0))
    brokers = tuple(
        Broker(
            one,
            group.broker(one),
            pod_name(group.workload, one),
            pods.get(pod_name(group.workload, one)),
            members.get(group.broker(one)),
            claims.get(claim_name(group.workload, one)),
            revision,
            epoch,
        )
        for one in range(count)
    )
    return Observed(brokers, listed is not None, row, workload, tuple(claims[one] for one in sorted(claims)))


def asks(_resource: Manifest, _objects: Sequence[Manifest] = ()) -> tuple[str, ...]:
    """The paths at meta that a plan of brokers wants to see."""
    return tuple(META_PATHS.values())


def listing_of(meta: Mapping[str, Any] | None, service: Service) -> Sequence[Mapping[str, Any]] | None:
    """What meta has of all groups that run a service; None: it was not heard."""
    answered: Any = (meta or {}).get(META_PATHS[service])
    return cast("Any", answered) if isinstance(answered, (list, tuple)) else None


def leader_of(row: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Of a group's row at meta, that of its master."""
    name = part(row).get("master")
    return next((one for one in rows(row, "brokers") if one["name"] == name), None)


def row_of(listed: Sequence[Mapping[str, Any]] | None, group: str) -> Mapping[str, Any] | None:
    """The group's row; None: meta does not know it."""
    return next((one for one in listed or () if one.get("group") == group), None)


SURPLUS_LOOK = 8
"""So many ordinals beyond the last known one are looked at: meta has no more brokers of a group."""


def revision_of(workload: Manifest | None) -> str:
    """Of the template that the workload has now; empty while its controller has not looked at it."""
    if workload is None:
        return ""
    status = part(workload, "status")
    if status.get("observedGeneration") != workload["metadata"].get("generation"):
        return ""
    return str(status.get("updateRevision", ""))


def replicas_of(workload: Manifest | None) -> int:
    return int(part(workload, "spec").get("replicas", 0))


def size_of(quantity: object) -> int:
    """Bytes of a quantity; 0 of what is none."""
    written = str(quantity)
    try:
        return int(Size("a volume").parse(written if not written.isdigit() else int(written), ""))
    except ManifestError:
        return 0
