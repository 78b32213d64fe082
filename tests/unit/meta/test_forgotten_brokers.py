"""Which dead brokers meta may be told to forget: not the one that may alone have what is committed."""

from __future__ import annotations

from typing import Any

import pytest

from samples.metas import World, pair
from tidemill_meta.brokers import remove_broker
from tidemill_meta.errors import Denied
from tidemill_meta.retiring import drain, retire

SECOND = 1_000


def ask(world: World, decide: Any, *arguments: Any) -> Any:
    replica = world.first
    return replica.change(lambda draft, now_ms: decide(draft, replica.meta.senses, *arguments, now_ms))


def test_the_only_broker_in_sync_is_not_forgotten_while_others_are_there() -> None:
    """What is committed may lie on its disk alone: who lacks it must not be left as all that the group has."""
    world = World()
    pair(world)
    known = world.group("g1")
    lone, other = known.master, next(name for name, _ in known.replicas if name != known.master)
    world.in_sync("g1", lone)
    world.pass_ms(6 * SECOND, lambda: world.beat("g1", other))

    with pytest.raises(Denied, match=f"g1/{lone} alone is in sync"):
        ask(world, remove_broker, "g1", lone)

    replica = world.first
    replica.change(lambda draft, now: remove_broker(draft, replica.meta.senses, "g1", lone, now, force=True))
    assert [name for name, _ in world.group("g1").replicas] == [other]


def test_brokers_of_a_retired_group_are_forgotten_in_any_order() -> None:
    world = World()
    pair(world)
    master = world.group("g1").master
    world.in_sync("g1", master)
    ask(world, drain, "g1")
    ask(world, retire, "g1")
    world.pass_ms(6 * SECOND)

    ask(world, remove_broker, "g1", master)

    assert [name for name, _ in world.group("g1").replicas] != [master]
