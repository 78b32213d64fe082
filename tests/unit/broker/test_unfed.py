"""A slave is to be sent what its master's disk refuses: told which bytes, once, and fed again when they are back."""

from __future__ import annotations

import pytest

from samples.replicas import Group
from tidemill_host.machine import Slice, Unread
from tidemill_ledger.replication import Master
from tidemill_ledger.unfed import AGAIN_MS, Unfed
from tidemill_wire.commands import Command, Failed
from tidemill_wire.errors import KIND_BY_NAME, Unavailable

FILE = f"message/{0:020}.log"
UNREAD = Unread(Slice(FILE, 0, 9), "Input/output error")


def unfed_group() -> tuple[Group, list[Failed]]:
    """Slave ``b`` lacks what master ``a`` cannot read; what it is told, after which it stays away until a test says."""
    group, told = Group("a", "b"), list[Failed]()

    def note(target: str, command: Command) -> bool:
        if target == "b" and isinstance(command, Failed):
            told.append(command)
            group.cut.add("b")
        return True

    group.passes = note
    group.cut.add("b")
    group.appoint(1, "a", ["a"])
    for number in range(3):
        group["a"].send(b"tide", number=number + 1)
    group["a"].disk.refuse(FILE, 100)
    group.cut.clear()
    group.run()
    return group, told


def reads(group: Group) -> int:
    return group["a"].disk.probes["refused_read"]


def test_slave_is_told_which_bytes_its_master_cannot_read() -> None:
    group, told = unfed_group()
    master = group["a"].machine
    assert isinstance(master, Master)

    assert [one.number for one in told] == [KIND_BY_NAME["read_failed"].number]
    assert f"of {FILE} cannot be read (Input/output error)" in told[0].detail
    assert not master.feeds
    assert master.unfed.count(group["a"].now_ms) == 1


def test_slave_that_comes_again_is_told_the_same_without_a_look_at_the_disk() -> None:
    group, told = unfed_group()
    before = reads(group)
    for _ in range(3):
        group.cut.clear()
        group.run()

    assert told == [told[0]] * 4
    assert reads(group) == before


def test_slave_is_fed_when_the_bytes_are_back_and_it_asks_later() -> None:
    group, told = unfed_group()
    group["a"].disk.refused.clear()
    for replica in group.replicas.values():
        replica.now_ms += AGAIN_MS
    group.cut.clear()
    group.run()

    assert len(told) == 1
    assert group["b"].log("message") == group["a"].log("message")


def test_master_goes_on_for_its_clients() -> None:
    group, _ = unfed_group()
    number = group["a"].send(b"more", number=4)
    group.run()

    assert group["a"].sent_at(number) == [3]


def test_what_is_told_is_told_of_that_slave_and_for_a_while() -> None:
    unfed = Unfed()
    error = unfed.note("b", UNREAD, 1_000)

    unfed.check("c", 1_000)
    with pytest.raises(Unavailable) as caught:
        unfed.check("b", 1_000 + AGAIN_MS - 1)
    assert caught.value.detail == error.detail
    unfed.check("b", 1_000 + AGAIN_MS)
    assert unfed.count(1_000) == 0
