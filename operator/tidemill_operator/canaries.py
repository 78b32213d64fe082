"""The canary of a QueueCluster: whether there is to be one, what is written for it, and how it stands.

    not asked for                     what there was of it is deleted
    a name is somebody else's         says so, and writes nothing of it
    the cluster would ask who it is,
    and it could not say              says so, and writes nothing of it
    else                              is written, and says whether its pod is ready: it is when it sends and may

What becomes of it is nobody else's business: a cluster is ready without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from tidemill_operator.conditions import CANARY_READY
from tidemill_operator.desired.canary import COMPONENT, around, is_nobody, pods_of, workload
from tidemill_operator.desired.wanted import Canary, Cluster
from tidemill_operator.desired.workloads import choose
from tidemill_operator.kinds import DEPLOYMENT, GRANT, SERVICE, SERVICE_ACCOUNT
from tidemill_operator.marks import COMPONENT_LABEL, goes, label, part
from tidemill_operator.names import canary_name, controller_of, deletion_of, owner_of
from tidemill_operator.steps import Apply, Condition, Manifest, Seen, Step

Status: TypeAlias = Literal["True", "False", "Unknown"]
MADE = (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, GRANT)
"""Of it; network policies are taken away with those of meta."""


class Wish(NamedTuple):
    """What a cluster wants of its canary."""

    steps: tuple[Step, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    """What is to be there beside the workload."""
    conditions: tuple[Condition, ...] = ()


def canary_of(seen: Seen, cluster: Cluster) -> Wish:
    """See the module."""
    canary = cluster.canary
    if canary is None:
        return Wish(_deletions(seen, ()))
    if is_nobody(canary):
        sentence = (
            "the cluster asks who somebody is, and its canary could not say: write security.serviceAccounts, or name "
            "in canary.token a Secret with a token of its own"
        )
        return Wish(_deletions(seen, ()), conditions=(_said("False", "Unsupported", sentence),))
    others = around(cluster, canary, owner_of(seen.resource))
    rival = _rival(seen, cluster, others)
    if rival:
        return Wish(conditions=(_said("False", "ResourceConflict", rival),))
    there = _workload(seen, cluster)
    made = pods_of(cluster, canary)
    chosen = choose(made, canary.inputs, canary.pods.restart_at, there, supervised=cluster.supervised)
    wanted = workload(cluster, owner_of(seen.resource), chosen.template, chosen.annotations)
    steps = (*(Apply(one) for one in (*others, wanted)), *_deletions(seen, (*others, wanted)))
    return Wish(steps, others, (_standing(there if chosen.is_on(there) else None, canary, cluster),))


def _deletions(seen: Seen, wanted: Sequence[Manifest]) -> tuple[Step, ...]:
    """Of what the operator made for a canary, and is not wanted."""
    names = {(one["kind"], one["metadata"]["name"]) for one in wanted}
    return tuple(
        deletion_of(kind, one)
        for kind in MADE
        for one in seen.of(kind.kind)
        if label(one, COMPONENT_LABEL) == COMPONENT
        and controller_of(one) == seen.resource["metadata"]["uid"]
        and (kind.kind, one["metadata"]["name"]) not in names
        and not goes(one)
    )


def _rival(seen: Seen, cluster: Cluster, others: Sequence[Manifest]) -> str:
    """Whether somebody else has what it would write: a broker group called `canary`, or a Grant that people wrote."""
    names = {(one["kind"], one["metadata"]["name"]) for one in others}
    names.add((DEPLOYMENT.kind, canary_name(cluster.name)))
    for one in seen.objects:
        kind, name = one["kind"], one["metadata"]["name"]
        if (kind, name) in names and controller_of(one) != seen.resource["metadata"]["uid"]:
            return f"the {kind} {name} is somebody else's: give that another name, or do without a canary"
    return ""


def _workload(seen: Seen, cluster: Cluster) -> Manifest | None:
    name = canary_name(cluster.name)
    return next((one for one in seen.of(DEPLOYMENT.kind) if one["metadata"]["name"] == name), None)


def _standing(there: Manifest | None, canary: Canary, cluster: Cluster) -> Condition:
    status = part(there, "status")
    if (
        there is not None
        and status.get("observedGeneration") == there["metadata"].get("generation")
        and status.get("updatedReplicas", 0) >= 1
        and status.get("readyReplicas", 0) >= 1
    ):
        return _said("True", "Reconciled", f"a probe every {canary.interval_ms} ms through each broker group")
    name = canary_name(cluster.name)
    return _said(
        "Unknown", "Progressing", f"its pod is not ready: `kubectl logs deployment/{name}` says why not"
    )


def _said(status: Status, reason: str, message: str) -> Condition:
    return Condition(CANARY_READY, status, reason, message)
