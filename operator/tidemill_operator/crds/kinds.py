"""What only Kubernetes wants to know of each kind: other names, what `kubectl get` shows, what is reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill_operator.crds.statuses import (
    ArchiveStatus,
    BrokerGroupStatus,
    ConsumerGroupStatus,
    GrantStatus,
    QueueClusterStatus,
    ReplayStatus,
    Reported,
    SubjectStatus,
)

CLUSTER = ".spec.clusterRef.name"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    """Only with ``-o wide``."""

    def to_map(self) -> dict[str, Any]:
        wide = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **wide}


@dataclass(frozen=True, slots=True)
class Face:
    """How a kind looks in Kubernetes."""

    plural: str
    short: str
    status: type[Reported]
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = (CLUSTER,)
    obliged: tuple[str, ...] = ()
    """Fields of the spec that a laptop needs not, and a cluster does."""
    summary: str = "Ready"
    """The condition that is there from the first moment on, so that somebody can wait for it."""


def _condition(name: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{name}")].{field}'


READY = (Column("Ready", _condition("Ready")), Column("Reason", _condition("Ready", "reason")))
AGE = Column("Age", ".metadata.creationTimestamp", "date")
OF_CLUSTER = Column("Cluster", CLUSTER)

FACES: Mapping[str, Face] = {
    "QueueCluster": Face(
        "queueclusters",
        "tmc",
        QueueClusterStatus,
        (
            Column("Meta", ".status.meta.readyReplicas", "integer"),
            Column("Groups", ".status.brokerGroups.ready", "integer"),
            *READY,
            Column("Endpoint", ".status.meta.endpoint", wide=True),
            AGE,
        ),
        selectable=(),
    ),
    "BrokerGroup": Face(
        "brokergroups",
        "tmbg",
        BrokerGroupStatus,
        (
            OF_CLUSTER,
            Column("Kind", ".spec.kind"),
            Column("Master", ".status.master.pod"),
            Column("Brokers", ".status.readyReplicas", "integer"),
            Column("In sync", ".status.inSync", "integer"),
            Column("Write", ".status.writeState"),
            *READY,
            Column("Epoch", ".status.master.epoch", wide=True),
            Column("Size", ".status.storage.capacity", wide=True),
            Column("Revision", ".status.currentRevision", wide=True),
            AGE,
        ),
    ),
    "Subject": Face(
        "subjects",
        "subj",
        SubjectStatus,
        (
            OF_CLUSTER,
            Column("Subject", ".status.subjectName"),
            Column("Groups", ".status.brokerGroups"),
            Column("Retention", ".spec.retention.messageSeconds", "integer"),
            *READY,
            Column("Deletion", ".spec.deletionPolicy", wide=True),
            AGE,
        ),
        obliged=("clusterRef",),
    ),
    "ConsumerGroup": Face(
        "consumergroups",
        "cgrp",
        ConsumerGroupStatus,
        (
            Column("Subject", ".status.subjectName"),
            Column("Group", ".status.groupName"),
            Column("Mode", ".spec.consumption"),
            Column("Lag", ".status.lag.messages"),
            Column("Consumers", ".status.consumers", "integer"),
            Column("State", ".spec.state"),
            *READY,
            Column("Cluster", CLUSTER, wide=True),
            AGE,
        ),
        obliged=("clusterRef",),
    ),
    "Archive": Face(
        "archives",
        "tmar",
        ArchiveStatus,
        (
            Column("Schedule", ".spec.schedule"),
            Column("State", ".spec.state"),
            Column("Last success", ".status.lastSuccessfulTime", "date"),
            Column("Last run", ".status.lastRunState"),
            # Not a date: of those kubectl says how long they are past, and of what is to come <invalid>.
            Column("Next", ".status.nextScheduleTime"),
            *READY,
            Column("Cluster", CLUSTER, wide=True),
            Column("To", ".spec.destination.uri", wide=True),
            AGE,
        ),
    ),
    "Replay": Face(
        "replays",
        "tmrp",
        ReplayStatus,
        (
            Column("Target", ".spec.target.subject"),
            Column("Complete", _condition("Complete")),
            Column("Failed", _condition("Failed")),
            Column("Sent", ".status.counts.sent"),
            Column("Start", ".status.startTime", "date"),
            Column("Completion", ".status.completionTime", "date"),
            Column("Cluster", CLUSTER, wide=True),
            AGE,
        ),
        summary="Complete",
    ),
    "Grant": Face(
        "grants",
        "tmgr",
        GrantStatus,
        (OF_CLUSTER, *READY, Column("Principals", ".status.principals", "integer"), AGE),
    ),
}
