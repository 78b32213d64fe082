"""Brokers from their registration to their end, with one replica of meta and with three."""

from __future__ import annotations

from typing import Any

import pytest

from samples.metas import World, pair, registration, speaking, state
from tidemill_meta.asked import Asked
from tidemill_meta.beats import BrokerBeat
from tidemill_meta.brokers import elect, hand_over, parse_registration, remove_broker, set_group_state
from tidemill_meta.errors import Denied
from tidemill_meta.picture import group_rows
from tidemill_meta.promotion import EPOCHS_LOST_MAX
from tidemill_meta.values import BrokerGroup

SECOND = 1_000


def ask(world: World, decide: Any, *arguments: Any, at: int = 0) -> Any:
    replica = world.replicas[at]
    return replica.change(lambda draft, now_ms: decide(draft, replica.meta.senses, *arguments, now_ms))


def problem(world: World, at: int = 0) -> str:
    meta = world.replicas[at].meta
    return next(group_rows(meta.registry, meta.senses, world.replicas[at].now_ms))["problem"]


# -- being registered -----------------------------------------------------------------------------------------


def test_first_broker_leads_and_the_second_follows_out_of_sync() -> None:
    world = World()
    world.register("g1", "g1-0")
    answer = world.register("g1", "g1-1")

    assert (answer["epoch"], answer["master"], answer["in_sync"]) == (1, "g1-0", ["g1-0"])
    assert answer["replicas"] == ["g1-0", "g1-1"]


def test_registering_again_changes_nothing() -> None:
    world = World()
    first = world.register("g1", "g1-0")

    assert world.register("g1", "g1-0") == first


def test_namesake_with_another_folder_waits_until_the_first_is_dead() -> None:
    world = World()
    world.register("g1", "g1-0", boot=5)
    with pytest.raises(Denied, match="was there a moment ago"):
        world.register("g1", "g1-0", boot=1)

    world.pass_ms(6 * SECOND)
    world.register("g1", "g1-0", boot=1)

    assert world.group("g1").in_sync == ()
    assert problem(world).startswith("nobody has all messages")


def test_what_an_earlier_life_of_a_folder_asked_is_refused_however_late_it_comes() -> None:
    world = World()
    world.register("g1", "g1-0", boot=5, folder="f")
    world.register("g1", "g1-0", boot=6, folder="f")
    world.pass_ms(20 * SECOND)

    with pytest.raises(Denied, match="a later life"):
        world.register("g1", "g1-0", boot=5, folder="f")

    assert dict(world.group("g1").in_sync) == {"g1-0": 5}


def test_folder_that_is_named_for_the_first_time_has_lost_nothing() -> None:
    world = World()
    world.register("g1", "g1-0", boot=5)

    world.register("g1", "g1-0", boot=6, folder="f")

    assert dict(world.group("g1").in_sync) == {"g1-0": 5}


def test_emptied_folder_has_lost_all_whatever_its_clock_says() -> None:
    world = World()
    world.register("g1", "g1-0", boot=5, folder="f")
    world.pass_ms(6 * SECOND)

    world.register("g1", "g1-0", boot=9, folder="other")

    assert world.group("g1").in_sync == ()


def test_later_life_is_another_process_and_the_former_is_told() -> None:
    world = World()
    pair(world)
    world.register("g1", "g1-1", boot=2)

    with pytest.raises(Denied, match="a later life of the broker g1/g1-1 has registered"):
        world.beat("g1", "g1-1", boot=1)
    with pytest.raises(Denied, match="not registered in this life"):
        world.beat("g1", "g1-1", boot=3)


