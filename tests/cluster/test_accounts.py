"""ServiceAccounts' tokens, made and looked at by a real API server, at a real meta and a real broker."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from cluster.kwok import KwokCluster
from e2e.clusters import Cluster
from e2e.operators import wait_until
from tidemill import Client
from tidemill.errors import Refused, TidemillError
from tidemill.security import Security
from tidemill.settings import ClientSettings

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

AUDIENCE = "queues.example.org"
REVIEW_MS = 4_000
KUBERNETES_SECONDS = 10.0
"""For which the API server remembers that a token was good."""
SLACK_SECONDS = 20.0
"""On a machine that does much else; what holds to the millisecond is proved on values."""
PATIENCE_SECONDS = 90.0
ROLE = "tidemill-token-reviews"
RULES = [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]


class Accounts:
    """Those of a namespace."""

    def __init__(self, cluster: KwokCluster, namespace: str, folder: Path) -> None:
        self._cluster = cluster
        self.namespace = namespace
        self._folder = folder

    def make(self, name: str) -> None:
        self._cluster.ask("create", "serviceaccount", name, "-n", self.namespace)

    def remove(self, name: str) -> None:
        self._cluster.ask("delete", "serviceaccount", name, "-n", self.namespace)

    def token(self, name: str, audience: str = AUDIENCE, *more: str) -> str:
        """As a projected volume has it."""
        words = ["create", "token", name, "-n", self.namespace, *more]
        return str(self._cluster.ask(*words, *(["--audience", audience] if audience else []))).strip()

    def let_review(self, name: str) -> None:
        """What the chart gives to meta, and no more."""
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": ROLE},
        }
        binding = {
            **role,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{ROLE}-{self.namespace}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}],
        }
        for one in ({**role, "rules": RULES}, binding):
            self._cluster.apply(json.dumps(one))

    def credentials(self, name: str) -> dict[str, str]:
        """What a pod of that account has: a folder with its token for Kubernetes, and where that is."""
        config = yaml.safe_load(Path(self._cluster.kubeconfig).read_text())["clusters"][0]["cluster"]
        (self._folder / "token").write_text(self.token(name, ""))
        (self._folder / "ca.crt").write_text(_authority(config))
        where = urlsplit(config["server"])
        return {
            "KUBERNETES_SERVICE_HOST": str(where.hostname),
            "KUBERNETES_SERVICE_PORT": str(where.port),
            "TIDEMILL_META_REVIEW_FOLDER": str(self._folder),
        }


def _authority(config: dict[str, str]) -> str:
    if "certificate-authority-data" in config:
        return base64.b64decode(config["certificate-authority-data"]).decode()
    return Path(config["certificate-authority"]).read_text()


@pytest.fixture
def accounts(cluster: KwokCluster, namespace: str, tmp_path: Path) -> Iterator[Accounts]:
    folder = tmp_path / "api"
    folder.mkdir()
    made = Accounts(cluster, namespace, folder)
    for name in ("meta", "shop", "stranger"):
        made.make(name)
    made.let_review("meta")
    yield made
    cluster.ask("delete", "clusterrolebinding", f"{ROLE}-{namespace}")


@pytest.fixture
def queue(accounts: Accounts, tmp_path: Path) -> Iterator[Cluster]:
    """Meta, and a broker of its own process."""
    secret = tmp_path / "cluster.token"
    secret.write_text("k" * 43 + "\n")
    settings = {
        "TIDEMILL_CLUSTER_TOKEN_FILE": str(secret),
        "TIDEMILL_META_REVIEW_AUDIENCE": AUDIENCE,
        "TIDEMILL_META_REVIEW_MS": str(REVIEW_MS),
        **accounts.credentials("meta"),
    }
    made = Cluster(tmp_path / "data", 1, 0, (), settings)
    made.token = "k" * 43
    made.start()
    grant = {
        "principals": [f"serviceaccount:{accounts.namespace}/shop"],
        "permissions": [{"subjects": ["order.*"], "operations": ["Send", "Consume"]}],
    }
    path = made.url("/v1/access/grants/shop")
    with made.open(urllib.request.Request(path, json.dumps(grant).encode(), method="PUT")) as answer:
        assert answer.status == 200
    asyncio.run(wait_heeded(made, tmp_path / "first", accounts.token("shop")))
    yield made
    made.close()


def client(queue: Cluster, file: Path) -> Client:
    return Client(
        queue.server, settings=ClientSettings(security=Security(token_file=file), send_timeout_s=20.0)
    )


async def wait_heeded(queue: Cluster, file: Path, token: str) -> None:
    """Until the broker knows of the grant, too."""
    file.write_text(token)
    async with asyncio.timeout(PATIENCE_SECONDS), client(queue, file) as mq:
        while True:
            try:
                await mq.send("order.first", b"x")
            except Refused:
                await asyncio.sleep(0.2)
            else:
                return


async def wait_refused(mq: Client) -> None:
    while True:
        await mq.send("order.a", b"still")
        await asyncio.sleep(0.1)


def ask(queue: Cluster, path: str, token: str, body: object = None) -> tuple[int, Any]:
    """Status and JSON of what meta answers to whoever shows the token."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(queue.url(path), data, {"Authorization": f"Bearer {token}"})
    try:
        with queue.open(request) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_program_is_its_service_account_until_that_is_gone(
    queue: Cluster, accounts: Accounts, tmp_path: Path
) -> None:
    file = tmp_path / "projected"
    file.write_text(accounts.token("shop"))

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), client(queue, file) as mq:
            async with mq.consume("order.a", group="billing", start="earliest") as messages:
                await mq.send("order.a", b"coffee")
                assert (await anext(messages)).body == b"coffee"
            file.write_text(accounts.token("shop"))  # as the kubelet does, long before it ends
            await mq.send("order.a", b"more")
            accounts.remove("shop")
            with pytest.raises(TidemillError, match="unauthenticated"):
                await wait_refused(mq)

    asyncio.run(main())


