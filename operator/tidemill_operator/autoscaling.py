"""How many consumers a group should have: what an autoscaler is told, and the ScaledObject that makes it ask.

KEDA asks the operator's own HTTP port with its ``metrics-api`` trigger, which needs nothing to be installed beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill_operator import marks
from tidemill_operator.kinds import SCALED_OBJECT
from tidemill_operator.names import owner_of
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


def recommended(autoscaling: Mapping[str, Any], lag: int) -> int:
    """Replicas for so much that waits."""
    least, most = autoscaling.get("minReplicas", 1), autoscaling.get("maxReplicas", 50)
    if lag <= 0:
        return int(autoscaling.get("idleReplicas", least))
    wanted = -(-lag // max(1, autoscaling.get("lagPerReplica", 1000)))
    return int(max(least, 1, min(most, wanted)))


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
                "valueLocation": "lag",
                "targetValue": str(wanted.get("lagPerReplica", 1000)),
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
