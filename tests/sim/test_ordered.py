"""Messages with an order key keep their promises in storms, and storms find who breaks them."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from sim.ordered.storm import Storm, hunt
from tidemill.tenure import Tenure
from tidemill_broker import fences
from tidemill_broker.fences import Fences
from tidemill_broker.groups import Group
from tidemill_broker.locks import Locks
from tidemill_broker.state import State
from tidemill_meta import passages
from tidemill_wire.commands import Pull

SEEDS = int(os.environ.get("SEEDS", "20"))
EXPECTED = (
    "again",
    "broker",
    "cut",
    "drain",
    "expand",
    "failed",
    "give up",
    "given back",
    "kill",
    "meta",
    "refused",
    "sender",
    "sleep",
    "stop",
    "versions",
    "yielded",
)
HUNTED = 80


def test_storms_break_no_promise() -> None:
    found, seen = hunt(range(SEEDS))

    assert found == {}
    if SEEDS >= 20:
        assert [what for what in EXPECTED if not seen[what]] == []


@pytest.mark.parametrize("seed", [*range(4), 73, 357])
def test_clocks_of_brokers_that_jump_ahead_break_no_promise(seed: int) -> None:
    """All leases end at once, and what is at work is given out again, to who is at it still. In 73 that one gave it
    back when its partition went to another consumer.
    """
    assert Storm(seed, forward=0.03).run() == []


def test_a_seed_is_a_run() -> None:
    one, other = Storm(5), Storm(5)

    assert one.run() == other.run() == []
    assert one.checker == other.checker


def forgets_who_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker asks neither for the lock nor for who is at work, as one does that forgot them with its restart."""
    monkeypatch.setattr(Locks, "_held_by_others", lambda _self, _consumer: False)
    monkeypatch.setattr(Locks, "free_ms", lambda _self, _group: 0)


def takes_any_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version of the allocation is as good as the latest."""
    monkeypatch.setattr(Locks, "allocate", lambda *_: None)
    monkeypatch.setattr(Locks, "_allowed", lambda *_: True)


def heeds_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer goes on beyond its authorisation."""
    monkeypatch.setattr(Tenure, "authorised", lambda *_: True)


def names_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull of several subjects goes by the least of their versions."""
    monkeypatch.setattr(Pull, "versions", lambda _pull: {})


def takes_any_order_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker goes on to take order keys that went to another partition."""
    monkeypatch.setattr(Fences, "check", lambda *_: None)


def opens_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group begins with an heir before it is done with what lies in the former partition."""
    monkeypatch.setattr(passages, "shut", lambda *_: frozenset[str]())


def counts_what_is_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was given out counts as settled."""

    def given_out(state: State, head: Group, identity: int, end: int) -> bool:
        partition = state.partitions[identity]
        return state.groups[partition.groups[head.name]].cursor >= min(end, partition.next_sequence)

    monkeypatch.setattr(fences, "_settled", given_out)


@pytest.mark.parametrize(
    ("plant", "first"),
    [
        (forgets_who_holds, 0),
        (takes_any_version, 39),
        (heeds_no_time, 21),
        (names_one_version, 2),
        (takes_any_order_key, 0),
        (opens_at_once, 0),
        (counts_what_is_given_out, 2),
    ],
)
def test_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``first`` is a seed that finds it now, which saves minutes; one of the next does when the runs change."""
    plant(monkeypatch)

    assert any(Storm(seed).run() for seed in range(first, first + HUNTED))
