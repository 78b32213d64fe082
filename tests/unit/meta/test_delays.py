"""Delay groups at meta: appointed as broker groups are, and no place for subjects."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from samples.metas import World
from tidemill_host.clock import Clock
from tidemill_meta.beats import ClientBeat
from tidemill_meta.brokers import parse_registration
from tidemill_meta.doors.watch import Interest, Watch, Watcher
from tidemill_meta.errors import Denied
from tidemill_meta.retiring import drain, retire
from tidemill_meta.subjects import declare, remove_subject, told_to
from tidemill_meta.values import BrokerGroup, SubjectRecord
from tidemill_wire.appointments import Appointment
from tidemill_wire.declarations import API_VERSION, parse_manifest

SECOND = 1_000


class WorldClock(Clock):
    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return self._world.first.now_ms


def speaking(world: World, *names: str) -> Callable[[], None]:
    """Heartbeats of these each second."""

    def speak() -> None:
        if world.now_ms % SECOND == 0:
            for name in names:
                world.beat(name.partition("-")[0], name, messages=100)

    return speak


def world_with_delays() -> World:
    world = World()
    world.register("g1", "g1-0")
    world.register("delay", "delay-0", service="delay")
    world.register("delay", "delay-1", service="delay")
    return world


def test_a_delay_group_has_a_master_and_slaves_and_fails_over() -> None:
    world = world_with_delays()
    world.pass_ms(2 * SECOND, speaking(world, "delay-0", "delay-1", "g1-0"))
    group = world.group("delay")
    world.first.change(lambda draft, _: draft.put(replace(group, in_sync=group.replicas)))
    world.pass_ms(8 * SECOND, speaking(world, "delay-1", "g1-0"))

    after = world.group("delay")
    assert isinstance(after.appointment(), Appointment)
    assert (after.epoch, after.master, after.service) == (2, "delay-1", "delay")


def test_clients_are_told_of_delay_groups_apart_from_brokers() -> None:
    world = world_with_delays()
    world.pass_ms(2 * SECOND, speaking(world, "delay-0", "g1-0"))
    meta = world.first.meta

    assert list(meta.brokers(world.first.now_ms)) == ["g1"]
    assert [(one["group"], one["name"], one["state"]) for one in meta.delays(world.first.now_ms)] == [
        ("delay", "delay-0", "RW")
    ]


def test_no_subject_lies_on_a_delay_group() -> None:
    world = world_with_delays()
    world.pass_ms(2 * SECOND, speaking(world, "delay-0", "delay-1", "g1-0"))
    replica = world.first
    beat = ClientBeat("c", tuple(f"s{number}" for number in range(20)))

    assert replica.change(lambda draft, now_ms: replica.meta.use(draft, beat, now_ms)) == []
    groups = {one["group"] for name in beat.produces for one in replica.meta.route(name)["partitions"]}
    assert groups == {"g1"}


def test_a_group_is_of_brokers_or_of_delay_services() -> None:
    world = world_with_delays()
    with pytest.raises(Denied, match="delay is a delay group, and delay-2 a broker"):
        world.register("delay", "delay-2")
    with pytest.raises(Denied, match="g1 is a broker group"):
        world.register("g1", "g1-1", service="delay")


def test_what_serves_is_one_of_two_words() -> None:
    said = {"group": "g", "name": "g-0", "addresses": {"data": "a:1", "control": "a:2"}, "boot": 1}
    assert parse_registration(said).service == "broker"
    assert parse_registration({**said, "service": "delay"}).service == "delay"
    with pytest.raises(Exception, match="write broker, delay"):
        parse_registration({**said, "service": "cron"})


def test_what_a_group_serves_outlives_meta() -> None:
    group = BrokerGroup("delay", 1, "delay-0", (("delay-0", 1),), (("delay-0", 1),), service="delay")
    assert BrokerGroup.from_map("delay", 0, group.to_map()) == group
    older = BrokerGroup("g1", 1, "g1-0", (("g1-0", 1),), (("g1-0", 1),))
    assert "service" not in older.to_map()
    assert BrokerGroup.from_map("g1", 0, older.to_map()) == older


def test_a_delay_group_is_drained_and_not_retired() -> None:
    world = world_with_delays()
    world.pass_ms(2 * SECOND, speaking(world, "delay-0", "g1-0"))
    replica = world.first
    replica.change(lambda draft, now_ms: drain(draft, replica.meta.senses, "delay", now_ms))
    assert [one["state"] for one in replica.meta.delays(replica.now_ms)] == ["R"]
    with pytest.raises(Denied, match="keeps messages for later"):
        replica.change(lambda draft, now_ms: retire(draft, replica.meta.senses, "delay", now_ms))


def test_watch_streams_begin_with_the_delay_groups_and_hear_when_they_change() -> None:
    world = world_with_delays()
    world.pass_ms(2 * SECOND, speaking(world, "delay-0", "g1-0"))
    watch = Watch(world.first.meta, WorldClock(world))
    watch.changed([])
    interest = Interest(frozenset(), (), frozenset(), frozenset())
    watcher = Watcher(interest)
    watch._add(watcher)
    first = json.loads(watch._first(interest, 0))
    assert [one["name"] for one in first["delays"]] == ["delay-0"]

    replica = world.first
    replica.change(lambda draft, now_ms: drain(draft, replica.meta.senses, "delay", now_ms))
    watch.changed([("broker_group", "delay")])
    assert watcher.woken.is_set()
    assert [one["state"] for one in json.loads(watch._next(watcher))["delays"]] == ["R"]
    assert "delays" not in json.loads(watch._next(watcher))


def test_a_subject_to_which_a_delay_service_brings_messages_is_removed_as_one_that_nobody_uses() -> None:
    """It names each second whose routes it wants, and is no program that somebody would have to end first."""
    world = world_with_delays()
    world.pass_ms(2 * SECOND, speaking(world, "delay-0", "g1-0"))
    replica = world.first
    world.client("delay-0", produces=("reminder",))
    world.client("delay-7", produces=("other",))

    replica.change(lambda draft, now_ms: remove_subject(draft, replica.meta.senses, "reminder", now_ms))
    assert replica.meta.registry.get(SubjectRecord, "reminder") is None
    with pytest.raises(Denied, match="has 1 producer"):
        replica.change(lambda draft, now_ms: remove_subject(draft, replica.meta.senses, "other", now_ms))


def test_a_delay_group_is_told_of_all_subjects_how_far_ahead_they_let_be_sent_and_no_broker_group_is() -> (
    None
):
    world = world_with_delays()

    def declare_delay(name: str, **delay: object) -> None:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "Subject",
            "metadata": {"name": name},
            "spec": {"delay": delay},
        }
        declaration = parse_manifest(manifest)
        world.first.change(
            lambda draft, now_ms: declare(draft, world.first.meta.senses, [declaration], now_ms)
        )

    def told(group: str) -> object:
        return told_to(world.first.meta.registry, group, 0).get("later")

    before = world.beat("delay", "delay-0", messages=100)["declared"]
    assert told("delay") == []
    declare_delay("never", mode="Forbidden", maxDelaySeconds=60)
    declare_delay("soon", maxDelaySeconds=60)
    declare_delay("any")
    assert world.beat("delay", "delay-0", messages=100)["declared"] > before
    assert told("delay") == [["never", 0], ["soon", 60]]
    assert told("g1") is None
    declare_delay("never")
    assert told("delay") == [["soon", 60]]
