"""QueueCluster: meta, what stands around it, the broker groups of its list, and whose turn it is to roll.

It goes last: meta is there until no BrokerGroup names the cluster any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill_operator.broker_groups import ordered, pruned
from tidemill_operator.canaries import canary_of
from tidemill_operator.desired.meta import around, pods_of, workload
from tidemill_operator.desired.wanted import Cluster, SpecError, group_manifests, parse_cluster
from tidemill_operator.desired.workloads import choose
from tidemill_operator.kinds import BROKER_GROUP, CLAIM, DEPLOYMENT, STATEFUL_SET
from tidemill_operator.marks import cluster_of, condition_of, goes, moment, part, stopped, timestamp
from tidemill_operator.names import (
    META_PORT,
    claim_name,
    controller_of,
    deletion_of,
    labels_of,
    meta_host,
    meta_name,
    owner_of,
)
from tidemill_operator.rollout import ROLLED, ROLLING, TURN, rollout_of, ticket_of
from tidemill_operator.standing import DEGRADED
from tidemill_operator.steps import Apply, Condition, Hold, Manifest, Plan, Seen, Step
from tidemill_operator.volumes import enlarged, fixed_claims

LOOK_MS = 5_000


def plan(seen: Seen, now_ms: int) -> Plan:
    """The next steps for a QueueCluster."""
    ended = ordered(seen)
    if ended is not None:
        return ended
    if goes(seen.resource):
        return _going(seen)
    try:
        cluster = parse_cluster(seen.resource, seen.image)
        made = pods_of(cluster)
        owner = owner_of(seen.resource)
        others = around(cluster, owner)
    except SpecError as error:
        stalled = Condition("Stalled", "True", "InvalidSpec", str(error))
        return Plan((), (_ready("False", "InvalidSpec", str(error)), stalled))
    rival = _rival(seen, cluster, others)
    if rival:
        stalled = Condition("Stalled", "True", "ResourceConflict", rival)
        return Plan((), (_ready("False", "ResourceConflict", rival), stalled))
    meta = _meta(seen, cluster)
    chosen = choose(made, cluster.inputs, cluster.meta_pods.restart_at, meta, supervised=cluster.supervised)
    steps: list[Step] = [Hold(held=True), *(Apply(one) for one in others)]
    steps.append(Apply(workload(cluster, owner, chosen.template, chosen.annotations, fixed_claims(meta))))
    steps += _groups(seen, cluster)
    canary = canary_of(seen, cluster)
    steps += pruned(seen, (*others, *canary.manifests))
    steps += enlarged(seen, _claims(seen, cluster), cluster.meta_storage.size)[1]
    groups = _named(seen)
    # Meta that gets another template in this very pass is not well, though what was seen of it says so.
    rollout = _turn(seen, cluster, groups, meta if chosen.is_on(meta) else None, now_ms)
    waits = seen.meta is None or any(ticket_of(one)[0] for one in groups)
    conditions = (*_conditions(seen, cluster, groups, meta, rollout), *canary.conditions)
    steps += canary.steps  # last: what is refused of it is in nobody's way
    return Plan(
        tuple(steps), conditions, _status(cluster, groups, meta) | rollout, (), LOOK_MS if waits else None
    )


def _going(seen: Seen) -> Plan:
    """Deleted: its own broker groups go first, and those of others are waited for, for without meta none is emptied."""
    groups = _named(seen)
    if not groups:
        return Plan((Hold(held=False),), (_ready("Unknown", "Deleting", "it goes"),))
    own = [one for one in groups if controller_of(one) == seen.resource["metadata"]["uid"]]
    others = [one for one in groups if one not in own and not goes(one)]
    if others:
        names = ", ".join(one["metadata"]["name"] for one in others)
        blocked = _ready("False", "DeletionBlocked", f"broker groups name it: delete {names}, too")
        return Plan(tuple(_deleted(own)), (blocked,))
    names = ", ".join(one["metadata"]["name"] for one in groups)
    return Plan(tuple(_deleted(own)), (_ready("Unknown", "Deleting", f"waits for {names}"),))


def _named(seen: Seen) -> list[Manifest]:
    """The BrokerGroups that name this cluster."""
    name = seen.resource["metadata"]["name"]
    found = [one for one in seen.of(BROKER_GROUP.kind) if cluster_of(one) == name]
    return sorted(found, key=lambda one: str(one["metadata"]["name"]))


def _groups(seen: Seen, cluster: Cluster) -> list[Step]:
    """The BrokerGroups of the list; one that has left it is deleted, and empties itself."""
    owner = owner_of(seen.resource)
    wanted = dict(group_manifests(cluster))
    steps: list[Step] = [
        Apply(
            {
                **BROKER_GROUP.header,
                "metadata": {
                    "name": name,
                    "namespace": cluster.namespace,
                    "labels": labels_of(cluster.name, "broker"),
                    "ownerReferences": [owner],
                },
                "spec": dict(spec),
            }
        )
        for name, spec in wanted.items()
    ]
    own = [one for one in _named(seen) if controller_of(one) == owner["uid"]]
    return [*steps, *_deleted([one for one in own if one["metadata"]["name"] not in wanted])]


def _deleted(groups: Sequence[Manifest]) -> list[Step]:
    return [deletion_of(BROKER_GROUP, one) for one in groups if not goes(one)]


def _rival(seen: Seen, cluster: Cluster, others: Sequence[Manifest]) -> str:
    """Whether somebody else owns what this cluster would write."""
    uid = seen.resource["metadata"]["uid"]
    names = {(one["kind"], one["metadata"]["name"]) for one in others}
    names |= {(kind, meta_name(cluster.name)) for kind in (STATEFUL_SET.kind, DEPLOYMENT.kind)}
    names |= {(BROKER_GROUP.kind, name) for name, _ in group_manifests(cluster)}
    for one in seen.objects:
        name = one["metadata"]["name"]
        if (one["kind"], name) in names and controller_of(one) not in {"", uid}:
            return f"the {one['kind']} {name} belongs to somebody else: choose another name for this cluster"
    return ""


def _meta(seen: Seen, cluster: Cluster) -> Manifest | None:
    kind = (STATEFUL_SET if cluster.meta_database is None else DEPLOYMENT).kind
    name = meta_name(cluster.name)
    return next((one for one in seen.of(kind) if one["metadata"]["name"] == name), None)


def _claims(seen: Seen, cluster: Cluster) -> list[Manifest]:
    prefix = claim_name(meta_name(cluster.name), 0)[:-1]
    return [
        one
        for one in seen.of(CLAIM.kind)
        if one["metadata"]["name"].startswith(prefix) and one["metadata"]["name"][len(prefix) :].isdigit()
    ]


def _is_rolled(cluster: Cluster, meta: Manifest | None) -> bool:
    """Whether all of meta is ready, and of the template that is wanted."""
    status = part(meta, "status")
    return (
        meta is not None
        and status.get("observedGeneration") == meta["metadata"].get("generation")
        and status.get("readyReplicas", 0) >= cluster.meta_replicas
        and status.get("updatedReplicas", status.get("readyReplicas", 0)) >= cluster.meta_replicas
    )


def _turn(
    seen: Seen, cluster: Cluster, groups: Sequence[Manifest], meta: Manifest | None, now_ms: int
) -> dict[str, Any]:
    """Whose turn it is: the holder's until it says that it gave it back, or goes; else that of who says that it rolls,
    which this status has forgotten; else that of the group that has waited for longest, when meta is well, which has to
    say what may be done.
    """
    status = part(seen.resource, "status")
    current, last = dict(rollout_of(seen.resource)), status.get("lastRolloutTime")
    by_name = {str(one["metadata"]["name"]): one for one in groups if not goes(one)}
    holder = by_name.get(str(current.get("group", "")))
    if holder is not None and not _gave_back(holder):
        wanted, ticket = ticket_of(holder)
        current |= {"stage": f"{TURN} {ticket}"} if wanted else {}
        return {"rollout": current} | ({"lastRolloutTime": last} if last else {})
    if current:
        last = timestamp(now_ms)
    found: dict[str, Any] = {"lastRolloutTime": last} if last else {}
    rested = now_ms - (moment(last) or 0) >= cluster.delay_ms
    rolling = [one for one in by_name.values() if str(rollout_of(one).get("stage")).startswith(f"{ROLLING} ")]
    waiting = [one for one in by_name.values() if ticket_of(one)[0] and not stopped(one)]
    if rolling or (waiting and rested and _is_rolled(cluster, meta)):
        first = min(
            rolling or waiting,
            key=lambda one: (str(rollout_of(one).get("since", "")), one["metadata"]["name"]),
        )
        stage = f"{TURN} {ticket_of(first)[1]}"
        found["rollout"] = {"group": first["metadata"]["name"], "stage": stage, "since": timestamp(now_ms)}
    return found


def _gave_back(holder: Manifest) -> bool:
    return str(rollout_of(holder).get("stage", "")).startswith(f"{ROLLED} ")


def _conditions(
    seen: Seen,
    cluster: Cluster,
    groups: Sequence[Manifest],
    meta: Manifest | None,
    rollout: Mapping[str, Any],
) -> tuple[Condition, ...]:
    unready = [
        one["metadata"]["name"] for one in groups if condition_of(one, "Ready").get("status") != "True"
    ]
    degraded = {
        str(one["metadata"]["name"]): str(said.get("reason", ""))
        for one in groups
        if (said := condition_of(one, "Degraded")).get("status") == "True"
    }
    holder = rollout.get("rollout", {}).get("group", "")
    rolls = Condition("Progressing", "False", "RolloutComplete", "no broker group rolls")
    if holder:
        rolls = Condition("Progressing", "True", "RollingSlaves", f"{holder} rolls")
    return _ready_of(seen, cluster, groups, meta, unready), rolls, _degraded_of(cluster, meta, degraded)


def _ready_of(
    seen: Seen, cluster: Cluster, groups: Sequence[Manifest], meta: Manifest | None, unready: Sequence[str]
) -> Condition:
    ready = int(part(meta, "status").get("readyReplicas", 0))
    if seen.unheard is not None:
        return seen.unheard
    if not ready:
        return _ready("Unknown", "Progressing", "meta is not ready yet")
    if seen.meta is None:
        return _ready("Unknown", "ClusterUnavailable", "meta does not answer the operator")
    if not groups:
        return _ready("False", "NotEnoughBrokers", "it has no broker group: make a BrokerGroup that names it")
    if unready:
        return _ready("Unknown", "Progressing", f"not ready: {', '.join(unready)}")
    if ready < cluster.meta_replicas:
        return _ready(
            "Unknown", "Progressing", f"{ready} of {cluster.meta_replicas} replicas of meta are ready"
        )
    return _ready("True", "Reconciled", "meta and all broker groups are as their specs say")


def _degraded_of(cluster: Cluster, meta: Manifest | None, degraded: Mapping[str, str]) -> Condition:
    ready = int(part(meta, "status").get("readyReplicas", 0))
    if ready < cluster.meta_replicas:
        said = f"{ready} of {cluster.meta_replicas} replicas of meta are ready"
        return Condition("Degraded", "True", "MetaQuorumAtRisk", said)
    if degraded:
        reason = next((one for one in DEGRADED if one in degraded.values()), DEGRADED[0])
        return Condition("Degraded", "True", reason, f"degraded: {', '.join(degraded)}")
    return Condition("Degraded", "False", "Reconciled", "nothing is missing")


def _status(cluster: Cluster, groups: Sequence[Manifest], meta: Manifest | None) -> dict[str, Any]:
    status = part(meta, "status")
    ready = sum(condition_of(one, "Ready").get("status") == "True" for one in groups)
    held = sum(
        condition_of(one, "Writable").get("reason") in {"ReadOnlyBySpec", "ReadOnlyByDrain"} for one in groups
    )
    return {
        "meta": {
            "replicas": cluster.meta_replicas,
            "readyReplicas": int(status.get("readyReplicas", 0)),
            "endpoint": f"{meta_host(cluster.name, cluster.namespace)}:{META_PORT}",
        },
        "brokerGroups": {"desired": len(groups), "ready": ready, "readOnly": held},
    }


def _ready(status: Any, reason: str, message: str) -> Condition:
    return Condition("Ready", status, reason, message)
