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

from tidemill_operator.conditions import rest_of, standing
from tidemill_operator.desired.groups import around, pods_of, workload
from tidemill_operator.desired.wanted import Group, SpecError, parse_group
from tidemill_operator.desired.workloads import Chosen, choose
from tidemill_operator.draining import Farewell, farewell, forgotten
from tidemill_operator.kinds import (
    BROKER_GROUP,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    POD,
    STATEFUL_SET,
)
from tidemill_operator.marks import (
    ROLE_LABEL,
    SKIP_DRAIN,
    cluster_of,
    goes,
    is_on,
    label,
    part,
    rows,
    status,
    stopped,
)
from tidemill_operator.names import controller_of, deletion_of, group_name, identity, owner_of
from tidemill_operator.observed import Observed, observe, replicas_of
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
from tidemill_operator.steps import Apply, Ask, Condition, Event, Hold, Manifest, Plan, Seen, Step
from tidemill_operator.volumes import Growth, grow, remembered, reminder

UNREADY_MS, CALM_MS = 5_000, 15_000
"""How often meta is asked about a group that is not ready, and about one that is."""
PENDING = Move(COMPLETE, "its StatefulSet is being written", again_ms=LOOK_MS, needs_baton=False)


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
    ended = ordered(seen)
    if ended is not None:
        return ended
    if seen.cluster is None:
        if goes(seen.resource):
            return _gone(farewell(seen, None, None, now_ms))
        name = cluster_of(seen.resource)
        said = f"there is no QueueCluster {name}: make it, or correct spec.clusterRef in another object"
        return Plan((), (_ready("False", "ReferenceNotFound", said),))
    try:
        group = parse_group(seen.resource, seen.cluster, seen.image)
        made = pods_of(group)
        others = around(group, owner_of(seen.resource))
    except SpecError as error:
        if goes(seen.resource) and is_on(seen.resource, SKIP_DRAIN):
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
    if goes(seen.resource):
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
    steps += _roles(observed, replicas)
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
    events = (*_switched(this, baton), *move.events, *growth.events)
    return Plan(tuple(steps), conditions, status, events, _again_ms(move, conditions))


def _switched(this: Pass, baton: Baton) -> tuple[Event, ...]:
    """Another broker leads than did when somebody was last known to, while this group rolls. The status says who leads
    in the same pass, so it is said once. A failover at another time was asked for by nobody.
    """
    former, master = _led(this), this.observed.master
    if not baton.held or not former or master is None or master.name == former:
        return ()
    epoch = part(this.observed.row).get("epoch", 0)
    return (Event("SwitchoverCompleted", f"{master.name} leads now, and {former} no more (epoch {epoch})"),)


def _led(this: Pass) -> str:
    """Who led when it was last known; of a group that rolls that outlives passes in which meta is not heard."""
    resource = this.seen.resource
    known = rollout_of(resource).get("leader") or part(resource, "status", "master").get("broker")
    return str(known or "")


def _again_ms(move: Move, conditions: Sequence[Condition]) -> int:
    """Kubernetes tells of pods; that a broker is in sync, or another one leads, only meta knows, and is asked."""
    is_ready = any(one.type == "Ready" and one.status == "True" for one in conditions)
    calm_ms = CALM_MS if is_ready else UNREADY_MS
    return calm_ms if move.reason == COMPLETE else min(move.again_ms or calm_ms, calm_ms)


def _rollout(this: Pass, whole: Move, baton: Baton) -> tuple[dict[str, Any], bool]:
    """While the StatefulSet is being written nobody knows what is to be done: a baton is neither wanted nor given."""
    if whole is PENDING:
        return dict(rollout_of(this.seen.resource)), False
    rollout, stuck = next_rollout(this.seen.resource, whole, baton, this.now_ms)
    leader = this.observed.master.name if this.observed.master is not None else _led(this)
    # As long as it rolls, which is when ``since`` is said.
    return rollout | ({"leader": leader} if leader and "since" in rollout else {}), stuck


