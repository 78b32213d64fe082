"""What a broker says to meta in a beat, and what it makes of the answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidemill_broker.attendance import Attendance, Identity, MetaRefused, Request
from tidemill_wire.appointments import Appointment
from tidemill_wire.replication import Appoint, Ends, Stood

IDENTITY = Identity("g1", "g1-0", 7, "a:7400", "a:7401", "f1")
FENCED = Stood("g1-0", "fenced", 0, 0, 0, Ends(0, 0), Ends(0, 0))
MASTER = Stood("g1-0", "master", 2, 5, 2, Ends(80, 90), Ends(80, 90), "g1-0")
REGISTRATION = Request(
    "/v1/brokers",
    {
        "group": "g1",
        "name": "g1-0",
        "boot": 7,
        "folder": "f1",
        "addresses": {"data": "a:7400", "control": "a:7401"},
    },
)


def appointed(epoch: int, version: int, master: str = "g1-0") -> dict[str, Any]:
    return {
        "group": "g1", "epoch": epoch, "master": master, "replicas": ["g1-0", "g1-1"],
        "in_sync": ["g1-0"] if master else [], "version": version, "lease_ms": 0,
        "addresses": {"g1-0": "a:7400", "g1-1": "b:7400"},
    }  # fmt: skip


def beating(stood: Stood) -> Attendance:
    """Registered, and its heartbeat is under way."""
    attendance = Attendance(IDENTITY)
    attendance.beat(stood)
    attendance.answered(200, {})
    return attendance


def test_the_first_beat_registers_and_the_next_ones_do_not() -> None:
    attendance = Attendance(IDENTITY)

    assert attendance.beat(FENCED) == REGISTRATION
    heartbeat = attendance.answered(200, appointed(1, 1))
    assert isinstance(heartbeat, Request)
    assert heartbeat.path == "/v1/brokers/heartbeat"
    assert attendance.beat(FENCED) == heartbeat


def test_a_heartbeat_says_role_positions_and_the_newest_epoch_in_the_log() -> None:
    attendance = beating(FENCED)
    beat = attendance.beat(replace(FENCED, begun=4, ends=Ends(10, 20)))

    assert isinstance(beat, Request)
    assert (beat.body["role"], beat.body["epoch"]) == ("none", 4)
    assert beat.body["positions"] == {"messages": 10, "actions": 20}


def test_a_fenced_broker_obeys_what_it_is_answered() -> None:
    done = beating(FENCED).answered(200, appointed(1, 1))

    assert done == Appoint(
        Appointment("g1", 1, "g1-0", ("g1-0", "g1-1"), ("g1-0",), 1), {"g1-0": "a:7400", "g1-1": "b:7400"}
    )


@pytest.mark.parametrize(
    ("epoch", "version", "obeys"), [(2, 5, False), (1, 9, False), (2, 6, True), (3, 6, True)]
)
def test_who_was_appointed_obeys_later_appointments_only(epoch: int, version: int, obeys: bool) -> None:
    done = beating(MASTER).answered(200, appointed(epoch, version))

    assert isinstance(done, Appoint) == obeys


def test_a_master_is_told_that_its_lease_goes_on_counted_from_when_it_stood_so() -> None:
    done = beating(replace(MASTER, at_ms=1_000)).answered(200, appointed(2, 5) | {"lease_ms": 4_000})

    assert isinstance(done, Appoint)
    assert (done.lease_ms, done.asked_ms) == (4_000, 1_000)


@pytest.mark.parametrize(("epoch", "version"), [(2, 4), (1, 9)])
def test_an_older_appointment_prolongs_no_lease(epoch: int, version: int) -> None:
    assert beating(MASTER).answered(200, appointed(epoch, version) | {"lease_ms": 4_000}) is None


def test_a_fenced_broker_is_appointed_with_its_lease() -> None:
    done = beating(replace(FENCED, at_ms=700)).answered(200, appointed(1, 1) | {"lease_ms": 5_000})

    assert isinstance(done, Appoint)
    assert (done.lease_ms, done.asked_ms) == (5_000, 700)


def test_while_nobody_is_appointed_there_is_nothing_to_obey() -> None:
    assert beating(FENCED).answered(200, appointed(1, 1, master="")) is None


def test_a_master_wishes_behind_its_beat_at_the_version_that_it_stood_at() -> None:
    attendance = beating(replace(MASTER, wish=("g1-0", "g1-1")))
    wish = attendance.answered(200, appointed(2, 5))

    assert wish == Request(
        "/v1/groups/g1/in-sync", {"master": "g1-0", "epoch": 2, "version": 5, "in_sync": ["g1-0", "g1-1"]}
    )
    assert attendance.answered(200, appointed(2, 6)) is None


def test_who_is_not_registered_any_more_registers_with_the_next_beat() -> None:
    attendance = beating(MASTER)
    with pytest.raises(MetaRefused) as refused:
        attendance.answered(409, {"error": {"code": "not_registered", "detail": "no"}})

    assert refused.value.code == "not_registered"
    assert attendance.beat(MASTER) == REGISTRATION


def test_a_registration_without_an_answer_is_made_again() -> None:
    attendance = Attendance(IDENTITY)
    attendance.beat(FENCED)

    assert attendance.beat(FENCED) == REGISTRATION
