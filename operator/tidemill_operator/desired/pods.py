"""A pod of ours: what is the same for meta, brokers and delay services, and what people may choose of it.

It passes the restricted Pod Security Standard whatever a spec says: of its blocks only the fields named here are taken,
so nobody gets by the operator's rights what the namespace would refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill_operator.desired.locks import Files, of_service, to_review
from tidemill_operator.desired.wanted import Pods
from tidemill_operator.marks import COMPONENT_LABEL, INSTANCE_LABEL, RESTART_AT, part
from tidemill_operator.steps import Manifest

USER = 10_001
"""Of the image; named here, for Kubernetes cannot see that a name is not root's."""
DATA, DATA_FOLDER = "/data", "/data/tidemill"
"""The folder is below the volume's root, which has what file systems keep for themselves."""
TMP_SIZE = "64Mi"
STOP_SECONDS = 2
"""Who is told that a pod goes needs a moment to hear so, and the process serves on meanwhile."""
OUTLIVES_SECONDS = 8
"""Who is evicted from a node together with meta needs meta to say goodbye: to hand over, and be succeeded. Meta serves
on for so long, as its Service leads to one that ends where no other is.
"""
STARTUP_SECONDS = 900
"""A broker reads its logs before it answers: a slow disk with much on it takes minutes, and is not to be killed."""

SCHEDULING = ("nodeSelector", "tolerations", "priorityClassName")
OWN_WEIGHT, OTHER_WEIGHT = 100, 1
"""A node with many pods of another kind is still better than one with a pod of the same."""
ZONES, NODES = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Process:
    """What runs in a pod."""

    name: str
    command: tuple[str, ...]
    ports: Mapping[str, int]
    """By name; ``page`` answers probes."""
    environment: tuple[Manifest, ...]
    settings: str
    """The ConfigMap with the rest of its environment; empty: there is none."""
    account: str
    keeps_data: bool = True
    stop_seconds: int = STOP_SECONDS
    """For which it serves on when its pod is told to go."""
    avoids: tuple[str, ...] = ()
    """Components of its cluster on whose nodes it would rather not be: what takes one of them leaves the other."""
    page: str = "http"
    has: tuple[Files, ...] | None = None
    """Of a program that asks the queue and serves nobody: what it has of its locks, and its page is in clear. None: it
    is a service.
    """


def template(
    process: Process, pods: Pods, selector: Mapping[str, str], labels: Mapping[str, str]
) -> dict[str, Any]:
    """What a workload makes pods of. Nothing in it is of the operator's version, or of an address that changes."""
    scheduling = part(pods.said, "scheduling")
    how = str(scheduling.get("spread", "Preferred"))
    apart, away = spread(how, selector), _apart(how, process, selector)
    secrets = [{"name": one} for one in pods.image.pull_secrets]
    annotations = {RESTART_AT: pods.restart_at} if pods.restart_at else {}
    spec = {
        "serviceAccountName": process.account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": pods.grace_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(process, pods)],
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": TMP_SIZE}},
            *(one for files in _files(process, pods) for one in files.volumes),
        ],
    }
    # What is empty is not sent: the API server does not keep it, and it would be sent again and again.
    spec |= {"topologySpreadConstraints": apart} if apart else {}
    spec |= {"affinity": away} if away else {}
    spec |= {"imagePullSecrets": secrets} if secrets else {}
    spec |= {name: scheduling[name] for name in SCHEDULING if scheduling.get(name)}
    return {
        "metadata": {"labels": dict(labels)} | ({"annotations": annotations} if annotations else {}),
        "spec": spec,
    }


def _container(process: Process, pods: Pods) -> dict[str, Any]:
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108  # the pod's own, of 64 MiB
    mounts += [{"name": "data", "mountPath": DATA}] if process.keeps_data else []
    files = _files(process, pods)
    mounts += [dict(one) for each in files for one in each.mounts]
    scheme = "HTTPS" if pods.locks.tls and process.has is None else "HTTP"
    page = (process.page, scheme)
    found: dict[str, Any] = {
        "name": process.name,
        "image": pods.image.reference,
        "imagePullPolicy": pods.image.pull_policy,
        "command": list(process.command),
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in process.ports.items()
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
        "startupProbe": _probe(page, "/healthz", 2, STARTUP_SECONDS // 2),
        "readinessProbe": _probe(page, "/readyz", 2, 3),
        "livenessProbe": _probe(page, "/healthz", 10, 6),
        "lifecycle": {"preStop": {"sleep": {"seconds": process.stop_seconds}}},
    }
    environment = [*process.environment, *(one for each in files for one in each.environment)]
    if environment:
        found["env"] = environment
    if part(pods.said, "resources"):
        found["resources"] = dict(part(pods.said, "resources"))
    if process.settings:
        found["envFrom"] = [{"configMapRef": {"name": process.settings}}]
    return found


def _files(process: Process, pods: Pods) -> tuple[Files, ...]:
    return (of_service(pods.locks), to_review(pods.locks)) if process.has is None else process.has


def _probe(page: tuple[str, str], path: str, period_seconds: int, failures: int) -> dict[str, Any]:
    """A broker that becomes another one closes its port for some tenths of a second: one failure says nothing. By TLS
    the kubelet looks at no name, and shows no certificate.
    """
    port, scheme = page
    return {
        "httpGet": {"path": path, "port": port, "scheme": scheme},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def spread(how: str, selector: Mapping[str, str]) -> list[dict[str, Any]]:
    """Zones first, then nodes; a cluster that has one of them runs it all the same, unless somebody said Required."""
    if how == "None":
        return []
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule" if (how, key) == ("Required", NODES) else "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(selector)},
        }
        for key in (ZONES, NODES)
    ]


def _apart(spread: str, process: Process, selector: Mapping[str, str]) -> dict[str, Any]:
    """Preferred, never required: one node runs all of it. The scheduler weighs a spread like any other wish; of its own
    kind a pod keeps away above all, and of what it avoids only where that costs nothing of this.
    """
    if spread == "None":
        return {}
    terms = [_away(OWN_WEIGHT, {"matchLabels": dict(selector)})]
    if process.avoids:
        of = {"key": COMPONENT_LABEL, "operator": "In", "values": list(process.avoids)}
        of_cluster = {INSTANCE_LABEL: selector[INSTANCE_LABEL]}
        terms.append(_away(OTHER_WEIGHT, {"matchLabels": of_cluster, "matchExpressions": [of]}))
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def _away(weight: int, selector: dict[str, Any]) -> dict[str, Any]:
    return {"weight": weight, "podAffinityTerm": {"topologyKey": NODES, "labelSelector": selector}}


def from_field(name: str, path: str) -> dict[str, Any]:
    """A variable that the pod tells of itself."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
