"""What a QueueCluster says of its locks, and what pods have of it: files and where they are, and nothing secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidemill_operator.desired.groups import pods_of as brokers_pods
from tidemill_operator.desired.locks import OPEN, Locks, SecretKey, of_client, of_service, parse_locks
from tidemill_operator.desired.meta import pods_of as metas_pods
from tidemill_operator.desired.wanted import parse_cluster, parse_group
from tidemill_operator.kinds import BROKER_GROUP

IMAGE = "registry.test/tidemill:1"
TLS = {"secretRef": {"name": "prod-tls"}}
TOKEN = {"name": "prod-token", "key": "cluster"}


def cluster(**security: Any) -> dict[str, Any]:
    metadata = {"name": "prod", "namespace": "shop", "uid": "c"}
    return {"kind": "QueueCluster", "metadata": metadata, "spec": {"security": security} if security else {}}


def group() -> dict[str, Any]:
    metadata = {"name": "g0", "namespace": "shop", "uid": "g"}
    return {**BROKER_GROUP.header, "metadata": metadata, "spec": {"clusterRef": {"name": "prod"}}}


def metas(whole: dict[str, Any]) -> dict[str, Any]:
    return metas_pods(parse_cluster(whole, IMAGE))


def brokers(whole: dict[str, Any]) -> dict[str, Any]:
    return brokers_pods(parse_group(group(), whole, IMAGE))


def told(pods: dict[str, Any]) -> dict[str, str]:
    [container] = pods["spec"]["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}


def test_a_cluster_is_open_unless_it_says_otherwise() -> None:
    assert parse_locks(cluster()) == parse_locks({"spec": {"security": {}}}) == OPEN
    assert "locks" not in json.dumps(metas(cluster())) + json.dumps(brokers(cluster()))
    assert [one["name"] for one in metas(cluster())["spec"]["volumes"]] == ["tmp"]


def test_all_that_is_said_is_read() -> None:
    accounts = {"audience": "queues"}
    said = cluster(tls={**TLS, "clientCertificates": "Accepted"}, token=TOKEN, serviceAccounts=accounts)

    assert parse_locks(said) == Locks("prod-tls", True, SecretKey("prod-token", "cluster"), "queues")
    assert parse_locks(cluster(token=TOKEN)).audience == ""


@pytest.mark.parametrize("made", [metas, brokers], ids=["meta", "brokers"])
def test_services_have_certificates_and_token_as_files_that_change_with_their_secrets(made: Any) -> None:
    pods = made(cluster(tls=TLS, token=TOKEN))

    environment = told(pods)
    assert environment["TIDEMILL_TLS_CERT"] == "/etc/tidemill/tls/tls.crt"
    assert environment["TIDEMILL_TLS_KEY"] == "/etc/tidemill/tls/tls.key"
    assert environment["TIDEMILL_TLS_CA"] == "/etc/tidemill/tls/ca.crt"
    assert "TIDEMILL_TLS_CLIENT_CA" not in environment
    assert environment["TIDEMILL_CLUSTER_TOKEN_FILE"] == "/etc/tidemill/token/token"
    [container] = pods["spec"]["containers"]
    mounts = {one["name"]: one for one in container["volumeMounts"]}
    assert mounts["tls"]["mountPath"] == "/etc/tidemill/tls"
    # A file that is mounted by subPath never changes again.
    assert all("subPath" not in one for one in mounts.values())
    volumes = {one["name"]: one for one in pods["spec"]["volumes"]}
    assert volumes["cluster-token"]["secret"]["items"] == [{"key": "cluster", "path": "token"}]
    assert volumes["tls"]["secret"]["defaultMode"] == 0o440
    probes = [
        container[name]["httpGet"]["scheme"] for name in ("startupProbe", "readinessProbe", "livenessProbe")
    ]
    assert probes == ["HTTPS"] * 3


def test_certificates_of_clients_are_believed_only_where_that_is_said() -> None:
    accepted = told(brokers(cluster(tls={**TLS, "clientCertificates": "Accepted"})))

    assert accepted["TIDEMILL_TLS_CLIENT_CA"] == "/etc/tidemill/tls/ca.crt"
    # The kubelet's probes show none.
    assert "TIDEMILL_TLS_CLIENT_REQUIRED" not in accepted


def test_only_meta_is_given_what_asks_kubernetes() -> None:
    whole = cluster(token=TOKEN, serviceAccounts={"audience": "queues"})

    meta, broker = metas(whole), brokers(whole)

    assert told(meta)["TIDEMILL_META_REVIEW_AUDIENCE"] == "queues"
    [projected] = [one["projected"] for one in meta["spec"]["volumes"] if "projected" in one]
    assert [next(iter(one)) for one in projected["sources"]] == ["serviceAccountToken", "configMap"]
    assert not any("projected" in one for one in broker["spec"]["volumes"])
    assert meta["spec"]["automountServiceAccountToken"] is False


def test_another_audience_is_no_other_broker() -> None:
    one, other = (cluster(token=TOKEN, serviceAccounts={"audience": name}) for name in ("a", "b"))

    assert brokers(one) == brokers(other)
    assert parse_group(group(), one, IMAGE).inputs == parse_group(group(), other, IMAGE).inputs
    assert parse_cluster(one, IMAGE).inputs != parse_cluster(other, IMAGE).inputs


def test_a_program_of_the_cluster_has_the_authority_and_no_key() -> None:
    files = of_client(Locks("prod-tls", False, SecretKey("prod-token", "cluster")))

    assert {one["name"]: one["value"] for one in files.environment} == {
        "TIDEMILL_CA": "/etc/tidemill/tls/ca.crt",
        "TIDEMILL_TOKEN_FILE": "/etc/tidemill/token/token",
    }
    assert files.volumes[0]["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    assert of_client(OPEN) == of_service(OPEN) == ((), (), ())
