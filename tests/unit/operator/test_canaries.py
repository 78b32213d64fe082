"""The canary of a QueueCluster: made where it is asked for, let in by its Grant alone, gone when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from samples.operating import World
from tidemill_operator.conditions import is_known
from tidemill_operator.kinds import GRANT
from tidemill_operator.steps import Apply, Condition, Delete, Manifest
from tidemill_wire.resources import parse_resource

KEY = ("QueueCluster", "prod")
NAME = "prod-canary"
TLS = {"secretRef": {"name": "prod-tls"}}
TOKEN = {"name": "prod-token", "key": "cluster"}
ACCOUNTS = {"audience": "queues"}


def watched(security: dict[str, Any] | None = None, **canary: Any) -> World:
    world = World(groups=1)
    world.change(*KEY, canary={"enabled": True, **canary}, security=security or {})
    return world


def applied(world: World) -> dict[str, Manifest]:
    """What is written for it, by kind."""
    steps = [one.manifest for one in world.plan(KEY).steps if isinstance(one, Apply)]
    return {one["kind"]: one for one in steps if one["metadata"]["name"] == NAME}


def container(world: World) -> dict[str, Any]:
    [found] = applied(world)["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def told(world: World) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container(world)["env"]}


def said(world: World) -> tuple[str, str]:
    [found] = [one for one in world.plan(KEY).conditions if one.type == "CanaryReady"]
    assert is_known(found)
    return found.status, found.reason


def test_there_is_none_unless_it_is_asked_for() -> None:
    world = World(groups=1)
    world.settle()

    assert not [one for one in world.objects if one[1] == NAME]
    assert "CanaryReady" not in {one.type for one in world.plan(KEY).conditions}


def test_it_is_one_pod_that_asks_meta_and_has_no_volume_and_no_rights_in_kubernetes() -> None:
    made = applied(watched(intervalMilliseconds=250, resources={"limits": {"memory": "192Mi"}}))

    assert set(made) == {"ServiceAccount", "Service", "NetworkPolicy", "Deployment"}
    spec = made["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    pod = spec["template"]["spec"]
    assert [one["name"] for one in pod["volumes"]] == ["tmp"]
    assert (
        pod["automountServiceAccountToken"] is made["ServiceAccount"]["automountServiceAccountToken"] is False
    )
    [one] = pod["containers"]
    assert one["command"] == ["tidemill", "canary", "--metrics-port", "9465", "--interval", "0.25"]
    assert one["env"] == [{"name": "TIDEMILL_SERVER", "value": "prod-meta.shop.svc:7401"}]
    assert one["resources"] == {"limits": {"memory": "192Mi"}}
    assert one["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics", "scheme": "HTTP"}
    [port] = made["NetworkPolicy"]["spec"]["ingress"][0]["ports"]
    assert port["port"] == 9465


def test_what_it_says_is_reached_also_while_it_is_not_ready() -> None:
    assert applied(watched())["Service"]["spec"]["publishNotReadyAddresses"] is True


def test_it_shows_the_token_of_its_account_and_its_page_stays_in_clear() -> None:
    world = watched({"tls": TLS, "token": TOKEN, "serviceAccounts": ACCOUNTS})

    pod = applied(world)["Deployment"]["spec"]["template"]["spec"]
    assert told(world)["TIDEMILL_TOKEN_FILE"] == "/var/run/secrets/tidemill.dev/queue/token"
    assert told(world)["TIDEMILL_CA"] == "/etc/tidemill/tls/ca.crt"
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert set(volumes) == {"tmp", "tls", "account"}
    assert volumes["tls"]["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]  # no key
    [source] = volumes["account"]["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "queues"
    assert container(world)["livenessProbe"]["httpGet"]["scheme"] == "HTTP"


def test_a_token_of_its_own_does_where_no_account_is_known_and_never_the_clusters() -> None:
    world = watched({"token": TOKEN}, token={"name": "own", "key": "token"})

    volumes = {
        one["name"]: one for one in applied(world)["Deployment"]["spec"]["template"]["spec"]["volumes"]
    }
    assert volumes["cluster-token"]["secret"]["secretName"] == "own"
    assert "prod-token" not in str(applied(world))
    [principal] = applied(world)["Grant"]["spec"]["principals"]
    assert principal == {"kind": "Token", "name": NAME, "secretRef": {"name": "own", "key": "token"}}


def test_its_grant_is_for_its_own_subjects_and_is_one_that_the_api_server_takes() -> None:
    grant = applied(watched({"token": TOKEN, "serviceAccounts": ACCOUNTS}))["Grant"]

    spec = grant["spec"]
    assert spec["principals"] == [{"kind": "ServiceAccount", "name": NAME}]
    assert spec["permissions"] == [
        {"subjects": ["tidemill.canary.*"], "operations": ["Send", "Consume", "Admin"]}
    ]
    parse_resource({**GRANT.header, "metadata": {"name": NAME, "namespace": "shop"}, "spec": spec})


def test_one_that_could_not_say_who_it_is_is_not_made_and_says_what_to_write() -> None:
    world = watched({"token": TOKEN})

    assert applied(world) == {}
    assert said(world) == ("False", "Unsupported")


def test_it_is_ready_when_its_pod_is_and_the_cluster_is_ready_without() -> None:
    world = watched()
    world.settle()
    assert said(world) == ("True", "Reconciled")
    world.get("Deployment", NAME)["status"]["readyReplicas"] = 0

    assert said(world) == ("Unknown", "Progressing")
    [ready] = [one for one in world.plan(KEY).conditions if one.type == "Ready"]
    assert ready.status == "True"


def test_another_image_is_another_pod_and_it_is_not_ready_before() -> None:
    world = watched()
    world.settle()

    world.image("2")

    assert container(world)["image"] == "registry.test/tidemill:2"
    assert said(world) == ("Unknown", "Progressing")
    world.settle()
    assert said(world) == ("True", "Reconciled")


@pytest.mark.parametrize(
    "spec", [{"intervalMilliseconds": 250}, {"resources": {"limits": {"memory": "1Gi"}}}]
)
def test_what_is_said_of_it_is_nobody_elses_new_pod(spec: dict[str, Any]) -> None:
    world = watched()
    world.settle()
    before = world.get("StatefulSet", "prod-meta")["spec"]["template"]

    world.change(*KEY, canary={"enabled": True, **spec})
    changed = applied(world)["Deployment"]["spec"]["template"]
    assert changed != world.get("Deployment", NAME)["spec"]["template"]
    world.settle()

    assert world.get("StatefulSet", "prod-meta")["spec"]["template"] == before


def test_nothing_is_left_of_one_that_is_switched_off() -> None:
    world = watched({"token": TOKEN, "serviceAccounts": ACCOUNTS})
    world.settle()
    assert {kind for kind, name in world.objects if name == NAME} == {
        *("Deployment", "Grant", "NetworkPolicy", "Service", "ServiceAccount")
    }

    world.change(*KEY, canary={"enabled": False})
    steps = [one.reference for one in world.plan(KEY).steps if isinstance(one, Delete)]
    assert {one.name for one in steps} == {NAME}
    world.settle()

    assert not [one for one in world.objects if one[1] == NAME]


@pytest.mark.parametrize("kind, api", [("Service", "v1"), ("Grant", GRANT.api_version)])
def test_what_is_somebody_elses_is_not_written_and_stops_nothing_but_the_canary(kind: str, api: str) -> None:
    """A broker group that is called `canary` has that Service."""
    world = watched({"token": TOKEN, "serviceAccounts": ACCOUNTS})
    theirs = {"metadata": {"labels": {}}, "spec": {"clusterRef": {"name": "prod"}}}
    world.put(kind, NAME, theirs, api=api)

    assert applied(world) == {}
    assert said(world) == ("False", "ResourceConflict")
    world.settle()
    assert world.get(kind, NAME)["spec"] == theirs["spec"]
    [ready] = [one for one in world.plan(KEY).conditions if one.type == "Ready"]
    assert ready.status == "True"


def test_its_conditions_are_of_the_vocabulary() -> None:
    assert not is_known(Condition("CanaryReady", "True", "Progressing", ""))
