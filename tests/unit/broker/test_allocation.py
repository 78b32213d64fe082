"""Partitions that meta allocates: later versions count, earlier ones are refused, and locks are given up by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, pulls, spans
from tidemill_wire.commands import (
    Ack,
    Command,
    Done,
    Extend,
    Failed,
    Goodbye,
    Nack,
    Pull,
    Pulled,
    Release,
    Yield,
)
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.kinds import Mode

WAIT_MS = 5000
GONE_MS = 10_000
SETTINGS = replace(TINY, lease_ms=60_000, consumer_gone_ms=GONE_MS, segment_bytes=1 << 20)
OUTDATED = KIND_BY_NAME["allocation_outdated"].number
FIRST, SECOND = SUBJECT, f"{SUBJECT}#1"


def pull(
    consumer: str,
    allocation: int,
    messages: int = 100,
    *,
    wait_ms: int = WAIT_MS,
    subjects: tuple[str, ...] = (FIRST,),
) -> Pull:
    return Pull(
        "g", consumer, subjects, messages, 1 << 20, wait_ms, mode=Mode.EXCLUSIVE, allocation=allocation
    )


def sequences(pulled: Command | None) -> list[int]:
    assert isinstance(pulled, Pulled), pulled
    return [one.first_sequence + index for one in pulled.grants for index in range(one.count)]


@pytest.fixture
def rig() -> Rig:
    """Ten messages, two connections, and a broker that has been there for a while."""
    made = Rig(SETTINGS)
    made.connect()
    made.wait(GONE_MS)
    made.fill(10)
    return made


@pytest.fixture
def held(rig: Rig) -> list[int]:
    """What ``a`` holds over the first connection, by version 3."""
    return pulls(rig.ask(pull("a", 3, 3)))  # type: ignore[arg-type]


@pytest.fixture
def waiting(rig: Rig, held: list[int]) -> int:
    """``b`` was allocated the partition by version 4, and waits over the second connection."""
    assert rig.ask(pull("b", 4, wait_ms=60_000), peer=2) is None
    return rig.correlation


def test_consumer_of_an_earlier_version_is_given_nothing(rig: Rig, waiting: int) -> None:
    answer = rig.ask(pull("a", 3, 3))

    assert isinstance(answer, Failed)
    assert answer.number == OUTDATED
    assert answer.detail == (
        "partition 'order.created' of group 'g' went to 'b' by version 4 of the allocation, and 'a' names version 3"
    )


@pytest.mark.parametrize("version", [0, 1, 3])
def test_another_consumer_of_the_same_or_no_version_is_refused(
    rig: Rig, held: list[int], version: int
) -> None:
    assert rig.refused(pull("b", version), 2) == OUTDATED


def test_each_subject_of_a_pull_is_held_to_its_own_allocation(rig: Rig) -> None:
    """The least of their versions would be outdated for the one, the greatest would shut out whom the other goes to."""
    other = "order.paid"
    rig.fill(1, other)
    both = pull("a", 3, subjects=(SUBJECT, other))
    assert isinstance(rig.ask(replace(both, allocations=(7, 3))), Pulled)

    again = rig.ask(replace(both, allocations=(7, 3), wait_ms=0))
    next_one = rig.ask(replace(pull("b", 4, subjects=(other,)), wait_ms=0), 2)
    answer = rig.ask(replace(both, allocations=(7, 3)))

    assert isinstance(again, Pulled)
    assert isinstance(next_one, Pulled)
    assert isinstance(answer, Failed)
    assert (answer.number, "'order.paid'" in answer.detail) == (OUTDATED, True)


def test_what_is_held_by_an_earlier_version_can_be_settled(rig: Rig, held: list[int], waiting: int) -> None:
    assert rig.ask(Extend("g", "a", SUBJECT, held)) == Done([])
    assert rig.ask(Ack("g", "a", SUBJECT, held)) == Done([])

    assert sequences(rig.answers[waiting]) == list(range(3, 10))


def test_next_one_begins_when_the_last_message_is_settled_and_not_before(
    rig: Rig, held: list[int], waiting: int
) -> None:
    """The lock's time is not over, but its owner cannot use it any more."""
    first, last = held
    rig.ask(Ack("g", "a", SUBJECT, [first, last - 1]))
    assert waiting not in rig.answers

    rig.ask(Ack("g", "a", SUBJECT, [last, last]))

    assert sequences(rig.answers[waiting]) == list(range(3, 10))


