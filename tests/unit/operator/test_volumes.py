"""Volumes that grow: claims first, then the StatefulSet around its pods, and nobody's pod is replaced for it."""

from __future__ import annotations

from typing import Any

from samples.operating import World
from tidemill_operator.steps import Apply, Delete, Plan

KEY = ("BrokerGroup", "g0")


def standing(**spec: Any) -> World:
    world = World(groups=1)
    world.settle()
    world.done.clear()
    return world


def grow(world: World, size: str, class_name: str = "fast") -> None:
    world.change("BrokerGroup", "g0", storage={"size": size, "className": class_name})


def claims(plan: Plan) -> list[dict[str, Any]]:
    applied = [one.manifest for one in plan.steps if isinstance(one, Apply)]
    return [dict(one) for one in applied if one["kind"] == "PersistentVolumeClaim"]


def orphaned(plan: Plan) -> list[str]:
    return [one.reference.name for one in plan.steps if isinstance(one, Delete) and one.orphan]


def sizes(world: World) -> list[str]:
    return [
        one["spec"]["resources"]["requests"]["storage"]
        for one in world.of("PersistentVolumeClaim")
        if one["metadata"]["name"].startswith("data-g0")
    ]


def resizing(plan: Plan) -> tuple[str, str]:
    return next((one.status, one.reason) for one in plan.conditions if one.type == "StorageResizing")


def test_claims_are_told_by_their_uid_and_with_nothing_else() -> None:
    world = standing()
    grow(world, "20Gi")

    plan = world.plan(KEY)

    uid = world.get("PersistentVolumeClaim", "data-g0-0")["metadata"]["uid"]
    assert claims(plan)[0] == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-g0-0", "namespace": "shop", "uid": uid},
        "spec": {"resources": {"requests": {"storage": "20Gi"}}},
    }
    assert (orphaned(plan), resizing(plan)) == ([], ("True", "Progressing"))


def test_the_workload_is_made_anew_around_the_same_pods() -> None:
    world = standing()
    pods = {one["metadata"]["uid"] for one in world.pods("g0")}
    former = world.get("StatefulSet", "g0")["metadata"]["uid"]
    grow(world, "20Gi")

    world.settle()

    workload = world.get("StatefulSet", "g0")
    assert workload["metadata"]["uid"] != former
    assert workload["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "20Gi"
    assert {one["metadata"]["uid"] for one in world.pods("g0")} == pods
    assert sizes(world) == ["20Gi", "20Gi"]
    assert world.done == []


def test_an_operator_that_ends_between_the_two_leaves_pods_that_are_taken_on() -> None:
    world = standing()
    pods = {one["metadata"]["uid"] for one in world.pods("g0")}
    grow(world, "20Gi")
    world.act(KEY)
    [step] = [one for one in world.plan(KEY).steps if isinstance(one, Delete) and one.orphan]
    world.execute(KEY, step, heard=True)
    assert ("StatefulSet", "g0") not in world.objects

    world.settle()

    assert {one["metadata"]["uid"] for one in world.pods("g0")} == pods


def test_a_template_that_was_kept_is_kept_through_it() -> None:
    """What an operator before made of the pods is not forgotten with the StatefulSet."""
    world = standing()
    world.change("QueueCluster", "prod", update={"strategy": "Supervised"})
    world.image("2")
    world.settle()
    grow(world, "20Gi")

    world.settle()

    assert {one["spec"]["containers"][0]["image"] for one in world.pods("g0")} == {"registry.test/tidemill:1"}
    assert world.get("StatefulSet", "g0")["spec"]["template"]["spec"]["containers"][0]["image"].endswith(":1")
    assert world.done == []


def test_nothing_is_deleted_before_the_template_is_surely_remembered() -> None:
    world = standing()
    grow(world, "20Gi")
    world.act(KEY)
    del world.objects["ConfigMap", "g0-template"]

    assert orphaned(world.plan(KEY)) == []


def test_volumes_grow_while_pods_crash_and_meta_is_deaf() -> None:
    """A full disk is when somebody writes a larger size."""
    world = standing()
    for pod in world.pods("g0"):
        world.stuck.add(pod["metadata"]["name"])
        pod["status"] = {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
    grow(world, "20Gi")

    for _ in range(4):
        world.act(KEY, heard=False)
        world.pass_time(1_000)

    assert sizes(world) == ["20Gi", "20Gi"]
    template = world.get("StatefulSet", "g0")["spec"]["volumeClaimTemplates"][0]
    assert template["spec"]["resources"]["requests"]["storage"] == "20Gi"


def test_what_somebody_else_let_grow_stays_as_large() -> None:
    world = standing()
    for claim in world.of("PersistentVolumeClaim"):
        claim["spec"]["resources"]["requests"]["storage"] = "50Gi"
    grow(world, "20Gi")

    world.settle()

    assert sizes(world) == ["50Gi", "50Gi"]


def test_a_class_that_cannot_grow_is_named_and_nothing_is_tried() -> None:
    world = standing()
    world.get("StorageClass", "fast")["allowVolumeExpansion"] = False
    grow(world, "20Gi")

    plan = world.plan(KEY)

    assert (claims(plan), orphaned(plan)) == ([], [])
    assert resizing(plan) == ("False", "StorageClassNotExpandable")


def test_where_classes_may_not_be_seen_the_api_server_says() -> None:
    world = standing()
    del world.objects["StorageClass", "fast"]
    grow(world, "20Gi")

    assert len(claims(world.plan(KEY))) == 2


def test_a_claim_that_is_not_bound_yet_waits() -> None:
    world = standing()
    world.get("PersistentVolumeClaim", "data-g0-1")["status"] = {"phase": "Pending"}
    grow(world, "20Gi")

    plan = world.plan(KEY)

    assert [one["metadata"]["name"] for one in claims(plan)] == ["data-g0-0"]


def test_a_smaller_size_changes_nothing() -> None:
    world = standing()
    grow(world, "1Gi")

    plan = world.plan(KEY)

    assert (claims(plan), orphaned(plan)) == ([], [])
    assert not world.act(KEY) or sizes(world) == ["10Gi", "10Gi"]


def test_retention_is_what_the_spec_says_and_retain_when_it_says_nothing() -> None:
    world = standing()
    policy = world.get("StatefulSet", "g0")["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy == {"whenDeleted": "Retain", "whenScaled": "Retain"}

    said = {"size": "10Gi", "className": "fast", "retention": {"whenScaled": "Delete"}}
    world.change("BrokerGroup", "g0", storage=said)
    world.settle()

    policy = world.get("StatefulSet", "g0")["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy == {"whenDeleted": "Retain", "whenScaled": "Delete"}


def test_metas_volume_grows_and_its_workload_keeps_its_template() -> None:
    world = standing()
    world.change("QueueCluster", "prod", meta={"storage": {"size": "5Gi", "className": "fast"}})
    world.get("PersistentVolumeClaim", "data-prod-meta-0")["spec"]["storageClassName"] = "fast"

    world.settle()

    claim = world.get("PersistentVolumeClaim", "data-prod-meta-0")
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    assert not any(one.startswith("refused") for one in world.done)
