"""Order keys move in two steps, and a group begins with an heir when it is done with what lay before."""

from __future__ import annotations

from typing import Any

import pytest

from samples.metas import World
from tidemill_meta.asked import Asked
from tidemill_meta.errors import Denied
from tidemill_meta.moving import shut
from tidemill_meta.passages import closed_to, note, parse_report
from tidemill_meta.picture import route_row
from tidemill_meta.subjects import declare, expand, find_subject, give_up_move, remove_subject, told_to
from tidemill_meta.values import Passage, Route
from tidemill_wire.declarations import parse_manifests

MANIFEST = [{"apiVersion": "tidemill.dev/v1alpha1", "kind": "Subject", "metadata": {"name": "s"}, "spec": {}}]


def world_with(*groups: str) -> World:
    world = World()
    for group in groups or ("g1", "g2"):
        world.register(group, f"{group}-0")
    world.client("p", produces=("s",))
    return world


def begin(world: World, partitions: int = 4) -> Route:
    asked = Asked({"partitions": partitions, "version": route_of(world).version})
    return world.first.change(
        lambda draft, now_ms: expand(draft, world.first.meta.senses, "s", asked, now_ms)
    )


def give_up(world: World) -> Route:
    return world.first.change(lambda draft, _: give_up_move(draft, "s"))


def route_of(world: World) -> Route:
    found = world.first.meta.registry.get(Route, "s")
    assert found is not None
    return found


def fences(world: World, group: str) -> list[list[Any]]:
    return told_to(world.first.meta.registry, group, 0)["fences"]


def say(world: World, group: str, **said: Any) -> None:
    world.first.change(lambda draft, _: note(draft, parse_report({"group": group} | said)))


def test_the_route_is_as_before_until_all_that_lose_order_keys_have_closed() -> None:
    world = world_with()
    before = route_of(world).current

    begin(world)

    assert route_of(world).current == before
    assert [row[0] for row in fences(world, "g1")] == ["s"]
    assert fences(world, "g1")[0][2] == [0, 256]
    world.fence("g1")
    assert route_of(world).current == before
    world.fence("g2")
    assert [one.key for one in route_of(world).current.partitions] == ["g1/s", "g2/s", "g1/s#1", "g2/s#2"]
    assert [one.size for one in route_of(world).current.partitions] == [256] * 4


def test_people_see_what_is_waited_for() -> None:
    world = world_with()
    begin(world)
    world.fence("g2")

    record, route = find_subject(world.first.meta.registry, "s")

    assert route_row(route, record)["moving"]["waits_for"] == ["g1/s"]


def test_one_move_at_a_time() -> None:
    world = world_with()
    begin(world)

    with pytest.raises(Denied, match="order keys of s are moving"):
        begin(world, 6)


def test_nobody_is_asked_to_let_go_who_cannot_hear_of_it() -> None:
    world = world_with()
    world.pass_ms(6_000, lambda: world.beat("g1", "g1-0"))

    with pytest.raises(Denied, match="nobody leads g2"):
        begin(world)


def test_a_move_that_is_given_up_lets_who_has_closed_take_its_order_keys_again() -> None:
    world = world_with()
    begin(world)
    world.fence("g1")
    first = fences(world, "g1")[0][1]

    give_up(world)

    [row] = fences(world, "g1")
    assert row[1] > first
    assert row[2] == [0, 512]
    say(world, "g2", closed=[["s", first]])
    assert len(route_of(world).current.partitions) == 2
    with pytest.raises(Denied, match="no order keys of s are moving"):
        give_up(world)


def test_what_closes_by_a_fence_of_a_move_that_was_given_up_closes_none_of_the_next_one() -> None:
    world = world_with()
    begin(world)
    old = fences(world, "g1")[0][1]
    give_up(world)
    begin(world)

    say(world, "g1", closed=[["s", old]])
    world.fence("g2")

    assert route_of(world).move is not None
    world.fence("g1")
    assert route_of(world).move is None


def test_a_subject_that_is_made_again_is_told_to_brokers_with_a_later_fence() -> None:
    world = world_with()
    begin(world)
    world.fence("g1", "g2")
    known = fences(world, "g1")[0][1]
    meta = world.first.meta
    world.first.change(lambda draft, now_ms: remove_subject(draft, meta.senses, "s", now_ms, force=True))
    for group in ("g1", "g2"):
        world.beat(group, f"{group}-0", told=meta.registry.revision)
    [subject] = parse_manifests(MANIFEST)
    world.first.change(lambda draft, now_ms: declare(draft, meta.senses, [subject], now_ms))

    [row] = fences(world, "g1")
    assert row[1] > known
    assert row[2] == [0, 512]


def test_a_broker_that_knows_a_later_fence_is_told_one_beyond_it() -> None:
    world = world_with()
    begin(world)

    say(world, "g1", closed=[["s", 700]])

    assert route_of(world).move is not None
    assert fences(world, "g1")[0][1] == fences(world, "g2")[0][1] == 701
    world.fence("g1", "g2")
    assert route_of(world).move is None


def test_an_heir_is_closed_to_a_group_until_it_has_settled_what_lay_before() -> None:
    world = world_with()
    begin(world)
    world.fence("g1", "g2")
    registry = world.first.meta.registry
    assert closed_to(registry, "s", "g") == {"g1/s#1", "g2/s#2"}

    world.fence("g1", passed=[("g1/s", "g")])

    assert closed_to(registry, "s", "g") == {"g2/s#2"}
    assert closed_to(registry, "s", "other") == {"g1/s#1", "g2/s#2"}


def test_an_heir_of_an_heir_waits_for_both() -> None:
    world = world_with("g1")
    begin(world, 2)
    world.fence("g1")
    begin(world, 4)
    world.fence("g1")
    number = dict(route_of(world).fences)["g1/s#1"]
    say(world, "g1", passed=[["s#1", "g", number]])
    passed = world.first.meta.registry.get(Passage, "s/g")
    assert passed is not None

    heir = next(one.heir for one in route_of(world).successions if one.former == "g1/s#1")

    assert heir in shut(route_of(world), dict(passed.passed))
    first = dict(route_of(world).fences)["g1/s"]
    assert heir not in shut(route_of(world), dict(passed.passed) | {"g1/s": first})


def test_a_route_that_moves_is_the_same_after_it_was_stored() -> None:
    world = world_with()
    begin(world)
    world.fence("g1")
    moving = route_of(world)
    assert Route.from_map("s", moving.version, moving.to_map()) == moving
    world.fence("g2")
    made = route_of(world)
    assert Route.from_map("s", made.version, made.to_map()) == made
    assert made.successions


def test_a_route_of_an_earlier_version_has_no_fences() -> None:
    world = world_with()
    stored = route_of(world).to_map()

    assert set(stored) == {"sets"}
    assert Route.from_map("s", 1, stored).fences == ()
