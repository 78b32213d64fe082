"""The ScaledObject of a ConsumerGroup, and what its spec wants of the rule in ``scaling.py``.

KEDA asks the operator's own HTTP port with its ``metrics-api`` trigger, which needs nothing to be installed beside it.
The metric is how many consumers there should be, and its target is 1; it is 0 where nobody is needed, which is what
KEDA takes for idle.
"""

from __future__ import annotations

from typing import Any

from tidemill_operator import marks
from tidemill_operator.kinds import SCALED_OBJECT
from tidemill_operator.names import owner_of
from tidemill_operator.scaling import Advice, Wanted
from tidemill_operator.steps import Manifest

BUCKETS = (1, 2, 5)


def bucket(count: int) -> int:
    """A count so coarse that a status which says it is seldom written: 1, 2, 5, 10, 20, 50 and so on, or 0."""
    if count <= 0:
        return 0
    scale = 10 ** (len(str(count)) - 1)
    return int(max(one * scale for one in BUCKETS if one * scale <= count))


def path_of(resource: Manifest) -> str:
    metadata = marks.metadata(resource)
    return f"/v1/scaling/{metadata.get('namespace', '')}/{metadata['name']}"


def wanted_of(resource: Manifest) -> Wanted:
    """What is said with ``autoscaling``, with the defaults of its declaration."""
    said = marks.part(resource, "spec", "autoscaling")
    least, most = int(said.get("minReplicas", 1)), int(said.get("maxReplicas", 50))
    idle = said.get("idleReplicas")
    each = int(said.get("lagPerReplica", 1000))
    return Wanted(
        least=least, most=max(least, most), undone_each=each, idle=None if idle is None else int(idle)
    )


def said_of(advice: Advice) -> dict[str, Any]:
    """As the HTTP port says it; what nobody knows yet is null, and so is ``drainsInSeconds`` when it never will."""
    return {
        "undone": advice.undone,
        "consumers": advice.consumers,
        "arrivesPerSecond": advice.arrives,
        "handledPerSecond": advice.handled,
        "drainsInSeconds": advice.drains_in_s,
        "drains": _course(advice),
        "replicas": advice.replicas,
    }


def _course(advice: Advice) -> str:
    if advice.arrives is None:
        return "unknown: it was looked at once; ask again after five seconds"
    if advice.drains_in_s is None:
        return "never: no more is handled than arrives"
    return "done" if not advice.undone else "draining"


def scaled_object(resource: Manifest, address: str) -> dict[str, Any]:
    """The ScaledObject of a group with ``autoscaling.mode: Keda``; it goes with the group."""
    metadata, wanted = marks.metadata(resource), marks.spec(resource)["autoscaling"]
    spec = {
        "scaleTargetRef": dict(wanted["scaleTargetRef"]),
        "minReplicaCount": wanted.get("minReplicas", 1),
        "maxReplicaCount": wanted.get("maxReplicas", 50),
        "triggers": [{
            "type": "metrics-api",
            "metricType": "AverageValue",
            "metadata": {
                "url": f"{address}{path_of(resource)}",
                "valueLocation": "replicas",
                "targetValue": "1",
            },
        }],
    }  # fmt: skip
    if "idleReplicas" in wanted:
        spec["idleReplicaCount"] = wanted["idleReplicas"]
    return {
        **SCALED_OBJECT.header,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata.get("namespace", ""),
            "labels": {marks.MANAGER_LABEL: marks.MANAGER, marks.CLUSTER_LABEL: marks.cluster_of(resource)},
            "ownerReferences": [owner_of(resource)],
        },
        "spec": spec,
    }  # fmt: skip
