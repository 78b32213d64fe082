"""Steering a subject that has further partitions here: what is said of the subject holds in all of them."""

from __future__ import annotations

from typing import Any

import pytest

from samples.brokers import SUBJECT, Rig
from samples.graves import ROOMY
from tidemill_broker.graves import status_of_all
from tidemill_wire.commands import Command, Done, Grant, Nack, Pull, Pulled, Purge, Redrive
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.kinds import Place
from tidemill_wire.steering import Seek, Sought, Suspend

FURTHER = f"{SUBJECT}#1"
BOTH = (SUBJECT, FURTHER)


def take(rig: Rig, *subjects: str) -> list[Grant]:
    """All that the group is given now."""
    grants: list[Grant] = []
    while some := pull(rig, *subjects).grants:
        grants += some
    return grants


def pull(rig: Rig, *subjects: str) -> Pulled:
    answer = rig.ask(Pull("g", "c", list(subjects or BOTH), 100, 1 << 20, 0))
    if answer is None:
        answer = rig.answers.pop(rig.correlation)
    assert isinstance(answer, Pulled), answer
    return answer


def given(rig: Rig) -> set[tuple[str, int, int]]:
    """Partition, first sequence and count of it."""
    return {(grant.subject, grant.first_sequence, grant.count) for grant in take(rig)}


def reject_all(rig: Rig, *subjects: str) -> None:
    for grant in take(rig, *subjects):
        ranges = [grant.pull_sequence, grant.pull_sequence + grant.count - 1]
        rig.ask(Nack("g", "c", grant.subject, ranges, reason="no such customer", reject=True))


def count(rig: Rig, command: Command) -> int:
    answer = rig.ask(command)
    assert isinstance(answer, Done), answer
    return answer.count


def status(rig: Rig, subject: str = SUBJECT) -> dict[str, Any]:
    state = rig.broker.state
    groups = [state.group_of(one.name, "g") for one in rig.broker.intake.further.whole(subject)]
    return status_of_all(state, [one for one in groups if one is not None])


@pytest.fixture
def rig() -> Rig:
    """Two messages in a subject, three in its further partition; the group has been given all of them."""
    made = Rig(ROOMY)
    made.send(b"a", b"b")
    made.send(b"c", b"d", b"e", subject=FURTHER)
    return made


def test_a_seek_moves_the_group_in_all_partitions(rig: Rig) -> None:
    assert given(rig) == {(SUBJECT, 0, 2), (FURTHER, 0, 3)}
    sought = rig.ask(Seek("g", SUBJECT, Place.EARLIEST))

    assert sought == Sought(2, 0, again=5, skipped=0, in_flight=5, failed=0)
    assert given(rig) == {(SUBJECT, 0, 2), (FURTHER, 0, 3)}
    assert rig.ask(Seek("g", SUBJECT, Place.TIME, rig.now_ms + 1, rehearsal=True)) == Sought(2, 2, 0, 0, 5, 0)


def test_a_seek_of_one_partition_leaves_the_others(rig: Rig) -> None:
    take(rig)
    rig.ask(Seek("g", FURTHER, Place.SEQUENCE, 1))

    assert given(rig) == {(FURTHER, 1, 2)}


def test_a_group_is_suspended_and_resumed_in_all_partitions(rig: Rig) -> None:
    take(rig)
    rig.ask(Suspend("g", SUBJECT, True))
    rig.send(b"f")
    rig.send(b"g", subject=FURTHER)
    assert given(rig) == set()

    rig.ask(Suspend("g", SUBJECT, False))
    assert given(rig) == {(SUBJECT, 2, 1), (FURTHER, 3, 1)}


def test_a_group_that_is_only_in_a_further_partition_is_steered(rig: Rig) -> None:
    take(rig, FURTHER)

    assert rig.ask(Seek("g", SUBJECT, Place.LATEST)) == Sought(3, 3, 0, 0, 3, 0)
    assert rig.refused(Seek("nobody", SUBJECT, Place.LATEST)) == KIND_BY_NAME["not_found"].number


def test_dead_letters_of_all_partitions_are_counted_and_settled_together(rig: Rig) -> None:
    reject_all(rig)
    said = status(rig)

    assert (said["waiting"], [one["waiting"] for one in said["partitions"]]) == (5, [2, 3])
    assert [one["partition"] for one in said["partitions"]] == [SUBJECT, FURTHER]
    assert [(one["reason"], one["messages"]) for one in said["errors"]] == [("no such customer", 5)]
    assert count(rig, Redrive(FURTHER, "g", [0, 0])) == 1
    assert status(rig, FURTHER)["waiting"] == 2
    assert count(rig, Redrive(SUBJECT, "g", [])) == 4
    assert sum(grant.count for grant in take(rig)) == 5
    assert count(rig, Purge(SUBJECT, "g", [])) == 0
    assert status(rig)["waiting"] == 0


def test_a_purge_of_all_reaches_a_partition_that_alone_has_dead_letters(rig: Rig) -> None:
    reject_all(rig, FURTHER)

    assert count(rig, Purge(SUBJECT, "g", [])) == 3
