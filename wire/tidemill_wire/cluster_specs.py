"""What the specs of a QueueCluster and a BrokerGroup may hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from tidemill_wire import limits
from tidemill_wire.schema import Block, Choice, Flag, Items, Labels, Number, Part, Rule, Text
from tidemill_wire.security_specs import ClusterSecurity
from tidemill_wire.specs import ANOTHER_CLUSTER, ClusterRef
from tidemill_wire.workload_specs import (
    Image,
    Resources,
    Scheduling,
    SecretKeyRef,
    Setting,
    Storage,
    no_own_settings,
    own_setting,
)

GROUP_PATTERN = "[a-z0-9]{1,30}"
GROUP_MEANS = "1 to 30 lower-case letters and digits (in a broker's name, a dash follows its group)"
LABEL_PATTERN = r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?"
LABEL_MEANS = "1 to 63 letters, digits, -, _, . and /"
METAS_OWN = ("canary", "name")
LOCKS = ("cluster_token_file", "tls_ca", "tls_cert", "tls_client_ca", "tls_client_required", "tls_key")
"""What a QueueCluster says under ``security``, for all of its services alike."""
BROKERS_OWN = ("advertise", "durability", "labels", "meta", "name", "replicated", *LOCKS)
GIB = limits.GIB


@dataclass(frozen=True, slots=True)
class MetaStore(Block):
    type: Annotated[
        str,
        Choice(
            "Where meta keeps what it knows: SQLite on a volume of its own, for one replica; or a PostgreSQL.",
            ("SQLite", "PostgreSQL"),
            instead="make a new cluster with the other store",
        ),
    ] = "SQLite"
    secret_ref: Annotated[
        SecretKeyRef | None,
        Part("The Secret with the PostgreSQL's address, postgresql://USER:PASSWORD@HOST/NAME.", SecretKeyRef),
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.secretRef) == (self.type == 'PostgreSQL')",
            "with type PostgreSQL write name and key of the Secret with its address, with SQLite drop it",
            "secretRef",
        ),
    )

    def conflict(self) -> tuple[str, str] | None:
        if self.type == "PostgreSQL" and self.secret_ref is None:
            return "secretRef", "is missing: write name and key of the Secret with the PostgreSQL's address"
        if self.type == "SQLite" and self.secret_ref is not None:
            return "secretRef", "has no meaning with type SQLite: write type PostgreSQL, or drop it"
        return None


@dataclass(frozen=True, slots=True)
class MetaSpec(Block):
    replicas: Annotated[int, Number("Replicas of meta; all of them serve.", 1, 9)] = 1
    store: Annotated[MetaStore, Part("The database behind meta.", MetaStore)] = field(
        default_factory=MetaStore
    )
    storage: Annotated[Storage, Part("The volume of an SQLite.", Storage)] = field(
        default_factory=lambda: Storage(GIB)
    )
    resources: Annotated[Resources, Part("What its pods may use.", Resources)] = field(
        default_factory=Resources
    )
    scheduling: Annotated[Scheduling, Part("Where its pods run.", Scheduling)] = field(
        default_factory=Scheduling
    )
    config: Annotated[
        tuple[Setting, ...], Items("Settings of meta.", Part("A setting.", Setting), key="name")
    ] = ()

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.replicas == 1 || self.store.type == 'PostgreSQL'",
            "SQLite is for one replica: write 1, or store.type PostgreSQL",
            "replicas",
        ),
        no_own_settings(METAS_OWN),
    )

    def conflict(self) -> tuple[str, str] | None:
        if self.replicas > 1 and self.store.type == "SQLite":
            return (
                "replicas",
                f"is {self.replicas}, and SQLite is for one replica: write 1, or store.type PostgreSQL",
            )
        return own_setting(self.config, METAS_OWN)


@dataclass(frozen=True, slots=True)
class Update(Block):
    strategy: Annotated[
        str,
        Choice(
            "When pods get what changed: Automatic at once, one after the other; Supervised when a person says so.",
            ("Automatic", "Supervised"),
        ),
    ] = "Automatic"
    group_delay_seconds: Annotated[
        int, Number("The pause between one broker group and the next.", 0, 86_400)
    ] = 0


@dataclass(frozen=True, slots=True)
class NetworkPolicy(Block):
    mode: Annotated[
        str, Choice("Whether the operator says who may reach the pods.", ("Generate", "None"))
    ] = "Generate"
    clients: Annotated[str, Choice("From where clients may come.", ("SameNamespace", "AnyNamespace"))] = (
        "SameNamespace"
    )


@dataclass(frozen=True, slots=True)
class DisruptionBudget(Block):
    mode: Annotated[
        str,
        Choice("Whether the operator says how many pods may be evicted at a time.", ("Generate", "None")),
    ] = "Generate"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFields(Block):
    """What is said of a broker group, in an object of its own or in its cluster's list."""

    kind: Annotated[
        str,
        Choice(
            "What it holds: Realtime has subjects, Delay has messages for later.",
            ("Realtime", "Delay"),
            instead="make a new group of the other kind",
        ),
    ] = "Realtime"
    slaves: Annotated[int, Number("Replicas besides the master.", 0, 4)] = 1
    write_availability: Annotated[
        str,
        Choice(
            "ReadOnly: clients send elsewhere, and what it has is consumed; Offline: neither.",
            ("ReadWrite", "ReadOnly", "Offline"),
        ),
    ] = "ReadWrite"
    storage: Annotated[Storage, Part("The volumes of its brokers.", Storage)] = field(
        default_factory=lambda: Storage(10 * GIB)
    )
    durability: Annotated[
        str | None,
        Choice(
            "The class of subjects that declare none; when absent, normal with slaves and high without.",
            ("low", "normal", "high"),
        ),
    ] = None
    labels: Annotated[
        tuple[tuple[str, str], ...],
        Labels("What a subject's placement may ask for.", 16, 63, LABEL_PATTERN, LABEL_MEANS),
    ] = ()
    resources: Annotated[Resources, Part("What its pods may use.", Resources)] = field(
        default_factory=Resources
    )
    scheduling: Annotated[Scheduling, Part("Where its pods run.", Scheduling)] = field(
        default_factory=Scheduling
    )
    config: Annotated[
        tuple[Setting, ...], Items("Settings of its brokers.", Part("A setting.", Setting), key="name")
    ] = ()
    termination_grace_period_seconds: Annotated[
        int, Number("How long a broker may take to hand over and to stop.", 15, 3600)
    ] = 60

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.kind == 'Realtime' || !has(self.durability) || self.durability != 'low'",
            "of messages for later write normal or high",
            "durability",
        ),
        no_own_settings(BROKERS_OWN),
    )

    def conflict(self) -> tuple[str, str] | None:
        if self.kind == "Delay" and self.durability == "low":
            return "durability", "is low: of messages for later write normal or high"
        return own_setting(self.config, BROKERS_OWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroupSpec(GroupFields):
    cluster_ref: Annotated[
        ClusterRef, Part("The cluster it belongs to.", ClusterRef, instead=ANOTHER_CLUSTER)
    ]
    group_name: Annotated[
        str | None,
        Text(
            "The broker group's name; metadata.name when absent. No two of a cluster have the same.",
            GROUP_PATTERN,
            30,
            GROUP_MEANS,
            instead="make a new group, and drain this one",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup(GroupFields):
    name: Annotated[str, Text("The broker group's name.", GROUP_PATTERN, 30, GROUP_MEANS)]


@dataclass(frozen=True, slots=True)
class CanarySpec(Block):
    """Off unless it is asked for: an object that was written before there was one means what it meant."""

    enabled: Annotated[
        bool, Flag("Whether a canary sends probes through each broker group, and judges what comes back.")
    ] = False
    interval_milliseconds: Annotated[
        int,
        Number("From one probe of a broker group to the next; failovers are measured as finely.", 10, 60_000),
    ] = 500
    token: Annotated[
        SecretKeyRef | None,
        Part(
            "Where the cluster asks who somebody is, and knows no ServiceAccounts: the Secret with a token that is "
            "the canary's alone.",
            SecretKeyRef,
        ),
    ] = None
    resources: Annotated[Resources, Part("What its pod may use.", Resources)] = field(
        default_factory=Resources
    )
    scheduling: Annotated[Scheduling, Part("Where its pod runs.", Scheduling)] = field(
        default_factory=Scheduling
    )


@dataclass(frozen=True, slots=True)
class QueueClusterSpec(Block):
    image: Annotated[Image, Part("The image of meta and the brokers.", Image)] = field(default_factory=Image)
    meta: Annotated[MetaSpec, Part("Who knows who serves what.", MetaSpec)] = field(default_factory=MetaSpec)
    broker_groups: Annotated[
        tuple[ListedGroup, ...],
        Items(
            "Broker groups that are made with it; one that leaves the list is drained and deleted.",
            Part("A broker group.", ListedGroup),
            0,
            64,
            key="name",
        ),
    ] = ()
    security: Annotated[ClusterSecurity, Part("What keeps others out.", ClusterSecurity)] = field(
        default_factory=ClusterSecurity
    )
    canary: Annotated[CanarySpec, Part("What is measured all the time.", CanarySpec)] = field(
        default_factory=CanarySpec
    )
    update: Annotated[Update, Part("How what changed comes to the pods.", Update)] = field(
        default_factory=Update
    )
    network_policy: Annotated[NetworkPolicy, Part("Who may reach the pods.", NetworkPolicy)] = field(
        default_factory=NetworkPolicy
    )
    pod_disruption_budget: Annotated[
        DisruptionBudget, Part("How many pods may be evicted at a time.", DisruptionBudget)
    ] = field(default_factory=DisruptionBudget)
