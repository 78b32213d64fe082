"""A locked queue on a real API server, with a real meta that speaks TLS and asks who somebody is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.kwok import KwokCluster
from cluster.locked import SECURITY, TLS_SECRET, TOKEN, TOKEN_SECRET, LockedMeta, Secrets
from e2e.operators import Operator, wait_until
from e2e.shops import CLUSTER, Shop
from samples.authorities import Authority

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROTATION_SECONDS = 120.0
"""Half a minute until a Secret is read again, and a resync, on a machine that does much else."""


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[LockedMeta]:
    made = LockedMeta(tmp_path / "meta")
    made.start()
    made.furnish()
    yield made
    made.close()


@pytest.fixture
def secrets(cluster: KwokCluster, namespace: str) -> Secrets:
    return Secrets(cluster, namespace)


@pytest.fixture
def shop(cluster: KwokCluster, namespace: str, definitions: None, meta: LockedMeta) -> Shop:
    return Shop(cluster, namespace, meta.server, SECURITY)


@pytest.fixture
def operator(shop: Shop, secrets: Secrets, meta: LockedMeta, tmp_path: Path) -> Iterator[Operator]:
    secrets.put_authority(meta.authority)
    secrets.put_token()
    made = Operator(tmp_path / "operator", shop.cluster.kubeconfig, [shop.namespace])
    made.start().wait_working()
    yield made
    made.close()


def row_of(meta: LockedMeta, name: str) -> Any:
    status, row = meta.ask("GET", f"/v1/subjects/{name}")
    return row if status == 200 else None


def test_a_locked_meta_is_told_and_who_shows_nothing_is_not_let_in(
    shop: Shop, meta: LockedMeta, operator: Operator
) -> None:
    shop.apply("Subject", "orders")
    shop.wait("subject", "orders", "True", "Reconciled")

    assert row_of(meta, "orders") is not None
    meta.security = type(meta.security)(ca=meta.authority.ca)
    assert meta.ask("GET", "/v1/subjects/orders")[0] == 401


def test_secrets_that_are_not_there_are_said_and_waited_for(
    shop: Shop, secrets: Secrets, meta: LockedMeta, tmp_path: Path
) -> None:
    secrets.put_authority(meta.authority)
    operator = Operator(tmp_path / "operator", shop.cluster.kubeconfig, [shop.namespace])
    operator.start().wait_working()
    try:
        shop.apply("Subject", "orders")
        shop.wait("subject", "orders", "False", "ReferenceNotFound")
        said = (shop.get("subject", "orders") or {})["status"]["conditions"]
        assert any(f"there is no Secret {TOKEN_SECRET}" in one["message"] for one in said)
        secrets.put_token()
        shop.wait("subject", "orders", "True", "Reconciled")
    finally:
        operator.close()


def test_token_and_authority_are_rotated_and_nothing_is_started_again(
    shop: Shop, secrets: Secrets, meta: LockedMeta, operator: Operator, tmp_path: Path
) -> None:
    shop.apply("Subject", "first")
    shop.wait("subject", "first", "True", "Reconciled")
    other = "n" * 43

    meta.believe(other, TOKEN)  # below everywhere, first everywhere, alone
    secrets.put_token(f"{other}\n{TOKEN}\n")
    meta.believe(other)
    meta.security = type(meta.security)(ca=meta.authority.ca, token=other)
    shop.apply("Subject", "second")
    wait_until("the token is another one", lambda: row_of(meta, "second"), ROTATION_SECONDS)
    shop.wait("subject", "second", "True", "Reconciled")

    fresh = Authority(tmp_path / "authority", "fresh")
    fresh.issue("server", "127.0.0.1", "localhost")  # in place of the former pair
    secrets.put_authority(fresh)
    meta.security = type(meta.security)(ca=fresh.ca, token=other)
    shop.apply("Subject", "third")
    wait_until("the authority is another one", lambda: row_of(meta, "third"), ROTATION_SECONDS)


def test_locks_that_come_or_go_are_refused_by_the_api_server(shop: Shop) -> None:
    for security in ("null", '{"tls": null}', '{"token": null}', '{"token": {"name": "other"}}'):
        patch = f'{{"spec": {{"security": {security}}}}}'
        words = ("patch", "queuecluster", CLUSTER, "--type=merge", "-p", patch)
        done = shop.cluster.kubectl("-n", shop.namespace, *words)
        assert done.returncode != 0
        assert "delete the QueueCluster, whose volumes stay" in done.stderr
    found = shop.get("queuecluster", CLUSTER)
    assert found is not None
    assert found["spec"]["security"]["tls"]["secretRef"]["name"] == TLS_SECRET


def rows_of(meta: LockedMeta, what: str) -> list[dict[str, Any]]:
    status, rows = meta.ask("GET", f"/v1/access/{what}")
    assert status == 200, rows
    return list(rows)


def asked(meta: LockedMeta, token: str, path: str) -> tuple[int, Any]:
    """What meta answers to whoever shows that token."""
    former = meta.security
    meta.security = type(former)(ca=meta.authority.ca, token=token)
    try:
        return meta.ask("GET", path)
    finally:
        meta.security = former


def allowed(meta: LockedMeta, token: str) -> int:
    """What comes of it to look at a subject."""
    return asked(meta, token, "/v1/subjects/orders")[0]


def test_a_grant_is_declared_reverted_changed_and_taken_back_with_its_token(
    shop: Shop, secrets: Secrets, meta: LockedMeta, operator: Operator
) -> None:
    for name in ("orders", "invoices"):
        shop.apply("Subject", name)
        shop.wait("subject", name, "True", "Reconciled")
    spec: dict[str, Any] = {
        "principals": [{"kind": "Token", "name": "till", "secretRef": {"name": "till", "key": "token"}}],
        "permissions": [{"subjects": ["orders"], "operations": ["Browse"]}],
    }
    token = "s" * 43
    shop.apply("Grant", "till", spec)
    shop.wait("grant", "till", "False", "ReferenceNotFound")
    assert allowed(meta, token) == 401
    secrets.put("till", {"token": token})
    wait_until("the token holds", lambda: allowed(meta, token) == 200, ROTATION_SECONDS)
    assert [row["name"] for row in asked(meta, token, "/v1/subjects")[1]] == ["orders"]
    shop.wait("grant", "till", "True", "Reconciled")
    shop.wait("grant", "till", "True", "InSync", "Synced")
    wait_until("it was told", lambda: ("till", "Created") in shop.events())

    assert meta.ask("DELETE", "/v1/access/grants/till")[0] == 200
    wait_until("it is there again", lambda: rows_of(meta, "grants"))
    wait_until("it was told", lambda: ("till", "DriftReverted") in shop.events())

    spec["permissions"] = [{"subjects": ["others"], "operations": ["Browse"]}]
    shop.apply("Grant", "till", spec)
    wait_until("it may not any more", lambda: allowed(meta, token) == 403)

    secrets.put("till", {"token": "r" * 43})
    wait_until("the former token holds no more", lambda: allowed(meta, token) == 401, ROTATION_SECONDS)
    assert allowed(meta, "r" * 43) == 403

    shop.ask("delete", "grant", "till")
    shop.wait_gone("grant", "till")
    assert (rows_of(meta, "grants"), rows_of(meta, "tokens")) == ([], [])
    assert allowed(meta, "r" * 43) == 401


def test_a_grant_of_an_open_cluster_says_that_nobody_is_asked(
    cluster: KwokCluster, namespace: str, definitions: None, meta: LockedMeta, tmp_path: Path
) -> None:
    shop = Shop(cluster, namespace, meta.server)
    operator = Operator(tmp_path / "operator", cluster.kubeconfig, [namespace]).start().wait_working()
    try:
        permissions = [{"subjects": ["*"], "operations": ["Browse"]}]
        shop.apply(
            "Grant", "all", {"principals": [{"kind": "Token", "name": "a"}], "permissions": permissions}
        )
        shop.wait("grant", "all", "False", "Unsupported")
    finally:
        operator.close()
