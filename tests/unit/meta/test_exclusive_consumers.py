"""Exclusive consumers: one of them has all partitions, and nobody else any, whoever comes, goes or is killed."""

from __future__ import annotations

import pytest

from samples.metas import World
from samples.processes import KEY, SECOND, Process, exclusive, keep_brokers, world_with
from tidemill_meta.asked import Asked
from tidemill_meta.beats import ClientBeat, Consumes
from tidemill_meta.settings import MetaSettings
from tidemill_meta.subjects import declare, expand, lacking
from tidemill_meta.values import ConsumerGroupRecord
from tidemill_wire.declarations import parse_manifests

ALL = {"g1/s", "g2/s"}


def both(world: World) -> tuple[Process, Process]:
    return Process(world, "p", asks=exclusive), Process(world, "q", len(world.replicas) - 1, exclusive)


@pytest.mark.parametrize("replicas", [1, 3])
def test_one_of_two_exclusive_consumers_has_all_partitions_and_stays_the_one(replicas: int) -> None:
    world = world_with(replicas)
    one, other = both(world)
    world.pass_ms(4 * SECOND, keep_brokers(world, other))
    assert other.handles == ALL

    for _ in range(80):
        world.pass_ms(250, keep_brokers(world, one, other))
        assert (one.handles, other.handles) == (frozenset(), ALL)


@pytest.mark.parametrize("replicas", [1, 3])
def test_exclusive_consumer_that_is_killed_is_followed_within_its_authorisation_and_a_second(
    replicas: int,
) -> None:
    world = world_with(replicas)
    one, other = both(world)
    world.pass_ms(20 * SECOND, keep_brokers(world, one, other))
    assert (one.handles, other.handles) == (ALL, frozenset())
    one.running = False
    killed_ms = world.now_ms
    while other.handles != ALL:
        world.pass_ms(250, keep_brokers(world, other))
        assert not (one.handles and other.handles)
        assert world.now_ms - killed_ms <= world.settings.authorisation_ms + SECOND


def test_exclusive_consumer_that_leaves_is_followed_within_two_seconds() -> None:
    world = world_with(3)
    one, other = both(world)
    world.pass_ms(20 * SECOND, keep_brokers(world, one, other))

    world.replicas[1].meta.client_left("p", world.replicas[1].now_ms)
    world.pass_ms(2 * SECOND, keep_brokers(world, other))

    assert other.handles == ALL


def test_restart_of_meta_and_expansion_leave_the_one_its_own() -> None:
    world = world_with()
    one, other = both(world)
    world.pass_ms(20 * SECOND, keep_brokers(world, one, other))
    world.restart()
    world.pass_ms(30 * SECOND, keep_brokers(world, one, other))
    assert (one.handles, other.handles) == (ALL, frozenset())

    asked = Asked({"partitions": 4, "version": 1})
    world.first.change(lambda draft, now_ms: expand(draft, world.first.meta.senses, "s", asked, now_ms))
    world.fence("g1", "g2")
    world.pass_ms(6 * SECOND, keep_brokers(world, one, other))
    assert one.handles == ALL, "the heirs wait for what lay before"
    world.fence("g1", "g2", passed=[("g1/s", "g"), ("g2/s", "g")])
    world.pass_ms(6 * SECOND, keep_brokers(world, one, other))
    assert (len(one.handles), other.handles) == (4, frozenset())


def test_exclusive_consumer_makes_consumers_by_key_one_too_and_never_two_at_work() -> None:
    world = world_with(3)
    one, other = Process(world, "p"), Process(world, "q", at=1)
    world.pass_ms(20 * SECOND, keep_brokers(world, one, other))
    assert one.handles
    assert other.handles
    late = Process(world, "r", 2, exclusive)
    late.speak()
    world.pass_ms(2 * SECOND, keep_brokers(world, one, other, late))

    for _ in range(40):
        world.pass_ms(250, keep_brokers(world, one, other, late))
        assert sum(bool(process.handles) for process in (one, other, late)) <= 1
    assert one.handles | other.handles | late.handles == ALL


def test_who_stands_by_speaks_as_seldom_as_the_one_at_work() -> None:
    world = world_with()
    one, other = both(world)
    world.pass_ms(4 * SECOND, keep_brokers(world, one, other))

    assert world.client("q", exclusive(1))["beat_ms"] == MetaSettings().ordered_beat_ms


def test_who_takes_the_group_as_it_finds_it_is_given_nothing_that_another_could_have() -> None:
    """It hears of no allocation, so brokers that know of one refuse it."""
    world = world_with()
    one = Process(world, "p", asks=exclusive)
    world.client("a", Consumes("s", "g", "c"))
    world.pass_ms(SECOND, keep_brokers(world))
    for _ in range(40):
        world.client("a", Consumes("s", "g", "c"))
        world.pass_ms(250, keep_brokers(world, one))

    assert one.handles == ALL


@pytest.mark.parametrize("declared", [False, True])
def test_group_that_its_first_use_made_shared_becomes_one_in_order_unless_somebody_declared_it(
    declared: bool,
) -> None:
    world = world_with()
    world.client("a", Consumes("s", "g", "c"))
    if declared:
        spec = {"subjectName": "s", "consumption": "Shared"}
        body = {
            "apiVersion": "tidemill.dev/v1alpha1",
            "kind": "ConsumerGroup",
            "metadata": {"name": "g"},
            "spec": spec,
        }
        shared = parse_manifests([body])
        world.first.change(lambda draft, now_ms: declare(draft, world.first.meta.senses, shared, now_ms))

    beat = ClientBeat("p", (), (exclusive(),))
    assert lacking(world.first.meta.registry, beat) is not declared
    [row] = world.client("p", exclusive())["consumes"]

    assert row["strategy"] == ("shared" if declared else "exclusive")
    group = world.first.meta.registry.get(ConsumerGroupRecord, KEY)
    assert group is not None
    assert group.consumption == ("shared" if declared else "ordered")
    assert not lacking(world.first.meta.registry, beat)
