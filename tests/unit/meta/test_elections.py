"""Whom meta elects beside a master that was started again: who lost nothing, as long as such a one may come."""

from __future__ import annotations

import pytest

from samples.metas import World, pair, speaking
from tidemill_meta.asked import Asked
from tidemill_meta.beats import BrokerBeat
from tidemill_meta.brokers import hand_over
from tidemill_meta.errors import Denied
from tidemill_meta.picture import group_rows

SECOND = 1_000


def problem(world: World) -> str:
    meta = world.first.meta
    return str(next(group_rows(meta.registry, meta.senses, world.first.now_ms))["problem"])


def test_slave_that_says_goodbye_is_out_of_the_set_when_its_master_was_heard_once_more() -> None:
    world = World()
    pair(world)
    world.pass_ms(6 * SECOND, speaking(world, "g1-0", "g1-1"))

    world.first.meta.broker_left(BrokerBeat("g1", "g1-1", 1), world.now_ms)
    world.pass_ms(750)
    assert len(world.group("g1").in_sync) == 2, "its master may be dead, and nobody knows yet"
    world.pass_ms(500, speaking(world, "g1-0"))

    assert [name for name, _ in world.group("g1").in_sync] == ["g1-0"]


def again(world: World, name: str, boot: int) -> None:
    """A process was started again, and says what it has."""
    world.register("g1", name, boot=boot)
    world.beat("g1", name, messages=50)


def test_slave_leads_beside_a_master_that_was_started_again_when_it_was_heard_since() -> None:
    world = World()
    pair(world)
    world.pass_ms(6 * SECOND, speaking(world, "g1-0", "g1-1"))

    world.pass_ms(250)
    again(world, "g1-0", 2)
    world.pass_ms(500)
    assert world.group("g1").epoch == 1
    world.pass_ms(250, speaking(world, "g1-1"))

    assert (world.group("g1").master, problem(world)) == ("g1-1", "")


def test_master_that_was_started_again_leads_when_its_slave_is_dead() -> None:
    world = World()
    pair(world)
    world.pass_ms(6 * SECOND, speaking(world, "g1-0", "g1-1"))

    world.pass_ms(250)
    again(world, "g1-0", 2)
    world.pass_ms(4 * SECOND, speaking(world, "g1-0"))
    assert world.group("g1").epoch == 1
    world.pass_ms(SECOND, speaking(world, "g1-0"))

    assert (world.group("g1").master, world.group("g1").in_sync) == ("g1-0", (("g1-0", 2),))


def test_meta_that_begins_with_a_master_that_was_started_again_waits_for_the_slave() -> None:
    """One machine lost its power, with meta and a master on it: what only page caches had is with the slave alone."""
    world = World()
    pair(world)
    world.pass_ms(6 * SECOND, speaking(world, "g1-0", "g1-1"))
    world.restart()

    again(world, "g1-0", 2)
    world.pass_ms(750)
    assert world.group("g1").epoch == 1
    world.pass_ms(250, speaking(world, "g1-1"))

    assert world.group("g1").master == "g1-1"


def stopped_beside_a_master_without_power(world: World) -> None:
    pair(world)
    world.pass_ms(6 * SECOND, speaking(world, "g1-0", "g1-1"))
    world.first.meta.broker_left(BrokerBeat("g1", "g1-1", 1), world.now_ms)
    world.pass_ms(250)
    again(world, "g1-0", 2)


def test_slave_that_stopped_on_purpose_is_waited_for_when_its_master_was_started_again() -> None:
    world = World()
    stopped_beside_a_master_without_power(world)

    world.pass_ms(20 * SECOND, speaking(world, "g1-0"))
    assert world.group("g1").epoch == 1
    again(world, "g1-1", 2)
    world.pass_ms(250)

    assert (world.group("g1").master, world.group("g1").in_sync) == ("g1-1", (("g1-1", 2),))


def test_slave_that_stopped_on_purpose_is_not_waited_for_as_long_as_it_likes() -> None:
    world = World()
    stopped_beside_a_master_without_power(world)

    world.pass_ms(31 * SECOND, speaking(world, "g1-0"))

    assert world.group("g1").master == "g1-0"


def test_handover_to_who_was_started_again_is_refused_until_its_master_wishes_it_in() -> None:
    world = World()
    pair(world)
    world.pass_ms(6 * SECOND, speaking(world, "g1-0", "g1-1"))
    again(world, "g1-1", 2)

    with pytest.raises(Denied, match="g1-1 was started again"):
        world.first.change(
            lambda draft, now_ms: hand_over(
                draft, world.first.meta.senses, "g1", Asked({"to": "g1-1"}), now_ms
            )
        )
