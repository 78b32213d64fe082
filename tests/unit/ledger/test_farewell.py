"""What a server does before it stops: every way through the states of farewell.py."""

from __future__ import annotations

from dataclasses import replace

from tidemill_ledger.attendance import Identity
from tidemill_ledger.farewell import LOOK_SECONDS, LOOKS, Farewell
from tidemill_wire.asking import Pause, Request
from tidemill_wire.replication import Ends, Handover, Stood

IDENTITY = Identity("g1", "g1-0", 7, "a:7400", "a:7401")
ENDS = Ends(80, 90)
SLAVES = {"g1-1": Ends(70, 90), "g1-2": ENDS}
MASTER = Stood("g1-0", "master", 2, 5, 2, ENDS, ENDS, "g1-0", slaves=SLAVES)
SLAVE = Stood("g1-0", "slave", 2, 5, 2, ENDS, ENDS, "g1-1")
LEAVE = Request("/v1/brokers/leave", {"group": "g1", "name": "g1-0", "boot": 7})


def test_a_master_hands_over_to_the_slave_that_has_most_and_leaves() -> None:
    farewell = Farewell(IDENTITY, MASTER)

    assert farewell.begin() == Handover("g1-2")
    assert farewell.answered(200, None) == LEAVE
    assert farewell.answered(200, {"left": "g1-0"}) is None


def test_a_master_tries_its_other_slaves_and_leaves_when_none_takes_over() -> None:
    farewell = Farewell(IDENTITY, MASTER)

    assert farewell.begin() == Handover("g1-2")
    assert farewell.answered(503, None) == Handover("g1-1")
    assert farewell.answered(503, None) == LEAVE
    assert farewell.answered(0, None) is None


def test_a_master_without_slaves_one_that_hands_over_already_and_one_that_waits_only_leave() -> None:
    for stood in (
        replace(MASTER, slaves={}),
        replace(MASTER, role="leaving"),
        replace(MASTER, role="fenced", slaves={}),
    ):
        farewell = Farewell(IDENTITY, stood)
        assert farewell.begin() == LEAVE
        assert farewell.answered(200, {}) is None


def test_a_slave_stays_until_it_is_out_of_the_set_and_its_master_has_had_a_beat_to_hear_it() -> None:
    farewell = Farewell(IDENTITY, SLAVE)
    assert farewell.begin() == LEAVE
    assert farewell.answered(200, {"left": "g1-0"}) == Pause(LOOK_SECONDS)
    beat = farewell.answered(200, None)
    assert isinstance(beat, Request)
    assert beat.path == "/v1/brokers/heartbeat"
    assert beat.body["positions"] == {"messages": 80, "actions": 90}

    assert farewell.answered(200, {"in_sync": ["g1-1", "g1-0"], "beat_ms": 500}) == Pause(LOOK_SECONDS)
    assert farewell.answered(200, None) == beat
    assert farewell.answered(200, {"in_sync": ["g1-1"], "beat_ms": 500}) == Pause(0.5)
    assert farewell.answered(200, None) is None


def test_a_slave_does_not_wait_for_ever_and_not_at_all_when_meta_does_not_hear_it() -> None:
    farewell = Farewell(IDENTITY, SLAVE)
    farewell.begin()
    assert farewell.answered(0, None) is None

    farewell = Farewell(IDENTITY, SLAVE)
    farewell.begin()
    step, steps = farewell.answered(200, {}), 0
    while step is not None:
        step, steps = farewell.answered(200, {"in_sync": ["g1-0"]}), steps + 1
    assert steps == 2 * LOOKS + 1