def _replicas(group: Group, observed: Observed, move: Move) -> int:
    """More at once; fewer only one by one, when the last one may go: that its pod is not there for a moment, as when
    its node was lost, says nothing of what lies on its volume. Who leads is run in any case.
    """
    if move.removes is not None:
        return move.removes.ordinal
    leads = observed.master.ordinal + 1 if observed.master is not None else 0
    if observed.workload is not None:
        return max(group.replicas, leads, replicas_of(observed.workload))
    # It is being made anew, around whoever is there and whom meta knows.
    known = (one.ordinal + 1 for one in observed.brokers if one.is_there or one.row is not None)
    return max(group.replicas, leads, *known)


def _workload(this: Pass, owner: Mapping[str, Any], growth: Growth, replicas: int) -> Manifest:
    storage = this.group.storage
    retention = {"whenDeleted": storage.when_deleted, "whenScaled": storage.when_scaled}
    return workload(
        this.group, owner, this.chosen.template, this.chosen.annotations, replicas, growth.claims, retention
    )


def _roles(observed: Observed, replicas: int) -> list[Step]:
    """Labels by which a Service finds the master. Without meta they stay as they are; who leaves needs none."""
    steps: list[Step] = []
    for one in observed.brokers[:replicas] if observed.row is not None else ():
        if one.pod is None or one.goes or one.row is None:
            continue
        role = str(one.row.get("role", "slave"))
        if label(one.pod, ROLE_LABEL) != role:
            steps.append(Apply(identity(one.pod, labels={ROLE_LABEL: role})))
    return steps


def _said_to_meta(group: Group, observed: Observed) -> list[Step]:
    """What the group takes; and whom meta need not wait for. A drain that a person asked for stays one."""
    if observed.row is None:
        return []
    steps: list[Step] = list(forgotten(group, observed))
    if observed.row.get("allowed", group.takes) != group.takes:
        steps.append(Ask("POST", f"/v1/groups/{group.group}/state", {"state": group.takes}))
    return steps


def _rival(this: Pass, others: Sequence[Manifest]) -> str:
    """Who has what this one would have: an older group of the same name, or another owner of an object."""
    group, own = this.group, this.seen.resource["metadata"]
    names = {(one["kind"], one["metadata"]["name"]) for one in others} | {(STATEFUL_SET.kind, group.workload)}
    for one in this.seen.objects:
        metadata = one["metadata"]
        if one["kind"] == BROKER_GROUP.kind and metadata["uid"] != own["uid"]:
            alike = (group_name(one), cluster_of(one)) == (group.group, group.cluster)
            if alike and _age(metadata) < _age(own):
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
        (kind, one)
        for kind in (NETWORK_POLICY, DISRUPTION_BUDGET, CONFIG_MAP)
        for one in seen.of(kind.kind)
        if controller_of(one) == seen.resource["metadata"]["uid"]
        and (kind.kind, one["metadata"]["name"]) not in wanted
        and not goes(one)
    ]
    return [deletion_of(kind, one) for kind, one in own if not _is_used(seen, one)]


def _is_used(seen: Seen, one: Manifest) -> bool:
    """Whether a ConfigMap is needed: that of a template, or the settings of a pod or of a workload."""
    name = str(one["metadata"]["name"])
    if one["kind"] != CONFIG_MAP.kind:
        return False
    if "-settings-" not in name:
        return True
    workloads = [found for kind in (STATEFUL_SET, DEPLOYMENT) for found in seen.of(kind.kind)]
    specs = [part(found, "spec", "template", "spec") for found in workloads]
    specs += [part(pod, "spec") for pod in seen.of(POD.kind)]
    return name in json.dumps([rows(spec, "containers") for spec in specs], default=dict)


def ordered(seen: Seen) -> Plan | None:
    """What comes before all else: its namespace goes, or a person says that nothing is to be done. Then what it says
    stays as it is. None: neither is so.
    """
    why = stopped(seen.resource)
    if seen.namespace_goes or (goes(seen.resource) and why == "Unmanaged"):
        return Plan((Hold(held=False),), (_ready("Unknown", "Deleting", "it goes with what is around it"),))
    if not why:
        return None
    steps = (Hold(held=False),) if why == "Unmanaged" else ()
    said = Condition(why, "True", f"{why}ByAnnotation", "the operator looks, and does nothing")
    return Plan(steps, (*standing(seen.resource), said), rest_of(status(seen.resource)))


def _ready(status: Any, reason: str, message: str) -> Condition:
    return Condition("Ready", status, reason, message)