def test_pull_that_waits_is_given_nothing_once_its_version_is_over(rig: Rig) -> None:
    rig.ask(Ack("g", "a", SUBJECT, pulls(rig.ask(pull("a", 3)))))  # type: ignore[arg-type]
    assert rig.ask(pull("a", 3, wait_ms=60_000)) is None
    of_a = rig.correlation
    assert rig.ask(pull("b", 4, wait_ms=60_000), peer=2) is None
    of_b = rig.correlation

    rig.fill(1)

    assert of_a not in rig.answers
    assert sequences(rig.answers[of_b]) == [10]


def test_same_consumer_goes_on_by_a_later_version(rig: Rig, held: list[int]) -> None:
    assert sequences(rig.ask(pull("a", 9, 3))) == [3, 4, 5]
    assert rig.refused(pull("a", 8)) == OUTDATED


def test_dead_consumer_keeps_the_next_one_out_as_long_as_its_leases_run(rig: Rig, waiting: int) -> None:
    rig.wait(GONE_MS - 1)
    assert waiting not in rig.answers
    rig.wait(1)

    assert sequences(rig.answers[waiting]) == list(range(10))


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_versions_are_known_after_a_restart(rig: Rig, waiting: int, with_checkpoint: bool) -> None:
    if with_checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.restart()

    assert rig.refused(pull("a", 3)) == OUTDATED


def test_version_is_on_the_disk_before_its_first_message_leaves(rig: Rig) -> None:
    assert sequences(rig.ask(pull("b", 4, 1), peer=2)) == [0]

    rig.power_cut()

    assert rig.refused(pull("a", 3)) == OUTDATED


def test_version_is_known_when_the_consumer_was_forgotten(rig: Rig, held: list[int]) -> None:
    rig.ask(Ack("g", "a", SUBJECT, held))
    rig.ask(Goodbye("done"))
    rig.disconnect(rig.peers[0])
    rig.wait(GONE_MS)
    peer = rig.connect()

    assert rig.refused(pull("b", 3), 2) == OUTDATED
    assert sequences(rig.ask(pull("a", 3, 1), peer)) == [3]


# -- giving up -------------------------------------------------------------------------------------------------


def test_yield_of_a_lone_lock_lets_the_next_one_begin(rig: Rig) -> None:
    """Without meta there are no versions, and YIELD says the same."""
    rig.ask(Ack("g", "a", SUBJECT, pulls(rig.ask(pull("a", 0, 3)))))  # type: ignore[arg-type]
    assert rig.ask(pull("b", 0, wait_ms=60_000), peer=2) is None
    waiting = rig.correlation

    assert rig.ask(Yield("g", "a", [SUBJECT])) == Done([])

    assert sequences(rig.answers[waiting]) == list(range(3, 10))


def test_yield_ends_the_pulls_that_wait(rig: Rig) -> None:
    rig.ask(Ack("g", "a", SUBJECT, pulls(rig.ask(pull("a", 3)))))  # type: ignore[arg-type]
    assert rig.ask(pull("a", 3, wait_ms=60_000)) is None
    waiting = rig.correlation

    rig.ask(Yield("g", "a", [SUBJECT]))

    assert sequences(rig.answers[waiting]) == []
    rig.fill(1)
    assert rig.broker.state.groups[1].owner == 0


def test_yield_counts_what_is_held_and_others_wait_for_it(rig: Rig) -> None:
    held = pulls(rig.ask(pull("a", 0, 3)))  # type: ignore[arg-type]
    assert rig.ask(pull("b", 0, wait_ms=60_000), peer=2) is None
    waiting = rig.correlation

    assert rig.ask(Yield("g", "a", [SUBJECT])) == Done([], count=3)
    assert waiting not in rig.answers
    rig.ask(Ack("g", "a", SUBJECT, held))

    assert sequences(rig.answers[waiting]) == list(range(3, 10))


