"""A locked queue with people: who was granted something, who nothing, whose token is over, and an enemy's requests."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.queues import Queue, wait_until
from tidemill import Client
from tidemill.security import Security
from tidemill.settings import ClientSettings

STANDALONE = (sys.executable, "-m", "tidemill_standalone")
GRANTS: dict[str, dict[str, Any]] = {
    "shop": {
        "principals": ["token:shop"],
        "permissions": [
            {"subjects": ["order.*"], "operations": ["Send"]},
            {"subjects": ["order.*"], "operations": ["Consume"], "groups": ["billing"]},
        ],
    },
    "audit": {
        "principals": ["token:reader"],
        "permissions": [{"subjects": ["order.*"], "operations": ["Browse"]}],
    },
    "victim": {
        "principals": ["token:victim"],
        "permissions": [{"subjects": ["secret"], "operations": ["Send", "Consume", "Browse", "Admin"]}],
    },
}


class Tower(Queue):
    """See the module. ``tokens`` are by name."""

    def __init__(self, folder: Path) -> None:
        self.cluster_file = folder / "cluster.token"
        self.cluster_file.write_text("c" * 43 + "\n")
        self.audit_file = folder / "audit.log"
        settings = {
            "TIDEMILL_CLUSTER_TOKEN_FILE": str(self.cluster_file),
            "TIDEMILL_AUDIT_FILE": str(self.audit_file),
        }
        super().__init__(folder / "data", (), settings, STANDALONE)
        self.token = "c" * 43
        self.tokens: dict[str, str] = {}
        self.ids: dict[str, str] = {}

    def furnish(self) -> None:
        """Grants, tokens, and what an enemy is after."""
        for name, grant in GRANTS.items():
            assert self.ask("PUT", f"/v1/access/grants/{name}", grant)[0] == 200
        for name in ("shop", "reader", "victim", "nothing", "revoked"):
            self.make_token(name)
        self.make_token("expired", expires_seconds=1)
        assert self.ask("DELETE", f"/v1/access/tokens/{self.ids['revoked']}")[0] == 200
        for subject in ("order.a", "secret"):
            assert self.ask("POST", f"/v1/subjects/{subject}/messages", {"text": "treasure"})[0] == 200
        wait_until("the token is over", lambda: self.ask("GET", "/v1/routes", token="expired")[0] == 401, 30)
        wait_until("somebody takes messages for later", lambda: self.get("/v1/routes")["delays"], 30)

    def make_token(self, name: str, **more: object) -> None:
        status, row = self.ask("POST", "/v1/access/tokens", {"who": name, **more})
        assert status == 200, row
        self.tokens[name], self.ids[name] = row["secret"], row["token"]

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = "cluster",
        heads: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status and JSON. ``token`` is a name; whatever is no name is shown as it is."""
        said = dict(heads or {})
        if token is not None:
            shown = self.token if token == "cluster" else self.tokens.get(token, token)
            said.setdefault("Authorization", f"Bearer {shown}")
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=60)
        try:
            data = None if body is None else json.dumps(body).encode()
            if data is not None:
                said.setdefault("Content-Type", "application/json")
            connection.request(method, path, data, said)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text[:1] in b"{[" else text
        finally:
            connection.close()

    def audited(self) -> list[dict[str, Any]]:
        if not self.audit_file.exists():
            return []
        return [json.loads(line) for line in self.audit_file.read_text().splitlines()]

    def said(self) -> str:
        """All that it said on standard error."""
        return self._errors.read_text()

    def client(self, name: str, **more: Any) -> Client:
        security = Security(token=self.tokens.get(name, self.token))
        return Client(self.server, settings=ClientSettings(security=security, **more))
