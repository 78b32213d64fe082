"""What a status may say: a closed vocabulary, and how it is put together with what stands there.

Every condition type, reason and event reason of the operator is a row here; docs/kubernetes.md has the same tables,
and a test compares. A condition's ``lastTransitionTime`` changes with its status and with nothing else, and where
nothing changed nothing is written: a status written in each pass would wake its own watcher, for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill_operator import marks
from tidemill_operator.steps import Condition, Manifest, Plan

READY = "Ready"
SYNCED = "Synced"
RECONCILING = "Reconciling"
STALLED = "Stalled"
CANARY_READY = "CanaryReady"
PLACED = "Placed"
SCHEDULED, LAST_RUN = "Scheduled", "LastRunSucceeded"
COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
MESSAGE_MAX = 1_000
"""Characters of a condition's message, and of an event's note, whose bound this is."""


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """A condition type: whose, what True means, and which reasons it may have."""

    kinds: str
    means: str
    reasons: Mapping[str, tuple[str, ...]]
    """By status."""


ALL = "all"
RUN = "QueueCluster, BrokerGroup"
DECLARED = "Subject, ConsumerGroup, Grant"

CONDITIONS: Mapping[str, ConditionRow] = {
    READY: ConditionRow(ALL, "it can be used, and is as its spec says", {
        "True": ("Reconciled", "Suspended"),
        "False": (
            "ApplyRejected", "BrokerRejected", "ClusterUnavailable", "DeletionBlocked", "DrainBlocked", "InvalidSpec",
            "NoMaster", "NotEnoughBrokers", "NotPermitted", "ReferenceNotFound", "ResourceConflict", "ScheduleInvalid",
            "SparkOperatorMissing", "NamespaceNotWatched", "Unsupported",
        ),
        "Unknown": ("ClusterUnavailable", "Deleting", "Pending", "Progressing"),
    }),
    SYNCED: ConditionRow(DECLARED, "meta has exactly what the spec says", {
        "True": ("InSync", "DriftReverted"),
        "False": ("DriftReported", "AdminApiError"),
        "Unknown": ("AdminApiError",),
    }),
    RECONCILING: ConditionRow(ALL, "something is under way", {
        "True": ("Deleting", "Progressing", "SeekWaits"), "False": ("Reconciled",), "Unknown": (),
    }),
    PLACED: ConditionRow("Subject", "it lies where its placement says; not said of one without", {
        "True": ("Reconciled",), "False": ("Misplaced",), "Unknown": (),
    }),
    STALLED: ConditionRow(ALL, "it stays so until a person changes something", {
        "True": ("ApplyRejected", "BrokerRejected", "InvalidSpec", "NotPermitted", "ResourceConflict", "Unsupported"),
        "False": ("Reconciled",),
        "Unknown": (),
    }),
    "Paused": ConditionRow(ALL, "the annotation `tidemill.dev/paused` is \"true\"", {
        "True": ("PausedByAnnotation",), "False": (), "Unknown": (),
    }),
    "Unmanaged": ConditionRow(ALL, "the annotation `tidemill.dev/managed` is \"false\"", {
        "True": ("UnmanagedByAnnotation",), "False": (), "Unknown": (),
    }),
    "Progressing": ConditionRow(RUN, "brokers are replaced, one after the other", {
        "True": (
            "RollingMaster", "RollingSlaves", "SwitchingOver", "WaitingForLock", "WaitingForSync",
        ),
        "False": ("RolloutComplete", "RolloutStuck"),
        "Unknown": (),
    }),
    "Degraded": ConditionRow(RUN, "it serves, with less redundancy than wanted", {
        "True": ("MetaQuorumAtRisk", "NotRedundant", "OutOfSync", "SlaveDown"),
        "False": ("Reconciled",),
        "Unknown": ("ClusterUnavailable",),
    }),
    CANARY_READY: ConditionRow("QueueCluster", "its canary is at work; not said where none is asked for", {
        "True": ("Reconciled",), "False": ("ResourceConflict", "Unsupported"), "Unknown": ("Progressing",),
    }),
    "Writable": ConditionRow("BrokerGroup", "it takes messages", {
        "True": ("ReadWrite",),
        "False": ("NoMaster", "ReadOnlyByDrain", "ReadOnlyByLag", "ReadOnlyBySpec"),
        "Unknown": ("ClusterUnavailable",),
    }),
    SCHEDULED: ConditionRow("Archive", "Spark's operator begins its runs when they are due", {
        "True": ("Reconciled",),
        "False": ("NamespaceNotWatched", "ScheduleInvalid", "SparkOperatorMissing", "Suspended"),
        "Unknown": ("Pending",),
    }),
    LAST_RUN: ConditionRow("Archive", "the last run that ended went well", {
        "True": ("RunSucceeded",), "False": ("RunFailed", "RunLost", "RunStuck"), "Unknown": ("Pending",),
    }),
    COMPLETE: ConditionRow("Replay", "it was done, once", {
        "True": ("RunSucceeded",),
        "False": (
            "ApplyRejected", "BackoffLimitExceeded", "ClusterUnavailable", "DeadlineExceeded", "InvalidSpec",
            "NotPermitted", "ReferenceNotFound", "SparkOperatorMissing", "Unsupported", "Vanished",
        ),
        "Unknown": ("Pending", "Progressing", "RunLost", "Suspended"),
    }),
    FAILED: ConditionRow("Replay", "it was not done, and is not tried again", {
        "True": ("BackoffLimitExceeded", "DeadlineExceeded", "Vanished"), "False": (), "Unknown": (),
    }),
    SUSPENDED: ConditionRow("Replay", "its spec says that it is to wait", {
        "True": ("Suspended",), "False": (), "Unknown": (),
    }),
    "StorageResizing": ConditionRow("BrokerGroup", "volumes grow", {
        "True": ("Progressing",),
        "False": ("Reconciled", "StorageClassNotExpandable"),
        "Unknown": (),
    }),
}  # fmt: skip

EVENTS: Mapping[str, str] = {
    "Created": "meta has it now",
    "Adopted": "meta had it already; now it is as the spec says",
    "Updated": "meta was told what changed in the spec",
    "Deleted": "meta was told to remove it, as `deletionPolicy` says",
    "DriftReverted": "somebody changed it past its object, and it is as the spec says again",
    "Conflict": "an older object has the same name in the cluster",
    "Rejected": "meta or the API server refused what was asked",
    "SeekDone": "the group was moved to another place",
    "SeekRefused": "the annotation `tidemill.dev/seek` cannot be obeyed",
    "RollingPod": "a broker's pod is replaced, and why",
    "SwitchoverStarted": "a slave that has everything is asked to lead",
    "SwitchoverCompleted": "another broker leads now, while the group rolls",
    "VolumeResized": "a volume has grown",
    "RunFailed": "a run of an Archive, or an attempt of a Replay, failed, and what it said",
    "RunStuck": "a run's driver was not there in time, so it was taken away",
    "AttemptStarted": "a Replay begins, or begins again",
    "ReplayCompleted": "a Replay is done",
    "ReplayFailed": "a Replay is given up, and why",
}
"""Reasons of events, and what happened."""


def is_known(condition: Condition) -> bool:
    row = CONDITIONS.get(condition.type)
    return row is not None and condition.reason in row.reasons[condition.status]


def ready(reason: str, message: str) -> Condition:
    """The summary, with the status that goes with the reason."""
    return Condition(READY, _status_of(READY, reason), reason, message)


def synced(reason: str, message: str) -> Condition:
    return Condition(SYNCED, _status_of(SYNCED, reason), reason, message)


def stalled(reason: str, message: str) -> tuple[Condition, Condition]:
    """Not ready, and no further try will change that."""
    return Condition(READY, "False", reason, message), Condition(STALLED, "True", reason, message)


def _status_of(kind: str, reason: str) -> Any:
    return next(status for status, reasons in CONDITIONS[kind].reasons.items() if reason in reasons)


def merged(
    standing: Iterable[Mapping[str, Any]], wanted: Iterable[Condition], generation: int, now_ms: int
) -> list[dict[str, Any]]:
    """The conditions to write: the wanted ones, in the vocabulary's order."""
    known = {one.get("type"): one for one in standing}
    order = {name: number for number, name in enumerate(CONDITIONS)}
    rows: list[dict[str, Any]] = []
    for one in sorted(wanted, key=lambda one: (order.get(one.type, len(order)), one.type)):
        former = known.get(one.type, {})
        since = former.get("lastTransitionTime") if former.get("status") == one.status else None
        rows.append({
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message[:MESSAGE_MAX],
            "observedGeneration": generation,
            "lastTransitionTime": since or marks.timestamp(now_ms),
        })  # fmt: skip
    return rows


