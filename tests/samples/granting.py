"""A small world with Grants: a meta that keeps grants and tokens as the real one parses them, and Secrets."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from samples.kubernetes import CLUSTER, World, manifest
from tidemill_operator.grants import GRANTS, TOKENS, secrets
from tidemill_operator.refusals import of_meta
from tidemill_operator.steps import Ask, Seen
from tidemill_operator.store import Key
from tidemill_wire.access import digest_of
from tidemill_wire.granted import parse_grant

LOCKED: Mapping[str, Any] = {
    "token": {"name": "prod-token", "key": "token"},
    "tls": {"secretRef": {"name": "prod-tls"}, "clientCertificates": "Accepted"},
    "serviceAccounts": {"audience": "prod.queues.example.org"},
}
PERMISSIONS = [{"subjects": ["order.*"], "operations": ["Send"]}]


class Grants(World):
    """See the module."""

    kinds = ("Grant",)

    def __init__(self, security: Mapping[str, Any] = LOCKED) -> None:
        super().__init__()
        self.grants: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, dict[str, Any]] = {}
        self.secrets: dict[str, tuple[str, ...]] = {}
        """Tokens, by NAME/KEY of a Secret."""
        self.apply(manifest("QueueCluster", CLUSTER, {"security": security}))

    def grant(self, name: str, *principals: Mapping[str, Any], **spec: Any) -> Key:
        said = {"principals": list(principals), "permissions": PERMISSIONS, **spec}
        return self.apply(manifest("Grant", name, said))

    def holders(self) -> dict[str, str]:
        """Who is known by which token's digest."""
        return {row["digest"]: row["who"] for row in self.tokens.values()}

    def view(self, key: Key) -> Seen:
        seen = super().view(key)
        wanted = {str(one): self.secrets.get(str(one), ()) for one in secrets(seen.resource)}
        found = {name: tuple(map(digest_of, tokens)) for name, tokens in wanted.items()}
        return replace(seen, secrets=found)

    def _answers(self) -> dict[str, Any]:
        granted = [{"grant": name, **row} for name, row in sorted(self.grants.items())]
        tokens = [{"token": name, "who": row["who"]} for name, row in sorted(self.tokens.items())]
        return copy.deepcopy({GRANTS: granted, TOKENS: tokens})

    def _ask(self, step: Ask) -> None:
        if not self.meta_is_there:
            raise of_meta(0, "", "meta is away")
        path, _, name = step.path.rpartition("/")
        kept = {GRANTS: self.grants, TOKENS: self.tokens}[path]
        if step.method == "DELETE":
            if name not in kept:
                raise of_meta(404, "not_found", "there is none", goes=True)
            del kept[name]
            return
        assert step.method == "PUT"
        assert step.body is not None
        self._versions += 1
        body = dict(step.body)
        others = [row for row in self.tokens.values() if row["digest"] == body.get("digest")]
        if any(row["who"] != body["who"] for row in others):
            raise of_meta(400, "malformed_command", "that very token is somebody else's already")
        if path == GRANTS:
            body = {**parse_grant(body).to_map(), "version": self._versions}
        kept[name] = body
