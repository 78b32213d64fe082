"""What a QueueCluster and a BrokerGroup ask for, as values: the border between what the API server keeps and what
manifests are made of. The server has proved the schema; what it cannot see is refused here with a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

from tidemill_operator.desired.locks import OPEN, Locks, SecretKey, parse_locks
from tidemill_operator.marks import RESTART_AT, annotation, part, rows
from tidemill_operator.names import (
    GROUP_NAME,
    broker_name,
    digest,
    group_name,
    group_object_name,
    workload_name,
)
from tidemill_operator.steps import Manifest

SLAVES_MAX = 4
GRACE_SECONDS = 60
META_SIZE, GROUP_SIZE = "1Gi", "10Gi"
PROBE_MS = 500
Service: TypeAlias = Literal["broker", "delay"]
SERVICES: Mapping[str, Service] = {"Realtime": "broker", "Delay": "delay"}
TAKES = {"ReadWrite": "RW", "ReadOnly": "R", "Offline": "NRW"}

POD_FIELDS = ("resources", "scheduling", "terminationGracePeriodSeconds")
"""What pods are made of, of a spec; all else can change without a new pod."""
DEFAULTS: Mapping[str, object] = {
    "spread": "Preferred", "operator": "Equal", "pullPolicy": "IfNotPresent",
    "terminationGracePeriodSeconds": GRACE_SECONDS,
}  # fmt: skip
"""What the API server writes where nobody said anything. It counts as nothing said: a field that a later schema adds,
with its default, is nobody's wish for new pods.
"""


class SpecError(Exception):
    """A spec that cannot be; one sentence, with what to write instead."""


@dataclass(frozen=True, slots=True)
class Image:
    """What pods run."""

    reference: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Storage:
    """A volume for each pod, and what becomes of it."""

    size: str
    class_name: str | None = None
    when_deleted: str = "Retain"
    when_scaled: str = "Retain"


@dataclass(frozen=True, slots=True)
class Pods:
    """The parts of a pod that people may choose: no field of it gives more rights."""

    image: Image
    said: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The rest, as the spec has it; ``pods.py`` takes from it what it knows."""
    grace_seconds: int = GRACE_SECONDS
    restart_at: str = ""
    locks: Locks = OPEN


@dataclass(frozen=True, slots=True)
class Canary:
    """What looks at a cluster."""

    pods: Pods
    interval_ms: int
    token: SecretKey | None
    """Its own, where it has no other way to say who it is."""
    inputs: str
    """As a cluster's, of its own pod."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A QueueCluster."""

    name: str
    namespace: str
    meta_replicas: int
    meta_database: Mapping[str, str] | None
    """The secret's name and key where PostgreSQL's address stands; None: SQLite on a volume."""
    meta_storage: Storage
    meta_pods: Pods
    meta_settings: Mapping[str, str]
    groups: tuple[Mapping[str, Any], ...]
    """Its own list of broker groups."""
    generates: frozenset[str]
    """Which of ``networkPolicy`` and ``podDisruptionBudget`` are made."""
    clients: str
    """From where clients may come: SameNamespace or AnyNamespace."""
    supervised: bool
    delay_ms: int
    """Between two groups that roll."""
    canary: Canary | None
    inputs: str
    """A hash of all that people said and meta's pods are made of; nothing in it is of the operator."""


@dataclass(frozen=True, slots=True)
class Group:
    """A BrokerGroup, of brokers or of delay services."""

    name: str
    """The object's."""
    namespace: str
    cluster: str
    group: str
    """As meta knows it."""
    service: Service
    slaves: int
    storage: Storage
    pods: Pods
    settings: Mapping[str, str]
    labels: Mapping[str, str]
    durability: str
    takes: str
    generates: frozenset[str]
    clients: str
    supervised: bool
    """New pods only when a person says so, by an annotation."""
    inputs: str
    """As a cluster's."""

    @property
    def workload(self) -> str:
        return workload_name(self.name)

    @property
    def replicas(self) -> int:
        return 1 + self.slaves

    def broker(self, ordinal: int) -> str:
        return broker_name(self.group, ordinal)


def parse_cluster(resource: Manifest, image: str) -> Cluster:
    """``image``: what is run where the spec names nothing."""
    spec, metadata = part(resource, "spec"), resource["metadata"]
    meta, update = part(spec, "meta"), part(spec, "update")
    replicas, database = int(meta.get("replicas", 1)), _database(part(meta, "store"))
    if database is None and replicas != 1:
        raise SpecError(
            f"spec.meta.replicas is {replicas}, and SQLite is for one: write 1, or store.type PostgreSQL"
        )
    restart_at, settings, locks = annotation(resource, RESTART_AT), settings_of(meta), parse_locks(resource)
    inputs = [said(part(spec, "image")), _pod_inputs(meta), settings, database, restart_at]
    # Meta is told that there is one, and nothing else of it.
    canary = _canary(spec, image, restart_at, locks)
    return Cluster(
        metadata["name"],
        metadata["namespace"],
        replicas,
        database,
        _storage(part(meta, "storage"), META_SIZE),
        Pods(_image(spec, image), meta, restart_at=restart_at, locks=locks),
        settings,
        tuple(rows(spec, "brokerGroups")),
        _generates(spec),
        _clients(spec),
        update.get("strategy") == "Supervised",
        int(update.get("groupDelaySeconds", 0)) * 1000,
        canary,
        digest([*inputs, *([locks.inputs] if locks != OPEN else []), *(["canary"] if canary else [])]),
    )


