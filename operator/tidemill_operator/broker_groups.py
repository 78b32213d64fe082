"""BrokerGroup: a StatefulSet of a master and its slaves, with what stands around it, that rolls, grows and goes.

In each pass the same, from what was seen alone: what is to be there is applied; at most one broker is taken away, or
moved from (``rollout.py``), and only with the cluster's baton; volumes grow (``volumes.py``); and when the object is
deleted it is emptied first (``draining.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill_operator.desired.groups import around, pods_of, workload
from tidemill_operator.desired.wanted import Group, SpecError, parse_group
from tidemill_operator.desired.workloads import Chosen, choose
from tidemill_operator.draining import MASTER_PATHS, Farewell, farewell, forgotten
from tidemill_operator.names import ROLE, SKIP_DRAIN, controller_of, is_on, owner_of, part, reference_of, rows
from tidemill_operator.observed import META_PATHS, Observed, is_stopped, observe, replicas_of
from tidemill_operator.rollout import (
    COMPLETE,
    LOOK_MS,
    STUCK,
    Baton,
    Move,
    baton_of,
    next_move,
    next_rollout,
    rollout_of,
    with_baton,
)
from tidemill_operator.standing import conditions_of, status_of
from tidemill_operator.steps import Apply, Ask, Condition, Delete, Hold, Manifest, Plan, Seen, Step
from tidemill_operator.volumes import Growth, grow, remembered, reminder

UNREADY_MS, CALM_MS = 5_000, 15_000
"""How often meta is asked about a group that is not ready, and about one that is."""
PENDING = Move(COMPLETE, "its StatefulSet is being written", again_ms=LOOK_MS, needs_baton=False)


def asks(_resource: Manifest, _objects: Sequence[Manifest] = ()) -> tuple[str, ...]:
    """The paths at meta that a plan wants to see."""
    return tuple(META_PATHS.values())


def asks_masters(resource: Manifest) -> tuple[str, ...]:
    """The paths at the group's master, at its control address as meta has it, that a plan wants to see."""
    if "deletionTimestamp" not in resource["metadata"]:
        return ()
    return (MASTER_PATHS["delay" if resource["spec"].get("kind") == "Delay" else "broker"],)


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass is about."""

    seen: Seen
    group: Group
    observed: Observed
    chosen: Chosen
    now_ms: int


def plan(seen: Seen, now_ms: int) -> Plan:
    """The next steps for a BrokerGroup."""
    goes = "deletionTimestamp" in seen.resource["metadata"]
    stopped = is_stopped(seen.resource)
    if seen.namespace_goes or (goes and stopped == "Unmanaged"):
        return Plan((Hold(held=False),), (_ready("Unknown", "Deleting", "it goes with what is around it"),))
    if stopped:
        return left_alone(seen, stopped)
    if seen.cluster is None:
        if goes:
            return _gone(farewell(seen, None, None, now_ms))
        name = seen.resource["spec"]["clusterRef"]["name"]
        said = f"there is no QueueCluster {name}: make it, or correct spec.clusterRef in another object"
        return Plan((), (_ready("False", "ReferenceNotFound", said),))
    try:
        group = parse_group(seen.resource, seen.cluster, seen.image)
        made = pods_of(group)
        others = around(group, owner_of(seen.resource))
    except SpecError as error:
        if goes and is_on(seen.resource, SKIP_DRAIN):
            return _gone(farewell(seen, None, None, now_ms))
        stalled = Condition("Stalled", "True", "InvalidSpec", str(error))
        return Plan((), (_ready("False", "InvalidSpec", str(error)), stalled))
    observed = observe(seen, group)
    template = choose(
        made,
        group.inputs,
        group.pods.restart_at,
        observed.workload or remembered(seen, group),
        supervised=group.supervised,
    )
    this = Pass(seen, group, observed, template, now_ms)
    rival = _rival(this, others)
    if goes:
        # What meta has of that name is not this one's.
        return _gone(farewell(seen, None, None, now_ms)) if rival else _going(this)
    if rival:
        stalled = Condition("Stalled", "True", "ResourceConflict", rival)
        return Plan((), (_ready("False", "ResourceConflict", rival), stalled))
    return _standing(this, others)


def _standing(this: Pass, others: Sequence[Manifest]) -> Plan:
    """Of a group that is to be there."""
    seen, group, observed = this.seen, this.group, this.observed
    owner = owner_of(seen.resource)
    growth = grow(seen, group, observed, this.chosen)
    whole = next_move(observed, group, this.now_ms) if this.chosen.is_on(observed.workload) else PENDING
    baton = baton_of(seen.resource, seen.cluster)
    move = with_baton(whole, baton)
    rollout, stuck = _rollout(this, whole, baton)
    replicas = _replicas(group, observed, move)
    steps: list[Step] = [Hold(held=True), *(Apply(one) for one in others)]
    steps.append(Apply(reminder(group, owner, this.chosen)))
    if growth.recreate is None:
        steps.append(Apply(_workload(this, owner, growth, replicas)))
    steps += _roles(group, observed, replicas)
    steps += _said_to_meta(group, observed)
    if move.step is not None:
        steps.append(move.step)
    steps += pruned(seen, others)
    steps += growth.steps
    if growth.recreate is not None:
        steps.append(growth.recreate)
    said = (
        Move(STUCK, f"for more than 10 minutes: {move.message}", waits_for=move.waits_for) if stuck else move
    )
    conditions = (*conditions_of(group, observed, said, kept=this.chosen.kept), growth.condition)
    status = status_of(group, observed) | {"storage": growth.status}
    status |= {"rollout": rollout} if rollout else {}
    events = (*move.events, *growth.events)
    return Plan(tuple(steps), conditions, status, events, _again_ms(move, conditions))


def _again_ms(move: Move, conditions: Sequence[Condition]) -> int:
    """Kubernetes tells of pods; that a broker is in sync, or another one leads, only meta knows, and is asked."""
    is_ready = any(one.type == "Ready" and one.status == "True" for one in conditions)
    calm_ms = CALM_MS if is_ready else UNREADY_MS
    return calm_ms if move.reason == COMPLETE else min(move.again_ms or calm_ms, calm_ms)


def _rollout(this: Pass, whole: Move, baton: Baton) -> tuple[dict[str, Any], bool]:
    """While the StatefulSet is being written nobody knows what is to be done: a baton is neither wanted nor given."""
    if whole is PENDING:
        return dict(rollout_of(this.seen.resource)), False
    return next_rollout(this.seen.resource, whole, baton, this.now_ms)


def _replicas(group: Group, observed: Observed, move: Move) -> int:
    """More at once; fewer only one by one, when the last one may go, or is not there anyway."""
    if move.removes is not None:
        return move.removes.ordinal
    there = max((one.ordinal + 1 for one in observed.brokers if one.is_there), default=0)
    if observed.workload is not None:
        there = min(there, replicas_of(observed.workload))
    return max(group.replicas, there)


def _workload(this: Pass, owner: Mapping[str, Any], growth: Growth, replicas: int) -> Manifest:
    storage = this.group.storage
    retention = {"whenDeleted": storage.when_deleted, "whenScaled": storage.when_scaled}
    return workload(
        this.group, owner, this.chosen.template, this.chosen.annotations, replicas, growth.claims, retention
    )


def _roles(group: Group, observed: Observed, replicas: int) -> list[Step]:
    """Labels by which a Service finds the master. Without meta they stay as they are; who leaves needs none."""
    steps: list[Step] = []
    for one in observed.brokers[:replicas] if observed.row is not None else ():
        if one.pod is None or one.goes or one.row is None:
            continue
        labels = part(one.pod, "metadata", "labels")
        role = str(one.row.get("role", "slave"))
        if labels.get(ROLE) != role:
            own = one.pod["metadata"]
            # With the uid it is this pod or none: an apply would make one that is not there.
            named = {
                "name": own["name"],
                "namespace": group.namespace,
                "uid": own["uid"],
                "labels": {ROLE: role},
            }
            steps.append(Apply({"apiVersion": "v1", "kind": "Pod", "metadata": named}))
    return steps


def _said_to_meta(group: Group, observed: Observed) -> list[Step]:
    """What the group takes; and whom meta need not wait for. A drain that a person asked for stays one."""
    if observed.row is None:
        return []
    steps: list[Step] = list(forgotten(group, observed, group.replicas))
    if observed.row.get("allowed", group.takes) != group.takes:
        steps.append(Ask("POST", f"/v1/groups/{group.group}/state", {"state": group.takes}))
    return steps


def _rival(this: Pass, others: Sequence[Manifest]) -> str:
    """Who has what this one would have: an older group of the same name, or another owner of an object."""
    group, own = this.group, this.seen.resource["metadata"]
    names = {(one["kind"], one["metadata"]["name"]) for one in others} | {("StatefulSet", group.workload)}
    for one in this.seen.objects:
        metadata = one["metadata"]
        if one["kind"] == "BrokerGroup" and metadata["uid"] != own["uid"]:
            named = one["spec"].get("groupName") or metadata["name"]
            same = named == group.group and one["spec"].get("clusterRef", {}).get("name") == group.cluster
            if same and _age(metadata) < _age(own):
                return f"the BrokerGroup {metadata['name']} has the name {group.group} already: choose another one"
        elif (one["kind"], metadata["name"]) in names and controller_of(one) not in {"", own["uid"]}:
            return f"the {one['kind']} {metadata['name']} belongs to somebody else: choose another name for this group"
    return ""


def _age(metadata: Mapping[str, Any]) -> tuple[str, str]:
    return str(metadata.get("creationTimestamp", "")), str(metadata["uid"])


def _going(this: Pass) -> Plan:
    """Of a group that was deleted."""
    end = farewell(this.seen, this.group, this.observed, this.now_ms)
    steps: list[Step] = list(end.steps)
    if end.scale_to is not None and this.observed.workload is not None:
        growth = grow(this.seen, this.group, this.observed, this.chosen)
        found = {**_workload(this, owner_of(this.seen.resource), growth, end.scale_to)}
        # It is the group that goes, not a replica of it.
        retention = dict.fromkeys(("whenDeleted", "whenScaled"), this.group.storage.when_deleted)
        found["spec"] = {**found["spec"], "persistentVolumeClaimRetentionPolicy": retention}
        steps.append(Apply(found))
    if any(isinstance(one, Hold) for one in steps):
        return _gone(end)
    status = status_of(this.group, this.observed)
    status |= {"rollout": dict(end.stage)} if end.stage else {}
    reason = ("False", "DrainBlocked") if end.blocked else ("Unknown", "Deleting")
    return Plan(tuple(steps), (_ready(*reason, end.said),), status, (), end.again_ms)


def _gone(end: Farewell) -> Plan:
    return Plan(end.steps, (_ready("Unknown", "Deleting", end.said),), {}, (), end.again_ms)


def pruned(seen: Seen, others: Sequence[Manifest]) -> list[Step]:
    """What the operator made when the spec asked for it, and does not any more."""
    wanted = {(one["kind"], one["metadata"]["name"]) for one in others}
    own = [
        one
        for kind in ("NetworkPolicy", "PodDisruptionBudget", "ConfigMap")
        for one in seen.of(kind)
        if controller_of(one) == seen.resource["metadata"]["uid"]
        and (kind, one["metadata"]["name"]) not in wanted
        and "deletionTimestamp" not in one["metadata"]
    ]
    return [Delete(reference_of(one), one["metadata"]["uid"]) for one in own if not _is_used(seen, one)]


def _is_used(seen: Seen, one: Manifest) -> bool:
    """Whether a ConfigMap is needed: that of a template, or the settings of a pod or of a workload."""
    name = str(one["metadata"]["name"])
    if one["kind"] != "ConfigMap":
        return False
    if "-settings-" not in name:
        return True
    workloads = [found for kind in ("StatefulSet", "Deployment") for found in seen.of(kind)]
    specs = [part(found, "spec", "template", "spec") for found in workloads]
    specs += [part(pod, "spec") for pod in seen.of("Pod")]
    return name in json.dumps([rows(spec, "containers") for spec in specs], default=dict)


def left_alone(seen: Seen, stopped: str) -> Plan:
    """By order of a person: what it says stays as it is, and that nothing is done."""
    reason = {"Paused": "PausedByAnnotation", "Unmanaged": "UnmanagedByAnnotation"}[stopped]
    known = rows(seen.resource, "status", "conditions")
    kept = [
        Condition(one["type"], one["status"], one["reason"], one["message"])
        for one in known
        if one["type"] not in {"Paused", "Unmanaged"}
    ]
    status = {
        name: value
        for name, value in part(seen.resource, "status").items()
        if name not in {"conditions", "observedGeneration"}
    }
    steps = (Hold(held=False),) if stopped == "Unmanaged" else ()
    said = Condition(stopped, "True", reason, "the operator looks, and does nothing")
    return Plan(steps, (*kept, said), status)


def _ready(status: Any, reason: str, message: str) -> Condition:
    return Condition("Ready", status, reason, message)
