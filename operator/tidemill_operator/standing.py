"""What a BrokerGroup's status says: how it stands, for people and for `kubectl wait`.

Nothing in it changes as long as nothing happens: no positions, no times but those at which something became so.
"""

from __future__ import annotations

from typing import Any, Literal

from tidemill_operator.desired.groups import selector_of
from tidemill_operator.desired.wanted import Group
from tidemill_operator.marks import RESTART_AT, label, part
from tidemill_operator.observed import REVISION_LABEL, Broker, Observed
from tidemill_operator.rollout import COMPLETE, STUCK, Move
from tidemill_operator.steps import Condition

WRITES = {"RW": "ReadWrite", "R": "ReadOnly", "W": "WriteOnly", "NRW": "Offline"}
DEGRADED = ("SlaveDown", "OutOfSync", "NotRedundant")
"""Why a group has less than it could, the gravest first; of the last one it is as somebody wrote."""
KEPT = "this operator would make its pods otherwise, and leaves them: {} says when they may be replaced"


def conditions_of(group: Group, observed: Observed, move: Move, *, kept: bool) -> tuple[Condition, ...]:
    """All conditions but that of the volumes."""
    done = move.reason in {COMPLETE, STUCK}
    message = move.message
    if kept and move.reason == COMPLETE:
        message = KEPT.format(RESTART_AT)
    progressing = Condition("Progressing", "False" if done else "True", move.reason, message)
    return (
        _ready(group, observed),
        progressing,
        _degraded(group, observed),
        _writable(observed),
    )


def _ready(group: Group, observed: Observed) -> Condition:
    wanted = observed.wanted(group)
    ready = [one for one in wanted if one.ready_since_ms is not None]
    if not observed.heard:
        return Condition("Ready", "Unknown", "ClusterUnavailable", "meta does not answer")
    if observed.row is None:
        return Condition("Ready", "Unknown", "Pending", "none of its brokers has told meta that it is there")
    if not observed.is_led:
        why = observed.problem or "its master is not alive"
        return Condition("Ready", "False", "NoMaster", why)
    if len(ready) < len(wanted) or not all(one.is_in_sync for one in wanted):
        said = f"{len(ready)} of {len(wanted)} brokers are ready, {_in_sync(observed)} in sync"
        return Condition("Ready", "Unknown", "Progressing", said)
    return Condition("Ready", "True", "Reconciled", "it is as its spec says")


def _degraded(group: Group, observed: Observed) -> Condition:
    if not observed.heard:
        return Condition("Degraded", "Unknown", "ClusterUnavailable", "meta does not answer")
    if group.slaves == 0:
        return Condition("Degraded", "True", "NotRedundant", "it has no slave: write spec.slaves 1 or more")
    wanted = observed.wanted(group)
    down = [one.name for one in wanted if one.ready_since_ms is None or not one.is_alive]
    if down:
        return Condition("Degraded", "True", "SlaveDown", f"not there: {', '.join(down)}")
    behind = [one.name for one in wanted if not one.is_in_sync]
    if behind:
        return Condition("Degraded", "True", "OutOfSync", f"not in sync: {', '.join(behind)}")
    return Condition("Degraded", "False", "Reconciled", "all its brokers are in sync")


def _writable(observed: Observed) -> Condition:
    row = observed.row
    if not observed.heard:
        return Condition("Writable", "Unknown", "ClusterUnavailable", "meta does not answer")
    if row is None or not observed.is_led:
        return Condition("Writable", "False", "NoMaster", "nobody leads it")
    if observed.draining:
        return Condition("Writable", "False", "ReadOnlyByDrain", "it drains: clients send elsewhere")
    if row.get("allowed", "RW") != "RW":
        return Condition("Writable", "False", "ReadOnlyBySpec", f"meta lets it take {row['allowed']}")
    if row.get("state", "RW") != "RW":
        said = f"its master takes {row['state']}: look at its disk"
        return Condition("Writable", "False", "ReadOnlyByLag", said)
    return Condition("Writable", "True", "ReadWrite", "it takes messages")


def status_of(group: Group, observed: Observed) -> dict[str, Any]:
    """The rest. What is not known is left out."""
    there = [one for one in observed.brokers if one.is_there]
    labels = ",".join(f"{key}={value}" for key, value in sorted(selector_of(group).items()))
    found: dict[str, Any] = {
        "groupName": group.group,
        "selector": labels,
        "replicas": len(there),
        "readyReplicas": sum(one.ready_since_ms is not None for one in there),
        "brokers": [_broker(one, observed) for one in there],
    }
    status = part(observed.workload, "status")
    for name in ("currentRevision", "updateRevision"):
        found |= {name: str(status[name])} if status.get(name) else {}
    row, master = observed.row, observed.master
    if row is None:
        return found
    found |= {
        "inSync": _in_sync(observed),
        "writeState": WRITES.get(str(row.get("state")), str(row.get("state"))),
    }
    if master is not None:
        addresses = part(master.row, "addresses")
        led = {"broker": master.name, "pod": master.pod_name, "epoch": str(row.get("epoch", 0))}
        found["master"] = led | ({"address": addresses["data"]} if addresses.get("data") else {})
    return found


def _in_sync(observed: Observed) -> int:
    return sum(one.is_in_sync for one in observed.brokers)


def _broker(one: Broker, observed: Observed) -> dict[str, Any]:
    assert one.pod is not None
    role: Literal["Master", "Slave", "Unknown"] = "Unknown"
    if one.row is not None:
        role = "Master" if one.row.get("role") == "master" else "Slave"
    found: dict[str, Any] = {
        "pod": one.pod_name,
        "broker": one.name,
        "role": role,
        "ready": one.ready_since_ms is not None,
    }
    if observed.heard:
        found |= {"alive": one.is_alive, "inSync": one.is_in_sync}
    named = {
        "revision": label(one.pod, REVISION_LABEL),
        "claim": one.claim["metadata"]["name"] if one.claim is not None else None,
        "node": part(one.pod, "spec").get("nodeName"),
    }
    return found | {name: value for name, value in named.items() if value}
