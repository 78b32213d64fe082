"""A master that is in sync alone heeds the lease that meta gives it, and nobody else needs one."""

from __future__ import annotations

from dataclasses import replace

from samples.batches import CREATED_MS
from samples.replicas import NOW_MS, Group, Replica
from tidemill_ledger.lone_lease import LoneLease
from tidemill_wire.appointments import Appointment
from tidemill_wire.commands import Command, Done, Failed, Ping
from tidemill_wire.errors import KIND_BY_NUMBER
from tidemill_wire.replication import Appoint

LEASE_MS = 5_000
ALONE = Appointment("g0", 1, "a", ("a", "b"), ("a",), 3)


def lone_master(*replicas: str) -> Replica:
    """Of these replicas, in sync alone."""
    group = Group("a", *replicas)
    group.appoint(1, "a", ["a"])
    return group["a"]


def prolong(master: Replica, lease_ms: int = LEASE_MS, asked_ms: int | None = None) -> Command | None:
    """What the answer to a heartbeat says again."""
    known = master.machine.part.appoint  # type: ignore[union-attr]
    assert known is not None
    asked = master.stand().at_ms if asked_ms is None else asked_ms
    return master.ask(replace(known, lease_ms=lease_ms, asked_ms=asked))


def refused(master: Replica, number: int) -> str:
    answer = master.answers.get(number)
    assert isinstance(answer, Failed), answer
    return KIND_BY_NUMBER[answer.number].name


def test_a_master_takes_no_writes_when_its_lease_is_over_and_goes_on_with_the_next() -> None:
    master = lone_master("b")
    assert isinstance(prolong(master), Done)
    master.tick(LEASE_MS - 1)
    assert master.sent_at(master.send(b"one", number=1)) == [0]

    master.tick(1)
    assert refused(master, master.send(b"two", number=2)) == "not_master"
    assert isinstance(master.ask(Ping()), Done)

    prolong(master)
    assert master.sent_at(master.send(b"two", number=2)) == [1]


def test_what_was_under_way_when_the_lease_ended_is_answered_under_the_next_one() -> None:
    master = lone_master("b")
    prolong(master)
    master.holds_syncs = True
    number = master.send(b"tide", number=1)
    master.tick(LEASE_MS)

    master.holds_syncs = False
    master.sync()
    master.pump()
    assert master.sent_at(number) is None
    assert master.broker.state.by_name[b"order.created"].visible == 0

    prolong(master)
    assert master.sent_at(number) == [0]


def test_a_lease_counts_from_when_the_heartbeat_was_sent() -> None:
    master = lone_master("b")
    asked_ms = master.stand().at_ms
    assert asked_ms == NOW_MS > CREATED_MS
    master.tick(3_000)  # the answer took so long

    prolong(master, asked_ms=asked_ms)
    master.tick(2_000)

    assert refused(master, master.send(b"one", number=1)) == "not_master"


def test_an_answer_that_was_overtaken_shortens_no_lease() -> None:
    lease = LoneLease(Appoint(ALONE, {}, 5_000, 1_000))
    lease.told(Appoint(ALONE, {}, 5_000, 3_000))
    lease.told(Appoint(ALONE, {}, 5_000, 2_000))

    assert not lease.is_over(ALONE, 7_999)
    assert lease.is_over(ALONE, 8_000)


def test_a_master_that_was_never_told_of_a_lease_needs_none() -> None:
    master = lone_master("b")
    master.tick(100 * LEASE_MS)

    assert master.sent_at(master.send(b"one", number=1)) == [0]


def test_a_group_of_one_needs_no_lease_for_nobody_else_can_be_elected() -> None:
    master = lone_master()
    prolong(master)
    master.tick(100 * LEASE_MS)

    assert master.sent_at(master.send(b"one", number=1)) == [0]


def test_with_others_in_sync_no_lease_is_needed() -> None:
    lease = LoneLease(Appoint(ALONE, {}, 5_000, 1_000))

    assert not lease.is_over(replace(ALONE, in_sync=("a", "b")), 100_000)
    assert lease.is_over(ALONE, 100_000)


def test_a_master_can_begin_with_a_lease() -> None:
    replica = Replica("a")
    asked_ms = replica.stand().at_ms
    replica.ask(Appoint(replace(ALONE, version=0), {"b": "b:1"}, LEASE_MS, asked_ms))
    assert replica.turned is not None

    assert replica.turned.appoint.lease_ms == LEASE_MS
    assert replica.turned.appoint.asked_ms == asked_ms


def test_a_halted_master_wakes_no_more_often_than_it_beats() -> None:
    """What is due is not done; a machine that asked to be woken for it would keep a core busy."""
    master = lone_master("b")
    prolong(master)
    master.tick(LEASE_MS)
    master.tick(60_000)

    wake_at_ms = master.machine.ready().wake_at_ms
    assert wake_at_ms is not None
    assert wake_at_ms > master.now_ms
