"""A broker group that is to go: drained, then in no route, then forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from samples.metas import World
from tidemill_meta.asked import Asked
from tidemill_meta.brokers import remove_broker, set_group_state
from tidemill_meta.errors import Denied
from tidemill_meta.passages import note, parse_report
from tidemill_meta.picture import group_rows
from tidemill_meta.retiring import drain, retire
from tidemill_meta.subjects import declare, expand, give_up_move
from tidemill_meta.values import BrokerGroup, Route
from tidemill_wire.declarations import parse_manifests


def ask(world: World, decide: Any, *arguments: Any) -> Any:
    replica = world.first
    return replica.change(lambda draft, now_ms: decide(draft, replica.meta.senses, *arguments, now_ms))


def world_of(*groups: str) -> World:
    world = World()
    for group in groups:
        world.register(group, f"{group}-0")
    return world


def lies_on(world: World, subject: str) -> list[str]:
    route = world.first.meta.registry.get(Route, subject)
    assert route is not None
    route.current.check()
    return sorted(one.group for one in route.current.partitions)


def keys_of(world: World, subject: str) -> dict[str, int]:
    """How many logical partitions each partition has."""
    route = world.first.meta.registry.get(Route, subject)
    assert route is not None
    return {one.key: one.size for one in route.current.partitions}


def test_a_group_that_is_drained_is_read_and_gets_nothing_new() -> None:
    world = world_of("g0", "g1", "g2")
    world.client("p", produces=("old",))
    assert lies_on(world, "old") == ["g0", "g1"]

    group, moved = ask(world, drain, "g0")

    assert (group.draining, moved) == (True, 1)
    assert world.first.meta.senses.state(group, world.now_ms) == "R"
    world.client("p", produces=("new",))
    assert lies_on(world, "new") == ["g1", "g2"]
    assert lies_on(world, "old") == ["g0", "g1"]


def test_a_master_is_told_that_its_group_takes_nothing_while_it_drains() -> None:
    """A client that has not heard of it would leave something there when all was consumed."""
    world = world_of("g0")
    said = []

    for asked in (
        {"state": "RW", "draining": 1},
        {"state": "W", "draining": 1},
        {"state": "RW", "draining": 0},
    ):
        world.first.change(lambda draft, _, asked=asked: set_group_state(draft, "g0", Asked(asked)))
        said.append(world.beat("g0", "g0-0")["state"])

    assert said == ["R", "NRW", "RW"]


def test_order_keys_leave_a_group_that_is_drained_when_it_has_closed() -> None:
    world = world_of("g0", "g1", "g2")
    world.client("p", produces=("old",))
    ask(world, drain, "g0")
    assert keys_of(world, "old") == {"g0/old": 512, "g1/old": 512}

    world.fence("g0")

    assert keys_of(world, "old") == {"g0/old": 0, "g1/old": 512, "g2/old": 512}
    assert ask(world, drain, "g0") == (world.group("g0"), 0)


def test_a_group_is_not_retired_before_order_keys_have_left_it() -> None:
    world = world_of("g0", "g1")
    world.client("p", produces=("one",))
    ask(world, drain, "g0")

    with pytest.raises(Denied, match="order keys of one have not left g0"):
        ask(world, retire, "g0")

    world.fence("g0")
    ask(world, retire, "g0")
    assert keys_of(world, "one") == {"g1/one": 512, "g1/one#1": 512}


def test_a_group_that_nobody_leads_is_retired_with_what_lies_there() -> None:
    world = world_of("g0", "g1")
    world.client("p", produces=("one",))
    world.pass_ms(6_000, lambda: world.beat("g1", "g1-0"))
    ask(world, drain, "g0")

    ask(world, retire, "g0")

    assert keys_of(world, "one") == {"g1/one": 512, "g1/one#1": 512}


def test_a_subject_in_the_best_order_is_not_waited_for() -> None:
    world = world_of("g0")
    world.client("p", produces=("lonely",))
    world.register("g1", "g1-0")
    spec = {"orderStrategy": "BestTried"}
    manifest = {
        "apiVersion": "tidemill.dev/v1alpha1",
        "kind": "Subject",
        "metadata": {"name": "lonely"},
        "spec": spec,
    }
    ask(world, lambda draft, senses, now_ms: declare(draft, senses, parse_manifests([manifest]), now_ms))

    ask(world, drain, "g0")

    assert keys_of(world, "lonely") == {"g0/lonely": 512, "g1/lonely": 512}


def test_a_subject_that_nobody_could_write_any_more_gets_a_place_elsewhere() -> None:
    world = world_of("g0")
    world.client("p", produces=("lonely",))
    world.register("g1", "g1-0")

    _, moved = ask(world, drain, "g0")

    assert moved == 1
    world.fence("g0")
    assert lies_on(world, "lonely") == ["g0", "g1"]
    assert ask(world, drain, "g0") == (world.group("g0"), 0)


def test_the_last_group_that_takes_messages_is_not_drained() -> None:
    world = world_of("g0")
    world.client("p", produces=("lonely",))

    with pytest.raises(Denied, match="lonely could be written nowhere else"):
        ask(world, drain, "g0")

    assert not world.group("g0").draining


def test_a_group_is_retired_when_it_is_drained_and_no_route_names_it_then() -> None:
    world = world_of("g0", "g1", "g2")
    world.client("p", produces=("one", "two"))
    with pytest.raises(Denied, match="drain it first"):
        ask(world, retire, "g0")
    ask(world, drain, "g0")
    world.fence("g0")
    before = world.first.meta.registry.get(Route, "one")
    assert before is not None
    concerned = ["g0" in lies_on(world, name) for name in ("one", "two")]

    group, moved = ask(world, retire, "g0")

    assert (group.state, group.retired, moved) == ("NRW", True, sum(concerned))
    assert "g0" not in lies_on(world, "one") + lies_on(world, "two")
    after = world.first.meta.registry.get(Route, "one")
    assert after is not None
    assert after.sets[: len(before.sets)] == before.sets


def test_a_subject_on_nothing_but_the_group_moves_as_a_whole() -> None:
    world = world_of("g0")
    world.client("p", produces=("lonely",))
    world.register("g1", "g1-0")
    ask(world, drain, "g0")
    world.fence("g0")
    ask(world, set_state, "g1", {"state": "R"})
    with pytest.raises(Denied, match="nowhere else"):
        ask(world, drain, "g1")
    ask(world, set_state, "g1", {"state": "RW"})

    ask(world, retire, "g0")

    assert lies_on(world, "lonely") == ["g1"]


def set_state(draft: Any, _senses: Any, name: str, body: dict[str, Any], _now_ms: int) -> BrokerGroup:
    return set_group_state(draft, name, Asked(body))


def test_a_retired_group_is_no_problem_when_its_brokers_are_gone_and_is_forgotten_with_the_last() -> None:
    world = world_of("g0", "g1")
    world.client("p", produces=("one",))
    ask(world, drain, "g0")
    world.fence("g0")
    ask(world, retire, "g0")

    world.pass_ms(6_000)

    meta = world.first.meta
    [row] = [row for row in group_rows(meta.registry, meta.senses, world.now_ms) if row["group"] == "g0"]
    assert (row["problem"], row["retired"], row["state"]) == ("", True, "NRW")
    ask(world, remove_broker, "g0", "g0-0")
    assert meta.registry.get(BrokerGroup, "g0") is None


def test_a_group_that_is_wanted_again_is_neither_draining_nor_retired() -> None:
    world = world_of("g0", "g1")
    ask(world, drain, "g0")
    ask(world, retire, "g0")

    group = ask(world, set_state, "g0", {"state": "RW", "draining": 0})

    assert (group.state, group.draining, group.retired) == ("RW", False, False)


def test_a_group_of_an_earlier_version_is_not_retired() -> None:
    stored = BrokerGroup("g0", 1, "g0-0", (("g0-0", 1),), (("g0-0", 1),)).to_map()
    del stored["retired"]
    assert not BrokerGroup.from_map("g0", 1, stored).retired


def declared(world: World, name: str, order: str) -> None:
    manifest = {
        "apiVersion": "tidemill.dev/v1alpha1",
        "kind": "Subject",
        "metadata": {"name": name},
        "spec": {"orderStrategy": order},
    }
    ask(world, lambda draft, senses, now_ms: declare(draft, senses, parse_manifests([manifest]), now_ms))


def grown(world: World, subject: str, partitions: int) -> None:
    """A person expands it."""
    version = world.first.meta.registry.version(Route.KIND, subject)
    said = Asked({"version": version, "partitions": partitions})
    world.first.change(lambda draft, now: expand(draft, world.first.meta.senses, subject, said, now))


def speaking(world: World, *groups: str) -> Callable[[], None]:
    def speak() -> None:
        for group in groups:
            world.beat(group, f"{group}-0")

    return speak


def test_order_keys_that_came_after_the_drain_leave_when_it_is_asked_for_again() -> None:
    """A subject in the best order is not moved by a drain; declared as strict afterwards, its keys lie there still."""
    world = world_of("g0", "g1", "g2")
    world.client("p", produces=("old",))
    declared(world, "old", "BestTried")
    ask(world, drain, "g0")
    declared(world, "old", "Strict")
    with pytest.raises(Denied, match="order keys of old have not left g0"):
        ask(world, retire, "g0")

    assert ask(world, drain, "g0")[1] == 1
    world.fence("g0")
    ask(world, retire, "g0")

    assert "g0" not in lies_on(world, "old")


@pytest.mark.parametrize("drained", ["drain", "state"])
def test_a_dead_group_is_retired_in_the_middle_of_a_move_of_another_kind(drained: str) -> None:
    """More partitions: the move leaves it order keys, which it will never let go of by itself."""
    world = world_of("g0", "g1")
    world.client("p", produces=("s",))
    world.register("g2", "g2-0")
    if drained == "drain":
        ask(world, drain, "g0")
        world.first.change(lambda draft, _: give_up_move(draft, "s"))
    else:
        ask(world, set_state, "g0", {"draining": 1})
    grown(world, "s", 3)
    world.fence("g1")
    world.pass_ms(6_000, speaking(world, "g1", "g2"))

    group, moved = ask(world, retire, "g0")

    assert (group.retired, moved) == (True, 1)
    keys = keys_of(world, "s")
    assert sum(keys.values()) == 1_024
    assert not any(key.startswith("g0/") for key in keys)


def test_a_dead_group_waits_for_the_others_that_a_move_is_about() -> None:
    world = world_of("g0", "g1")
    world.client("p", produces=("s",))
    world.register("g2", "g2-0")
    ask(world, set_state, "g0", {"draining": 1})
    grown(world, "s", 3)
    world.pass_ms(6_000, speaking(world, "g1", "g2"))

    with pytest.raises(Denied, match="order keys of s are moving"):
        ask(world, retire, "g0")

    world.fence("g1")
    ask(world, retire, "g0")
    assert sum(keys_of(world, "s").values()) == 1_024


def test_a_move_of_a_subject_that_is_in_order_no_more_does_not_outlive_the_group() -> None:
    """It was to put order keys on it, and would do so when its fences close, after no route named the group."""
    world = world_of("g0", "g1")
    world.client("p", produces=("s",))
    grown(world, "s", 4)
    ask(world, set_state, "g0", {"draining": 1})
    declared(world, "s", "BestTried")

    ask(world, retire, "g0")
    world.fence("g0", "g1")

    assert lies_on(world, "s") == ["g1"]
    route = world.first.meta.registry.get(Route, "s")
    assert route is not None
    assert route.move is None
    assert [one.version for one in route.sets] == sorted({one.version for one in route.sets})


def test_order_keys_move_also_when_brokers_know_later_fences_than_the_database() -> None:
    """As when it was an old copy: numbers go on above those that brokers said."""
    world = world_of("g0", "g1", "g2")
    world.client("p", produces=("s",))
    body = {"group": "g0", "closed": [["s", 1_000_000]], "passed": []}
    world.first.change(lambda draft, _: note(draft, parse_report(body)))

    ask(world, drain, "g0")
    world.fence("g0")
    world.first.change(
        lambda draft, _: note(
            draft, parse_report({"group": "g1", "closed": [["s", 2_000_000]], "passed": []})
        )
    )
    grown(world, "s", 5)
    world.fence("g0", "g1", "g2")
    grown(world, "s", 6)
    world.first.change(lambda draft, _: give_up_move(draft, "s"))

    assert keys_of(world, "s")["g0/s"] == 0
    assert sum(keys_of(world, "s").values()) == 1_024