def _canary(spec: Mapping[str, Any], image: str, restart_at: str, locks: Locks) -> Canary | None:
    asked = part(spec, "canary")
    if not asked.get("enabled"):
        return None
    named, interval_ms = part(asked, "token"), int(asked.get("intervalMilliseconds", PROBE_MS))
    token = SecretKey(str(named["name"]), str(named["key"])) if named else None
    inputs = [said(part(spec, "image")), _pod_inputs(asked), interval_ms, token, restart_at, locks.inputs]
    pods = Pods(_image(spec, image), asked, restart_at=restart_at, locks=locks)
    return Canary(pods, interval_ms, token, digest(inputs))


def parse_group(resource: Manifest, cluster: Manifest, image: str) -> Group:
    """A group as it is with what its cluster says for all of them."""
    spec, whole, metadata = part(resource, "spec"), part(cluster, "spec"), resource["metadata"]
    name = group_name(resource)
    if not GROUP_NAME.fullmatch(name):
        raise SpecError(
            f"the broker group's name is {name[:60]!r}: write in spec.groupName 1 to 30 lower-case letters and digits, "
            "for in a broker's name a dash follows its group"
        )
    slaves = int(spec.get("slaves", 1))
    if not 0 <= slaves <= SLAVES_MAX:
        raise SpecError(f"spec.slaves is {slaves}: write 0 to {SLAVES_MAX}")
    restart_at = max(annotation(resource, RESTART_AT), annotation(cluster, RESTART_AT))
    settings, labels = settings_of(spec), {str(k): str(v) for k, v in part(spec, "labels").items()}
    durability = str(spec.get("durability") or ("normal" if slaves else "high"))
    # Only meta asks Kubernetes who somebody is.
    locks = replace(parse_locks(cluster), audience="")
    inputs = [
        name,
        _kind_of(resource),
        said(part(whole, "image")),
        _pod_inputs(spec),
        settings,
        labels,
        durability,
        restart_at,
        *([locks.inputs] if locks != OPEN else []),
    ]
    return Group(
        metadata["name"],
        metadata["namespace"],
        cluster["metadata"]["name"],
        name,
        service_of(resource),
        slaves,
        _storage(part(spec, "storage"), GROUP_SIZE),
        Pods(
            _image(whole, image),
            spec,
            int(spec.get("terminationGracePeriodSeconds", GRACE_SECONDS)),
            restart_at,
            locks,
        ),
        settings,
        labels,
        durability,
        TAKES[str(spec.get("writeAvailability", "ReadWrite"))],
        _generates(whole),
        _clients(whole),
        part(whole, "update").get("strategy") == "Supervised",
        digest(inputs),
    )


def service_of(broker_group: Manifest) -> Service:
    """What its pods run."""
    return SERVICES[_kind_of(broker_group)]


def _kind_of(broker_group: Manifest) -> str:
    return str(part(broker_group, "spec").get("kind", "Realtime"))


def group_manifests(cluster: Cluster) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Names and specs of the BrokerGroups in a cluster's list."""
    return tuple(
        (
            group_object_name(cluster.name, str(row["name"])),
            {"clusterRef": {"name": cluster.name}, "groupName": row["name"]}
            | {key: value for key, value in row.items() if key != "name"},
        )
        for row in cluster.groups
    )


def settings_of(spec: Mapping[str, Any]) -> dict[str, str]:
    """Rows of ``config`` that have a value."""
    return {
        str(one["name"]): str(one["value"]) for one in rows(spec, "config") if one.get("value") is not None
    }


def said(block: Any) -> Any:
    """What somebody said in a block: without what is empty, and without what the API server adds."""
    if isinstance(block, Mapping):
        pairs = ((key, said(value)) for key, value in cast("Mapping[str, Any]", block).items())
        return {
            key: value for key, value in pairs if value not in ({}, [], None) and DEFAULTS.get(key) != value
        }
    if isinstance(block, (list, tuple)):
        return [said(one) for one in cast("Sequence[Any]", block)]
    return block


def _image(spec: Mapping[str, Any], default: str) -> Image:
    named = part(spec, "image")
    repository, _, tag = default.rpartition(":")
    repository, tag = str(named.get("repository") or repository), str(named.get("tag") or tag)
    if not repository or not tag:
        raise SpecError("no image is named: write repository and tag in the QueueCluster's spec.image")
    secrets = tuple(str(one) for one in rows(named, "pullSecrets"))
    return Image(f"{repository}:{tag}", str(named.get("pullPolicy", "IfNotPresent")), secrets)


def _pod_inputs(spec: Mapping[str, Any]) -> Any:
    return said({name: spec.get(name) for name in POD_FIELDS})


def _storage(said: Mapping[str, Any], size: str) -> Storage:
    retention = part(said, "retention")
    return Storage(
        str(said.get("size", size)),
        said.get("className"),
        str(retention.get("whenDeleted", "Retain")),
        str(retention.get("whenScaled", "Retain")),
    )


def _database(store: Mapping[str, Any]) -> Mapping[str, str] | None:
    if store.get("type", "SQLite") == "SQLite":
        return None
    secret = part(store, "secretRef")
    if not secret.get("name") or not secret.get("key"):
        raise SpecError(
            "spec.meta.store.secretRef is missing: write name and key of the Secret with the PostgreSQL's address"
        )
    return {"name": str(secret["name"]), "key": str(secret["key"])}


def _clients(spec: Mapping[str, Any]) -> str:
    return str(part(spec, "networkPolicy").get("clients", "SameNamespace"))


def _generates(spec: Mapping[str, Any]) -> frozenset[str]:
    names = ("networkPolicy", "podDisruptionBudget")
    return frozenset(one for one in names if part(spec, one).get("mode", "Generate") == "Generate")
