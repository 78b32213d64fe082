"""A meta that is locked, and the Secrets that say so to Kubernetes: what cert-manager and a person would make."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.metas import Meta
from e2e.shops import CLUSTER
from samples.authorities import Authority
from tidemill.security import Security

TOKEN = "c" * 43
TLS_SECRET, TOKEN_SECRET = f"{CLUSTER}-tls", f"{CLUSTER}-token"
SECURITY: Mapping[str, Any] = {
    "tls": {"secretRef": {"name": TLS_SECRET}},
    "token": {"name": TOKEN_SECRET, "key": "token"},
}
LIVENESS = {"TIDEMILL_META_LIVENESS_MS": "3600000", "TIDEMILL_META_LEASE_MS": "5000"}


class LockedMeta(Meta):
    """One replica with certificates of its own, and a token of the cluster."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.authority = Authority(folder.with_name("authority"))
        self.secret = folder.with_name("cluster.token")
        self.believe(TOKEN)
        locks = {**self.authority.serve(), "TIDEMILL_CLUSTER_TOKEN_FILE": str(self.secret)}
        super().__init__(folder, settings={**LIVENESS, **locks, **(settings or {})})
        self.security = Security(ca=self.authority.ca, token=TOKEN)

    def believe(self, *tokens: str) -> None:
        """Of the cluster's services; the first one is shown."""
        self.secret.write_text("".join(f"{one}\n" for one in tokens))

    def furnish(self) -> None:
        """With two broker groups that are taken for alive, whoever they are."""
        for group in ("g0", "g1"):
            self.register(group, f"{group}-0")
            positions = {"messages": 0, "actions": 0}
            self.beat(group, f"{group}-0", epoch=1, state="RW", role="master", positions=positions)


class Secrets:
    """Of a namespace."""

    def __init__(self, cluster: Any, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def put(self, name: str, values: Mapping[str, str]) -> None:
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        metadata = {"name": name, "namespace": self._namespace}
        said = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        self._cluster.apply(json.dumps(said), "-n", self._namespace)

    def put_token(self, token: str = TOKEN) -> None:
        self.put(TOKEN_SECRET, {"token": token})

    def put_authority(self, authority: Authority) -> None:
        """As cert-manager makes it; of the operator's pods nobody asks for the pair."""
        cert, key = authority.issue("pair", "queue.example.org")
        said = {"tls.crt": cert.read_text(), "tls.key": key.read_text(), "ca.crt": authority.ca.read_text()}
        self.put(TLS_SECRET, said)
