"""What the watches have said: the objects, as far as planners look at them, and who is to look when one changes.

    our own kinds     all of them: what people wrote
    other kinds       what has our labels: workloads, pods, claims
    storage classes   all

Each change says which keys are to be looked at. What the operator writes itself into a status wakes nobody but those
who read that status, so no write wakes its own writer. What an answer of the API server says counts as the watch does,
if it is newer: the next pass must not see a state from before its own writes.

Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tidemill_operator import marks
from tidemill_operator.kinds import (
    ARCHIVE,
    BROKER_GROUP,
    CONSUMER_GROUP,
    GRANT,
    OURS,
    QUEUE_CLUSTER,
    REPLAY,
    SCALED_OBJECT,
    SERVICE,
    SPARK_APPLICATION,
    SPARK_SCHEDULE,
    STORAGE_CLASS,
    SUBJECT,
    Kind,
)
from tidemill_operator.names import META_PORT, controller_of, meta_host, meta_name
from tidemill_operator.steps import Manifest

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
OUR_KINDS = frozenset(one.kind for one in OURS)
PIPELINES = {ARCHIVE.kind: marks.ARCHIVE_LABEL, REPLAY.kind: marks.REPLAY_LABEL}
"""Kinds that Spark works for, and the label that names one of them on what it runs."""
SPARKS = frozenset({SPARK_APPLICATION.kind, SPARK_SCHEDULE.kind})
NO_BROKERS = {SUBJECT.kind, CONSUMER_GROUP.kind, GRANT.kind, *PIPELINES, *SPARKS}
"""What a broker group does not rest upon."""


class Key(NamedTuple):
    """An object of one of our kinds: what the queue is about."""

    kind: str
    namespace: str
    name: str


def extract(written: Mapping[str, Any], kind: Kind) -> Manifest:
    """An object without what only weighs: who wrote which field, and what kubectl remembers."""
    metadata = {name: value for name, value in marks.metadata(written).items() if name != "managedFields"}
    annotations = marks.part(metadata, "annotations")
    if LAST_APPLIED in annotations:
        metadata["annotations"] = {name: text for name, text in annotations.items() if name != LAST_APPLIED}
    return {**written, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def key_of(resource: Manifest) -> Key:
    metadata = marks.metadata(resource)
    return Key(resource["kind"], metadata.get("namespace", ""), metadata["name"])


def claim_of(resource: Manifest) -> tuple[str, ...]:
    """What an object lays claim to in its cluster; two objects with one claim may be in each other's way."""
    namespace, name = marks.metadata(resource).get("namespace", ""), marks.metadata(resource)["name"]
    field = "subjectName" if resource["kind"] == SUBJECT.kind else "groupName"
    return (resource["kind"], namespace, marks.cluster_of(resource), marks.spec(resource).get(field, name))


def belongs_to(resource: Manifest) -> str:
    """The QueueCluster that labels name; empty: it is none of ours."""
    named = marks.label(resource, marks.CLUSTER_LABEL)
    if not named and marks.label(resource, marks.NAME_LABEL) == marks.PRODUCT:
        return marks.label(
            resource, marks.INSTANCE_LABEL
        )  # a claim has the labels of its workload's selector alone
    return named


def version_of(resource: Manifest) -> int:
    written = str(marks.metadata(resource).get("resourceVersion", ""))
    return int(written) if written.isdigit() else 0


