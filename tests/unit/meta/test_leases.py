"""Who has a lease, and who waits for the end of one."""

from __future__ import annotations

from samples.metas import World, speaking, state
from tidemill_meta.beats import BrokerBeat

SECOND = 1_000


def test_only_a_master_that_is_in_sync_alone_has_a_lease() -> None:
    world = World()
    world.register("g1", "g1-0")
    world.register("g1", "g1-1")
    assert world.beat("g1", "g1-0")["lease_ms"] == 5_000
    assert world.beat("g1", "g1-1")["lease_ms"] == 0
    world.in_sync("g1", "g1-0", "g1-1")
    assert world.beat("g1", "g1-0")["lease_ms"] == 0


def test_a_group_of_one_has_no_lease_and_its_next_life_leads_at_once() -> None:
    """Nobody else can be elected, so there is nothing to wait for."""
    world = World()
    world.register("g1", "g1-0")
    assert world.beat("g1", "g1-0")["lease_ms"] == 0
    world.pass_ms(10 * SECOND, speaking(world, "g1-0"))
    world.register("g1", "g1-0", boot=2)
    world.pass_ms(SECOND, speaking(world, "g1-0"))

    assert (world.group("g1").epoch, state(world)) == (2, "RW")


def test_later_life_of_a_lone_master_waits_until_the_lease_of_the_former_is_over() -> None:
    world = World()
    world.register("g1", "g1-0")
    world.register("g1", "g1-1")
    world.pass_ms(10 * SECOND, speaking(world, "g1-0"))
    world.register("g1", "g1-0", boot=2)

    world.pass_ms(4 * SECOND, speaking(world, "g1-0"))
    assert (world.group("g1").epoch, state(world)) == (1, "NRW")
    world.pass_ms(3 * SECOND, speaking(world, "g1-0"))

    assert (world.group("g1").epoch, state(world)) == (2, "RW")


def test_lone_master_that_said_goodbye_leads_again_at_once() -> None:
    world = World()
    world.register("g1", "g1-0")
    world.register("g1", "g1-1")
    world.pass_ms(10 * SECOND, speaking(world, "g1-0"))
    world.first.meta.broker_left(BrokerBeat("g1", "g1-0", 1), world.now_ms)
    world.register("g1", "g1-0", boot=2)
    world.beat("g1", "g1-0")

    world.pass_ms(250)

    assert (world.group("g1").epoch, state(world)) == (2, "RW")
