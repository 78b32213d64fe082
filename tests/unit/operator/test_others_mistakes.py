"""What operators of other queues and databases were seen to do wrong, each by its name; ours does not."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import get_args

from samples.operating import World
from tidemill_operator import steps
from tidemill_operator.broker_groups import plan
from tidemill_operator.steps import Ask, Delete

KEY = ("BrokerGroup", "g0")


def rolling(seconds: int, **how: int) -> World:
    world = World(groups=2)
    world.settle()
    world.image("2")
    for _ in range(seconds):
        for key in world.ours():
            world.act(key, **how)
        world.pass_time(1_000)
    return world


def test_an_operator_restarted_in_mid_rollout_loses_nothing() -> None:
    """Each pass ends after another step, so that no pass is whole for a while; then they are."""
    world = World(groups=2)
    world.settle()
    world.image("2")
    for number in range(120):
        for key in world.ours():
            world.act(key, lost_after=number % 14)
        world.pass_time(1_000)

    world.settle(900)

    taken = [one for one in world.done if one.startswith("take")]
    assert sorted(taken) == ["take g0-0", "take g0-1", "take g1-0", "take g1-1"]


def test_two_clusters_in_one_process_share_nothing() -> None:
    """Names of another cluster's masters were kept in variables of the package."""
    one, other = rolling(3), World(groups=2)
    other.settle()
    before = other.plan(KEY)

    for key in one.ours():
        one.plan(key)

    assert other.plan(KEY) == before


def test_the_master_is_not_restarted_before_its_slaves() -> None:
    world = rolling(40)

    assert world.done[:3] == ["take g0-1", "handover g0 g0-1", "take g0-0"]


def test_a_dependency_that_is_missing_blocks_nobody() -> None:
    """An endless sleep inside a reconciliation waited for name servers; here it is a condition, and a return."""
    world = World(groups=1)

    made = plan(replace(world.view(KEY), cluster=None, meta=None), world.now_ms)

    assert (made.steps, made.conditions[0].reason) == ((), "ReferenceNotFound")


def test_a_change_of_the_spec_is_not_for_nobody() -> None:
    """Children were made when they were missing, and never changed."""
    world = World(groups=1)
    world.settle()
    world.change(*KEY, resources={"limits": {"memory": "3Gi"}})

    world.settle()

    assert {one["spec"]["containers"][0]["resources"]["limits"]["memory"] for one in world.pods("g0")} == {
        "3Gi"
    }


def test_a_drift_of_a_child_is_put_right() -> None:
    world = World(groups=1)
    world.settle()
    world.get("Service", "g0")["spec"]["publishNotReadyAddresses"] = False
    world.get("StatefulSet", "g0")["spec"]["updateStrategy"] = {"type": "RollingUpdate"}

    world.settle()

    assert world.get("Service", "g0")["spec"]["publishNotReadyAddresses"] is True
    assert world.get("StatefulSet", "g0")["spec"]["updateStrategy"]["type"] == "OnDelete"


def test_a_scale_up_copies_nothing_by_exec() -> None:
    """Metadata was copied by `cat` and `echo` in other pods; there is no step that could."""
    known = {"Apply", "Create", "Delete", "Ask", "Seek", "Hold", "Consumed"}
    assert {one.__name__ for one in get_args(steps.Step)} == known


def test_what_was_not_observed_is_not_taken_for_gone() -> None:
    """Peers that were not seen looked like peers that are not wanted, and were torn down."""
    world = World(groups=2, slaves=2)
    world.settle()
    world.image("2")
    world.act(KEY)
    blind = replace(world.view(KEY), objects=(), meta=None)

    made = plan(blind, world.now_ms)

    assert not any(isinstance(one, (Delete, Ask)) for one in made.steps)


def test_nothing_is_written_when_nothing_has_changed() -> None:
    """Statuses that were rewritten in each pass woke their own watchers, for ever."""
    world = World(groups=2)
    world.settle()
    before = copy.deepcopy(world.objects)

    for _ in range(20):
        assert [key for key in world.ours() if world.act(key)] == []
        world.pass_time(5_000)

    assert world.objects == before


def test_an_upgrade_of_the_operator_restarts_nobody() -> None:
    """Fleets of databases restarted because their operator was upgraded: another default image, for one."""
    world = World(groups=1)
    world.change("QueueCluster", "prod", image={})
    world.settle()
    pods = {one["metadata"]["uid"] for one in world.pods("g0")}
    newer = replace(world.view(KEY), image="registry.test/tidemill:9")

    made = plan(newer, world.now_ms)

    assert not any(isinstance(one, Delete) for one in made.steps)
    [workload] = [
        one.manifest
        for one in made.steps
        if isinstance(one, steps.Apply) and one.manifest["kind"] == "StatefulSet"
    ]
    assert workload["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.test/tidemill:1"
    assert {one["metadata"]["uid"] for one in world.pods("g0")} == pods


def test_a_bad_setting_can_be_mended_while_nothing_is_healthy() -> None:
    """An operator that waits for health cannot bring what would restore it."""
    world = World(groups=1, slaves=1)
    world.settle()
    world.image("bad")
    for pod in world.pods("g0"):
        world.kill(pod["metadata"]["name"])
    for _ in range(20):
        for key in world.ours():
            world.act(key)
        world.pass_time(1_000)
    assert not any(world.is_well(f"g0-{one}") for one in range(2))

    world.image("2")
    world.settle()

    assert all(world.is_well(f"g0-{one}") for one in range(2))


def test_a_scale_out_restarts_no_broker() -> None:
    world = World(groups=1)
    world.settle()
    before = {one["metadata"]["uid"] for one in world.pods("g0")}
    world.change(*KEY, slaves=3)

    world.settle()

    assert before < {one["metadata"]["uid"] for one in world.pods("g0")}
    assert world.done == []
