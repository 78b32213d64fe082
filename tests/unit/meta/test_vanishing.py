"""Pods that are gone, as somebody says: brokers are told, once, and meta forgets it soon."""

from __future__ import annotations

import pytest

from samples.metas import World, pair, speaking
from tidemill_meta.errors import Denied
from tidemill_meta.subjects import told_to
from tidemill_meta.vanished import Vanished
from tidemill_meta.vanishing import VANISHED_MAX, VANISHED_MS, vanish

POD = "0e4f6c1a-5f0e-4a57-9d2c-8a3a4d1f2b6e"


def say(world: World, pod: str = POD) -> int:
    """The revision after it."""
    world.first.change(lambda draft, _: vanish(draft, pod))
    return world.first.meta.registry.revision


def told(world: World, known: int = 0) -> list[str]:
    found: list[str] = told_to(world.first.meta.registry, "g1", known)["vanished"]
    return found


def test_every_master_hears_it_by_its_heartbeat_and_who_knows_it_does_not_hear_it_again() -> None:
    world = World()
    pair(world)
    before = world.beat("g1", "g1-0")["declared"]

    revision = say(world)

    assert world.beat("g1", "g1-0")["declared"] == revision > before
    assert (told(world, before), told(world, revision)) == ([POD], [])
    again = say(world)
    assert told(world, revision) == [POD]
    assert told(world, again) == []


@pytest.mark.parametrize("replicas", [1, 3])
def test_it_is_forgotten_after_a_while_by_whichever_replica(replicas: int) -> None:
    world = World(replicas)
    pair(world)
    say(world)
    world.pass_ms(VANISHED_MS, speaking(world, "g1-0", "g1-1"))
    assert told(world) == [POD]

    world.pass_ms(2_000, speaking(world, "g1-0", "g1-1"))

    assert told(world) == []
    assert world.first.meta.registry.get(Vanished, POD) is None


def test_there_is_a_bound_to_what_is_remembered() -> None:
    world = World()
    world.first.change(lambda draft, _: [vanish(draft, f"pod-{number:08}") for number in range(VANISHED_MAX)])

    with pytest.raises(Denied, match="1000 pods have vanished within 30 s") as denied:
        say(world)
    assert "half a minute" in str(denied.value)
    assert "database" not in str(denied.value), "it is not away, and waiting for it helps nobody"
    say(world, "pod-00000001")