def test_broker_of_a_lost_store_is_not_appointed_before_its_master_spoke() -> None:
    world = World()
    world.register("g1", "g1-1", boot=8, epoch=7)
    assert world.group("g1").appointment().master == ""

    world.register("g1", "g1-0", boot=3, epoch=7)
    world.pass_ms(
        8 * SECOND,
        lambda: (
            world.beat("g1", "g1-1", epoch=7, role="slave"),
            world.beat("g1", "g1-0", epoch=7, role="master", in_sync=("g1-0", "g1-1")),
        ),
    )

    assert (world.group("g1").master, world.group("g1").epoch) == ("g1-0", 7 + EPOCHS_LOST_MAX)


# -- being alive ----------------------------------------------------------------------------------------------


def test_dead_master_is_replaced_after_five_seconds_and_not_before() -> None:
    world = World()
    pair(world)
    world.pass_ms(6 * SECOND, speaking(world, "g1-0", "g1-1"))
    assert state(world) == "RW"

    world.pass_ms(5 * SECOND, speaking(world, "g1-1"))
    assert (world.group("g1").master, state(world)) == ("g1-0", "RW")
    world.pass_ms(500, speaking(world, "g1-1"))

    assert (world.group("g1").master, world.group("g1").epoch, state(world)) == ("g1-1", 2, "RW")


def test_master_that_says_goodbye_is_replaced_at_once() -> None:
    world = World()
    pair(world)

    world.first.meta.broker_left(BrokerBeat("g1", "g1-0", 1), world.now_ms)
    world.pass_ms(250)

    assert world.group("g1").master == "g1-1"


def test_group_of_a_dead_lone_master_takes_nothing_and_says_why() -> None:
    world = World()
    world.register("g1", "g1-0")
    world.pass_ms(6 * SECOND, speaking(world, "g1-0"))
    assert (state(world), problem(world)) == ("RW", "")

    world.pass_ms(6 * SECOND)

    assert state(world) == "NRW"
    assert problem(world).startswith("no replica in sync lives (g1-0)")


def test_meta_that_starts_declares_nobody_dead_before_it_has_listened() -> None:
    world = World()
    pair(world)
    world.pass_ms(SECOND, speaking(world, "g1-0", "g1-1"))
    world.pass_ms(4 * SECOND)
    world.restart()

    world.pass_ms(5 * SECOND)
    assert (world.group("g1").master, world.group("g1").epoch, state(world)) == ("g1-0", 1, "RW")
    world.pass_ms(SECOND)
    assert state(world) == "NRW"


def test_meta_that_stood_still_declares_nobody_dead_before_it_has_listened() -> None:
    world = World()
    pair(world)
    world.pass_ms(6 * SECOND, speaking(world, "g1-0", "g1-1"))
    world.now_ms += 60 * SECOND

    world.pass_ms(4 * SECOND, speaking(world, "g1-1"))
    assert world.group("g1").epoch == 1
    world.pass_ms(SECOND, speaking(world, "g1-0", "g1-1"))
    world.pass_ms(20 * SECOND, speaking(world, "g1-0", "g1-1"))

    assert world.group("g1").epoch == 1


# -- being in sync --------------------------------------------------------------------------------------------


def test_slave_joins_only_at_the_word_of_its_master_in_this_epoch_and_version() -> None:
    world = World()
    pair(world)
    group = world.group("g1")
    assert [name for name, _ in group.in_sync] == ["g1-0", "g1-1"]
    said = {"master": "g1-0", "epoch": 1, "version": group.version, "in_sync": ["g1-0"]}

    for wrong, sentence in [
        ({"version": group.version - 1}, "g1 is at version"),
        ({"epoch": 2}, "g1-0 is not the master of g1 in epoch 2"),
        ({"master": "g1-1", "in_sync": ["g1-1"]}, "g1-1 is not the master of g1 in epoch 1"),
        ({"in_sync": ["g1-1"]}, "cannot take itself out"),
        ({"in_sync": ["g1-0", "g1-7"]}, "g1-7 is no replica of g1"),
    ]:
        with pytest.raises(Denied, match=sentence) as refused:
            change(world, said | wrong)
        assert refused.value.kind.code in {"conflict", "not_in_sync"}

    assert [name for name, _ in change(world, said).in_sync] == ["g1-0"]


