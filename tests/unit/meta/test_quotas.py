"""What brokers are told of quotas, and whose a client is."""

from __future__ import annotations

from typing import Any

import pytest

from samples.metas import World
from tidemill_broker.gate import read_told
from tidemill_host.doorman import _ASKER
from tidemill_meta.asked import Asked
from tidemill_meta.beats import ClientBeat, pack_client, unpack_client
from tidemill_meta.charter import GrantRecord, TokenRecord, charter_of
from tidemill_meta.doors.asking import check_own, permitted
from tidemill_meta.subjects import declare, expand, told_to
from tidemill_wire.access import ANYBODY, Identity, Operation, Permission
from tidemill_wire.declarations import parse_manifests
from tidemill_wire.errors import Refused
from tidemill_wire.granted import Granted
from tidemill_wire.quotas import Quota, Rates

CLIENT = "till-7"


def world_with(groups: int = 3) -> World:
    world = World()
    for number in range(1, groups + 1):
        world.register(f"g{number}", f"g{number}-0")
        world.beat(f"g{number}", f"g{number}-0")
    return world


def ask(world: World, decide: Any, *arguments: Any) -> Any:
    replica = world.first
    return replica.change(lambda draft, now_ms: decide(draft, replica.meta.senses, *arguments, now_ms))


def subject(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidemill.dev/v1alpha1",
        "kind": "Subject",
        "metadata": {"name": name},
        "spec": spec,
    }


def shares(world: World, group: str, known: int = 0) -> dict[str, tuple[int, int]]:
    return dict(read_told(told_to(world.first.meta.registry, group, known), "RW").shares)


def test_brokers_hear_their_part_of_a_subject_with_a_quota_whenever_its_route_is_another() -> None:
    world = world_with()
    placed = {"placement": {"brokerGroups": ["g1", "g2"]}, "orderStrategy": "BestTried"}
    bounded = [
        subject("a", quota={"messagesPerSecond": 10}, **placed),
        subject("b", quota={"inFlight": 9}, **placed),
    ]
    ask(world, declare, parse_manifests([*bounded, subject("free", **placed)]))
    parts = {"a": (1, 2), "b": (1, 2)}
    assert [shares(world, group) for group in ("g1", "g2", "g3")] == [parts, parts, {}]

    revision = world.first.meta.registry.revision
    ask(world, expand, "a", Asked({"groups": ["g3"], "version": 1}))
    assert [shares(world, group, revision)["a"] for group in ("g1", "g2", "g3")] == [(1, 3)] * 3
    declared = told_to(world.first.meta.registry, "g1", revision)["declarations"]
    assert [one["metadata"]["name"] for one in declared] == ["a"], (
        "a part that changed is told with its subject"
    )


def test_of_all_grants_of_somebody_the_least_of_each_number_binds() -> None:
    send = (Permission(frozenset({Operation.SEND}), ("a",)),)
    grants = [
        GrantRecord("one", Granted(("token:x", "token:y"), send, Quota(Rates(10, 0), 5))),
        GrantRecord("two", Granted(("token:x",), send, Quota(Rates(20, 3000)))),
        GrantRecord("three", Granted(("token:z",), send)),
    ]
    charter = charter_of(7, grants, list[TokenRecord]())
    assert charter.quotas == {"token:x": Quota(Rates(10, 3000), 5), "token:y": Quota(Rates(10, 0), 5)}
    assert GrantRecord.from_map("one", 1, grants[0].to_map()).granted == grants[0].granted
    assert type(charter).from_map(charter.to_map()) == charter


# -- whose a client is ------------------------------------------------------------------------------------------------


def identity(who: str) -> Identity:
    return Identity(who, [Permission(frozenset(Operation), ("*",))])


def beaten_by(world: World, who: Identity) -> None:
    token = _ASKER.set(who)
    try:
        beat, _ = permitted(ClientBeat(CLIENT, ("a",)))
        check_own(world.first.meta, CLIENT, world.first.now_ms)
        world.first.meta.client_heard(beat, 0, world.first.now_ms)
    finally:
        _ASKER.reset(token)


def check_as(world: World, who: Identity) -> None:
    token = _ASKER.set(who)
    try:
        check_own(world.first.meta, CLIENT, world.first.now_ms)
    finally:
        _ASKER.reset(token)


def test_nobody_speaks_for_the_client_of_another() -> None:
    world = world_with(1)
    beaten_by(world, identity("token:shop"))
    for said in (check_as, beaten_by):
        with pytest.raises(Refused, match="is another's"):
            said(world, identity("token:enemy"))
    check_as(world, identity("token:shop"))
    check_as(world, Identity("cluster", everything=True))
    check_as(world, ANYBODY)


def test_who_has_left_or_is_silent_leaves_the_name_to_others() -> None:
    world = world_with(1)
    beaten_by(world, identity("token:shop"))
    world.first.meta.client_left(CLIENT, world.first.now_ms)
    check_as(world, identity("token:other"))

    beaten_by(world, identity("token:shop"))
    world.now_ms += 10 * 60_000
    check_as(world, identity("token:other"))


def test_replicas_tell_each_other_whose_a_client_is_and_understand_earlier_ones() -> None:
    beat = ClientBeat(CLIENT, ("a",), (), "token:shop")
    assert unpack_client(pack_client(beat)) == beat
    earlier = {name: value for name, value in pack_client(beat).items() if name != "who"}
    assert unpack_client(earlier).who == ""
