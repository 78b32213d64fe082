"""The kinds of Kubernetes objects that the operator knows, and where the API server keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill_wire.declarations import API_VERSION


@dataclass(frozen=True, slots=True)
class Kind:
    """A row: what manifests call it, and what addresses do."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group; empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def full(self) -> str:
        return f"{self.api_version}/{self.kind}"

    @property
    def header(self) -> dict[str, str]:
        """How its manifests begin."""
        return {"apiVersion": self.api_version, "kind": self.kind}

    def path(self, namespace: str = "", name: str = "") -> str:
        """Of one object, or of all in a namespace, or of all."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        within = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{within}/{self.plural}" + (f"/{name}" if name else "")


QUEUE_CLUSTER = Kind(API_VERSION, "QueueCluster", "queueclusters")
BROKER_GROUP = Kind(API_VERSION, "BrokerGroup", "brokergroups")
SUBJECT = Kind(API_VERSION, "Subject", "subjects")
CONSUMER_GROUP = Kind(API_VERSION, "ConsumerGroup", "consumergroups")
ARCHIVE = Kind(API_VERSION, "Archive", "archives")
REPLAY = Kind(API_VERSION, "Replay", "replays")
GRANT = Kind(API_VERSION, "Grant", "grants")

POD = Kind("v1", "Pod", "pods")
SERVICE = Kind("v1", "Service", "services")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SECRET = Kind("v1", "Secret", "secrets")
"""Asked for by name, and never watched."""
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
STATEFUL_SET = Kind("apps/v1", "StatefulSet", "statefulsets")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
STORAGE_CLASS = Kind("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False)
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
EVENT = Kind("events.k8s.io/v1", "Event", "events")
SCALED_OBJECT = Kind("keda.sh/v1alpha1", "ScaledObject", "scaledobjects")

SPARK_APPLICATION = Kind("sparkoperator.k8s.io/v1beta2", "SparkApplication", "sparkapplications")
SPARK_SCHEDULE = Kind(
    "sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication", "scheduledsparkapplications"
)

OURS = (QUEUE_CLUSTER, BROKER_GROUP, SUBJECT, CONSUMER_GROUP, ARCHIVE, REPLAY, GRANT)
"""What people write, and planners are for."""

WATCHED = (
    POD, SERVICE, CONFIG_MAP, SERVICE_ACCOUNT, CLAIM, STATEFUL_SET, DEPLOYMENT, DISRUPTION_BUDGET, NETWORK_POLICY
)  # fmt: skip
"""What we make of them, or what Kubernetes makes of that. Only what has our labels is kept."""

OPTIONAL = (SCALED_OBJECT, SPARK_APPLICATION, SPARK_SCHEDULE)
"""Kinds of others, which need not be there; where they are, they are watched as the others are. One that comes after
the operator began is looked at with every resync.
"""

KINDS: Mapping[str, Kind] = {
    one.full: one for one in (*OURS, *WATCHED, *OPTIONAL, NAMESPACE, STORAGE_CLASS, LEASE, EVENT, SECRET)
}
"""By their full names."""


def kind_of(api_version: str, kind: str) -> Kind:
    """The row of a manifest; a planner names no other kinds."""
    return KINDS[f"{api_version}/{kind}"]