def change(world: World, body: dict[str, Any]) -> BrokerGroup:
    from tidemill_meta.brokers import change_in_sync

    replica = world.first
    return replica.change(
        lambda draft, now_ms: change_in_sync(draft, replica.meta.senses, "g1", Asked(body), now_ms)
    )


def test_slave_that_restarts_between_the_question_and_the_answer_does_not_join() -> None:
    world = World()
    for name in ("g1-0", "g1-1"):
        world.register("g1", name)
        world.beat("g1", name)
    seen = world.group("g1").version
    world.register("g1", "g1-1", boot=2)
    world.beat("g1", "g1-1")

    with pytest.raises(Denied, match="g1 is at version"):
        change(world, {"master": "g1-0", "epoch": 1, "version": seen, "in_sync": ["g1-0", "g1-1"]})


def test_slave_that_is_behind_for_more_than_five_seconds_leaves_the_set() -> None:
    world = World()
    pair(world)
    sent = [100]

    def speak() -> None:
        if world.now_ms % SECOND == 0:
            sent[0] += 1000
            world.beat("g1", "g1-0", messages=sent[0])
            world.beat("g1", "g1-1", messages=100)

    world.pass_ms(4 * SECOND, speak)
    assert len(world.group("g1").in_sync) == 2
    world.pass_ms(3 * SECOND, speak)

    assert [name for name, _ in world.group("g1").in_sync] == ["g1-0"]
    world.in_sync("g1", "g1-0", "g1-1")
    assert [name for name, _ in world.group("g1").in_sync] == ["g1-0"]


def test_slave_that_meta_does_not_hear_keeps_nobody_else_out_of_the_set_or_in_it() -> None:
    """Its master does hear it, and wishes it in: the others need not wait until meta does, too."""
    world = World()
    for name in ("g1-0", "g1-1", "g1-2", "g1-3"):
        world.register("g1", name)
        world.beat("g1", name)
    world.in_sync("g1", "g1-0", "g1-3")
    world.pass_ms(6 * SECOND, speaking(world, "g1-0", "g1-1", "g1-3"))
    before = world.group("g1").version

    world.in_sync("g1", "g1-0", "g1-1", "g1-2")

    assert [name for name, _ in world.group("g1").in_sync] == ["g1-0", "g1-1"]
    world.in_sync("g1", "g1-0", "g1-1", "g1-2")
    assert world.group("g1").version == before + 2, "who waits for it is told that it is not in"


def test_slave_of_an_idle_or_slow_master_is_not_behind() -> None:
    world = World()
    pair(world)
    sent = [100]

    def speak() -> None:
        if world.now_ms % SECOND == 0:
            world.beat("g1", "g1-1", messages=sent[0])  # always a second late
            sent[0] += 1000
            world.beat("g1", "g1-0", messages=sent[0])

    world.pass_ms(20 * SECOND, speak)

    assert len(world.group("g1").in_sync) == 2


# -- being relieved -------------------------------------------------------------------------------------------


def test_handover_is_done_at_once_for_a_slave_in_sync_and_refused_for_others() -> None:
    world = World()
    pair(world)
    world.register("g1", "g1-2")
    world.beat("g1", "g1-2")

    with pytest.raises(Denied, match="g1-2 is not an in-sync replica"):
        ask(world, hand_over, "g1", Asked({"to": "g1-2"}))
    with pytest.raises(Denied, match="g1 is in epoch 1"):
        ask(world, hand_over, "g1", Asked({"to": "g1-1", "epoch": 5}))
    group = ask(world, hand_over, "g1", Asked({"to": "g1-1", "epoch": 1}))

    assert (group.master, group.epoch, len(group.in_sync)) == ("g1-1", 2, 2)


