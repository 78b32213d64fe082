"""What the operator may do in Kubernetes: one list, of which the chart's roles are made, and nothing beyond it.

Namespaced, each namespace has a Role with ``NAMESPACED``; cluster-wide a ClusterRole has both lists.
Of Secrets those are read that a QueueCluster or a Grant names, one by one: none is listed or watched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill_wire.declarations import API_VERSION

GROUP = API_VERSION.partition("/")[0]
LOOK = ("get", "list", "watch")
KEEP = (*LOOK, "create", "patch", "delete")
"""A server-side apply of something that is not there wants both ``create`` and ``patch``."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of a role, and what it is for."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str

    def to_map(self) -> dict[str, Any]:
        return {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}


NAMESPACED = (
    Rule(
        GROUP,
        ("queueclusters", "subjects", "consumergroups", "archives", "replays"),
        (*LOOK, "patch"),
        "watch, finalizers, commands",
    ),
    Rule(GROUP, ("brokergroups",), KEEP, "a QueueCluster may say its broker groups itself"),
    Rule(GROUP, ("grants",), KEEP, "as the others; and the canary of a QueueCluster needs one"),
    Rule(
        GROUP,
        (
            "queueclusters/status", "brokergroups/status", "subjects/status", "consumergroups/status",
            "archives/status", "replays/status", "grants/status",
        ),
        ("get", "patch"),
        "conditions",
    ),
    Rule(
        GROUP,
        (
            "queueclusters/finalizers", "brokergroups/finalizers", "consumergroups/finalizers",
            "archives/finalizers", "replays/finalizers",
        ),
        ("update",),
        "children that block their owner's deletion, where the API server asks for it",
    ),
    Rule("", ("services", "configmaps", "serviceaccounts"), KEEP, "of meta, broker groups and canaries"),
    Rule("", ("secrets",), ("get",), "certificates and tokens, by the names that QueueClusters and Grants say"),
    Rule("", ("pods",), (*LOOK, "patch", "delete"), "roles as labels; one broker at a time is replaced"),
    Rule("", ("persistentvolumeclaims",), (*LOOK, "patch", "delete"), "growth; deletion where the policy says so"),
    Rule("apps", ("statefulsets", "deployments"), KEEP, "brokers, meta and canaries"),
    Rule("policy", ("poddisruptionbudgets",), KEEP, "drains of nodes take one broker at a time"),
    Rule("networking.k8s.io", ("networkpolicies",), KEEP, "who may speak with meta and brokers"),
    Rule("coordination.k8s.io", ("leases",), ("get", "create", "update"), "one operator at a time"),
    Rule("events.k8s.io", ("events",), ("create", "patch"), "what a person reads with kubectl describe"),
    Rule("keda.sh", ("scaledobjects",), (*LOOK, "create", "patch", "delete"), "autoscaling, where KEDA is"),
    Rule(
        "sparkoperator.k8s.io",
        ("sparkapplications", "scheduledsparkapplications"),
        KEEP,
        "archives and replays, where kubeflow's spark-operator is",
    ),
    Rule("", ("namespaces",), ("get",), "whether the namespace goes: then nothing is held back"),
)  # fmt: skip

CLUSTER = (
    Rule("storage.k8s.io", ("storageclasses",), LOOK, "whether volumes can grow"),
)  # fmt: skip
"""Of no namespace. Without these the operator does not know whether volumes can grow, and lets the API server say."""
