"""What a master was told to make and cannot yet is owed: it holds up nothing, and meta has the last word about it."""

from __future__ import annotations

from typing import Any

from tidemill_broker.attendance import BrokerAttendance
from tidemill_broker.gate import Inventory, Told, Unmade
from tidemill_ledger.attendance import Identity
from tidemill_wire.asking import Request
from tidemill_wire.declarations import ConsumerGroup, Subject
from tidemill_wire.errors import Unavailable
from tidemill_wire.fencing import Fence
from tidemill_wire.replication import Ends, Stood

MASTER = Stood("g1-0", "master", 2, 5, 2, Ends(80, 90), Ends(80, 90), "g1-0")


def subject(name: str, **spec: Any) -> Subject:
    return Subject.from_map(
        {"apiVersion": "tidemill.dev/v1alpha1", "kind": "Subject", "metadata": {"name": name}, "spec": spec}
    )


ORDERS = subject("orders", config=[{"name": "durability", "value": "low"}])
BILLS = subject("bills")
BILLING = ConsumerGroup.from_map(
    {
        "apiVersion": "tidemill.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": "billing"},
        "spec": {"subjectName": "bills"},
    }
)
FULL = Unavailable("disk_full", "less than 5 % of the broker's disk is free")


def registered() -> BrokerAttendance:
    attendance = BrokerAttendance(Identity("g1", "g1-0", 7, "a:7400", "a:7401"))
    attendance.beat(MASTER)
    attendance.answered(200, {})
    return attendance


def heard(attendance: BrokerAttendance, answer: Any = None, **declared: Any) -> Told | None:
    """What the service is told in a beat, and answers; meta has declared so much by then."""
    attendance.beat(MASTER)
    due = attendance.answered(200, {"epoch": 2, "declared": declared.get("revision", 0)})
    if isinstance(due, Request):
        assert due.path == "/v1/brokers/declared"
        due = attendance.answered(200, {"declarations": [], "read_only": [], **declared})
    if due is not None:
        attendance.answered(200, answer)
    assert due is None or isinstance(due, Told)
    return due


def test_what_cannot_be_made_ends_no_beat_and_is_tried_again_until_it_can() -> None:
    """Removal if empty may free the disk that is full. Of who vanished nothing is said twice: who is named by mistake
    would lose its leases second by second.
    """
    attendance = registered()
    attendance.answered(200, {"epoch": 2, "declared": 9})
    declared = {"revision": 9, "declarations": [ORDERS.to_map()], "read_only": ["bills"]}
    more = {"emptying": ["bills"], "fences": [["orders", 3, [0, 512]]], "vanished": ["pod-1234"]}
    first = attendance.answered(200, {**declared, **more})
    assert isinstance(first, Told)
    assert (first.declared, first.vanished) == ((ORDERS,), ("pod-1234",))

    unmade = Unmade((ORDERS,), FULL)
    due = attendance.answered(200, unmade)
    for _ in range(2):
        assert due == Inventory(("bills",))
        said = attendance.answered(200, {"rows": []})
        assert isinstance(said, Request)
        assert (said.path, said.body["known"]) == ("/v1/brokers/emptying", 9)
        assert isinstance(attendance.answered(200, {}), Fence)
        attendance.beat(MASTER)
        again = attendance.answered(200, {"epoch": 2, "declared": 9})
        assert isinstance(again, Told)
        assert again == Told(9, "RW", frozenset({"bills"}), (ORDERS,), emptying=("bills",))
        due = attendance.answered(200, unmade)

    attendance.beat(MASTER)
    attendance.answered(200, {"epoch": 2, "declared": 9})
    assert attendance.answered(200, None) == Inventory(("bills",))
    attendance.beat(MASTER)
    assert attendance.answered(200, {"epoch": 2, "declared": 9}) == Inventory(("bills",)), "it is made"


def test_what_is_owed_is_as_it_was_declared_last_and_what_is_removed_is_owed_no_more() -> None:
    attendance = registered()
    declared = [BILLING.to_map(), ORDERS.to_map(), BILLS.to_map()]
    told = heard(attendance, Unmade((ORDERS, BILLS, BILLING), FULL), revision=3, declarations=declared)
    assert told is not None
    assert told.declared == (ORDERS, BILLS, BILLING)

    changed = subject("orders")
    told = heard(
        attendance,
        Unmade((changed, BILLS), FULL),
        revision=4,
        declarations=[changed.to_map()],
        removed=[["bills/billing", 4]],
    )
    assert told is not None
    assert told.declared == (changed, BILLS)
    assert heard(attendance, Unmade((changed, BILLS), FULL)) == Told(4, declared=(changed, BILLS))

    told = heard(attendance, revision=5, declarations=[BILLING.to_map()], removed=[["bills", 5]])
    assert told is not None
    assert told.declared == (changed, BILLING)
    assert heard(attendance) is None
