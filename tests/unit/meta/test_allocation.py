"""Partitions to consumers: even, sticky, and nobody is granted what another may still hold."""

from __future__ import annotations

from tidemill_meta.allocation import given_to_one, granted, rebalanced, released, shared_out
from tidemill_meta.values import Allocation, Former

FOUR = ("g/a", "g/b", "g/c", "g/d")


def stored(allocation: Allocation) -> Allocation:
    """With the version that it gets when it is stored."""
    from dataclasses import replace

    return replace(allocation, version=allocation.version + 1)


def test_all_partitions_are_shared_out_evenly() -> None:
    assert shared_out(FOUR, ["x", "y"], {}) == {"g/a": "x", "g/b": "x", "g/c": "y", "g/d": "y"}
    assert shared_out(FOUR, ["x", "y", "z"], {}) == {"g/a": "x", "g/b": "x", "g/c": "y", "g/d": "z"}
    assert shared_out(FOUR, [], {"g/a": "x"}) == {}


def test_consumer_that_joins_takes_only_what_it_needs() -> None:
    before = shared_out(FOUR, ["x", "y"], {})

    after = shared_out(FOUR, ["x", "y", "z"], before)

    assert [name for name in FOUR if before[name] != after[name]] == ["g/d"]


def test_first_consumers_are_granted_at_once() -> None:
    allocation = stored(rebalanced(Allocation("s", "g"), FOUR, ["x", "y"]))

    assert granted(allocation, "x") == ("g/a", "g/b")
    assert granted(allocation, "y") == ("g/c", "g/d")


def test_partition_that_moves_waits_for_its_former_consumer() -> None:
    first = stored(rebalanced(Allocation("s", "g"), FOUR, ["x"]))
    second = stored(rebalanced(first, FOUR, ["x", "y"]))
    assert (granted(second, "x"), granted(second, "y")) == (("g/a", "g/b"), ())

    still = released(second, {"x": first.version, "y": second.version}, [])
    assert still is second

    let_go = released(second, {"x": second.version}, [])
    assert granted(let_go, "y") == ("g/c", "g/d")


def test_partition_of_a_dead_consumer_waits_until_its_time_is_over() -> None:
    first = stored(rebalanced(Allocation("s", "g"), FOUR, ["x", "y"]))
    second = stored(rebalanced(first, FOUR, ["y"]))
    assert granted(second, "y") == ("g/c", "g/d")

    assert granted(released(second, {"y": 2}, second.formers), "y") == FOUR


def test_partition_that_comes_back_before_it_was_let_go_is_granted_when_the_one_between_has_let_go() -> None:
    first = stored(rebalanced(Allocation("s", "g"), ("g/a",), ["x"]))
    second = stored(rebalanced(first, ("g/a",), ["y"]))
    third = stored(rebalanced(second, ("g/a",), ["x"]))

    assert granted(third, "x") == ()
    assert granted(released(third, {"y": third.version}, []), "x") == ("g/a",)


def test_former_of_a_later_version_is_not_released_by_an_earlier_one() -> None:
    allocation = Allocation("s", "g", (("g/a", "y"),), (Former("g/a", "x", 5),), 5)

    assert released(allocation, {"x": 4}, []) is allocation
    assert released(allocation, {"x": 5}, []).formers == ()


# -- one alone ---------------------------------------------------------------------------------------------------


def test_one_consumer_is_given_all_and_stays_the_one_while_it_is_there() -> None:
    first = given_to_one(FOUR, ["y", "x"], {})

    assert first == dict.fromkeys(FOUR, "x")
    assert given_to_one((*FOUR, "g/e"), ["w", "x", "y"], first) == dict.fromkeys((*FOUR, "g/e"), "x")
    assert given_to_one(FOUR, ["w", "y"], first) == dict.fromkeys(FOUR, "w")
    assert given_to_one(FOUR, [], first) == {}


def test_one_alone_is_granted_nothing_while_anybody_may_hold_anything() -> None:
    """Else it would be at work in one broker group while its former is in another one."""
    shared = stored(rebalanced(Allocation("s", "g"), FOUR, ["x", "y", "z"]))
    alone = stored(rebalanced(shared, FOUR, ["x", "y", "z"], alone=True))
    assert {owner for _, owner in alone.owners} == {"x"}
    assert [granted(alone, name) for name in "xyz"] == [(), (), ()]

    half = released(alone, {"y": alone.version}, [])
    assert granted(half, "x") == ()
    assert granted(released(half, {"z": alone.version}, []), "x") == FOUR


def test_allocation_says_when_it_is_one_consumers_alone_also_when_nothing_moves() -> None:
    one = stored(rebalanced(Allocation("s", "g"), FOUR, ["x"]))
    alone = stored(rebalanced(one, FOUR, ["x"], alone=True))

    assert (one.alone, alone.alone, alone.version) == (False, True, one.version + 1)
    assert rebalanced(alone, FOUR, ["x", "y"], alone=True) is alone
    assert Allocation.from_map(alone.key, alone.version, alone.to_map()) == alone
    assert Allocation.from_map(one.key, one.version, {"owners": dict(one.owners), "formers": []}) == one
