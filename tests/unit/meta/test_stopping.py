"""Who may be stopped: every row of the table in stopping.py, and each doubt for which it is nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from samples.metas import World, pair, speaking
from tidemill_meta.asked import Asked
from tidemill_meta.brokers import hand_over
from tidemill_meta.picture import group_rows
from tidemill_meta.promotion import Member
from tidemill_meta.stopping import Stopping, stopping
from tidemill_meta.values import BrokerGroup

THREE = (("a", 1), ("b", 1), ("c", 1))
LED = BrokerGroup("g", 4, "a", THREE, THREE, version=7)
SECOND = 1_000


def members(**changed: dict[str, Any]) -> dict[str, Member]:
    given: dict[str, Any] = {
        "boot": 1, "alive": True, "reported": True, "settled": True, "epoch": 4, "messages": 100,
    }  # fmt: skip
    return {name: Member(name, **(given | {"leads": name == "a"} | changed.get(name, {}))) for name in "abc"}


SILENT = {"settled": False}


def asked(group: BrokerGroup = LED, *, sure: bool = True, **changed: dict[str, Any]) -> dict[str, Stopping]:
    found = members(**changed)
    return {name: stopping(group, found, name, sure=sure) for name in "abc"}


def test_slaves_may_be_stopped_and_their_master_says_to_whom_it_can_hand_over() -> None:
    said = asked(c={"messages": 120})

    assert (said["b"], said["c"]) == (Stopping(""), Stopping(""))
    assert (said["a"].safe, said["a"].hand_over_to) == (False, "c")
    assert said["a"].why_not == "a leads g: hand over to c first"


def test_slave_out_of_sync_may_be_stopped_and_nobody_hands_over_to_it() -> None:
    said = asked(replace(LED, in_sync=(("a", 1), ("b", 1))), c={"messages": 999, "epoch": 3, **SILENT})

    assert said["c"].safe
    assert said["a"].hand_over_to == "b"


def test_master_that_is_in_sync_alone_waits_for_a_slave() -> None:
    said = asked(replace(LED, in_sync=(("a", 1),)))

    assert (said["a"].safe, said["a"].hand_over_to) == (False, "")
    assert said["a"].why_not == "a alone is in sync: wait until a slave has caught up"
    assert said["b"].safe


def test_broker_that_is_alone_in_its_group_restarts_in_place() -> None:
    alone = BrokerGroup("g", 4, "a", (("a", 1),), (("a", 1),))

    for sure in (True, False):
        said = stopping(alone, members(), "a", sure=sure)
        assert (said.safe, said.restarts_in_place, said.hand_over_to) == (False, True, "")


def test_slave_that_is_silent_itself_may_be_stopped_and_nobody_else() -> None:
    said = asked(b=SILENT)

    assert [name for name, one in said.items() if one.safe] == ["b"]
    assert said["c"].why_not == "b is in sync as far as meta knows, and was not heard lately"
    assert said["a"].hand_over_to == ""


@pytest.mark.parametrize(
    ("changed", "why_not"),
    [
        ({"a": SILENT}, "g was not heard lately from its master a"),
        ({"a": {"leads": False}}, "a does not lead g in epoch 4: it hands over, or has not begun"),
        ({"a": {"epoch": 3}}, "a does not lead g in epoch 4: it hands over, or has not begun"),
        ({"b": {"epoch": 5}}, "brokers of g know epoch 5, meta 4"),
    ],
)
def test_in_doubt_of_the_master_nobody_may_be_stopped(
    changed: dict[str, dict[str, Any]], why_not: str
) -> None:
    said = asked(**changed)

    assert {(one.why_not, one.hand_over_to) for one in said.values()} == {(why_not, "")}


@pytest.mark.parametrize("doubt", [{"epoch": 3}, {"boot": 2}, {"behind": True}, SILENT])
def test_in_doubt_of_another_one_in_sync_nobody_else_may_be_stopped(doubt: dict[str, Any]) -> None:
    said = asked(b=doubt)

    assert not said["a"].hand_over_to
    assert not said["c"].safe


def test_group_that_nobody_leads_and_a_replica_that_is_behind_say_no() -> None:
    unseated = replace(LED, replicas=(("a", 2), ("b", 1), ("c", 1)))
    assert {one.why_not for one in asked(unseated, a={"boot": 2}).values()} == {"nobody leads g"}

    behind = asked(sure=False)
    assert not any(one.safe or one.hand_over_to for one in behind.values())


def answers(world: World, at: int = 0) -> dict[str, tuple[bool, str]]:
    meta = world.replicas[at].meta
    row = next(group_rows(meta.registry, meta.senses, world.replicas[at].now_ms))
    return {one["name"]: (one["safe_to_stop"], one["hand_over_to"]) for one in row["brokers"]}


NOBODY = {"g1-0": (False, ""), "g1-1": (False, "")}


@pytest.mark.parametrize("replicas", [1, 3])
def test_rows_say_it_when_every_replica_of_meta_can_know_it(replicas: int) -> None:
    world = World(replicas)
    pair(world)
    if replicas > 1:
        assert answers(world) == NOBODY  # the other replicas have not read of a single beat
    both = speaking(world, "g1-0", "g1-1")

    world.pass_ms(4 * SECOND, both)

    for at in range(replicas):
        assert answers(world, at) == {"g1-0": (False, "g1-1"), "g1-1": (True, "")}


def test_a_pair_of_which_one_is_silent_for_some_beats_and_a_meta_that_has_just_begun_say_no() -> None:
    world = World()
    pair(world)
    world.pass_ms(5 * SECOND, speaking(world, "g1-0", "g1-1"))

    world.pass_ms(4 * SECOND, speaking(world, "g1-1"))
    assert answers(world) == NOBODY

    world.restart()
    assert answers(world) == NOBODY


def test_after_a_hand_over_nobody_may_be_stopped_until_both_are_in_the_new_epoch() -> None:
    world = World()
    pair(world)
    both = speaking(world, "g1-0", "g1-1")
    world.pass_ms(5 * SECOND, both)
    meta = world.first.meta
    world.first.change(
        lambda draft, now_ms: hand_over(draft, meta.senses, "g1", Asked({"to": "g1-1"}), now_ms)
    )
    assert answers(world) == NOBODY

    world.beat("g1", "g1-1", messages=100)
    assert answers(world) == {"g1-0": (True, ""), "g1-1": (False, "")}

    world.beat("g1", "g1-0", messages=100)
    assert answers(world) == {"g1-0": (True, ""), "g1-1": (False, "g1-0")}


def test_master_that_says_that_it_hands_over_stops_all() -> None:
    world = World()
    pair(world)
    world.pass_ms(5 * SECOND, speaking(world, "g1-0", "g1-1"))

    world.beat("g1", "g1-0", messages=100, role="none")

    assert answers(world) == NOBODY
