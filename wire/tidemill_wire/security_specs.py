"""What the spec of a QueueCluster may say of its locks: certificates, the cluster's token, ServiceAccounts' tokens.

Of a cluster that is there, neither certificates nor the token come or go: a port speaks TLS or it does not, and asks
who somebody is or does not, so that brokers that are replaced one after the other could not speak with each other.
What is in the Secrets changes whenever somebody rotates it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tidemill_wire.schema import Block, Choice, Part, Rule, Text
from tidemill_wire.workload_specs import SecretKeyRef, SecretRef

MADE_ANEW = "delete the QueueCluster, whose volumes stay, and make it anew; see docs/kubernetes.md"
ROTATED = "rotate what is in the Secret"


@dataclass(frozen=True, slots=True)
class ClusterTls(Block):
    secret_ref: Annotated[
        SecretRef,
        Part(
            "The Secret with tls.crt, tls.key and ca.crt, as cert-manager makes it.",
            SecretRef,
            instead=ROTATED,
        ),
    ]
    client_certificates: Annotated[
        str,
        Choice(
            "Accepted: a client that shows a certificate of ca.crt is whom that names.",
            ("Ignored", "Accepted"),
        ),
    ] = "Ignored"


@dataclass(frozen=True, slots=True)
class ServiceAccounts(Block):
    audience: Annotated[
        str,
        Text(
            "For whom a ServiceAccount's token has to be made: a name of this queue alone, for whoever runs another "
            "one with the same name can show it here what was shown there. Meta asks Kubernetes about it.",
            r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}",
            100,
            "1 to 100 letters, digits, ., _, :, / and -",
        ),
    ]


@dataclass(frozen=True, slots=True)
class ClusterSecurity(Block):
    tls: Annotated[
        ClusterTls | None,
        Part("With it all ports speak TLS and nothing else.", ClusterTls),
    ] = None
    token: Annotated[
        SecretKeyRef | None,
        Part(
            "The Secret with the token that services show each other; with it who is not known is refused.",
            SecretKeyRef,
            instead=MADE_ANEW,
        ),
    ] = None
    service_accounts: Annotated[
        ServiceAccounts | None,
        Part("With it programs may show the tokens of their ServiceAccounts.", ServiceAccounts),
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.tls) == has(oldSelf.tls)",
            f"neither comes nor goes: {MADE_ANEW}",
            "tls",
        ),
        Rule(
            "!has(self.serviceAccounts) || has(self.token)",
            "nobody is asked who they are without a token of the cluster: write token, or drop it",
            "serviceAccounts",
        ),
    )

    def conflict(self) -> tuple[str, str] | None:
        if self.service_accounts is not None and self.token is None:
            return "serviceAccounts", (
                "have no meaning without a token of the cluster: write token, or drop it"
            )
        return None
