"""Broker groups roll, grow, shrink and go while pods die, meta is deaf, and the operator ends in the middle of a pass.

What must never happen is checked by ``samples.operating`` when it happens. Here are the schedules: any of them, then a
fair one, at whose end there is nothing left to do. And planners with a gate too few, which are found out.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samples.operating import Harm, World
from tidemill_operator import broker_groups, observed, rollout
from tidemill_operator.rollout import Baton

GROUPS = ("g0", "g1")
LOCKS: list[dict[str, Any]] = [
    {},
    {"token": {"name": "t", "key": "k"}},
    {"token": {"name": "t", "key": "k"}, "serviceAccounts": {"audience": "queues"}},
]
WISHES = {"slaves", "size", "restart", "leave"}
SLOW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

passes = st.tuples(
    st.just("pass"),
    st.integers(0, 2),
    st.fixed_dictionaries(
        {
            "heard": st.sampled_from([True, True, True, False]),
            "stale": st.booleans(),
            "lost_after": st.sampled_from([None, None, None, 0, 5, 8, 9, 10, 11]),
        }
    ),
)
times = st.tuples(st.just("time"), st.sampled_from([500, 1_000, 3_000, 12_000]))
rounds = st.tuples(st.just("rounds"), st.integers(1, 12))
accidents = st.one_of(
    st.tuples(st.just("kill"), st.sampled_from(GROUPS), st.integers(0, 2)),
    st.tuples(st.just("slow"), st.sampled_from(GROUPS), st.integers(0, 2)),
    st.tuples(st.just("stuck"), st.sampled_from(GROUPS), st.integers(0, 2)),
    st.tuples(st.just("heal")),
    st.tuples(st.just("forget"), st.sampled_from(["g0", "g1", "prod"])),
)
wishes = st.one_of(
    st.tuples(st.just("image"), st.sampled_from(["2", "3", "bad"])),
    st.tuples(st.just("slaves"), st.sampled_from(GROUPS), st.integers(0, 2)),
    st.tuples(st.just("size"), st.sampled_from(GROUPS), st.sampled_from(["10Gi", "20Gi", "30Gi"])),
    st.tuples(st.just("restart"), st.sampled_from(GROUPS), st.integers(1, 3)),
    st.tuples(st.just("leave"), st.sampled_from(GROUPS), st.integers(0, 2)),
    st.tuples(st.just("canary"), st.sampled_from([0, 250, 500])),
    st.tuples(st.just("lock"), st.sampled_from(LOCKS)),
)
schedules = st.lists(st.one_of(passes, times, rounds, rounds, accidents, wishes), min_size=4, max_size=40)


def happen(world: World, event: Any) -> None:
    if event[0] in WISHES and ("BrokerGroup", event[1]) not in world.objects:
        return
    match event:
        case ("pass", number, how):
            keys = world.ours()
            world.act(keys[number % len(keys)], **how)
        case ("time", ms):
            world.pass_time(ms)
        case ("rounds", count):
            for _ in range(count):
                for key in world.ours():
                    world.act(key)
                world.pass_time(2_000)
        case ("kill", group, ordinal):
            world.kill(f"{group}-{ordinal}")
        case ("slow", group, ordinal):
            world.slow.add(f"{group}-{ordinal}")
        case ("stuck", group, ordinal):
            world.stuck.add(f"{group}-{ordinal}")
        case ("forget", name):
            # A pass failed, and said so in the status, and nothing else.
            kind = "QueueCluster" if name == "prod" else "BrokerGroup"
            if (kind, name) in world.objects:
                world.get(kind, name)["status"].pop("rollout", None)
        case ("heal",):
            world.slow.clear()
            world.stuck.clear()
        case ("image", tag):
            world.image(tag)
        case ("slaves", group, count):
            world.change("BrokerGroup", group, slaves=count)
        case ("size", group, size):
            world.change("BrokerGroup", group, storage={"size": size, "className": "fast"})
        case ("restart", group, number):
            world.annotate("BrokerGroup", group, rolling_restart_at=f"2026-01-0{number}T00:00:00Z")
        case ("canary", interval_ms):
            said = {"enabled": bool(interval_ms), "intervalMilliseconds": interval_ms}
            world.change("QueueCluster", "prod", canary=said)
        case ("lock", security):
            world.change("QueueCluster", "prod", security=security)
        case ("leave", group, left):
            if group in world.at_meta:
                world.at_meta[group].left = left
            world.remove("BrokerGroup", group)
        case _:
            raise AssertionError(event)


@cache
def settled(slaves: int) -> World:
    world = World(slaves=slaves)
    world.settle()
    return world


def run(schedule: list[Any], slaves: int = 1) -> World:
    world = copy.deepcopy(settled(slaves))
    for event in schedule:
        happen(world, event)
    return world


def check_canary(world: World) -> None:
    """There is one where it is asked for and could say who it is, of what was said last; else nothing is left of it."""
    spec = world.get("QueueCluster", "prod")["spec"]
    asked, security = spec.get("canary", {}), spec.get("security", {})
    nobody = "token" in security and "serviceAccounts" not in security
    made = {
        one["kind"]: one for (_, name), one in world.objects.items() if name == "prod-canary"
    }  # fmt: skip
    rows = world.get("QueueCluster", "prod")["status"]["conditions"]
    said = [one["status"] for one in rows if one["type"] == "CanaryReady"]
    if not asked.get("enabled") or nobody:
        assert made == {}
        assert said == (["False"] if asked.get("enabled") else [])
        return
    grant = {"Grant"} if security else set[str]()
    assert set(made) == {"Deployment", "NetworkPolicy", "Service", "ServiceAccount", *grant}
    [container] = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"registry.test/tidemill:{spec['image']['tag']}"
    assert container["command"][-1] == f"{asked['intervalMilliseconds'] / 1000:g}"
    assert said == ["True"]


def check_settled(world: World) -> None:
    """All is as it was wished, and the same view asks for nothing more."""
    check_canary(world)
    for group in GROUPS:
        if ("BrokerGroup", group) not in world.objects:
            assert group not in world.at_meta
            assert not world.pods(group)
            continue
        workload = world.get("StatefulSet", group)
        spec = world.get("BrokerGroup", group)["spec"]
        pods = world.pods(group)
        assert len(pods) == workload["spec"]["replicas"] == 1 + spec["slaves"]
        revisions = {one["metadata"]["labels"]["controller-revision-hash"] for one in pods}
        assert revisions == {workload["status"]["updateRevision"]}
        assert all(world.is_well(one["metadata"]["name"]) for one in pods)
        roles = sorted(one["metadata"]["labels"]["tidemill.dev/role"] for one in pods)
        assert roles == ["master"] + ["slave"] * spec["slaves"]
        assert sorted(world.at_meta[group].members) == sorted(one["metadata"]["name"] for one in pods)
        assert not rollout.ticket_of(world.get("BrokerGroup", group))[0]
    for key in world.ours():
        assert world.plan(key) == world.plan(key)
        assert not world.act(key)
    assert "rollout" not in world.get("QueueCluster", "prod")["status"]


@SLOW
@given(schedules, st.integers(0, 2))
def test_no_schedule_harms_and_every_one_comes_to_rest(schedule: list[Any], slaves: int) -> None:
    world = run(schedule, slaves)
    if world.get("QueueCluster", "prod")["spec"]["image"]["tag"] == "bad":
        world.image("4")
    for known in world.at_meta.values():
        known.left = 0

    world.settle(900)

    check_settled(world)


# -- teeth: with a gate too few, harm is found -------------------------------------------------------------------


STORM: list[Any] = [
    ("image", "2"),
    *[("rounds", 1)] * 4,
    ("slow", "g0", 1),
    ("slow", "g1", 1),
    ("slow", "g0", 0),
    *[("rounds", 2), ("pass", 1, {"heard": False}), ("pass", 0, {"heard": False})] * 12,
    ("slaves", "g0", 0),
    *[("rounds", 1)] * 10,
]


def test_the_storm_harms_nobody() -> None:
    run(STORM)


def test_a_group_that_does_not_wait_for_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed.Broker, "is_well", lambda self, now_ms: self.ready_since_ms is not None)

    with pytest.raises(Harm, match="not back"):
        run(STORM)


def test_groups_that_all_have_the_baton_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    everybody = Baton(1, wanted=True, held=True)
    monkeypatch.setattr(broker_groups, "baton_of", lambda resource, cluster: everybody)

    with pytest.raises(Harm, match="not back"):
        run(STORM)


def test_a_gate_that_is_open_when_meta_is_not_heard_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = rollout._gate

    def open_gate(seen: observed.Observed, *more: Any) -> Any:
        return real(seen, *more) if seen.heard else None

    monkeypatch.setattr(rollout, "_gate", open_gate)

    with pytest.raises(Harm, match="not heard"):
        run(STORM)


def test_a_master_that_does_not_hand_over_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "_is_alone", lambda seen, group: True)

    with pytest.raises(Harm):
        run(STORM)