class Store:
    """See the module."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[Key, Manifest]] = defaultdict(dict)
        self._sums: dict[Key, bytes] = {}
        self._of_cluster: dict[tuple[str, str], dict[Key, None]] = defaultdict(dict)
        """By namespace and name of a QueueCluster: everything that names it."""
        self._claims: dict[tuple[str, ...], dict[Key, None]] = defaultdict(dict)
        self._references: dict[tuple[str, str], dict[Key, None]] = defaultdict(dict)
        """By namespace and name of a Subject: the ConsumerGroups that refer to it."""

    # -- what happens ------------------------------------------------------------------------------------------

    def put(self, resource: Manifest) -> tuple[Key, ...]:
        """It is there, and is so. Who is to look."""
        if not self._is_kept(resource):
            return ()
        key = key_of(resource)
        former = self._kept[key.kind].get(key)
        if former is not None:
            same = marks.metadata(former).get("uid") == marks.metadata(resource).get("uid")
            if same and version_of(resource) < version_of(former):
                return ()
            self._unlink(key, former)
        self._kept[key.kind][key] = resource
        self._link(key, resource)
        said = _sum(resource)
        changed, self._sums[key] = self._sums.get(key) != said, said
        woken = self._woken(key, resource) if changed else ()
        if not changed and former is not None and _told(former) != _told(resource):
            woken = tuple(one for one in self._readers(key, resource) if one != key)
        return tuple(dict.fromkeys(woken))

    def drop(self, kind: str, namespace: str, name: str, uid: str = "") -> tuple[Key, ...]:
        """It is gone; with ``uid``, unless another one of its name is there by now. Who is to look."""
        key = Key(kind, namespace, name)
        former = self._kept[kind].get(key)
        if former is None or (uid and marks.metadata(former).get("uid") != uid):
            return ()
        del self._kept[kind][key]
        self._sums.pop(key, None)
        woken = self._woken(key, former)
        self._unlink(key, former)
        return tuple(one for one in dict.fromkeys(woken) if one != key)

    # -- what there is -----------------------------------------------------------------------------------------

    def get(self, key: Key) -> Manifest | None:
        return self._kept[key.kind].get(key)

    def keys(self, kinds: Iterable[str]) -> list[Key]:
        return [key for kind in kinds for key in self._kept[kind]]

    def of_kind(self, kind: str) -> Iterable[Manifest]:
        return self._kept[kind].values()

    def cluster(self, resource: Manifest) -> Manifest | None:
        """The QueueCluster that an object names, or is."""
        if resource["kind"] == QUEUE_CLUSTER.kind:
            return resource
        namespace = marks.metadata(resource).get("namespace", "")
        return self.get(Key(QUEUE_CLUSTER.kind, namespace, marks.cluster_of(resource)))

    def around(self, resource: Manifest) -> tuple[Manifest, ...]:
        """What a decision about an object rests upon, beside its cluster."""
        if resource["kind"] in {SUBJECT.kind, CONSUMER_GROUP.kind}:
            return tuple(self._rivals(resource))
        if resource["kind"] == GRANT.kind:
            return ()
        metadata = marks.metadata(resource)
        namespace = metadata.get("namespace", "")
        cluster = metadata["name"] if resource["kind"] == QUEUE_CLUSTER.kind else marks.cluster_of(resource)
        if resource["kind"] in PIPELINES:
            return tuple(self._pipeline(resource))
        strange = NO_BROKERS if resource["kind"] == BROKER_GROUP.kind else set[str]()
        near = [one for one in self._of_cluster.get((namespace, cluster), ()) if one.kind not in strange]
        own = key_of(resource)
        return (
            *(found for one in near if one != own and (found := self.get(one)) is not None),
            *self.of_kind(STORAGE_CLASS.kind),
        )

    def _rivals(self, resource: Manifest) -> Iterator[Manifest]:
        """Those with the same claim, and for groups the Subjects that they all refer to."""
        own, subjects = key_of(resource), dict[Key, None]()
        for key in (own, *self._claims.get(claim_of(resource), ())):
            found = self.get(key) if key != own else resource
            if found is None:
                continue
            if key != own:
                yield found
            if (referred := _referred(found)) is not None:
                subjects[Key(SUBJECT.kind, *referred)] = None
        yield from (found for key in subjects if (found := self.get(key)) is not None)
        if (
            own.kind == CONSUMER_GROUP.kind
            and (scaler := self.get(own._replace(kind=SCALED_OBJECT.kind))) is not None
        ):
            yield scaler

    def _pipeline(self, resource: Manifest) -> Iterator[Manifest]:
        """Of an Archive or a Replay: what runs for it, Subjects, and Archives."""
        metadata = marks.metadata(resource)
        near = self._of_cluster.get((metadata.get("namespace", ""), marks.cluster_of(resource)), ())
        for key in near:
            found = self.get(key)
            if found is None:
                continue
            runs = key.kind in SPARKS and marks.label(found, PIPELINES[resource["kind"]]) == metadata["name"]
            if runs or key.kind in {SUBJECT.kind, ARCHIVE.kind}:
                yield found

    # -- who looks ---------------------------------------------------------------------------------------------

    def _woken(self, key: Key, resource: Manifest) -> tuple[Key, ...]:
        own = (key,) if key.kind in OUR_KINDS else ()
        return (*own, *self._readers(key, resource), *self._sources(key, resource))

    def _sources(self, key: Key, resource: Manifest) -> tuple[Key, ...]:
        """Who copies from this, or reads the copy: they look at its spec and labels, and not at its status."""
        readers = {SUBJECT.kind: ARCHIVE.kind, ARCHIVE.kind: REPLAY.kind}
        near = self._of_cluster.get((key.namespace, marks.cluster_of(resource)), ())
        return tuple(one for one in near if one.kind == readers.get(key.kind))

    def _readers(self, key: Key, resource: Manifest) -> tuple[Key, ...]:
        """Who decides by what this object says, its status included."""
        match key.kind:
            case QUEUE_CLUSTER.kind:
                return tuple(
                    one
                    for one in self._of_cluster.get((key.namespace, key.name), ())
                    if one.kind in OUR_KINDS
                )
            case BROKER_GROUP.kind:
                return self._runners(key.namespace, marks.cluster_of(resource))
            case SUBJECT.kind:
                near = self._claims.get(claim_of(resource), ())
                return (*near, *self._references.get((key.namespace, key.name), ()))
            case CONSUMER_GROUP.kind:
                return tuple(self._claims.get(claim_of(resource), ()))
            case SCALED_OBJECT.kind:
                scaled = key._replace(kind=CONSUMER_GROUP.kind)
                return (scaled,) if self.get(scaled) is not None else ()
            case SPARK_APPLICATION.kind | SPARK_SCHEDULE.kind:
                named = ((kind, marks.label(resource, label)) for kind, label in PIPELINES.items())
                keys = (Key(kind, key.namespace, name) for kind, name in named if name)
                return tuple(one for one in keys if self.get(one) is not None)
            case ARCHIVE.kind | REPLAY.kind | GRANT.kind:
                return ()
            case STORAGE_CLASS.kind:
                return tuple(self.keys((BROKER_GROUP.kind,)))
            case _:
                return self._runners(key.namespace, belongs_to(resource))

    def _runners(self, namespace: str, cluster: str) -> tuple[Key, ...]:
        """A QueueCluster and its broker groups."""
        near = self._of_cluster.get((namespace, cluster), ())
        groups = [one for one in near if one.kind == BROKER_GROUP.kind]
        own = Key(QUEUE_CLUSTER.kind, namespace, cluster)
        return (*([own] if self.get(own) is not None else []), *groups)

    def _is_kept(self, resource: Manifest) -> bool:
        kind = resource["kind"]
        return kind in OUR_KINDS or kind == STORAGE_CLASS.kind or bool(belongs_to(resource))

    def _link(self, key: Key, resource: Manifest) -> None:
        for index, entry in self._places(key, resource):
            index[entry][key] = None

    def _unlink(self, key: Key, resource: Manifest) -> None:
        for index, entry in self._places(key, resource):
            index[entry].pop(key, None)
            if not index[entry]:
                del index[entry]

    def _places(self, key: Key, resource: Manifest) -> Iterator[tuple[dict[Any, dict[Key, None]], Any]]:
        ours = key.kind in OUR_KINDS
        cluster = marks.cluster_of(resource) if ours else belongs_to(resource)
        if cluster:
            yield self._of_cluster, (key.namespace, cluster)
        if key.kind in {SUBJECT.kind, CONSUMER_GROUP.kind}:
            yield self._claims, claim_of(resource)
        if (referred := _referred(resource)) is not None:
            yield self._references, referred


def _referred(resource: Manifest) -> tuple[str, str] | None:
    """Namespace and name of the Subject that a ConsumerGroup refers to."""
    reference = marks.spec(resource).get("subjectRef") if resource["kind"] == CONSUMER_GROUP.kind else None
    return (marks.metadata(resource).get("namespace", ""), reference["name"]) if reference else None


def _told(resource: Manifest) -> object:
    """What others read in the status of one of our kinds. Of a cluster that is where its meta is: thousands read it."""
    status = marks.status(resource)
    return marks.part(status, "meta").get("endpoint") if resource["kind"] == QUEUE_CLUSTER.kind else status


def service_of(cluster: Manifest) -> Key:
    """The Service of a QueueCluster's meta."""
    metadata = marks.metadata(cluster)
    return Key(SERVICE.kind, str(metadata.get("namespace", "")), meta_name(str(metadata.get("name", ""))))


def endpoint_of(cluster: Manifest, service: Manifest | None) -> str:
    """Where the meta of a QueueCluster listens, as ``host:port``; empty as long as its Service is not there, or is
    somebody else's. What the cluster's status says of it others may have written.
    """
    key = service_of(cluster)
    if (
        service is None
        or key_of(service) != key
        or controller_of(service) != marks.metadata(cluster).get("uid")
    ):
        return ""
    return f"{meta_host(str(marks.metadata(cluster)['name']), key.namespace)}:{META_PORT}"


def _sum(resource: Manifest) -> bytes:
    """Everything that its own planner looks at, but for what the operator writes into the status of our kinds."""
    metadata = {
        name: value
        for name, value in marks.metadata(resource).items()
        if name not in {"resourceVersion", "generation"}
    }
    said = {name: value for name, value in resource.items() if name != "metadata"}
    if resource["kind"] in OUR_KINDS:
        said.pop("status", None)
    return hashlib.sha256(json.dumps([metadata, said], sort_keys=True).encode()).digest()
