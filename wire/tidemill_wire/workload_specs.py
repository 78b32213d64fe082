"""What specs say of the pods and volumes that the operator makes: a chosen part of what Kubernetes has.

A pod template is not taken as it is: whoever may write a BrokerGroup could do with the operator's rights whatever a
pod can.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from tidemill_wire import limits
from tidemill_wire.schema import Amount, Block, Choice, Items, Labels, Number, Part, Rule, Size, Text
from tidemill_wire.wording import listed

OBJECT_NAME_PATTERN = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
OBJECT_NAME_MEANS = "a name of lower-case letters, digits, - and ."


@dataclass(frozen=True, slots=True)
class Image(Block):
    repository: Annotated[
        str | None,
        Text(
            "Where the image is, as in registry.example.org/tidemill; the operator's own image when absent.",
            r"[a-z0-9]+([._:/-]+[a-z0-9]+)*",
            255,
            "a repository such as registry.example.org/tidemill, without a tag",
        ),
    ] = None
    tag: Annotated[
        str | None,
        Text(
            "Its tag; the operator's version when absent.",
            r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}",
            128,
            "a tag such as 0.1.0, without the repository",
        ),
    ] = None
    pull_policy: Annotated[str, Choice("When it is pulled.", ("IfNotPresent", "Always", "Never"))] = (
        "IfNotPresent"
    )
    pull_secrets: Annotated[
        tuple[str, ...],
        Items(
            "Secrets by which it is pulled.",
            Text("A Secret's name.", OBJECT_NAME_PATTERN, 253, OBJECT_NAME_MEANS),
            0,
            8,
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class SecretKeyRef(Block):
    name: Annotated[str, Text("The Secret's name.", OBJECT_NAME_PATTERN, 253, OBJECT_NAME_MEANS)]
    key: Annotated[
        str,
        Text("The key in it.", r"[-._a-zA-Z0-9]+", 253, "a key of a Secret: letters, digits, -, _ and ."),
    ]


@dataclass(frozen=True, slots=True)
class SecretRef(Block):
    name: Annotated[str, Text("The Secret's name.", OBJECT_NAME_PATTERN, 253, OBJECT_NAME_MEANS)]


@dataclass(frozen=True, slots=True)
class Amounts(Block):
    cpu: Annotated[str | None, Amount("Processors.")] = None
    memory: Annotated[str | None, Amount("Memory.")] = None


@dataclass(frozen=True, slots=True)
class Resources(Block):
    requests: Annotated[Amounts | None, Part("What a pod is placed by.", Amounts)] = None
    limits: Annotated[Amounts | None, Part("What a pod is held to.", Amounts)] = None


@dataclass(frozen=True, slots=True)
class Toleration(Block):
    key: Annotated[str | None, Text("The taint's key; any when absent.", "", 316)] = None
    operator: Annotated[str, Choice("How value is compared.", ("Equal", "Exists"))] = "Equal"
    value: Annotated[str | None, Text("The taint's value.", "", 63)] = None
    effect: Annotated[
        str | None,
        Choice("The taint's effect; any when absent.", ("NoSchedule", "PreferNoSchedule", "NoExecute")),
    ] = None
    toleration_seconds: Annotated[
        int | None, Number("For how long NoExecute is borne; for ever when absent.", 0)
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.key) || self.operator == 'Exists'", "write a key, or operator Exists", "key"),
        Rule(
            "!has(self.value) || self.operator == 'Equal'",
            "has no meaning with operator Exists: drop it",
            "value",
        ),
    )

    def conflict(self) -> tuple[str, str] | None:
        if self.key is None and self.operator != "Exists":
            return "key", "is missing: write a key, or operator Exists"
        if self.value is not None and self.operator != "Equal":
            return "value", "has no meaning with operator Exists: drop it"
        return None


@dataclass(frozen=True, slots=True)
class Scheduling(Block):
    node_selector: Annotated[
        tuple[tuple[str, str], ...], Labels("Labels that a node must have.", 16, 63)
    ] = ()
    tolerations: Annotated[
        tuple[Toleration, ...],
        Items("Taints that are borne.", Part("A taint.", Toleration), 0, 16),
    ] = ()
    spread: Annotated[
        str,
        Choice(
            "Whether replicas keep away from each other: Preferred over zones and nodes, Required over nodes.",
            ("Preferred", "Required", "None"),
        ),
    ] = "Preferred"
    priority_class_name: Annotated[
        str | None, Text("The pods' priority class.", OBJECT_NAME_PATTERN, 253, OBJECT_NAME_MEANS)
    ] = None


@dataclass(frozen=True, slots=True)
class VolumeRetention(Block):
    when_deleted: Annotated[
        str, Choice("What becomes of volumes when the object is deleted.", ("Retain", "Delete"))
    ] = "Retain"
    when_scaled: Annotated[
        str, Choice("What becomes of the volume of a replica that is taken away.", ("Retain", "Delete"))
    ] = "Retain"


@dataclass(frozen=True, slots=True)
class Storage(Block):
    size: Annotated[int, Size("The size of a replica's volume.", 64 * limits.MIB)]
    class_name: Annotated[
        str | None,
        Text(
            "The storage class; the cluster's default when absent.",
            OBJECT_NAME_PATTERN,
            253,
            OBJECT_NAME_MEANS,
            instead="make a new object with the other class, and drain this one",
        ),
    ] = None
    retention: Annotated[
        VolumeRetention, Part("What becomes of volumes that are not used any more.", VolumeRetention)
    ] = field(default_factory=VolumeRetention)

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0",
            "volumes do not shrink: write the size it has, or more",
            "size",
        ),
    )


@dataclass(frozen=True, slots=True)
class Setting(Block):
    name: Annotated[
        str,
        Text("As in docs/settings.md.", r"[a-z][a-z0-9_]*", 64, "a setting as docs/settings.md has it"),
    ]
    value: Annotated[str, Text("Its value.")]


def no_own_settings(own: tuple[str, ...]) -> Rule:
    """Settings that the operator sets are not a user's."""
    return Rule(
        f"!has(self.config) || self.config.all(one, !(one.name in {list(own)}))",
        f"drop {listed(own, 'and')}, which the operator sets",
        "config",
    )


def own_setting(config: tuple[Setting, ...], own: tuple[str, ...]) -> tuple[str, str] | None:
    """The same, for ``conflict``."""
    taken = [one.name for one in config if one.name in own]
    return ("config", f"holds {taken[0]}, which the operator sets: drop it") if taken else None
