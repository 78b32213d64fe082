"""A commit is copies in one log and an action in the other: whatever a power cut leaves, it is done once or not."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from samples.brokers import SUBJECT, TINY, Rig, copy_of, files_of, put_file, read_file
from samples.halves import FIRST, commit, done, given, half_of, rollback
from sim.disk import SimDisk
from tidemill_broker.transaction_actions import Why
from tidemill_ledger.scanning import RecordScanner
from tidemill_wire.batch import read_header
from tidemill_wire.columns import Batch

OTHER = "order.paid"
WIDE = replace(TINY, segment_bytes=1 << 20, action_segment_bytes=1 << 20, lease_ms=600_000)
MESSAGES, ACTIONS = (f"{folder}/{0:020}.log" for folder in ("message", "action"))


def batch_ends(disk: SimDisk) -> list[int]:
    log, at, ends = read_file(disk, MESSAGES), 0, [0]
    while at < len(log):
        at += read_header(log, at).length
        ends.append(at)
    return ends


def record_ends(disk: SimDisk) -> list[int]:
    data = read_file(disk, ACTIONS)
    return [
        one.position + one.length for one in RecordScanner(lambda at, n: data[at : at + n], 0, len(data), 0)
    ]


def sizes(rig: Rig) -> tuple[int, int]:
    return len(read_file(rig.disk, MESSAGES)), len(read_file(rig.disk, ACTIONS))


def committed() -> tuple[SimDisk, tuple[int, int], tuple[int, int]]:
    """A disk, and how long its logs were when the producer was told that its half messages are kept, and at the end."""
    rig = Rig(WIDE)
    rig.send(b"before")
    for index, subject in enumerate((SUBJECT, OTHER, SUBJECT)):
        done(rig, half_of(b"half %d" % index, index=index, subject=subject))
    kept = sizes(rig)
    done(rig, commit())
    rig.send(b"behind")
    rig.disk.kill()
    return rig.disk, kept, sizes(rig)


def cut(disk: SimDisk, messages: int, actions: int) -> Rig:
    other = copy_of(disk)
    for file, size in ((MESSAGES, messages), (ACTIONS, actions)):
        put_file(other, file, read_file(other, file)[:size])
    return Rig(WIDE, other)


def copies(rig: Rig) -> list[bytes]:
    """Of the transaction, as they lie in the log."""
    log, at, found = read_file(rig.disk, MESSAGES), 0, list[bytes]()
    while at < len(log):
        header = read_header(log, at)
        if header.producer_id == FIRST:
            found += Batch(log[at : at + header.length]).bodies()
        at += header.length
    return found


ALL = [b"half 0", b"half 1", b"half 2"]


def check_life(rig: Rig) -> None:
    """Committed with everything, or pending with nothing; and so it stays."""
    rig.wait(1)
    there = copies(rig)
    if there:
        assert sorted(there) == ALL
        assert done(rig, commit()) > 0
    else:
        assert FIRST in rig.broker.state.transactions.pending
        assert given(rig, subject=OTHER) == []
        rig.restart()
        assert done(rig, commit()) == 3
    rig.restart()
    assert done(rig, commit()) > 0
    rig.power_cut()
    rig.wait(1)
    assert sorted(copies(rig)) == ALL
    assert given(rig, subject=OTHER, group="late") == [b"half 1"]
    seen = given(rig, group="late")
    assert [body for body in seen if body in ALL] == [b"half 0", b"half 2"]


DISK, KEPT, END = committed()
CUTS = [
    pair
    for pair in product(batch_ends(DISK), record_ends(DISK))
    if all(one >= least for one, least in zip(pair, KEPT, strict=True))
]


def why(rig: Rig) -> int:
    """It was rolled back."""
    decision = rig.broker.state.transactions.decision(FIRST)
    assert decision is not None
    return decision.why


@pytest.mark.parametrize(("messages", "actions"), CUTS)
def test_commit_is_done_once_or_not_at_all_wherever_both_logs_end(messages: int, actions: int) -> None:
    check_life(cut(DISK, messages, actions))


def test_all_ways_to_cut_are_tried() -> None:
    assert len(CUTS) == 5 * 2, "four batches, and one action"


@pytest.mark.parametrize(("messages", "actions"), CUTS)
def test_what_a_start_found_half_done_may_be_cut_again(messages: int, actions: int) -> None:
    rig = cut(DISK, messages, actions)
    before = sizes(rig)
    rig.wait(1)
    rig.disk.kill()
    again = [
        pair
        for pair in product(batch_ends(rig.disk), record_ends(rig.disk))
        if all(one >= least for one, least in zip(pair, before, strict=True))
    ]
    for pair in again:
        check_life(cut(rig.disk, *pair))


def test_start_that_finishes_a_commit_needs_nobody_to_ask_for_it() -> None:
    """One copy is there, and two are not."""
    first = KEPT[0] + read_header(read_file(DISK, MESSAGES), KEPT[0]).length
    rig = cut(DISK, first, KEPT[1])
    rig.wait(1)

    assert sorted(copies(rig)) == ALL
    assert rig.broker.state.transactions.pending == {}


def test_start_that_cannot_finish_a_commit_tries_again_later() -> None:
    first = KEPT[0] + read_header(read_file(DISK, MESSAGES), KEPT[0]).length
    other = copy_of(DISK)
    for file, size in ((MESSAGES, first), (ACTIONS, KEPT[1])):
        put_file(other, file, read_file(other, file)[:size])
    rig = Rig(replace(WIDE, free_space_min_percent=5), other)
    from tidemill_wire.errors import Unavailable

    rig.broker.intake.refusal = Unavailable("disk_full", "the disk has 1 % free")
    rig.wait(1)
    assert len(copies(rig)) == 1
    assert rig.broker.state.transactions.committing == {FIRST}
    rig.broker.intake.refusal = None
    rig.wait(30_000)

    assert sorted(copies(rig)) == ALL


def test_rollback_that_was_not_kept_leaves_the_transaction_pending() -> None:
    rig = Rig(WIDE)
    done(rig, half_of(b"half"))
    kept = sizes(rig)
    done(rig, rollback())
    rig.disk.kill()
    rig = cut(rig.disk, *kept)

    assert FIRST in rig.broker.state.transactions.pending


def test_transaction_whose_half_message_was_never_kept_is_rolled_back() -> None:
    """Its producer was not answered: the action came to the disk, and the half message did not."""
    rig = Rig(WIDE)
    done(rig, half_of(b"first"))
    before = sizes(rig)[0]
    done(rig, half_of(b"second", index=1))
    rig.disk.kill()
    rig = cut(rig.disk, before, sizes(rig)[1])

    assert why(rig) == Why.LOST
    rig.restart()
    assert why(rig) == Why.LOST


def test_half_message_whose_action_was_not_kept_is_nothing() -> None:
    rig = Rig(WIDE)
    rig.send(b"before")
    before = sizes(rig)[1]
    done(rig, half_of(b"half"))
    rig.disk.kill()
    rig = cut(rig.disk, sizes(rig)[0], before)

    assert rig.broker.state.transactions.pending == {}
    assert given(rig) == [b"before"]
    done(rig, half_of(b"half"))
    assert done(rig, commit()) == 1
    assert given(rig) == [b"half"]


def test_commit_whose_copies_retention_took_is_believed() -> None:
    """No checkpoint that can be read has the commit, and the copies are gone with their segment."""
    rig = Rig(replace(TINY, retention_seconds=1, retention_interval_ms=1000))
    done(rig, half_of(b"x"))
    assert done(rig, commit()) == 1
    rig.fill(20)
    rig.wait(10_000)
    assert rig.broker.logs.messages.start > 0
    for file in files_of(rig.disk, "checkpoint"):
        put_file(rig.disk, file, b"torn")
    rig.power_cut()

    assert rig.broker.state.transactions.committing == set()
    assert done(rig, commit()) == 1
    assert b"x" not in given(rig, group="late")