def test_person_elects_who_is_left_and_only_when_nobody_leads() -> None:
    world = World()
    pair(world)
    world.in_sync("g1", "g1-0")
    with pytest.raises(Denied, match="g1 has a master"):
        ask(world, elect, "g1", Asked({"to": "g1-1"}))

    world.pass_ms(7 * SECOND, speaking(world, "g1-1"))
    assert problem(world)
    group = ask(world, elect, "g1", Asked({"to": "g1-1"}))

    assert (group.master, group.epoch, group.in_sync) == ("g1-1", 2, (("g1-1", 1),))


def test_group_that_is_read_only_or_drained_takes_no_writes() -> None:
    world = World()
    world.register("g1", "g1-0")
    world.beat("g1", "g1-0")

    world.first.change(lambda draft, _: set_group_state(draft, "g1", Asked({"state": "R"})))
    assert state(world) == "R"
    world.first.change(lambda draft, _: set_group_state(draft, "g1", Asked({"state": "RW", "draining": 1})))
    assert state(world) == "R"
    world.first.change(lambda draft, _: set_group_state(draft, "g1", Asked({"draining": 0})))
    world.beat("g1", "g1-0", state="R")
    assert state(world) == "R"
    world.beat("g1", "g1-0", state="RW")
    assert state(world) == "RW"


def test_broker_is_forgotten_when_it_is_dead_and_its_group_when_it_was_the_last() -> None:
    world = World()
    pair(world)
    with pytest.raises(Denied, match="is alive"):
        ask(world, remove_broker, "g1", "g1-1")
    world.pass_ms(6 * SECOND)

    ask(world, remove_broker, "g1", "g1-1")
    assert [name for name, _ in world.group("g1").replicas] == ["g1-0"]
    ask(world, remove_broker, "g1", "g1-0")
    assert world.first.meta.registry.get(BrokerGroup, "g1") is None


def test_registration_says_what_is_wrong_with_it() -> None:
    for body, sentence in [
        ({"group": "g/1"}, "group is 'g/1': write 1 to 100 characters"),
        ({"addresses": {"data": "host", "control": "h:1"}}, "data is 'host': write HOST:PORT"),
        ({"boot": -1}, "boot is -1: write a whole number from 0"),
        ({"labels": {"zone": 5}}, "labels has 5: write texts"),
        ({"colour": "red"}, "there is no field 'colour' here"),
    ]:
        whole = {"group": "g1", "name": "a", "addresses": {"data": "h:1", "control": "h:2"}, "boot": 1} | body
        from tidemill_meta.brokers import parse_registration

        with pytest.raises(Denied, match=sentence):
            parse_registration(whole)
    assert registration("g1", "a", 1).broker.boot == 1


def test_wish_for_the_set_as_it_is_gets_a_later_version() -> None:
    world = World()
    pair(world)
    before = world.group("g1")

    after = world.in_sync("g1", "g1-0", "g1-1")

    assert (after.in_sync, after.version) == (before.in_sync, before.version + 1)


def test_broker_that_comes_back_at_another_address_is_found_there() -> None:
    """As a pod does that was moved: nobody has to register it anew, and nothing that it leads is taken from it."""
    world = World()
    world.register("g1", "g1-0", boot=1)
    world.beat("g1", "g1-0", boot=1)
    said = {
        "group": "g1", "name": "g1-0", "boot": 2, "addresses": {"data": "10.9.9.9:7400", "control": "10.9.9.9:7401"},
    }  # fmt: skip
    replica = world.first
    asked = parse_registration(said)
    answer = replica.change(lambda draft, now_ms: replica.meta.register(draft, asked, now_ms))
    replica.meta.registered(asked, replica.now_ms)
    world.pass_ms(500, lambda: world.beat("g1", "g1-0", boot=2))

    assert answer["addresses"] == {"g1-0": "10.9.9.9:7400"}
    [row] = replica.meta.brokers(replica.now_ms).values()
    assert (row["host"], row["port"], row["state"]) == ("10.9.9.9", 7400, "RW")
