"""Routes: of what is available and least busy, and immutable from then on."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill_meta.errors import Denied
from tidemill_meta.routing import Site, default_route, expanded
from tidemill_wire.routes import PartitionSet, both
from tidemill_wire.schema import parse_block
from tidemill_wire.specs import Placement


def site(name: str, **other: Any) -> Site:
    given = {"labels": frozenset(), "load": 0.0, "partitions": 0, "open": True} | other
    return Site(name, **given)


def placement(**written: Any) -> Placement:
    return parse_block(Placement, written, "spec.placement")


def groups(route: PartitionSet) -> list[str]:
    return [partition.group for partition in route.partitions]


def test_default_route_is_two_groups_with_half_of_the_logical_partitions_each() -> None:
    route = default_route("s", [site("g1"), site("g2"), site("g3")], None, 2)

    route.check()
    assert [(one.group, one.name, one.ranges) for one in route.partitions] == [
        ("g1", "s", ((0, 512),)),
        ("g2", "s", ((512, 1024),)),
    ]


def test_busy_and_full_groups_come_last_and_closed_ones_not_at_all() -> None:
    sites = [
        site("busy", load=0.9),
        site("full", partitions=9),
        site("shut", open=False),
        site("free", load=0.05),
    ]

    assert groups(default_route("s", sites, None, 2)) == ["free", "full"]
    assert groups(default_route("s", sites, None, 9)) == ["free", "full", "busy"]


def test_one_group_is_enough_and_none_is_refused() -> None:
    assert groups(default_route("s", [site("g1")], None, 2)) == ["g1"]
    with pytest.raises(Denied, match="no broker group takes new subjects now"):
        default_route("s", [site("g1", open=False)], None, 2)


def test_labels_choose_the_groups() -> None:
    ssd = frozenset({("disk", "ssd"), ("zone", "a")})
    sites = [site("g1"), site("g2", labels=ssd), site("g3", labels=ssd)]
    wanted = placement(minBrokerGroups=2, brokerGroupSelector={"matchLabels": {"disk": "ssd"}})

    assert groups(default_route("s", sites, wanted, 2)) == ["g2", "g3"]
    with pytest.raises(Denied, match="s wants 2 broker groups that fit, and there is 1"):
        default_route("s", sites[:2], wanted, 2)


def test_named_groups_are_taken_or_refused() -> None:
    wanted = placement(brokerGroups=["g3", "g1"])

    assert groups(default_route("s", [site("g1"), site("g2"), site("g3")], wanted, 2)) == ["g3", "g1"]
    with pytest.raises(Denied, match="there is no broker group g3"):
        default_route("s", [site("g1")], wanted, 2)


def test_expansion_leaves_every_logical_partition_that_need_not_move() -> None:
    sites = [site("g1"), site("g2"), site("g3")]
    first = default_route("s", sites[:2], None, 2)

    second = expanded("s", first, sites, None, 2)

    second.check()
    assert second.version == 2
    assert [one.key for one in second.partitions] == ["g1/s", "g2/s", "g3/s", "g1/s#1"]
    assert [one.size for one in second.partitions] == [256] * 4
    moved = [number for number in range(1024) if first.of(number).key != second.of(number).key]
    assert len(moved) == 512


def test_expansion_takes_named_groups_and_never_a_name_twice() -> None:
    sites = [site("g1"), site("g2")]
    route = default_route("s", sites, None, 2)
    for number in range(3):
        route = expanded("s", route, sites, None, ["g1"])
        assert route.partitions[-1].key == f"g1/s#{number + 1}"
        route.check()


def test_route_is_the_same_after_it_was_stored() -> None:
    route = expanded("s", default_route("s", [site("g1")], None, 2), [site("g1")], None, 3)

    assert PartitionSet.from_map(route.to_map()) == route


@pytest.mark.parametrize(
    "one, other, left",
    [("RW", "RW", "RW"), ("RW", "R", "R"), ("R", "W", "NRW"), ("W", "RW", "W"), ("NRW", "RW", "NRW")],
)
def test_two_states_allow_what_both_allow(one: Any, other: Any, left: str) -> None:
    assert both(one, other) == both(other, one) == left