def test_a_token_that_ends_is_followed_by_the_one_in_its_file_and_no_send_fails(
    queue: Cluster, accounts: Accounts, cluster: KwokCluster, tmp_path: Path
) -> None:
    """A token ends with what it is bound to; the shortest that Kubernetes makes by itself are of ten minutes."""
    cluster.ask("create", "secret", "generic", "life", "-n", accounts.namespace)
    words = ("--bound-object-kind", "Secret", "--bound-object-name", "life")
    former, file = accounts.token("shop", AUDIENCE, *words), tmp_path / "projected"
    file.write_text(former)

    async def main() -> int:
        sent = 0
        async with asyncio.timeout(PATIENCE_SECONDS), client(queue, file) as mq:
            await mq.send("order.a", b"by the former one")
            file.write_text(accounts.token("shop"))
            cluster.ask("delete", "secret", "life", "-n", accounts.namespace)
            while ask(queue, "/v1/routes", former)[0] == 200:
                await mq.send("order.a", b"still")
            until = asyncio.get_running_loop().time() + 2 * REVIEW_MS / 1000
            while asyncio.get_running_loop().time() < until:
                await mq.send("order.a", b"by the one that follows")
                sent += 1
        return sent

    assert asyncio.run(main()) > 0


def test_only_tokens_for_this_queue_are_anybodys(queue: Cluster, accounts: Accounts) -> None:
    def asked(token: str) -> int:
        return ask(queue, "/v1/routes", token)[0]

    assert asked(accounts.token("shop")) == 200
    assert asked(accounts.token("shop", "")) == 401, "one that is for Kubernetes"
    assert asked(accounts.token("shop", "elsewhere")) == 401
    assert asked(accounts.token("shop")[:-6] + "AAAAAA") == 401
    stranger = accounts.token("stranger")
    assert ask(queue, "/v1/subjects", stranger) == (200, []), "known, and granted nothing"
    assert ask(queue, "/v1/brokers/reviews", stranger, {"tokens": [stranger]})[0] == 403


def test_a_token_that_is_taken_back_holds_no_longer_than_was_said(queue: Cluster, accounts: Accounts) -> None:
    token = accounts.token("shop")
    assert ask(queue, "/v1/routes", token)[0] == 200

    accounts.remove("shop")

    took = wait_until("it holds no more", lambda: ask(queue, "/v1/routes", token)[0] == 401)
    assert took < KUBERNETES_SECONDS + REVIEW_MS / 1000 + SLACK_SECONDS


def test_kubernetes_that_does_not_answer_refuses_nobody_and_lets_nobody_in(
    queue: Cluster, accounts: Accounts, tmp_path: Path
) -> None:
    token = accounts.token("shop")
    file = tmp_path / "api" / "token"
    own = file.read_text()
    file.write_text("nobody")

    assert ask(queue, "/v1/routes", token)[0] == 503

    file.write_text(own)
    wait_until("it is known", lambda: ask(queue, "/v1/routes", token)[0] == 200)
