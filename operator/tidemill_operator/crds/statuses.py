"""What the operator reports, kind by kind: what it writes and nothing more, for all else is dropped on the way.

What changes all the time is in metrics; what is here, a person would read.

Epochs and sequences are texts: numbers in JSON are exact to 53 bits only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tidemill_wire.schema import Block, Flag, Items, Number, Part, Text, Time


@dataclass(frozen=True, slots=True)
class ConditionStatus(Block):
    type: Annotated[str, Text("What it is about.", "", 316)]
    status: Annotated[str, Text("True, False or Unknown.", "", 7)]
    reason: Annotated[str, Text("Why, in one word.", "", 1024)]
    message: Annotated[str, Text("Why, for people.", "", 32_768)]
    last_transition_time: Annotated[str, Time("When the status last changed.")]
    observed_generation: Annotated[int | None, Number("The generation of the spec that it is about.")] = None


@dataclass(frozen=True, slots=True)
class Reported(Block):
    """What all kinds report."""

    observed_generation: Annotated[
        int | None, Number("The generation of the spec that was last acted on.")
    ] = None
    conditions: Annotated[
        tuple[ConditionStatus, ...],
        Items("How it stands.", Part("One condition.", ConditionStatus), 0, 16, key="type"),
    ] = ()


@dataclass(frozen=True, slots=True)
class MetaReported(Block):
    replicas: Annotated[int | None, Number("Replicas that there are.")] = None
    ready_replicas: Annotated[int | None, Number("Of them ready.")] = None
    endpoint: Annotated[str | None, Text("Where clients ask, as host:port.", "", 512)] = None


@dataclass(frozen=True, slots=True)
class GroupsReported(Block):
    desired: Annotated[int | None, Number("Broker groups that there are to be.")] = None
    ready: Annotated[int | None, Number("Of them ready.")] = None
    read_only: Annotated[int | None, Number("Of them read-only.")] = None


@dataclass(frozen=True, slots=True)
class RolloutReported(Block):
    group: Annotated[str | None, Text("The broker group whose turn it is.", "", 253)] = None
    broker: Annotated[str | None, Text("The broker whose turn it is.", "", 253)] = None
    stage: Annotated[str | None, Text("How far it is.", "", 253)] = None
    leader: Annotated[str | None, Text("Who led when that was last known.", "", 253)] = None
    since: Annotated[str | None, Time("Since when.")] = None


@dataclass(frozen=True, slots=True)
class QueueClusterStatus(Reported):
    meta: Annotated[MetaReported | None, Part("Meta.", MetaReported)] = None
    broker_groups: Annotated[GroupsReported | None, Part("Its broker groups.", GroupsReported)] = None
    rollout: Annotated[RolloutReported | None, Part("Who is being brought up to date.", RolloutReported)] = (
        None
    )
    last_rollout_time: Annotated[str | None, Time("When all were last up to date.")] = None


@dataclass(frozen=True, slots=True)
class MasterReported(Block):
    broker: Annotated[str | None, Text("Its name at meta.", "", 253)] = None
    pod: Annotated[str | None, Text("Its pod.", "", 253)] = None
    address: Annotated[str | None, Text("Its data port, as host:port.", "", 512)] = None
    epoch: Annotated[str | None, Text("The number of its mastership.", "", 20)] = None


@dataclass(frozen=True, slots=True)
class BrokerReported(Block):
    pod: Annotated[str, Text("Its pod.", "", 253)]
    broker: Annotated[str | None, Text("Its name at meta.", "", 253)] = None
    role: Annotated[str | None, Text("Master, Slave, or Unknown.", "", 16)] = None
    ready: Annotated[bool | None, Flag("Whether its pod is ready.")] = None
    alive: Annotated[bool | None, Flag("Whether meta hears it.")] = None
    in_sync: Annotated[bool | None, Flag("Whether it has all that was answered.")] = None
    revision: Annotated[str | None, Text("Of which revision its pod is.", "", 253)] = None
    claim: Annotated[str | None, Text("Its volume's claim.", "", 253)] = None
    node: Annotated[str | None, Text("Its node.", "", 253)] = None


@dataclass(frozen=True, slots=True)
class StorageReported(Block):
    requested: Annotated[str | None, Text("The size that was asked for.", "", 64)] = None
    capacity: Annotated[str | None, Text("The smallest size that a volume has.", "", 64)] = None


@dataclass(frozen=True, slots=True)
class BrokerGroupStatus(Reported):
    group_name: Annotated[str | None, Text("Its name at meta.", "", 253)] = None
    selector: Annotated[str | None, Text("The labels of its pods.", "", 1024)] = None
    replicas: Annotated[int | None, Number("Brokers that there are.")] = None
    ready_replicas: Annotated[int | None, Number("Of them ready.")] = None
    in_sync: Annotated[int | None, Number("Of them in sync.")] = None
    master: Annotated[MasterReported | None, Part("Who leads.", MasterReported)] = None
    brokers: Annotated[
        tuple[BrokerReported, ...],
        Items("Its brokers.", Part("One of them.", BrokerReported), 0, 16, key="pod"),
    ] = ()
    write_state: Annotated[str | None, Text("What it takes, as meta has it.", "", 16)] = None
    current_revision: Annotated[str | None, Text("The revision that all brokers had.", "", 253)] = None
    update_revision: Annotated[str | None, Text("The revision that they are to have.", "", 253)] = None
    rollout: Annotated[RolloutReported | None, Part("Who is being brought up to date.", RolloutReported)] = (
        None
    )
    storage: Annotated[StorageReported | None, Part("Its volumes.", StorageReported)] = None


@dataclass(frozen=True, slots=True)
class Drift(Block):
    last_detected_time: Annotated[str | None, Time("When somebody else's change was last found.")] = None
    count: Annotated[int | None, Number("How often.")] = None
    fields: Annotated[
        tuple[str, ...], Items("What had changed.", Text("A path.", "", 256), 0, 64, unique=False)
    ] = ()


@dataclass(frozen=True, slots=True)
class SubjectStatus(Reported):
    subject_name: Annotated[str | None, Text("Its name at meta.", "", 100)] = None
    route_version: Annotated[str | None, Text("The version of its route.", "", 20)] = None
    broker_groups: Annotated[
        tuple[str, ...], Items("Where it lies.", Text("A broker group.", "", 30), 0, 256)
    ] = ()
    drift: Annotated[Drift | None, Part("What others changed.", Drift)] = None


@dataclass(frozen=True, slots=True)
class LagReported(Block):
    messages: Annotated[str | None, Text("Messages that wait, roughly.", "", 20)] = None
    sampled_at: Annotated[str | None, Time("When that was.")] = None


@dataclass(frozen=True, slots=True)
class ResetReported(Block):
    request_id: Annotated[str | None, Text("Which request.", "", 253)] = None
    to: Annotated[str | None, Text("Where to.", "", 64)] = None
    time: Annotated[str | None, Time("When.")] = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupStatus(Reported):
    group_name: Annotated[str | None, Text("Its name at meta.", "", 100)] = None
    subject_name: Annotated[str | None, Text("Its subject's name at meta.", "", 100)] = None
    consumers: Annotated[int | None, Number("Consumers that are there, roughly.")] = None
    lag: Annotated[
        LagReported | None, Part("How far it is behind; exact numbers are metrics.", LagReported)
    ] = None
    last_reset: Annotated[ResetReported | None, Part("The last seek by annotation.", ResetReported)] = None
    drift: Annotated[Drift | None, Part("What others changed.", Drift)] = None


@dataclass(frozen=True, slots=True)
class Watermark(Block):
    subject: Annotated[str, Text("The subject.", "", 100)]
    broker_group: Annotated[str, Text("The broker group.", "", 30)]
    partition: Annotated[str | None, Text("The partition there.", "", 253)] = None
    sequence: Annotated[str | None, Text("The first sequence that is not archived.", "", 20)] = None
    time: Annotated[str | None, Time("The time of the last message that is.")] = None


@dataclass(frozen=True, slots=True)
class Archived(Block):
    messages: Annotated[str | None, Text("Messages.", "", 20)] = None
    bytes: Annotated[str | None, Text("Bytes of files written.", "", 20)] = None


@dataclass(frozen=True, slots=True)
class ArchiveStatus(Reported):
    scheduled_spark_application: Annotated[str | None, Text("What runs it.", "", 253)] = None
    last_schedule_time: Annotated[str | None, Time("When the last run began.")] = None
    last_successful_time: Annotated[str | None, Time("When one last went well.")] = None
    next_schedule_time: Annotated[str | None, Time("When the next one begins.")] = None
    last_run_name: Annotated[str | None, Text("The last run.", "", 253)] = None
    last_run_state: Annotated[str | None, Text("How it ended, or stands.", "", 64)] = None
    watermarks: Annotated[
        tuple[Watermark, ...],
        Items(
            "How far the archive goes.",
            Part("One subject on one broker group.", Watermark),
            0,
            256,
            unique=False,
        ),
    ] = ()
    watermarks_config_map: Annotated[
        str | None, Text("Where the watermarks are when they are too many.", "", 253)
    ] = None
    archived: Annotated[Archived | None, Part("What the last run that went well did.", Archived)] = None
    last_error: Annotated[str | None, Text("What the last run said that failed.", "", 1024)] = None


@dataclass(frozen=True, slots=True)
class ReplayCounts(Block):
    read: Annotated[str | None, Text("Messages read, or with DryRun counted.", "", 20)] = None
    filtered: Annotated[str | None, Text("Of them not wanted.", "", 20)] = None
    sent: Annotated[str | None, Text("Of them sent.", "", 20)] = None
    failed: Annotated[str | None, Text("Of them refused.", "", 20)] = None
    duplicate: Annotated[str | None, Text("Of them stored before.", "", 20)] = None


@dataclass(frozen=True, slots=True)
class ReplayCheckpoint(Block):
    uri: Annotated[str | None, Text("Where it is.")] = None
    position: Annotated[str | None, Text("How far.", "", 253)] = None


@dataclass(frozen=True, slots=True)
class ReplayStatus(Reported):
    spark_application: Annotated[str | None, Text("What runs it.", "", 253)] = None
    attempts: Annotated[int | None, Number("How often it began.")] = None
    start_time: Annotated[str | None, Time("When it began.")] = None
    completion_time: Annotated[str | None, Time("When it ended.")] = None
    counts: Annotated[ReplayCounts | None, Part("What became of the messages.", ReplayCounts)] = None
    checkpoint: Annotated[ReplayCheckpoint | None, Part("From where it goes on.", ReplayCheckpoint)] = None
    last_error: Annotated[str | None, Text("What the last attempt said that failed.", "", 1024)] = None


@dataclass(frozen=True, slots=True)
class GrantStatus(Reported):
    principals: Annotated[int | None, Number("Principals that are known.")] = None
    revision: Annotated[str | None, Text("Meta's revision that has it.", "", 20)] = None
    drift: Annotated[Drift | None, Part("What others changed.", Drift)] = None
