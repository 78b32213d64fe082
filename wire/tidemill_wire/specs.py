"""What a manifest's metadata may hold, and the spec of a Subject; other kinds are in the modules beside this one.

A field's line here is its documentation, its bounds and its default, in manifests, custom resources and docs alike.
Where no default is written, absence is kept as None and whoever applies the declaration decides, so that a changed
default of the broker reaches subjects that never asked for anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from tidemill_wire import limits
from tidemill_wire.schema import (
    Block,
    Choice,
    Items,
    Labels,
    ManifestError,
    Number,
    Part,
    Rule,
    Size,
    Text,
)
from tidemill_wire.wording import did_you_mean, listed, shown

YEAR_SECONDS = 365 * 24 * 3600
NAME_PATTERN = r"[A-Za-z0-9._-]{1,100}"
NAME_MEANS = "1 to 100 characters of A-Z a-z 0-9 . _ - (names with % are tidemill's own)"
ANOTHER_CLUSTER = "make a new object for the other cluster"

CONFIG: dict[str, Choice] = {
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
    name: Annotated[str, Text("The QueueCluster's name, in the same namespace.", "", 63)]


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

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.brokerGroups) != (has(self.minBrokerGroups) || has(self.brokerGroupSelector))",
            "write either brokerGroups, or minBrokerGroups and brokerGroupSelector",
        ),
    )

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
    archive: Annotated[
        str,
        Choice(
            "Required: what no archive has yet is kept beyond these bounds.",
            ("Optional", "Required"),
        ),
    ] = "Optional"


@dataclass(frozen=True, slots=True)
class MessageBounds(Block):
    max_bytes: Annotated[
        int | None,
        Number("The largest message, in bytes; 1 MiB when absent.", limits.KIB, limits.MESSAGE_BYTES_MAX),
    ] = None


@dataclass(frozen=True, slots=True)
class Delay(Block):
    mode: Annotated[
        str,
        Choice("Whether messages may be sent for later; what waits already stays.", ("Allowed", "Forbidden")),
    ] = "Allowed"
    max_delay_seconds: Annotated[
        int | None,
        Number("How far ahead; what is farther is refused. The delay service's horizon when absent.", 1),
    ] = None


@dataclass(frozen=True, slots=True)
class SubjectDeadLetter(Block):
    mode: Annotated[
        str,
        Choice(
            "Disabled: of no group, whatever that declares, is kept what cannot be handled; it is counted.",
            ("Enabled", "Disabled"),
        ),
    ] = "Enabled"


@dataclass(frozen=True, slots=True)
class ConfigEntry(Block):
    name: Annotated[str, Text("The setting's name.", r"[a-z][A-Za-z0-9.]*", 128)]
    value: Annotated[str | None, Text("Its value; absent: whatever it is now stays.")] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(f"self.name in {sorted(CONFIG)}", f"write a setting, which is {listed(CONFIG)}", "name"),
        *(
            Rule(
                f"self.name != '{name}' || !has(self.value) || self.value in {list(described.values)}",
                f"of {name} write {described.kind}",
                "value",
            )
            for name, described in CONFIG.items()
        ),
    )

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
class SubjectQuota(Block):
    messages_per_second: Annotated[
        int | None, Number("Messages a second, on all brokers together; any number when absent.", 1)
    ] = None
    bytes_per_second: Annotated[
        int | None,
        Size("Bytes of batches a second, on all brokers together; any number when absent.", limits.KIB),
    ] = None
    in_flight: Annotated[
        int | None,
        Number(
            "Messages given to consumers of whatever group and not settled, on all brokers together; any number when "
            "absent.",
            1,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class SubjectSpec(Block):
    cluster_ref: Annotated[
        ClusterRef | None, Part("The cluster it belongs to.", ClusterRef, instead=ANOTHER_CLUSTER)
    ] = None
    subject_name: Annotated[
        str | None,
        Text(
            "The subject's name; metadata.name when absent.",
            NAME_PATTERN,
            100,
            NAME_MEANS,
            instead="make a new object for the new name",
        ),
    ] = None
    placement: Annotated[
        Placement | None,
        Part("Where it is stored from the first, and may grow to; decided by meta when absent.", Placement),
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
    quota: Annotated[
        SubjectQuota,
        Part("What may be sent to it and be in flight; beyond, programs are told to wait.", SubjectQuota),
    ] = field(default_factory=SubjectQuota)
    management_policy: Annotated[
        str, Choice("What the operator may do to it.", ("Full", "CreateOnly", "Observe"))
    ] = "Full"
    deletion_policy: Annotated[
        str,
        Choice(
            "What becomes of the messages when this object is deleted.", ("Retain", "Delete", "DeleteIfEmpty")
        ),
    ] = "Retain"