def next_status(resource: Manifest, plan: Plan, now_ms: int) -> dict[str, Any] | None:
    """The status to write; None when the plan says nothing, or nothing but what stands there."""
    if not plan.conditions:
        return None
    standing = marks.status(resource)
    generation = marks.metadata(resource).get("generation", 0)
    wanted = {
        "observedGeneration": generation,
        "conditions": merged(standing.get("conditions") or (), plan.conditions, generation, now_ms),
        **(plan.status or rest_of(standing)),
    }
    return None if _settled(wanted) == _settled(standing) else wanted


def standing(resource: Manifest) -> tuple[Condition, ...]:
    """What stands there, but for why nothing is done."""
    return tuple(
        Condition(one["type"], one["status"], one["reason"], one.get("message", ""))
        for one in marks.rows(resource, "status", "conditions")
        if one.get("type") not in {"Paused", "Unmanaged"}
    )


def rest_of(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status without what is put together here."""
    return {name: value for name, value in status.items() if name not in {"conditions", "observedGeneration"}}


def _settled(status: Mapping[str, Any]) -> dict[str, Any]:
    """Comparable: the API server may give conditions in another order, and leaves empty parts as they are."""
    rows = sorted(status.get("conditions") or (), key=lambda one: str(one.get("type")))
    return {**status, "conditions": [dict(one) for one in rows]}


def condition_table() -> list[str]:
    """The rows of the docs' table of conditions."""
    return [
        f"| `{name}` | {row.kinds} | {row.means} | {_listed(row.reasons)} |"
        for name, row in CONDITIONS.items()
    ]


def event_table() -> list[str]:
    """The rows of the docs' table of events."""
    return [f"| `{name}` | {means} |" for name, means in EVENTS.items()]


def _listed(reasons: Mapping[str, tuple[str, ...]]) -> str:
    return "; ".join(
        f"{status}: {', '.join(f'`{one}`' for one in names)}" for status, names in reasons.items() if names
    )
