"""What specs say, which of it pods are made of, and which template a workload gets."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tidemill_operator.desired.groups import around, pods_of
from tidemill_operator.desired.meta import pods_of as metas_pods
from tidemill_operator.desired.wanted import SpecError, parse_cluster, parse_group
from tidemill_operator.desired.workloads import choose, without_nulls
from tidemill_operator.kinds import BROKER_GROUP
from tidemill_operator.names import owner_of

IMAGE = "registry.test:5000/tidemill:1"


def cluster(**spec: Any) -> dict[str, Any]:
    return {
        "kind": "QueueCluster",
        "metadata": {"name": "prod", "namespace": "shop", "uid": "c"},
        "spec": spec,
    }


def group(name: str = "g0", annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": "g", "annotations": annotations or {}}
    return {**BROKER_GROUP.header, "metadata": metadata, "spec": {"clusterRef": {"name": "prod"}, **spec}}


def inputs(one: dict[str, Any], whole: dict[str, Any] | None = None) -> str:
    return parse_group(one, whole or cluster(), IMAGE).inputs


@pytest.mark.parametrize(
    "one, said",
    [
        (group("prod-g0"), "no dash|a dash follows"),
        (group(groupName="G0"), "lower-case"),
        (group(slaves=9), "0 to 4"),
        (group(config=[{"name": "meta", "value": "elsewhere:1"}]), "which the operator sets"),
        (group(config=[{"name": "name", "value": "x-0"}]), "which the operator sets"),
    ],
)
def test_a_spec_that_cannot_be_is_refused_with_what_to_write(one: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        pods_of(parse_group(one, cluster(), IMAGE))


@pytest.mark.parametrize(
    "spec, said",
    [
        ({"meta": {"replicas": 3}}, "SQLite is for one"),
        ({"meta": {"store": {"type": "PostgreSQL"}}}, "secretRef"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_cluster(cluster(**spec), IMAGE)


def test_an_image_that_nobody_names_is_asked_for() -> None:
    with pytest.raises(SpecError, match=r"spec\.image"):
        parse_cluster(cluster(), "")


@pytest.mark.parametrize(
    "image, reference",
    [
        ({}, IMAGE),
        ({"tag": "2"}, "registry.test:5000/tidemill:2"),
        ({"repository": "other.test/queue"}, "other.test/queue:1"),
        ({"repository": "other.test:5000/queue", "tag": "3"}, "other.test:5000/queue:3"),
    ],
)
def test_what_of_an_image_is_not_said_is_the_operators(image: dict[str, str], reference: str) -> None:
    assert parse_cluster(cluster(image=image), IMAGE).meta_pods.image.reference == reference


@pytest.mark.parametrize(
    "spec",
    [
        {"resources": {"limits": {"memory": "2Gi"}}},
        {"scheduling": {"nodeSelector": {"disk": "ssd"}}},
        {"scheduling": {"spread": "Required"}},
        {"config": [{"name": "segment_bytes", "value": "1"}]},
        {"terminationGracePeriodSeconds": 90},
        {"labels": {"disk": "ssd"}},
        {"durability": "high"},
        {"annotations": {"tidemill.dev/rolling-restart-at": "2026-01-01T00:00:00Z"}},
    ],
)
def test_changing_image_resources_or_affinity_rolls_pods(spec: dict[str, Any]) -> None:
    """As of RocketMQ's operator it did not: its updates were for nobody."""
    before, after = group(), group(**spec)

    assert inputs(before) != inputs(after)
    assert pods_of(parse_group(before, cluster(), IMAGE)) != pods_of(parse_group(after, cluster(), IMAGE))
    assert inputs(before) != inputs(before, cluster(image={"tag": "2"}))


@pytest.mark.parametrize(
    "spec",
    [
        {"slaves": 2},
        {"storage": {"size": "90Gi"}},
        {"writeAvailability": "ReadOnly"},
        {"annotations": {"tidemill.dev/paused": "true"}},
        {"scheduling": {"spread": "Preferred", "tolerations": []}, "config": [], "labels": {}},
        {"terminationGracePeriodSeconds": 60, "resources": {}},
    ],
)
def test_what_pods_are_not_made_of_and_what_the_api_server_adds_rolls_none(spec: dict[str, Any]) -> None:
    before, after = group(), group(**spec)

    assert inputs(before) == inputs(after)
    assert pods_of(parse_group(before, cluster(), IMAGE)) == pods_of(parse_group(after, cluster(), IMAGE))


def test_a_meta_that_moves_restarts_no_broker() -> None:
    """Brokers of RocketMQ's operator had addresses of name servers in their environment, and restarted with each."""
    [container] = pods_of(parse_group(group(), cluster(), IMAGE))["spec"]["containers"]
    told = {one["name"]: one.get("value") for one in container["env"]}

    assert told["TIDEMILL_META"] == "prod-meta.shop.svc:7401"
    three = cluster(
        meta={"replicas": 3, "store": {"type": "PostgreSQL", "secretRef": {"name": "a", "key": "b"}}}
    )
    assert inputs(group()) == inputs(group(), three)


