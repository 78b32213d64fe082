"""A cluster behind TLS and a token, people with grants of different sizes, and what each may or may not see."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import load_pem_x509_certificate

from browser.asking import bury, receive, send
from e2e.clusters import Cluster
from e2e.queues import Queue, wait_until
from samples.authorities import Authority
from tidemill import Client
from tidemill.security import Security
from tidemill.settings import ClientSettings

PEOPLE = {
    "keeper": [{"subjects": ["*"], "operations": ["Admin", "Send"]}],
    "steward": [{"subjects": ["order.*"], "operations": ["Admin", "Send"]}],
    "reader": [{"subjects": ["order.*"], "operations": ["Browse"]}],
    "guest": [],
}
HIDDEN = "treasury.gold"
"""What neither the steward nor the reader may know of."""
SEEN = "order.paid"
SENT = 7


class LockedCluster(Cluster):
    """A broker group with a slave, a delay service, and meta."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder / "authority")
        self.authority = authority
        file = folder / "cluster.token"
        file.write_text("c" * 43 + "\n")
        settings = {**authority.serve(), "TIDEMILL_AUDIT_FILE": str(folder / "audit.log")}
        options = ("--delays", "1", "--cluster-token", str(file))
        super().__init__(folder / "data", 1, 1, (), settings, options)
        self.audit_file = folder / "audit.log"
        self.ca, self.token = str(authority.ca), file.read_text().strip()
        self.tokens: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.transactions: list[str] = []

    @property
    def address(self) -> str:
        """As a browser has it."""
        return f"https://{self.server}"

    @property
    def key(self) -> str:
        """What is known of the key of its certificate, as Chromium is told it."""
        certificate = load_pem_x509_certificate((self.authority.folder / "server.crt").read_bytes())
        public = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return base64.b64encode(hashlib.sha256(public).digest()).decode()

    def put(self, path: str, body: object) -> None:
        data = json.dumps(body).encode()
        head = {"Content-Type": "application/json"}
        with self.open(urllib.request.Request(self.url(path), data, head, method="PUT")) as answer:
            assert answer.status == 200

    def grant(self, name: str, permissions: list[dict[str, Any]]) -> None:
        self.put(f"/v1/access/grants/{name}", {"principals": [f"token:{name}"], "permissions": permissions})

    def furnish(self) -> None:
        """People, and what they look for; all of it is at the broker when this ends."""
        for name, permissions in PEOPLE.items():
            made = self.post("/v1/access/tokens", {"who": name})
            self.tokens[name], self.ids[name] = made["secret"], made["token"]
            if permissions:
                self.grant(name, permissions)
        wait_until("the slave is in sync", self.is_whole, 120)
        with ThreadPoolExecutor(1) as lane:  # the browser's driver may have a loop in this thread
            lane.submit(asyncio.run, self.send_all()).result()
        broker = self.broker()
        for subject, group in ((SEEN, "billing"), ("order.made", "stock"), (HIDDEN, "smelters")):
            send(broker, subject, *(f"{subject} {number}" for number in range(SENT)), key="k")
            bury(broker, subject, group, "ValueError: no amount")
            receive(broker, subject, group, 1)
        for subject in (SEEN, HIDDEN):
            send(broker, subject, "later", delay="2h", timer_key=f"timer of {subject}")
        self.later = send(broker, SEEN, "without a key", delay="3h")[0]

    async def send_all(self) -> None:
        """What goes by meta's routes; two transactions stay undecided."""
        settings = ClientSettings(security=Security(ca=self.ca, token=self.token))
        async with Client(self.server, settings=settings) as mq:
            for subject in (SEEN, "order.made", HIDDEN):
                await mq.send(subject, b"first")
            for _ in range(2):
                opened = mq.transaction("till")
                await opened.send(HIDDEN, b"half")
                self.transactions.append(opened.id)

    def is_whole(self) -> bool:
        [group] = self.get("/v1/brokers")
        delays = [one["alive"] for row in self.get("/v1/delays") for one in row["brokers"]]
        alive = all(one["alive"] and one["in_sync"] for one in group["brokers"])
        return alive and len(group["brokers"]) == 2 and len(delays) == 2 and all(delays)

    def broker(self) -> Queue:
        """The HTTP port of the master of its broker group."""
        [group] = self.get("/v1/brokers")
        master = next(one for one in group["brokers"] if one["name"] == group["master"])
        found = Queue(self.data / "port")
        host, _, port = master["addresses"]["control"].rpartition(":")
        found.host, found.http_port = host, int(port)
        found.ca, found.token = self.ca, self.token
        return found
