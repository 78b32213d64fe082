"""A partition that lost order keys takes none of them, and says which group is done with what lay there before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, batch_of, pulls
from samples.replicas import Group
from tidemill_broker.snapshots import pack_state, unpack_state
from tidemill_wire.columns import Content
from tidemill_wire.commands import Ack, Nack, Pull, Pulled, SendBatches, Sent
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.fencing import Fence, Fenced, FenceRow, Passed
from tidemill_wire.kinds import Mode
from tidemill_wire.ordering import logical_partition
from tidemill_wire.replication import Chunk
from tidemill_wire.routes import Ranges

OUTDATED = KIND_BY_NAME["route_outdated"].number
HALF: Ranges = ((0, 512),)
STAYS = next(key for key in map(str, range(100)) if logical_partition(key) < 512)
GONE = next(key for key in map(str, range(100)) if logical_partition(key) >= 512)


@pytest.fixture
def rig() -> Rig:
    return Rig(TINY)


def send(rig: Rig, *keys: str | None, sequence: int, priority: int = 0) -> Sent:
    content = Content([b"tide"] * len(keys), order_keys=list(keys))
    batch = batch_of(producer=5, sequence=sequence, content=content, priority=priority)
    answer = rig.ask(SendBatches(batch))
    assert isinstance(answer, Sent), answer
    return answer


def reasons(sent: Sent) -> list[int]:
    return [number for _, number, _ in sent.refused]


def fence(rig: Rig, number: int = 1, ranges: Ranges = HALF, name: str = SUBJECT) -> Fenced:
    answer = rig.ask(Fence([FenceRow(name, number, ranges)]))
    assert isinstance(answer, Fenced), answer
    return answer


def take(rig: Rig, messages: int = 100) -> Pulled:
    answer = rig.ask(Pull("g", "c", [SUBJECT], messages, 1 << 20, 100, mode=Mode.KEYED))
    if answer is None:  # the lock is on the disk first
        rig.wait(100)
        answer = rig.answers.pop(rig.correlation)
    assert isinstance(answer, Pulled), answer
    assert answer.grants
    return answer


def ack(rig: Rig, ranges: Sequence[int]) -> None:
    rig.ask(Ack("g", "c", SUBJECT, list(ranges)))


def test_a_key_that_went_elsewhere_is_refused_and_one_that_stayed_is_taken(rig: Rig) -> None:
    assert fence(rig).closed == [(SUBJECT, 1)]

    assert reasons(send(rig, GONE, sequence=1)) == [OUTDATED]
    assert reasons(send(rig, STAYS, GONE, sequence=2)) == [OUTDATED]
    assert reasons(send(rig, STAYS, None, sequence=3)) == []
    assert reasons(send(rig, GONE, sequence=4, priority=3)) == [OUTDATED]


def test_what_was_taken_before_the_fence_is_answered_again_and_not_refused(rig: Rig) -> None:
    first = send(rig, GONE, sequence=1)
    fence(rig)

    assert send(rig, GONE, sequence=1) == first


def test_a_fence_of_an_earlier_number_changes_nothing(rig: Rig) -> None:
    fence(rig, 4)

    assert fence(rig, 3, ((0, 1024),)).closed == [(SUBJECT, 4)]

    assert reasons(send(rig, GONE, sequence=1)) == [OUTDATED]


def test_a_later_fence_may_let_keys_in_again(rig: Rig) -> None:
    fence(rig, 1)
    fence(rig, 2, ((0, 1024),))

    assert reasons(send(rig, GONE, sequence=1)) == []


def test_a_fence_is_there_after_a_power_cut_as_soon_as_it_was_answered(rig: Rig) -> None:
    send(rig, STAYS, sequence=1)
    fence(rig)

    rig.power_cut()

    assert reasons(send(rig, GONE, sequence=2)) == [OUTDATED]
    assert fence(rig).closed == [(SUBJECT, 1)]


def test_a_checkpoint_has_the_fences(rig: Rig) -> None:
    send(rig, GONE, sequence=1)
    fence(rig, 3)

    state, _, _ = unpack_state(pack_state(rig.broker.state, 0, 0))

    assert state.fences.to_list() == rig.broker.state.fences.to_list()
    assert state.fences.number(state.by_name[SUBJECT.encode()]) == 3


def test_a_fence_makes_a_partition_that_is_not_there_yet(rig: Rig) -> None:
    rig.broker.intake.create_subjects = False

    assert fence(rig, name="never#2").closed == [("never#2", 1)]


def test_a_group_has_passed_when_all_before_the_fence_is_settled(rig: Rig) -> None:
    send(rig, GONE, sequence=1)
    send(rig, STAYS, sequence=2)
    first, last = pulls(take(rig))
    fence(rig)
    send(rig, STAYS, sequence=3)
    assert fence(rig).passed == []
    ack(rig, [first, first])
    assert fence(rig).passed == []

    ack(rig, [last, last])

    assert fence(rig).passed == [Passed(SUBJECT, "g", 1)]


def test_what_failed_before_the_fence_is_not_passed(rig: Rig) -> None:
    send(rig, GONE, sequence=1)
    given = pulls(take(rig))
    rig.ask(Nack("g", "c", SUBJECT, given, 60_000))

    assert fence(rig).passed == []


def test_what_lies_in_a_lane_counts(rig: Rig) -> None:
    send(rig, GONE, sequence=1)
    send(rig, GONE, sequence=1, priority=3)
    high = take(rig)
    fence(rig)
    low = take(rig)
    rig.ask(Ack("g", "c", high.grants[0].subject, pulls(high)))
    assert fence(rig).passed == []

    rig.ask(Ack("g", "c", low.grants[0].subject, pulls(low)))

    assert fence(rig).passed == [Passed(SUBJECT, "g", 1)]


def test_a_group_that_never_came_has_passed_nothing_and_a_later_fence_is_passed_later(rig: Rig) -> None:
    send(rig, GONE, sequence=1)
    assert fence(rig, 1).passed == []
    given = pulls(take(rig))
    send(rig, STAYS, sequence=2)
    fence(rig, 2)
    ack(rig, given)
    assert fence(rig, 2).passed == [Passed(SUBJECT, "g", 1)]

    ack(rig, pulls(take(rig)))

    assert fence(rig, 2).passed == [Passed(SUBJECT, "g", 2)]


def keyed(key: str, number: int) -> SendBatches:
    content = Content([b"tide"], order_keys=[key])
    return SendBatches(batch_of(producer=5, sequence=number, content=content))


def test_a_fence_that_cannot_be_put_up_stops_none_that_is_behind_it() -> None:
    rig = Rig(replace(TINY, subjects_max=1))
    send(rig, GONE, sequence=0)
    rows = [FenceRow("other", 3, HALF), FenceRow(SUBJECT, 2, HALF), FenceRow("one.more", 3, HALF)]

    fenced = rig.ask(Fence(rows))

    assert isinstance(fenced, Fenced)
    assert (fenced.closed, fenced.passed) == ([(SUBJECT, 2)], [])
    assert fenced.refused.startswith("partition 'other': this broker has 1 subject")
    assert reasons(send(rig, GONE, sequence=1)) == [OUTDATED]


def test_a_fence_is_answered_when_the_slave_has_it_and_stands_after_a_failover() -> None:
    group = Group("a", "b")
    group.appoint(1, "a", ["a", "b"])
    group.passes = lambda _target, command: not isinstance(command, Chunk)
    asked = group["a"].say(Fence([FenceRow(SUBJECT, 1, HALF)]))
    group.run()
    assert asked not in group["a"].answers
    group.passes = lambda _target, _command: True
    group.run()
    assert group["a"].answers[asked] == Fenced([(SUBJECT, 1)], [])

    group.cut.add("a")
    group.restart("a")
    group.appoint(2, "b", ["b"], to="b")

    sent = group["b"].ask(keyed(GONE, 1))
    assert isinstance(sent, Sent)
    assert reasons(sent) == [OUTDATED]
    assert group["b"].ask(Fence([FenceRow(SUBJECT, 1, HALF)])) == Fenced([(SUBJECT, 1)], [])


def test_a_fence_that_no_slave_has_was_not_answered_and_neither_was_what_lay_before() -> None:
    """Its successor closes behind what it has, when it is told."""
    group = Group("a", "b")
    group.appoint(1, "a", ["a", "b"])
    group.passes = lambda _target, command: not isinstance(command, Chunk)
    sent = group["a"].say(keyed(GONE, 1))
    asked = group["a"].say(Fence([FenceRow(SUBJECT, 1, HALF)]))
    group.run()
    assert not {sent, asked} & group["a"].answers.keys()

    group.cut.add("a")
    group.restart("a")
    group.passes = lambda _target, _command: True
    group.appoint(2, "b", ["b"], to="b")
    assert group["b"].sent_at(group["b"].say(keyed(GONE, 1))) == [0]
    assert group["b"].ask(Fence([FenceRow(SUBJECT, 1, HALF)])) == Fenced([(SUBJECT, 1)], [])

    [row] = group["b"].broker.state.fences.to_list()
    assert row[3][-1][1][1] == 1
