"""Whatever people and brokers do, order keys move to partitions that have never been, and nobody begins there early."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidemill_meta.errors import Denied
from tidemill_meta.moving import closed, fences_of, given_up, losers, prepared, shut
from tidemill_meta.routing import Site, default_route, expanded, vacated
from tidemill_meta.values import Route
from tidemill_wire.routes import PartitionSet

GROUPS = ("g1", "g2", "g3")
SITES = [Site(name, frozenset(), 0.0, 0, open=True) for name in GROUPS]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("expand"), st.integers(1, 5)),
        st.tuples(st.just("drain"), st.integers(0, 2)),
        st.tuples(st.just("close"), st.integers(0, 40)),
        st.tuples(st.just("close early"), st.integers(0, 40)),
        st.tuples(st.just("give up"), st.just(0)),
    ),
    max_size=30,
)


def stepped(route: Route, what: str, number: int) -> Route:
    """The route after one thing that happens; what is denied changes nothing."""
    fence = route.fence + 1 + number % 3
    try:
        match what:
            case "expand":
                to = expanded("s", route.current, SITES, None, number, route.sets)
                return prepared(route, to, fence)
            case "drain":
                sites = [one for one in SITES if one.name != GROUPS[number]]
                to = vacated("s", route.current, sites, None, GROUPS[number], route.sets)
                return prepared(route, to, fence) if losers(route.current, to) else route
            case "give up":
                return given_up(route, fence)
            case _:
                if not route.fences:
                    return route
                key, known = route.fences[number % len(route.fences)]
                return closed(route, key, known - (what == "close early"))
    except Denied:
        return route


def run(steps: list[tuple[str, int]]) -> list[Route]:
    """The route after each step."""
    routes = [Route("s", (default_route("s", SITES, None, 2),))]
    for what, number in steps:
        routes.append(stepped(routes[-1], what, number))
    return routes


def keys_of(one: PartitionSet) -> dict[str, set[int]]:
    return {
        partition.key: {logical for first, end in partition.ranges for logical in range(first, end)}
        for partition in one.partitions
    }


@given(STEPS)
def test_no_partition_gains_order_keys_and_none_comes_back(steps: list[tuple[str, int]]) -> None:
    last = run(steps)[-1]
    seen: set[str] = set()
    for before, after in pairwise((PartitionSet(0, ()), *last.sets)):
        after.check()
        old, new = keys_of(before), keys_of(after)
        assert all(new[key] <= old[key] for key in new if key in old)
        assert not seen & (new.keys() - old.keys())
        seen |= new.keys()


@given(STEPS)
def test_the_route_changes_only_when_all_that_lose_order_keys_have_closed_to_them(
    steps: list[tuple[str, int]],
) -> None:
    for before, after in pairwise(run(steps)):
        assert after.fence >= before.fence
        if after.sets == before.sets:
            continue
        assert before.move is not None
        assert after.current == before.move.to
        awaited = set(losers(before.current, before.move.to)) - set(before.move.closed)
        assert len(awaited) == 1
        told = {
            f"{group}/{name}": (number, edges)
            for group in GROUPS
            for name, number, edges in fences_of(before, group)
        }
        for key in losers(before.current, before.move.to):
            number, edges = told[key]
            ranges = next(one.ranges for one in after.current.partitions if one.key == key)
            assert (number, edges) == (dict(before.fences)[key], [edge for pair in ranges for edge in pair])


@given(STEPS, st.data())
def test_an_heir_is_open_when_all_it_inherits_from_was_passed_and_not_before(
    steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    route = run(steps)[-1]
    fences = sorted({(one.former, one.fence) for one in route.successions})
    passed = dict(sorted(data.draw(st.sets(st.sampled_from(fences))))) if fences else {}
    for partition in route.current.partitions:
        needed = ancestors(route, partition.key)
        assert (partition.key not in shut(route, passed)) == all(
            passed.get(former, 0) >= fence for former, fence in needed
        )


def ancestors(route: Route, key: str) -> set[tuple[str, int]]:
    """All that lay before what a partition has, however far back."""
    found = {(one.former, one.fence) for one in route.successions if one.heir == key}
    return found.union(*(ancestors(route, former) for former, _ in found))


@given(STEPS)
def test_a_route_is_the_same_after_it_was_stored(steps: list[tuple[str, int]]) -> None:
    route = replace(run(steps)[-1], version=7)
    assert Route.from_map("s", 7, route.to_map()) == route