def test_a_broker_is_named_by_its_ordinal_and_not_by_its_pod() -> None:
    """Meta takes what stands before the first dash for the group: of a pod `prod-fast-0` that would be `prod`."""
    [container] = pods_of(parse_group(group("prod-fast", groupName="fast"), cluster(), IMAGE))["spec"][
        "containers"
    ]
    told = {one["name"]: one.get("value") for one in container["env"]}

    assert told["TIDEMILL_NAME"] == "fast-$(POD_INDEX)"
    assert told["TIDEMILL_ADVERTISE"] == "$(POD_NAME).prod-fast.shop.svc"


def test_a_delay_group_has_its_own_process_and_settings() -> None:
    one = parse_group(group(kind="Delay", config=[{"name": "tick_ms", "value": "250"}]), cluster(), IMAGE)
    [container] = pods_of(one)["spec"]["containers"]

    assert container["command"][:3] == ["python", "-m", "tidemill_delay"]
    assert {"name": "TIDEMILL_DELAY_META", "value": "prod-meta.shop.svc:7401"} in container["env"]
    [found] = [each for each in around(one, owner_of(group())) if each["kind"] == "ConfigMap"]
    assert found["data"] == {"TIDEMILL_DELAY_TICK_MS": "250"}
    assert found["immutable"] is True


def test_new_settings_are_another_config_map_and_old_pods_keep_theirs() -> None:
    def names(value: str) -> set[str]:
        one = parse_group(group(config=[{"name": "segment_bytes", "value": value}]), cluster(), IMAGE)
        maps = [each for each in around(one, owner_of(group())) if each["kind"] == "ConfigMap"]
        [source] = pods_of(one)["spec"]["containers"][0]["envFrom"]
        assert [each["metadata"]["name"] for each in maps] == [source["configMapRef"]["name"]]
        return {source["configMapRef"]["name"]}

    assert not names("1") & names("2")


@pytest.mark.parametrize(
    "slaves, said, durability",
    [(0, None, "high"), (1, None, "normal"), (2, None, "normal"), (1, "high", "high")],
)
def test_durability_is_high_without_a_slave_unless_said(
    slaves: int, said: str | None, durability: str
) -> None:
    spec = {"durability": said} if said else {}

    assert parse_group(group(slaves=slaves, **spec), cluster(), IMAGE).durability == durability


def test_meta_with_postgresql_keeps_nothing_and_reads_its_secret() -> None:
    said = {"replicas": 2, "store": {"type": "PostgreSQL", "secretRef": {"name": "db", "key": "url"}}}
    pod = metas_pods(parse_cluster(cluster(meta=said), IMAGE))["spec"]

    assert pod["containers"][0]["env"] == [
        {"name": "TIDEMILL_META_DATABASE", "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}}
    ]
    assert [one["name"] for one in pod["volumes"]] == ["tmp"]
    assert "--data" not in pod["containers"][0]["command"]


# -- which template ----------------------------------------------------------------------------------------------


def applied(chosen: Any) -> dict[str, Any]:
    """The workload as it is seen later, with what the API server adds."""
    template = copy.deepcopy(dict(chosen.template))
    template["metadata"] = {"creationTimestamp": None, **template.get("metadata", {})}
    return {"metadata": {"annotations": dict(chosen.annotations)}, "spec": {"template": template}}


def test_what_people_say_makes_a_new_template() -> None:
    there = applied(choose({"image": "1"}, "a", "", None, supervised=False))

    chosen = choose({"image": "2"}, "b", "", there, supervised=False)

    assert (chosen.template, chosen.kept, chosen.is_on(there)) == ({"image": "2"}, False, False)


def test_an_operator_upgrade_alone_rolls_nothing() -> None:
    there = applied(choose({"image": "1"}, "a", "", None, supervised=False))

    chosen = choose({"image": "1", "new": "default"}, "a", "", there, supervised=False)

    assert chosen.kept
    assert chosen.template == {"image": "1", "metadata": {}}
    assert chosen.is_on(there)


def test_an_upgrade_comes_with_the_next_restart_that_somebody_asks_for() -> None:
    there = applied(choose({"image": "1"}, "a", "", None, supervised=False))

    chosen = choose({"image": "1", "new": "default"}, "b", "2026-01-01T00:00:00Z", there, supervised=False)

    assert not chosen.kept
    assert chosen.template["new"] == "default"


def test_an_edit_by_hand_is_put_right() -> None:
    there = applied(choose({"image": "1"}, "a", "", None, supervised=False))
    there["spec"]["template"]["image"] = "by hand"

    assert choose({"image": "1"}, "a", "", there, supervised=False).template == {"image": "1"}


def test_of_a_supervised_cluster_pods_wait_for_a_person() -> None:
    there = applied(choose({"image": "1"}, "a", "", None, supervised=True))

    waiting = choose({"image": "2"}, "b", "", there, supervised=True)
    asked = choose({"image": "2"}, "c", "2026-01-01T00:00:00Z", there, supervised=True)

    assert (waiting.kept, asked.kept) == (True, False)
    assert waiting.is_on(there)


def test_nulls_are_not_applied() -> None:
    assert without_nulls({"a": None, "b": [{"c": None}], "d": 0}) == {"b": [{}], "d": 0}
