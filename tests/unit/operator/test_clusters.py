"""QueueCluster: meta, its own list of groups, whose turn it is, and that it goes last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from samples.operating import World
from tidemill_operator.clusters import plan
from tidemill_operator.planners import PLANNERS
from tidemill_operator.steps import Apply, Condition, Delete, Hold, Plan

KEY = ("QueueCluster", "prod")
POSTGRESQL = {"replicas": 2, "store": {"type": "PostgreSQL", "secretRef": {"name": "db", "key": "url"}}}


def standing(groups: int = 2) -> World:
    world = World(groups=groups)
    world.settle()
    return world


def ready(made: Plan) -> tuple[str, str, str]:
    return next((one.status, one.reason, one.message) for one in made.conditions if one.type == "Ready")


def kinds(made: Plan) -> list[str]:
    return [one.manifest["kind"] for one in made.steps if isinstance(one, Apply)]


def wants(world: World, group: str, ticket: int, since: str = "2026-01-01T00:00:00Z") -> None:
    rollout = {"stage": f"Waiting {ticket}", "since": since}
    world.get("BrokerGroup", group)["status"]["rollout"] = rollout


def turn(made: Plan) -> tuple[str, str]:
    row = made.status.get("rollout", {})
    return row.get("group", ""), row.get("stage", "")


# -- meta --------------------------------------------------------------------------------------------------------


def test_meta_on_sqlite_is_one_pod_with_a_volume() -> None:
    world = World(groups=0)

    assert kinds(world.plan(KEY)) == [
        "ServiceAccount",
        "Service",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "StatefulSet",
    ]


def test_meta_outlives_brokers_that_are_told_to_go_with_it_and_would_rather_be_elsewhere() -> None:
    """Who says goodbye needs it: a node that is drained of both takes it away last."""
    world = World(groups=1)
    world.settle()

    meta, group = world.get("StatefulSet", "prod-meta"), world.get("StatefulSet", "g0")
    stops = [
        one["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        for one in (meta, group)
    ]
    assert stops[0] >= stops[1] + 5
    apart = meta["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    ((own, other),) = apart.values()
    assert own["weight"] > 50 * other["weight"]  # that a group's brokers are on two nodes matters more
    chosen = other["podAffinityTerm"]["labelSelector"]
    (wanted,) = chosen["matchExpressions"]
    of_brokers = group["spec"]["template"]["metadata"]["labels"]
    assert chosen["matchLabels"].items() <= of_brokers.items()
    assert of_brokers[wanted["key"]] in wanted["values"]
    ((alike,),) = group["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"].values()
    assert (
        alike["podAffinityTerm"]["labelSelector"]["matchLabels"] == group["spec"]["selector"]["matchLabels"]
    )


def test_meta_is_where_it_comes_when_nothing_is_to_be_spread() -> None:
    world = World(groups=0)
    world.change(*KEY, meta={"scheduling": {"spread": "None"}})
    world.settle()

    assert "affinity" not in world.get("StatefulSet", "prod-meta")["spec"]["template"]["spec"]


def test_meta_on_postgresql_is_a_deployment() -> None:
    world = World(groups=0)
    world.change(*KEY, meta=POSTGRESQL)

    assert kinds(world.plan(KEY))[-1] == "Deployment"


def test_what_is_not_generated_any_more_is_taken_away() -> None:
    world = standing()
    world.change(*KEY, networkPolicy={"mode": "None"}, podDisruptionBudget={"mode": "None"})

    world.settle()

    assert world.of("NetworkPolicy") == world.of("PodDisruptionBudget") == []


def test_settings_that_no_pod_has_any_more_are_taken_away() -> None:
    world = standing(groups=1)
    for value in ("1", "2"):
        world.change("BrokerGroup", "g0", config=[{"name": "segment_bytes", "value": value}])
        world.act(("BrokerGroup", "g0"))
        world.pass_time(500)
    names = [
        one["metadata"]["name"] for one in world.of("ConfigMap") if "-settings-" in one["metadata"]["name"]
    ]
    assert len(names) == 2

    world.settle()

    left = [one for one in world.of("ConfigMap") if "-settings-" in one["metadata"]["name"]]
    assert [one["data"] for one in left] == [{"TIDEMILL_SEGMENT_BYTES": "2"}]


def test_a_spec_that_cannot_be_stalls_and_touches_nothing() -> None:
    world = standing()
    world.change(*KEY, meta={"replicas": 3})

    made = world.plan(KEY)

    assert made.steps == ()
    assert ready(made)[:2] == ("False", "InvalidSpec")
    assert any(one.type == "Stalled" for one in made.conditions)


def test_what_belongs_to_somebody_else_is_not_written() -> None:
    world = World(groups=0)
    owner = {"uid": "somebody", "controller": True}
    world.put(
        "StatefulSet",
        "prod-meta",
        {"metadata": {"ownerReferences": [owner], "labels": {}}, "spec": {}},
        api="apps/v1",
    )

    made = world.plan(KEY)

    assert (made.steps, ready(made)[1]) == ((), "ResourceConflict")


def test_it_is_ready_when_meta_and_all_groups_are() -> None:
    world = World(groups=1)
    assert ready(world.plan(KEY))[:2] == ("Unknown", "Progressing")

    world.settle()

    assert ready(world.plan(KEY))[:2] == ("True", "Reconciled")
    assert ready(world.plan(KEY, heard=False))[1] == "ClusterUnavailable"
    assert world.get(*KEY)["status"]["meta"] == {
        "replicas": 1,
        "readyReplicas": 1,
        "endpoint": "prod-meta.shop.svc:7401",
    }


def test_without_broker_groups_it_says_what_is_missing() -> None:
    world = standing(groups=0)

    assert ready(world.plan(KEY)) == (
        "False",
        "NotEnoughBrokers",
        "it has no broker group: make a BrokerGroup that names it",
    )


def test_meta_is_asked_for_brokers_and_delay_services() -> None:
    assert PLANNERS["QueueCluster"].asks({}, ()) == ("/v1/brokers", "/v1/delays")


def degraded(world: World) -> Condition:
    return next(one for one in world.plan(KEY).conditions if one.type == "Degraded")


def test_a_cluster_is_degraded_for_the_gravest_reason_of_its_groups() -> None:
    world = World(groups=1, slaves=0)
    world.settle()
    assert degraded(world).reason == "NotRedundant"
    assert "g0" in degraded(world).message

    world.add_group("g1", slaves=1)
    world.settle()
    world.slow.add("g1-1")
    world.kill("g1-1")
    reasons = list[str]()
    for _ in range(40):
        for key in world.ours():
            world.act(key)
        reasons.append(degraded(world).reason)
        world.pass_time(1_000)

    assert "SlaveDown" in reasons
    assert reasons[-1] == "OutOfSync"


# -- the list ----------------------------------------------------------------------------------------------------


def test_groups_of_the_list_are_made_and_emptied_when_they_leave_it() -> None:
    world = standing(groups=0)
    world.change(*KEY, brokerGroups=[{"name": "g0", "slaves": 0}, {"name": "later", "kind": "Delay"}])
    world.act(KEY)
    made = world.get("BrokerGroup", "prod-g0")
    assert made["spec"] == {"clusterRef": {"name": "prod"}, "groupName": "g0", "slaves": 0}
    assert made["metadata"]["ownerReferences"][0]["uid"] == world.get(*KEY)["metadata"]["uid"]

    world.change(*KEY, brokerGroups=[{"name": "g0", "slaves": 0}])

    deleted = [one.reference.name for one in world.plan(KEY).steps if isinstance(one, Delete)]
    assert deleted == ["prod-later"]


def test_a_group_that_somebody_made_is_left_alone() -> None:
    world = standing(groups=1)
    world.change(*KEY, brokerGroups=[])

    assert not any(isinstance(one, Delete) for one in world.plan(KEY).steps)


def test_a_name_that_another_object_has_is_not_taken_over() -> None:
    world = standing(groups=0)
    world.put(
        "BrokerGroup",
        "prod-g0",
        {"metadata": {"ownerReferences": [{"uid": "x", "controller": True}]}, "spec": {}},
    )
    world.change(*KEY, brokerGroups=[{"name": "g0"}])

    assert ready(world.plan(KEY))[1] == "ResourceConflict"


# -- whose turn it is --------------------------------------------------------------------------------------------


def test_the_turn_goes_to_who_has_waited_for_longest() -> None:
    world = standing()
    wants(world, "g0", 1, "2026-01-01T00:05:00Z")
    wants(world, "g1", 7, "2026-01-01T00:01:00Z")

    assert turn(world.plan(KEY)) == ("g1", "Turn 7")


def test_the_turn_stays_while_the_ticket_is_on() -> None:
    world = standing()
    wants(world, "g0", 1)
    wants(world, "g1", 7)
    world.get(*KEY)["status"]["rollout"] = {"group": "g1", "stage": "Turn 7", "since": "2026-01-01T00:00:00Z"}

    assert turn(world.plan(KEY)) == ("g1", "Turn 7")
    assert world.plan(KEY).status["rollout"]["since"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("how", ["given back", "deleted", "gone"])
def test_the_turn_moves_on_when_its_holder_has_no_use_for_it(how: str) -> None:
    world = standing()
    wants(world, "g0", 1)
    wants(world, "g1", 7)
    world.get(*KEY)["status"]["rollout"] = {"group": "g1", "stage": "Turn 7", "since": "2026-01-01T00:00:00Z"}
    match how:
        case "given back":
            world.get("BrokerGroup", "g1")["status"]["rollout"] = {"stage": "Rolled 7"}
        case "deleted":
            world.get("BrokerGroup", "g1")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        case "gone":
            del world.objects["BrokerGroup", "g1"]

    assert turn(world.plan(KEY)) == ("g0", "Turn 1")


@pytest.mark.parametrize("said, stage", [("Waiting 8", "Turn 8"), ("", "Turn 7")])
def test_the_turn_stays_with_a_holder_whose_status_got_lost(said: str, stage: str) -> None:
    world = standing()
    wants(world, "g0", 1)
    world.get(*KEY)["status"]["rollout"] = {"group": "g1", "stage": "Turn 7", "since": "2026-01-01T00:00:00Z"}
    rollout = {"stage": said, "since": "2026-01-02T00:00:00Z"} if said else {}
    world.get("BrokerGroup", "g1")["status"]["rollout"] = rollout

    assert turn(world.plan(KEY)) == ("g1", stage)


def test_a_cluster_that_lost_its_status_finds_who_rolls() -> None:
    world = standing()
    wants(world, "g0", 1)
    rolling = {"stage": "Rolling 7", "since": "2026-02-01T00:00:00Z"}
    world.get("BrokerGroup", "g1")["status"]["rollout"] = rolling
    world.get(*KEY)["status"] = {}

    assert turn(world.plan(KEY)) == ("g1", "Turn 7")


def test_a_paused_group_is_not_given_the_turn_and_keeps_the_one_it_has() -> None:
    world = standing()
    wants(world, "g0", 1)
    world.annotate("BrokerGroup", "g0", paused="true")
    assert turn(world.plan(KEY)) == ("", "")

    world.get(*KEY)["status"]["rollout"] = {"group": "g0", "stage": "Turn 1", "since": "2026-01-01T00:00:00Z"}

    assert turn(world.plan(KEY)) == ("g0", "Turn 1")


def test_nobody_gets_the_turn_while_meta_is_not_as_it_should_be() -> None:
    world = standing()
    wants(world, "g0", 1)
    world.get("StatefulSet", "prod-meta")["status"]["readyReplicas"] = 0

    assert turn(world.plan(KEY)) == ("", "")


def test_nobody_gets_the_turn_in_the_pass_that_gives_meta_another_template() -> None:
    """What was seen of it then is still of the former one, and says that all is well."""
    world = standing()
    wants(world, "g0", 1)
    world.change(*KEY, image={"tag": "9.9.9"})

    assert turn(world.plan(KEY)) == ("", "")


def test_groups_have_a_pause_between_them() -> None:
    world = standing()
    world.change(*KEY, update={"groupDelaySeconds": 60})
    wants(world, "g0", 1)
    world.get("BrokerGroup", "g1")["status"]["rollout"] = {"stage": "Rolled 7"}
    world.get(*KEY)["status"]["rollout"] = {"group": "g1", "stage": "Turn 7", "since": "2026-01-01T00:00:00Z"}

    made = world.plan(KEY)
    assert turn(made) == ("", "")
    world.get(*KEY)["status"] = {**world.get(*KEY)["status"], **made.status}
    del world.get(*KEY)["status"]["rollout"]
    world.now_ms += 60_000

    assert turn(world.plan(KEY)) == ("g0", "Turn 1")


# -- going -------------------------------------------------------------------------------------------------------


def going(groups: int = 1) -> World:
    world = standing(groups=groups)
    world.remove(*KEY)
    return world


def test_it_waits_for_groups_that_name_it_and_says_which() -> None:
    world = going()

    made = world.plan(KEY)

    assert made.steps == ()
    assert ready(made)[1:] == ("DeletionBlocked", "broker groups name it: delete g0, too")


def test_its_own_groups_go_first_and_then_it_goes() -> None:
    world = standing(groups=0)
    world.change(*KEY, brokerGroups=[{"name": "g0"}])
    world.settle()
    world.remove(*KEY)

    for _ in range(5):
        for key in world.ours():
            world.act(key)
        world.pass_time(1_000)

    assert world.ours() == []
    assert world.of("StatefulSet") == []
    assert len(world.of("PersistentVolumeClaim")) == 3


def test_it_goes_at_once_with_its_namespace() -> None:
    world = going()

    assert plan(replace(world.view(KEY), namespace_goes=True), 0).steps == (Hold(held=False),)


@pytest.mark.parametrize(
    "said, reason", [("paused", "PausedByAnnotation"), ("managed", "UnmanagedByAnnotation")]
)
def test_what_a_person_stops_is_looked_at_and_left_alone(said: str, reason: str) -> None:
    world = standing()
    before: dict[str, Any] = dict(world.get(*KEY)["status"])
    world.annotate(*KEY, **{said: "true" if said == "paused" else "false"})
    world.image("2")

    made = world.plan(KEY)

    assert [one for one in made.steps if not isinstance(one, Hold)] == []
    assert made.conditions[-1].reason == reason
    assert {**made.status, "conditions": before["conditions"]} == before
