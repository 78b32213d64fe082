"""What the spec of a ConsumerGroup may hold; see ``specs.py``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from tidemill_wire import limits
from tidemill_wire.schema import Block, Choice, Items, Number, Part, Rule, Text, Time
from tidemill_wire.specs import ANOTHER_CLUSTER, NAME_MEANS, NAME_PATTERN, YEAR_SECONDS, ClusterRef

BACKOFF_SECONDS_DEFAULT = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600)  # doubling to ten minutes
ANOTHER_SUBJECT = "make a new object for the other subject"


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

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.timestamp) == (self.position == 'Timestamp')",
            "write position Timestamp together with a time such as 2026-09-01T00:00:00Z, or neither",
            "timestamp",
        ),
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

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.retryBackoffSeconds.isSorted()",
            "write pauses that stay or grow, for example [5, 30, 300]",
            "retryBackoffSeconds",
        ),
        Rule(
            "!has(self.maxAckTimeoutSeconds) || self.maxAckTimeoutSeconds == 0"
            " || self.maxAckTimeoutSeconds >= self.ackTimeoutSeconds",
            "write at least ackTimeoutSeconds, or 0 for any time",
            "maxAckTimeoutSeconds",
        ),
    )

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

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("!has(self.tags) || self.match != 'None'", "with tags write match Any or All", "match"),
        Rule("has(self.tags) || self.match == 'None'", "write the tags to match, or match None", "tags"),
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
    lag_per_replica: Annotated[
        int,
        Number("Undone messages for one more replica, until it was seen what one consumer can.", 1),
    ] = 1000
    idle_replicas: Annotated[
        int | None,
        Number("Replicas when nothing is undone and nothing comes; minReplicas when absent.", 0, 10_000),
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.mode != 'Keda' || has(self.scaleTargetRef)",
            "write apiVersion, kind and name of what is to be scaled",
            "scaleTargetRef",
        ),
        Rule("self.maxReplicas >= self.minReplicas", "write at least minReplicas", "maxReplicas"),
        Rule(
            "!has(self.idleReplicas) || self.idleReplicas < self.minReplicas"
            " || (self.idleReplicas == 0 && self.minReplicas == 0)",
            "write less than minReplicas, or drop it",
            "idleReplicas",
        ),
    )

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
    cluster_ref: Annotated[
        ClusterRef | None, Part("The cluster it belongs to.", ClusterRef, instead=ANOTHER_CLUSTER)
    ] = None
    subject_ref: Annotated[
        SubjectRef | None, Part("The Subject object to consume.", SubjectRef, instead=ANOTHER_SUBJECT)
    ] = None
    subject_name: Annotated[
        str | None,
        Text("Or the subject by its name.", NAME_PATTERN, 100, NAME_MEANS, instead=ANOTHER_SUBJECT),
    ] = None
    group_name: Annotated[
        str | None,
        Text(
            "The group's name; metadata.name when absent.",
            NAME_PATTERN,
            100,
            NAME_MEANS,
            instead="make a new object for the new name",
        ),
    ] = None
    consumption: Annotated[
        str,
        Choice(
            "How messages are shared out.",
            ("Shared", "Broadcast", "Ordered"),
            instead="make a group with another name that consumes so",
        ),
    ] = "Shared"
    start_from: Annotated[
        StartFrom,
        Part(
            "Where a new group begins.",
            StartFrom,
            instead="it counts when a group is new, and one that is there is moved by a seek",
        ),
    ] = field(default_factory=StartFrom)
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

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.subjectRef) != has(self.subjectName)", "write one of subjectRef and subjectName"),
    )

    def conflict(self) -> tuple[str, str] | None:
        if self.subject_ref is None and self.subject_name is None:
            return "", "says neither subjectRef nor subjectName: write one of the two"
        if self.subject_ref is not None and self.subject_name is not None:
            return "", "says both subjectRef and subjectName: write one of the two"
        return None
