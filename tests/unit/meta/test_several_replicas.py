"""Brokers under three replicas of meta: whoever hears, whoever dies, they agree."""

from __future__ import annotations

import pytest

from samples.metas import World, pair, speaking, state
from tidemill_meta.beats import BrokerBeat
from tidemill_meta.errors import Denied
from tidemill_meta.registry import Draft
from tidemill_meta.values import BrokerGroup

SECOND = 1_000


def test_heartbeats_at_any_replica_count_at_all() -> None:
    world = World(3)
    world.register("g1", "g1-0", at=0)
    world.pass_ms(500)
    turn = [0]

    def speak() -> None:
        if world.now_ms % SECOND == 0:
            turn[0] += 1
            world.beat("g1", "g1-0", at=turn[0] % 3)

    world.pass_ms(20 * SECOND, speak)

    assert [state(world, at) for at in range(3)] == ["RW"] * 3
    assert world.group("g1").epoch == 1


def test_replica_that_dies_with_the_broker_it_heard_hides_no_death() -> None:
    """QMQ's weakness: the timer lives in the one server that heard the heartbeat, and both may die at once."""
    world = World(3)
    pair(world, at=0)
    world.pass_ms(2 * SECOND, speaking(world, "g1-0", "g1-1", at=0))
    world.replicas[0].running = False

    world.pass_ms(6 * SECOND, speaking(world, "g1-1", at=1))

    assert (world.group("g1", at=1).master, world.group("g1", at=2).epoch) == ("g1-1", 2)
    assert state(world, at=2) == "RW"


def test_replicas_that_see_the_same_death_promote_once() -> None:
    world = World(3)
    pair(world, at=1)
    world.pass_ms(6 * SECOND, speaking(world, "g1-0", "g1-1", at=1))

    world.pass_ms(10 * SECOND, speaking(world, "g1-1", at=1))

    assert {(world.group("g1", at).master, world.group("g1", at).epoch) for at in range(3)} == {("g1-1", 2)}


def test_replica_without_its_database_promises_nothing_and_appoints_nobody() -> None:
    world = World(2)
    pair(world)
    world.pass_ms(6 * SECOND, speaking(world, "g1-0", "g1-1"))
    world.now_ms += 1_500

    with pytest.raises(Denied, match="does not know what the others do"):
        world.beat("g1", "g1-0")
    entries = world.store.revision
    world.first.change(world.first.meta.judge)
    assert world.store.revision == entries


def test_broker_that_a_replica_cannot_answer_is_known_to_live_all_the_same() -> None:
    """It asked a replica that was late with its exchange: when that one speaks to the others again, they hear of it."""
    world = World(2)
    pair(world)
    world.pass_ms(6 * SECOND, speaking(world, "g1-0", "g1-1"))
    world.now_ms += 1_500
    beat = BrokerBeat("g1", "g1-0", 1, 1)

    assert not world.first.meta.spoke(beat, world.first.now_ms)
    world.first.exchange()
    world.replicas[1].exchange()

    assert world.first.meta.spoke(beat, world.first.now_ms)
    for replica in world.replicas:
        assert replica.meta.senses.brokers.present(beat.key, 0, replica.now_ms)


def test_stranger_that_a_replica_cannot_answer_is_not_remembered() -> None:
    world = World(2)
    world.now_ms += 1_500
    stranger = BrokerBeat("g9", "g9-0", 1, 1)

    assert not world.first.meta.spoke(stranger, world.first.now_ms)

    assert world.first.meta.senses.brokers.beat(stranger.key) is None


def test_turn_looks_at_nothing_but_what_was_found_before() -> None:
    """Two groups have lost their slaves; who has found one of them judges that one."""
    world = World()
    for group in ("g1", "g2"):
        for number in range(2):
            world.register(group, f"{group}-{number}")
            world.beat(group, f"{group}-{number}")
        world.in_sync(group, f"{group}-0", f"{group}-1")
    for _ in range(20):  # no pulse judges meanwhile
        world.now_ms += 500
        world.first.meta.ticked(world.now_ms)
    meta, now_ms = world.first.meta, world.now_ms
    for group in ("g1", "g2"):
        world.beat(group, f"{group}-0")
    all_of_it, some = Draft(meta.registry), Draft(meta.registry)

    meta.judge(all_of_it, now_ms)
    meta.judge(some, now_ms, only={(BrokerGroup.KIND, "g2")})

    assert all_of_it.changed == {(BrokerGroup.KIND, "g1"), (BrokerGroup.KIND, "g2")}
    assert some.changed == {(BrokerGroup.KIND, "g2")}


def test_lease_counts_only_from_what_every_replica_knows() -> None:
    world = World(2)
    world.register("g1", "g1-0")
    world.register("g1", "g1-1")
    assert world.beat("g1", "g1-0")["lease_ms"] == 0

    world.pass_ms(3 * SECOND, speaking(world, "g1-0"))

    assert 3_000 <= world.beat("g1", "g1-0")["lease_ms"] <= 4_000


def test_goodbye_is_heard_by_every_replica_and_no_old_news_revive() -> None:
    world = World(3)
    pair(world, at=0)
    world.pass_ms(2 * SECOND, speaking(world, "g1-0", "g1-1", at=0))
    world.replicas[1].meta.broker_left(BrokerBeat("g1", "g1-0", 1), world.replicas[1].now_ms)

    world.pass_ms(SECOND, speaking(world, "g1-1", at=0))

    assert {world.group("g1", at).master for at in range(3)} == {"g1-1"}


def test_namesake_of_a_broker_that_another_replica_has_just_heard_is_refused() -> None:
    """No replica knows by itself that a life is gone of which it has not heard because it is so new."""
    world = World(3)
    world.register("g1", "g1-0", at=0, boot=5)
    world.pass_ms(20 * SECOND)
    world.register("g1", "g1-0", at=0, boot=9)
    world.replicas[1].read()

    with pytest.raises(Denied, match="was there a moment ago"):
        world.register("g1", "g1-0", at=1, boot=7)

    assert dict(world.group("g1").in_sync) == {"g1-0": 5}