def test_yield_of_one_partition_keeps_the_others(rig: Rig) -> None:
    rig.fill(2, SECOND)
    for _ in range(2):
        given = rig.ask(pull("a", 3, subjects=(FIRST, SECOND)))
        assert isinstance(given, Pulled)
        rig.ask(Ack("g", "a", given.grants[0].subject, pulls(given)))

    rig.ask(Yield("g", "a", [SECOND]))

    owners = {
        rig.broker.state.partitions[group.partition].name: group.owner
        for group in rig.broker.state.groups.values()
    }
    assert owners[FIRST]
    assert not owners[SECOND]


def test_yield_of_what_is_not_held_says_nothing(rig: Rig, held: list[int]) -> None:
    assert rig.ask(Yield("g", "b", [SUBJECT, "nothing"])) == Done([])
    assert rig.ask(Yield("other", "a", [SUBJECT])) == Done([])
    assert rig.broker.state.groups[1].owner


# -- further partitions ----------------------------------------------------------------------------------------


def test_further_partition_is_stored_and_consumed_beside_its_subject(rig: Rig) -> None:
    rig.send(b"moved", subject=SECOND)

    given = rig.ask(pull("a", 3, subjects=(SECOND,)))

    assert isinstance(given, Pulled)
    assert given.grants[0].subject == SECOND
    assert sequences(given) == [0]
    assert rig.ask(Ack("g", "a", SECOND, pulls(given))) == Done([])


def test_two_partitions_have_two_locks(rig: Rig) -> None:
    rig.fill(2, SECOND)

    assert sequences(rig.ask(pull("a", 3, 2))) == [0, 1]
    assert sequences(rig.ask(pull("b", 3, 2, subjects=(SECOND,)), peer=2)) == [0, 1]


def test_further_partition_is_as_its_subject_is(rig: Rig) -> None:
    state, intake = rig.broker.state, rig.broker.intake
    settings = replace(state.by_name[FIRST.encode()].settings, message_bytes_max=4096)
    intake.declare(FIRST, settings, rig.now_ms)
    rig.fill(1, SECOND)
    assert state.by_name[SECOND.encode()].settings == settings

    intake.declare(FIRST, replace(settings, durability="high"), rig.now_ms)

    assert state.by_name[SECOND.encode()].synced


def test_further_partition_of_a_declared_subject_is_made_where_others_are_not(rig: Rig) -> None:
    rig.broker.intake.create_subjects = False

    rig.fill(1, SECOND)

    [(_, number, detail)] = rig.send(b"x", subject="other#1").refused
    assert number == KIND_BY_NAME["unknown_subject"].number
    assert "'other#1'" in detail


def test_group_that_began_late_misses_nothing_of_a_subject_that_grew(rig: Rig) -> None:
    """It began at the end of what was there then; what grew later it is given from the beginning."""
    assert spans(rig.pull(group="late", start=-2)) == []
    rig.fill(3, SECOND)

    assert spans(rig.pull(group="late", start=-2, subjects=(FIRST, SECOND))) == [(0, 3, 0)]


# -- strategies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("best_tried", [False, True])
def test_strategy_says_whether_others_wait_for_what_failed(rig: Rig, best_tried: bool) -> None:
    settings = replace(rig.broker.state.by_name[FIRST.encode()].settings, best_tried=best_tried)
    rig.broker.intake.declare(FIRST, settings, rig.now_ms)
    rig.pump()
    rig.restart()
    first, last = pulls(rig.ask(pull("a", 3, 3)))  # type: ignore[arg-type]

    rig.ask(Nack("g", "a", SUBJECT, [first, first], delay_ms=1000))

    if best_tried:
        assert rig.ask(Ack("g", "a", SUBJECT, [first + 1, last])) == Done([])
        assert sequences(rig.ask(pull("a", 3, 2))) == [3, 4]
        rig.wait(1000)
        assert sequences(rig.ask(pull("a", 3, 1))) == [0]
    else:
        assert rig.ask(Ack("g", "a", SUBJECT, [first + 1, last])) == Done([first + 1, last])
        assert sequences(rig.ask(pull("a", 3, 2, wait_ms=0))) == []
        rig.wait(1000)
        assert sequences(rig.ask(pull("a", 3, 4))) == [0, 1, 2, 3]


