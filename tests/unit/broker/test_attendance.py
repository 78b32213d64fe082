"""What a broker says to meta in a beat, and what it makes of the answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidemill_broker.attendance import BrokerAttendance
from tidemill_broker.gate import Inventory, Removal, Told, Unfenced
from tidemill_broker.load import Load
from tidemill_ledger.attendance import BEAT_SECONDS, Identity
from tidemill_meta.settings import MetaSettings
from tidemill_wire.appointments import Appointment
from tidemill_wire.asking import MetaRefused, Request
from tidemill_wire.declarations import Subject
from tidemill_wire.fencing import Fence, Fenced, FenceRow, Passed
from tidemill_wire.replication import Appoint, Ends, Stood

IDENTITY = Identity("g1", "g1-0", 7, "a:7400", "a:7401", "f1", (("zone", "a"),))
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
        "labels": {"zone": "a"},
        "epoch": 0,
    },
)


def appointed(epoch: int, version: int, master: str = "g1-0") -> dict[str, Any]:
    return {
        "group": "g1", "epoch": epoch, "master": master, "replicas": ["g1-0", "g1-1"],
        "in_sync": ["g1-0"] if master else [], "version": version, "lease_ms": 0,
        "addresses": {"g1-0": "a:7400", "g1-1": "b:7400"},
    }  # fmt: skip


def beating(stood: Stood) -> BrokerAttendance:
    """Registered, and its heartbeat is under way."""
    attendance = BrokerAttendance(IDENTITY)
    attendance.beat(stood)
    attendance.answered(200, {})
    return attendance


def test_the_first_beat_registers_and_the_next_ones_do_not() -> None:
    attendance = BrokerAttendance(IDENTITY)

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
    attendance = beating(MASTER)
    attendance.answered(200, appointed(2, 5))
    attendance.answered(200, None)
    attendance.beat(MASTER)

    assert attendance.answered(200, appointed(epoch, version) | {"lease_ms": 4_000}) is None


def test_a_fenced_broker_is_appointed_with_its_lease() -> None:
    done = beating(replace(FENCED, at_ms=700)).answered(200, appointed(1, 1) | {"lease_ms": 5_000})

    assert isinstance(done, Appoint)
    assert (done.lease_ms, done.asked_ms) == (5_000, 700)


def test_a_master_that_hands_over_says_that_it_leads_no_more_and_does_nothing_else() -> None:
    attendance = beating(MASTER)
    beat = attendance.beat(replace(MASTER, role="leaving"))
    assert isinstance(beat, Request)
    assert (beat.path, beat.body["role"], beat.body["epoch"]) == ("/v1/brokers/heartbeat", "none", 2)

    assert attendance.answered(200, appointed(2, 5) | {"declared": 9}) is None


def test_a_master_that_is_asked_what_is_left_says_it_each_beat_until_it_is_asked_no_more() -> None:
    told: dict[str, Any] = {"declarations": [], "read_only": ["s"]}
    rows = [{"subject": "s", "left": 0, "kept": 3, "groups": ["g"]}]
    attendance = beating(MASTER)
    attendance.answered(200, appointed(2, 5) | {"declared": 7})
    obeyed = attendance.answered(200, told | {"revision": 7, "emptying": ["s"]})
    assert isinstance(obeyed, Told)
    assert obeyed.emptying == ("s",)

    due = attendance.answered(200, None)
    for _ in range(2):
        assert due == Inventory(("s",))
        said = attendance.answered(200, {"rows": rows})
        assert said == Request("/v1/brokers/emptying", {"group": "g1", "epoch": 2, "known": 7, "rows": rows})
        assert attendance.answered(200, {"noted": "g1"}) is None
        attendance.beat(MASTER)
        due = attendance.answered(200, appointed(2, 5) | {"declared": 7})

    attendance.beat(MASTER)
    attendance.answered(200, appointed(2, 5) | {"declared": 8})
    attendance.answered(200, told | {"revision": 8})
    assert attendance.answered(200, None) is None


def test_while_nobody_is_appointed_there_is_nothing_to_obey() -> None:
    assert beating(FENCED).answered(200, appointed(1, 1, master="")) is None


def test_a_master_wishes_behind_its_beat_at_the_version_that_it_stood_at() -> None:
    attendance = beating(replace(MASTER, wish=("g1-0", "g1-1")))
    assert attendance.answered(200, appointed(2, 5)) == Told()

    wish = attendance.answered(200, None)

    assert wish == Request(
        "/v1/groups/g1/in-sync", {"master": "g1-0", "epoch": 2, "version": 5, "in_sync": ["g1-0", "g1-1"]}
    )
    assert attendance.answered(200, appointed(2, 6)) is None


def test_who_is_not_registered_any_more_registers_with_the_next_beat() -> None:
    attendance = beating(MASTER)
    with pytest.raises(MetaRefused) as refused:
        attendance.answered(409, {"error": {"code": "not_registered", "detail": "no"}})

    assert refused.value.code == "not_registered"
    assert attendance.beat(MASTER) == replace(REGISTRATION, body={**REGISTRATION.body, "epoch": 2})


def test_a_registration_without_an_answer_is_made_again() -> None:
    attendance = BrokerAttendance(IDENTITY)
    attendance.beat(FENCED)

    assert attendance.beat(FENCED) == REGISTRATION


# -- how often, how busy -----------------------------------------------------------------------------------------


def test_meta_says_how_often_and_an_answer_is_waited_for_no_longer() -> None:
    attendance = beating(MASTER)
    assert attendance.beat_s == 1.0
    attendance.answered(200, {**appointed(2, 5), "beat_ms": 200})

    beat = attendance.beat(MASTER)

    assert isinstance(beat, Request)
    assert (attendance.beat_s, beat.patience_s) == (0.2, 0.2)


def test_two_metas_in_a_black_hole_leave_time_to_be_heard_by_the_third() -> None:
    beat = beating(MASTER).beat(MASTER)

    assert isinstance(beat, Request)
    assert 2 * beat.patience_s + BEAT_SECONDS < MetaSettings().liveness_ms / 1000


def test_a_heartbeat_says_how_busy_the_broker_is_and_what_its_disk_lets_it_take() -> None:
    attendance = BrokerAttendance(IDENTITY, Load(full_bytes=1000))
    attendance.beat(MASTER)
    attendance.answered(200, {})
    later = replace(MASTER, ends=Ends(80 + 60_000, 90), at_ms=60_000)

    beat = attendance.beat(later, "R")

    assert isinstance(beat, Request)
    assert beat.body["state"] == "R"
    assert beat.body["load"] == pytest.approx(1.0, abs=0.01)


# -- what people said at meta --------------------------------------------------------------------------------------

ORDERS = Subject.from_map(
    {
        "apiVersion": "tidemill.dev/v1alpha1",
        "kind": "Subject",
        "metadata": {"name": "orders"},
        "spec": {"config": [{"name": "durability", "value": "low"}]},
    }
)
DECLARED = {"revision": 9, "declarations": [ORDERS.to_map()], "read_only": ["bills"]}
NEWS = {**appointed(2, 5), "declared": 7, "state": "RW"}


def listening() -> BrokerAttendance:
    """A master that was told of news, and has asked for them."""
    attendance = beating(MASTER)
    asked = attendance.answered(200, NEWS)
    assert asked == Request("/v1/brokers/declared", {"group": "g1", "known": 0})
    return attendance


def test_a_master_asks_for_what_was_declared_and_does_so_once() -> None:
    attendance = listening()

    assert attendance.answered(200, DECLARED) == Told(9, "RW", frozenset({"bills"}), (ORDERS,))
    assert attendance.answered(200, {}) is None
    attendance.beat(MASTER)
    assert attendance.answered(200, NEWS) is None
    attendance.beat(MASTER)
    assert attendance.answered(200, {**NEWS, "declared": 10}) == Request(
        "/v1/brokers/declared", {"group": "g1", "known": 9}
    )


def test_what_could_not_be_done_is_asked_for_again() -> None:
    attendance = listening()
    attendance.answered(200, DECLARED)

    attendance.beat(MASTER)

    assert attendance.answered(200, NEWS) == Request("/v1/brokers/declared", {"group": "g1", "known": 0})


def test_a_master_hears_what_its_group_may_take_with_each_beat() -> None:
    attendance = listening()
    attendance.answered(200, DECLARED)
    attendance.answered(200, {})

    attendance.beat(MASTER)
    shut = attendance.answered(200, {**NEWS, "state": "R"})
    attendance.answered(200, {})
    attendance.beat(MASTER)

    assert shut == Told(9, "R", frozenset({"bills"}))
    assert attendance.answered(200, {**NEWS, "state": "R"}) is None


def test_what_was_removed_is_done_before_what_is_declared_and_said_once_the_group_keeps_it() -> None:
    """Meta lets nobody use the name again before: what a program sent then would be removed, too."""
    attendance = listening()
    told = attendance.answered(200, {**DECLARED, "removed": [["bills", 7], ["orders/billing", 8]]})
    assert isinstance(told, Told)
    assert told.removed == (Removal("bills", "", 7), Removal("orders", "billing", 8))
    attendance.answered(200, {})

    said: list[int | None] = []
    for committed in (Ends(0, 0), Ends(0, 499), Ends(0, 500)):
        beat = attendance.beat(replace(MASTER, ends=Ends(0, 500), committed=committed))
        assert isinstance(beat, Request)
        said.append(beat.body.get("told"))
        attendance.answered(200, NEWS)
    assert said == [None, None, 9]


def test_a_master_puts_fences_up_and_says_to_meta_what_came_of_it_once() -> None:
    attendance = listening()
    row = FenceRow("orders", 3, ((0, 512),))
    told = attendance.answered(200, DECLARED | {"fences": [["orders", 3, [0, 512]]]})
    assert isinstance(told, Told)
    assert told.fences == (row,)
    assert attendance.answered(200, None) == Fence([row])

    fenced = Fenced([("orders", 3)], [Passed("orders", "g", 3)])
    said = attendance.answered(200, fenced)

    body = {"group": "g1", "closed": [["orders", 3]], "passed": [["orders", "g", 3]]}
    assert said == Request("/v1/brokers/fenced", body)
    assert attendance.answered(200, {"noted": "g1"}) is None
    attendance.beat(MASTER)
    assert attendance.answered(200, NEWS) == Fence([row])
    assert attendance.answered(200, fenced) is None


def test_fences_of_a_subject_that_was_removed_are_not_put_up_again() -> None:
    """A fence makes the partition that it names: the subject would be there again, with what it refused before."""
    attendance = listening()
    rows = [["orders", 3, [0, 512]], ["orders#2", 3, []], ["bills", 4, []]]
    attendance.answered(200, DECLARED | {"fences": rows})
    bills = FenceRow("bills", 4, ())
    fenced = Fenced([("orders", 3), ("orders#2", 3), ("bills", 4)], [])
    assert isinstance(attendance.answered(200, None), Fence)
    assert isinstance(attendance.answered(200, fenced), Request)
    attendance.answered(200, {"noted": "g1"})

    attendance.beat(MASTER)
    attendance.answered(200, {**NEWS, "declared": 12})
    removed = [["orders", 7], ["bills/billing", 8]]
    told = attendance.answered(200, {**DECLARED, "revision": 12, "declarations": [], "removed": removed})
    assert isinstance(told, Told)
    assert attendance.answered(200, None) == Fence([bills])

    attendance.answered(200, Fenced([("bills", 4)], []))
    attendance.beat(MASTER)
    attendance.answered(200, {**NEWS, "declared": 15})
    again = {"removed": removed[:1], "fences": [["orders", 9, [0, 1024]]]}
    attendance.answered(200, {**DECLARED, "revision": 15, **again})
    assert attendance.answered(200, None) == Fence([FenceRow("orders", 9, ((0, 1024),))])


def test_a_fence_that_is_refused_holds_up_no_piece_behind_it_and_is_said_until_it_is_up() -> None:
    attendance = listening()
    rows = [[f"s{number:03}", 3, []] for number in range(150)]
    attendance.answered(200, DECLARED | {"fences": rows})
    first = attendance.answered(200, None)
    assert isinstance(first, Fence)
    assert len(first.rows) == 100

    assert isinstance(attendance.answered(200, Fenced([], [], "partition 's000': no")), Fence)
    rest = [(name, number) for name, number, _ in rows[100:]]
    assert isinstance(attendance.answered(200, Fenced(rest, [])), Request)
    assert attendance.answered(200, {"noted": "g1"}) == Unfenced("partition 's000': no")
    assert attendance.answered(200, None) is None

    attendance.beat(MASTER)
    attendance.answered(200, NEWS)
    attendance.answered(200, Fenced([(name, number) for name, number, _ in rows[:100]], []))
    assert attendance.answered(200, {"noted": "g1"}) == Fence([FenceRow(*row[:2], ()) for row in rows[100:]])
    assert attendance.answered(200, Fenced(rest, [])) == Unfenced("")


def test_what_meta_did_not_hear_of_a_fence_is_said_again() -> None:
    attendance = listening()
    attendance.answered(200, DECLARED | {"fences": [["orders", 3, []]]})
    attendance.answered(200, None)
    attendance.answered(200, Fenced([("orders", 3)], []))

    attendance.beat(MASTER)
    attendance.answered(200, NEWS)

    assert isinstance(attendance.answered(200, Fenced([("orders", 3)], [])), Request)


def test_a_slave_is_told_by_its_masters_log() -> None:
    assert beating(replace(MASTER, role="slave")).answered(200, NEWS) is None
