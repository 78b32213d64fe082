"""What the spec of a Grant may hold: who may do what with which subjects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from tidemill_wire import limits
from tidemill_wire.schema import Block, Choice, Items, Number, Part, Rule, Size, Text
from tidemill_wire.specs import ANOTHER_CLUSTER, ClusterRef
from tidemill_wire.workload_specs import OBJECT_NAME_MEANS, OBJECT_NAME_PATTERN, SecretKeyRef

MATCH_PATTERN = r"\*|[A-Za-z0-9._-]{1,100}|[A-Za-z0-9._-]{1,99}\*"
MATCH_MEANS = "a name, or the beginning of names and a *, as in order.*"


@dataclass(frozen=True, slots=True)
class Principal(Block):
    kind: Annotated[
        str,
        Choice(
            "By what it is known: the token of a ServiceAccount, one in a Secret, or a certificate.",
            ("ServiceAccount", "Token", "Certificate"),
        ),
    ]
    name: Annotated[
        str,
        Text(
            "The ServiceAccount, or what whoever has the token or the certificate is called.",
            OBJECT_NAME_PATTERN,
            253,
            OBJECT_NAME_MEANS,
        ),
    ]
    namespace: Annotated[
        str | None,
        Text(
            "The ServiceAccount's namespace; this object's when absent.",
            r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
            63,
            "a namespace",
        ),
    ] = None
    secret_ref: Annotated[
        SecretKeyRef | None,
        Part("The Secret with its token, where it was not made at the queue.", SecretKeyRef),
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.secretRef) || self.kind == 'Token'",
            "only a Token is in a Secret: drop it",
            "secretRef",
        ),
        Rule(
            "!has(self.__namespace__) || self.kind == 'ServiceAccount'",
            "only a ServiceAccount has one: drop it",
            "namespace",
        ),
    )

    def conflict(self) -> tuple[str, str] | None:
        if self.kind != "Token" and self.secret_ref is not None:
            return "secretRef", f"has no meaning of a {self.kind}: only a Token is in a Secret, drop it"
        if self.kind != "ServiceAccount" and self.namespace is not None:
            return "namespace", f"has no meaning of a {self.kind}: only a ServiceAccount has one, drop it"
        return None


@dataclass(frozen=True, slots=True)
class Permission(Block):
    subjects: Annotated[
        tuple[str, ...],
        Items(
            "Subjects, by name or by the beginning of it.",
            Text("Names.", MATCH_PATTERN, 100, MATCH_MEANS),
            1,
            64,
        ),
    ]
    operations: Annotated[
        tuple[str, ...],
        Items(
            "What may be done with them.", Choice("One thing.", ("Send", "Consume", "Browse", "Admin")), 1, 4
        ),
    ]
    consumer_groups: Annotated[
        tuple[str, ...],
        Items(
            "Which groups may be consumed as; any when absent.",
            Text("Names.", MATCH_PATTERN, 100, MATCH_MEANS),
            0,
            64,
        ),
    ] = ()

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.consumerGroups) || self.consumerGroups.size() == 0 || 'Consume' in self.operations",
            "only Consume is done as a group: add that operation, or drop them",
            "consumerGroups",
        ),
    )

    def conflict(self) -> tuple[str, str] | None:
        if self.consumer_groups and "Consume" not in self.operations:
            return (
                "consumerGroups",
                "have no meaning without the operation Consume: add it, or drop them",
            )
        return None


@dataclass(frozen=True, slots=True)
class IdentityQuota(Block):
    messages_per_second: Annotated[
        int | None, Number("Messages sent a second, at each service; any number when absent.", 1)
    ] = None
    bytes_per_second: Annotated[
        int | None,
        Size("Bytes of batches sent a second, at each service; any number when absent.", limits.KIB),
    ] = None
    connections: Annotated[
        int | None,
        Number(
            "Connections to the data port, at each service; any number when absent.",
            1,
            limits.CONNECTIONS_MAX,
        ),
    ] = None
    in_flight: Annotated[
        int | None,
        Number("Messages given to it and not settled, at each broker; any number when absent.", 1),
    ] = None


@dataclass(frozen=True, slots=True)
class GrantSpec(Block):
    cluster_ref: Annotated[
        ClusterRef, Part("The cluster it belongs to.", ClusterRef, instead=ANOTHER_CLUSTER)
    ]
    principals: Annotated[tuple[Principal, ...], Items("Who.", Part("One of them.", Principal), 1, 64)]
    permissions: Annotated[
        tuple[Permission, ...], Items("What they may do.", Part("One permission.", Permission), 1, 64)
    ]
    quota: Annotated[
        IdentityQuota,
        Part("What each of them may use; the least of all grants holds.", IdentityQuota),
    ] = field(default_factory=IdentityQuota)