# -- keys side by side -----------------------------------------------------------------------------------------


def keyed(messages: int = 100, *, wait_ms: int = WAIT_MS, held: list[int] | None = None) -> Pull:
    return Pull("g", "a", (FIRST,), messages, 1 << 20, wait_ms, held=held, mode=Mode.KEYED, allocation=3)


def test_what_is_at_work_by_key_is_kept_over_a_new_connection(rig: Rig) -> None:
    """Of five that are held the third is at work: the others come again in their order, and before anything newer."""
    first, last = pulls(rig.ask(keyed(5)))  # type: ignore[arg-type]
    peer = rig.connect()

    again = rig.ask(keyed(held=[first + 2, first + 2]), peer)

    assert sequences(again) == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert rig.ask(Ack("g", "a", SUBJECT, [first + 2, first + 2]), peer) == Done([])
    assert rig.ask(Ack("g", "a", SUBJECT, [last, last]), peer) == Done([last, last])


def test_what_is_handed_back_by_key_takes_nothing_else_along(rig: Rig) -> None:
    first, last = pulls(rig.ask(keyed(5)))  # type: ignore[arg-type]
    rig.ask(Release("g", "a", SUBJECT, [first, first + 1]))

    assert rig.ask(Extend("g", "a", SUBJECT, [first + 2, last])) == Done([])
    assert sequences(rig.ask(keyed(3))) == [0, 1, 5]


def test_nack_by_key_holds_up_what_is_newer_and_nothing_that_is_held(rig: Rig) -> None:
    first, last = pulls(rig.ask(keyed(5)))  # type: ignore[arg-type]
    rig.ask(Nack("g", "a", SUBJECT, [first, first], delay_ms=1000))

    assert rig.ask(Ack("g", "a", SUBJECT, [first + 1, last])) == Done([])
    assert sequences(rig.ask(keyed(3, wait_ms=0))) == []
    rig.wait(1000)
    assert sequences(rig.ask(keyed(3))) == [0, 5, 6]


def test_lease_that_ends_by_key_takes_back_all_behind_it(rig: Rig) -> None:
    """Nobody knows what the consumer does with them: it may not be there any more."""
    first, last = pulls(rig.ask(keyed(5)))  # type: ignore[arg-type]
    rig.wait(GONE_MS - 1)
    rig.ask(Extend("g", "a", SUBJECT, [first + 1, last]))
    rig.wait(1)

    assert rig.ask(Ack("g", "a", SUBJECT, [first + 1, last])) == Done([first + 1, last])
    assert sequences(rig.ask(keyed(3))) == [0, 1, 2]


def test_consumer_that_is_gone_and_held_nothing_takes_nothing_back_from_another_one(rig: Rig) -> None:
    """What was handed back is failed, in a way, and the other one's messages lie behind it."""
    given = pulls(rig.ask(pull("b", 2, 1), peer=2))  # type: ignore[arg-type]
    rig.ask(Release("g", "b", SUBJECT, given), peer=2)
    rig.disconnect(rig.peers[1])
    first, *_, last = pulls(rig.ask(keyed(5)))  # type: ignore[arg-type]
    rig.wait(GONE_MS // 2)
    rig.ask(Extend("g", "a", SUBJECT, [first, last]))
    rig.ask(Release("g", "a", SUBJECT, [first, first]))
    rig.wait(GONE_MS // 2 + 1)

    assert "b" not in rig.broker.state.group_of(SUBJECT, "g").consumers  # type: ignore[union-attr]
    assert rig.ask(Ack("g", "a", SUBJECT, [first + 1, last])) == Done([])
