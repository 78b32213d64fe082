"""What a manifest's metadata and spec may hold: the table behind Subject and ConsumerGroup (``declarations.py``).

A field's line here is its documentation, its bounds and its default, in manifests, custom resources and docs alike.
Where no default is written, absence is kept as None and whoever applies the declaration decides, so that a changed
default of the broker reaches subjects that never asked for anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from tidemill_wire import limits
from tidemill_wire.schema import (
    Block,
    Choice,
    Field,
    Items,
    Labels,
    ManifestError,
    Number,
    Part,
    Size,
    Text,
    Time,
    did_you_mean,
    listed,
    shown,
)

YEAR_SECONDS = 365 * 24 * 3600
NAME_PATTERN = r"[A-Za-z0-9._-]{1,100}"
NAME_MEANS = "1 to 100 characters of A-Z a-z 0-9 . _ - (names with % are tidemill's own)"
BACKOFF_SECONDS_DEFAULT = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600)  # doubling to ten minutes

CONFIG: dict[str, Field] = {
    "durability": Choice(
        "What a stored message survives; see docs/durability.md.", ("low", "normal", "high")
    ),
}
"""The rows of ``Subject.spec.config``: settings that are not part of the resource's own schema."""


@dataclass(frozen=True, slots=True)
class Metadata(Block):
    name: Annotated[str, Text("The object's name.", "", 253)]
    namespace: Annotated[
        str | None, Text("The object's namespace.", r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", 63)
    ] = None
    labels: Annotated[tuple[tuple[str, str], ...], Labels("Labels of the object.", length_max=63)] = ()
    annotations: Annotated[tuple[tuple[str, str], ...], Labels("Annotations of the object.")] = ()


@dataclass(frozen=True, slots=True)
class ClusterRef(Block):
    name: Annotated[str, Text("The QueueCluster's name.", "", 63)]


@dataclass(frozen=True, slots=True)
class BrokerGroupSelector(Block):
    match_labels: Annotated[
        tuple[tuple[str, str], ...], Labels("Labels that a broker group must have.", 16, 63)
    ] = ()


@dataclass(frozen=True, slots=True)
class Placement(Block):
    min_broker_groups: Annotated[
        int | None, Number("How many broker groups hold the subject, at least.", 1, 32)
    ] = None
    broker_groups: Annotated[
        tuple[str, ...],
        Items("The broker groups that hold the subject.", Text("A name.", length_max=30), 1, 32),
    ] = ()
    broker_group_selector: Annotated[
        BrokerGroupSelector | None, Part("Which broker groups may hold the subject.", BrokerGroupSelector)
    ] = None

    def conflict(self) -> tuple[str, str] | None:
        chosen = self.min_broker_groups is not None or self.broker_group_selector is not None
        if bool(self.broker_groups) == chosen:
            said = "says both" if chosen else "says nothing"
            return "", f"{said}: write either brokerGroups, or minBrokerGroups and brokerGroupSelector"
        return None


@dataclass(frozen=True, slots=True)
class Retention(Block):
    message_seconds: Annotated[
        int | None, Number("How long messages are kept; 72 hours when absent.", 60, 10 * YEAR_SECONDS)
    ] = None
    max_bytes: Annotated[int | None, Size("How many bytes are kept; the oldest go first.")] = None


@dataclass(frozen=True, slots=True)
class MessageBounds(Block):
    max_bytes: Annotated[
        int | None,
        Number("The largest message, in bytes; 1 MiB when absent.", limits.KIB, limits.MESSAGE_BYTES_MAX),
    ] = None


@dataclass(frozen=True, slots=True)
class Delay(Block):
    mode: Annotated[str, Choice("Whether messages may be sent for later.", ("Allowed", "Forbidden"))] = (
        "Allowed"
    )
    max_delay_seconds: Annotated[
        int | None, Number("How far ahead; the delay service's horizon when absent.", 1)
    ] = None


@dataclass(frozen=True, slots=True)
class SubjectDeadLetter(Block):
    mode: Annotated[
        str, Choice("Whether messages that cannot be handled are kept.", ("Enabled", "Disabled"))
    ] = "Enabled"


@dataclass(frozen=True, slots=True)
class ConfigEntry(Block):
    name: Annotated[str, Text("The setting's name.", r"[a-z][A-Za-z0-9.]*", 128)]
    value: Annotated[str | None, Text("Its value; absent: whatever it is now stays.")] = None

    def conflict(self) -> tuple[str, str] | None:
        described = CONFIG.get(self.name)
        if described is None:
            hint = did_you_mean(self.name, CONFIG) or f"known are {listed(CONFIG, 'and')}"
            return "name", f"is {shown(self.name)}, which is not a setting: {hint}"
        try:
            if self.value is not None:
                described.parse(self.value, "value")
        except ManifestError as error:
            return "value", f"of {self.name} {error.detail}"
        return None


@dataclass(frozen=True, slots=True)
class SubjectSpec(Block):
    cluster_ref: Annotated[ClusterRef | None, Part("The cluster it belongs to.", ClusterRef)] = None
    subject_name: Annotated[
        str | None, Text("The subject's name; metadata.name when absent.", NAME_PATTERN, 100, NAME_MEANS)
    ] = None
    placement: Annotated[
        Placement | None, Part("Where it is stored; decided by meta when absent.", Placement)
    ] = None
    retention: Annotated[Retention, Part("How long messages are kept.", Retention)] = field(
        default_factory=Retention
    )
    message: Annotated[MessageBounds, Part("Bounds of a message.", MessageBounds)] = field(
        default_factory=MessageBounds
    )
    delay: Annotated[Delay, Part("Messages for later.", Delay)] = field(default_factory=Delay)
    dead_letter: Annotated[SubjectDeadLetter, Part("Messages that cannot be handled.", SubjectDeadLetter)] = (
        field(default_factory=SubjectDeadLetter)
    )
    config: Annotated[
        tuple[ConfigEntry, ...], Items("Further settings.", Part("A setting.", ConfigEntry), key="name")
    ] = ()
    order_strategy: Annotated[
        str,
        Choice(
            "What a failure does to messages with an order key: Strict holds up what is behind it, BestTried goes on.",
            ("Strict", "BestTried"),
        ),
    ] = "Strict"
    deduplication_seconds: Annotated[
        int | None,
        Number(
            "How long a dedup key is known; 0 refuses them; two minutes when absent.",
            0,
            limits.DEDUPLICATION_SECONDS_MAX,
        ),
    ] = None
    management_policy: Annotated[
        str, Choice("What the operator may do to it.", ("Full", "CreateOnly", "Observe"))
    ] = "Full"
    deletion_policy: Annotated[
        str,
        Choice(
            "What becomes of the messages when this object is deleted.", ("Retain", "Delete", "DeleteIfEmpty")
        ),
    ] = "Retain"


@dataclass(frozen=True, slots=True)
class SubjectRef(Block):
    name: Annotated[str, Text("The Subject object's metadata.name.", "", 253)]


@dataclass(frozen=True, slots=True)
class StartFrom(Block):
    position: Annotated[str, Choice("Where a new group begins.", ("Earliest", "Latest", "Timestamp"))] = (
        "Earliest"
    )
    timestamp: Annotated[str | None, Time("The time of the first message, when position is Timestamp.")] = (
        None
    )

    def conflict(self) -> tuple[str, str] | None:
        if self.position == "Timestamp" and self.timestamp is None:
            return "timestamp", "is missing: write a time such as 2026-09-01T00:00:00Z, or another position"
        if self.position != "Timestamp" and self.timestamp is not None:
            return (
                "timestamp",
                f"has no meaning with position {self.position}: write position Timestamp, or drop it",
            )
        return None


@dataclass(frozen=True, slots=True)
class Delivery(Block):
    max_attempts: Annotated[int, Number("Attempts before a message is a dead letter.", 1, 10_000)] = 32
    min_retry_seconds: Annotated[
        int, Number("Attempts go on for at least so long, even beyond maxAttempts.", 0, YEAR_SECONDS)
    ] = 24 * 3600
    ack_timeout_seconds: Annotated[
        int,
        Number(
            "The lease: how long a consumer may take before a message is given out again.",
            1,
            limits.LEASE_MS_MAX // 1000,
        ),
    ] = limits.LEASE_MS_DEFAULT // 1000
    max_ack_timeout_seconds: Annotated[
        int | None,
        Number(
            "The lease at most, however often it is renewed; 0: any time; an hour when absent.",
            0,
            limits.LEASE_RENEWED_MS_MAX // 1000,
        ),
    ] = None
    retry_backoff_seconds: Annotated[
        tuple[int, ...],
        Items(
            "Pauses before the attempts that follow a failure; the last one repeats.",
            Number("Seconds.", 1, 86_400),
            1,
            16,
            unique=False,
        ),
    ] = BACKOFF_SECONDS_DEFAULT

    def conflict(self) -> tuple[str, str] | None:
        if list(self.retry_backoff_seconds) != sorted(self.retry_backoff_seconds):
            return (
                "retryBackoffSeconds",
                "goes down: write pauses that stay or grow, for example [5, 30, 300]",
            )
        most = self.max_ack_timeout_seconds
        if most and most < self.ack_timeout_seconds:
            return (
                "maxAckTimeoutSeconds",
                f"is {most}, less than ackTimeoutSeconds: write at least {self.ack_timeout_seconds}, or 0 for any time",
            )
        return None


@dataclass(frozen=True, slots=True)
class GroupDeadLetter(Block):
    mode: Annotated[
        str, Choice("Whether messages that cannot be handled are kept.", ("Enabled", "Disabled"))
    ] = "Enabled"
    retention_seconds: Annotated[int, Number("How long they are kept.", 60, 10 * YEAR_SECONDS)] = (
        30 * 24 * 3600
    )


@dataclass(frozen=True, slots=True)
class Filter(Block):
    tags: Annotated[
        tuple[str, ...],
        Items(
            "Tags of the messages the group wants.",
            Text("A tag.", length_max=limits.TAG_BYTES_MAX),
            1,
            limits.TAGS_MAX,
        ),
    ] = ()
    match: Annotated[str, Choice("How many of the tags a message must have.", ("None", "Any", "All"))] = (
        "None"
    )

    def conflict(self) -> tuple[str, str] | None:
        if self.tags and self.match == "None":
            return "match", "is missing or None, but there are tags: write Any or All"
        if not self.tags and self.match != "None":
            return "tags", f"is missing: write the tags to match {self.match} of"
        return None


@dataclass(frozen=True, slots=True)
class GroupBounds(Block):
    max_in_flight: Annotated[
        int, Number("Messages given out and not acknowledged, at most.", 1, limits.IN_FLIGHT_MAX)
    ] = 10_000
    max_consumers: Annotated[int, Number("Consumers of the group, at most.", 1, limits.CONNECTIONS_MAX)] = 500


@dataclass(frozen=True, slots=True)
class ScaleTargetRef(Block):
    api_version: Annotated[str, Text("Its API version, for example apps/v1.", "", 253)]
    kind: Annotated[str, Text("Its kind, for example Deployment.", "", 63)]
    name: Annotated[str, Text("Its name.", "", 253)]


@dataclass(frozen=True, slots=True)
class Autoscaling(Block):
    mode: Annotated[str, Choice("Whether consumers are scaled by lag.", ("Disabled", "Keda"))] = "Disabled"
    scale_target_ref: Annotated[ScaleTargetRef | None, Part("What is scaled.", ScaleTargetRef)] = None
    min_replicas: Annotated[int, Number("Replicas, at least.", 0, 10_000)] = 1
    max_replicas: Annotated[int, Number("Replicas, at most.", 1, 10_000)] = 50
    lag_per_replica: Annotated[int, Number("Waiting messages for which one more replica is started.", 1)] = (
        1000
    )
    idle_replicas: Annotated[
        int | None, Number("Replicas when nothing waits; minReplicas when absent.", 0, 10_000)
    ] = None

    def conflict(self) -> tuple[str, str] | None:
        if self.mode == "Keda" and self.scale_target_ref is None:
            return "scaleTargetRef", "is missing: write apiVersion, kind and name of what is to be scaled"
        if self.max_replicas < self.min_replicas:
            return "maxReplicas", f"is {self.max_replicas}: write at least minReplicas, {self.min_replicas}"
        if self.idle_replicas is not None and self.idle_replicas >= max(self.min_replicas, 1):
            return "idleReplicas", f"is {self.idle_replicas}: write less than minReplicas, or drop it"
        return None


@dataclass(frozen=True, slots=True)
class ConsumerGroupSpec(Block):
    cluster_ref: Annotated[ClusterRef | None, Part("The cluster it belongs to.", ClusterRef)] = None
    subject_ref: Annotated[SubjectRef | None, Part("The Subject object to consume.", SubjectRef)] = None
    subject_name: Annotated[
        str | None, Text("Or the subject by its name.", NAME_PATTERN, 100, NAME_MEANS)
    ] = None
    group_name: Annotated[
        str | None, Text("The group's name; metadata.name when absent.", NAME_PATTERN, 100, NAME_MEANS)
    ] = None
    consumption: Annotated[
        str, Choice("How messages are shared out.", ("Shared", "Broadcast", "Ordered"))
    ] = "Shared"
    start_from: Annotated[StartFrom, Part("Where a new group begins.", StartFrom)] = field(
        default_factory=StartFrom
    )
    delivery: Annotated[Delivery, Part("Leases and retries.", Delivery)] = field(default_factory=Delivery)
    dead_letter: Annotated[GroupDeadLetter, Part("Messages that cannot be handled.", GroupDeadLetter)] = (
        field(default_factory=GroupDeadLetter)
    )
    filter: Annotated[Filter, Part("Which messages the group wants.", Filter)] = field(default_factory=Filter)
    limits: Annotated[GroupBounds, Part("Bounds of the group.", GroupBounds)] = field(
        default_factory=GroupBounds
    )
    state: Annotated[
        str, Choice("Suspended stops delivery and keeps the position.", ("Active", "Suspended"))
    ] = "Active"
    autoscaling: Annotated[Autoscaling, Part("Scaling of the consumers.", Autoscaling)] = field(
        default_factory=Autoscaling
    )
    deletion_policy: Annotated[
        str, Choice("What becomes of the position when this object is deleted.", ("Retain", "Delete"))
    ] = "Retain"

    def conflict(self) -> tuple[str, str] | None:
        if self.subject_ref is None and self.subject_name is None:
            return "", "says neither subjectRef nor subjectName: write one of the two"
        if self.subject_ref is not None and self.subject_name is not None:
            return "", "says both subjectRef and subjectName: write one of the two"
        return None
