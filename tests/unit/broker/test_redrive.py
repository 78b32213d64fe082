"""Redrive and purge: dead letters come back to their group, or are dropped, and each is counted once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, pulls, spans
from samples.graves import (
    GRAVE,
    HASTY,
    acks,
    bodies,
    bury,
    declare,
    group_at,
    hasty_rig,
    letters,
    living,
    reject,
    twin,
)
from tidemill_broker.doors.status import group_rows
from tidemill_broker.graves import waiting
from tidemill_wire.columns import split_batches
from tidemill_wire.commands import Ack, Command, Done, Extend, Goodbye, Nack, Pull, Purge, Redrive, Release
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.ranges import count_of


def redrive(rig: Rig, *ranges: int) -> int:
    answer = rig.ask(Redrive(SUBJECT, "g", list(ranges)))
    assert isinstance(answer, Done), answer
    return answer.count


def purge(rig: Rig, *ranges: int) -> int:
    answer = rig.ask(Purge(SUBJECT, "g", list(ranges)))
    assert isinstance(answer, Done), answer
    return answer.count


@pytest.fixture
def rig() -> Rig:
    """Six dead letters, in three batches."""
    rig = hasty_rig()
    for number in range(3):
        bury(rig, b"a%d" % number, b"b%d" % number)
    return rig


def test_redriven_dead_letters_come_with_the_pulls_of_their_subject_as_if_new(rig: Rig) -> None:
    assert redrive(rig, 1, 3) == 3
    given = rig.pull()

    assert [(grant.subject, grant.first_sequence, grant.count, grant.attempts) for grant in given.grants] == [
        (GRAVE, 1, 3, 0)
    ]
    assert split_batches(given.batches)[0].bodies() == [b"a0", b"b0"]
    assert rig.pull().grants == []


def test_without_ranges_all_are_redriven_or_purged(rig: Rig) -> None:
    assert redrive(rig) == 6
    assert sum(grant.count for grant in rig.pull().grants) == 6
    assert redrive(rig) == 0
    bury(rig, b"later")
    assert purge(rig) == 1
    assert rig.pull().grants == []


def test_each_dead_letter_is_handled_once(rig: Rig) -> None:
    counts = [redrive(rig, 0, 1), redrive(rig, 0, 2), purge(rig, 1, 3), redrive(rig, 3, 3), purge(rig, 4, 99)]

    assert counts == [2, 1, 1, 0, 2]
    assert twin(rig).handled == [0, 5]
    assert [purge(rig), redrive(rig)] == [0, 0]


def test_counts_add_up(rig: Rig) -> None:
    redriven, purged = redrive(rig, 0, 0, 5, 5), purge(rig, 2, 3)
    there = {letter.sequence for letter in letters(rig)}
    waiting = len(there) - count_of(twin(rig).handled)

    assert living(rig).buried == waiting + redriven + purged == 6
    rig.restart()
    assert (living(rig).buried, twin(rig).handled) == (6, [0, 0, 2, 3, 5, 5])


def test_ranges_beyond_what_is_there_are_passed_over(rig: Rig) -> None:
    assert [redrive(rig, 6, 10), redrive(rig, 4, 10**15), purge(rig, 100, 200)] == [0, 2, 0]


def test_ranges_that_overlap_count_once(rig: Rig) -> None:
    assert redrive(rig, 3, 4, 0, 3, 3, 3) == 5
    assert sum(grant.count for grant in rig.pull().grants) == 5


@pytest.mark.parametrize("command", [Redrive, Purge])
def test_dead_letters_that_are_not_there_are_not_found(command: type[Redrive | Purge]) -> None:
    rig = hasty_rig()
    for subject, group in ((SUBJECT, "g"), (SUBJECT, "h"), ("nothing", "g")):
        assert rig.refused(command(subject, group, [])) == KIND_BY_NAME["not_found"].number


def test_pull_that_waits_is_given_what_is_redriven_at_once() -> None:
    """It has waited since before the group had any dead letters."""
    rig = hasty_rig()
    other = rig.connect()
    assert rig.ask(Pull("g", "early", [SUBJECT], 1, 1 << 20, 30_000), other) is None
    early = rig.correlation
    rig.send(b"one")
    rig.answers.pop(early)
    assert rig.ask(Pull("g", "early", [SUBJECT], 1, 1 << 20, 30_000), other) is None
    early = rig.correlation
    low = min(held.pull for held in group_at(rig, SUBJECT).consumers["early"].held())
    rig.ask(Nack("g", "early", SUBJECT, [low, low], reject=True))
    assert early not in rig.answers
    assert redrive(rig) == 1

    assert [grant.subject for grant in rig.answers.pop(early).grants] == [GRAVE]


def test_many_redrives_do_not_make_a_pull_that_waits_longer(rig: Rig) -> None:
    [parked] = [rig.ask(Pull("g", "c", [SUBJECT], 1, 1 << 20, 30_000))]
    assert parked is None
    for _ in range(5):
        redrive(rig, 99, 99)
    [waiting] = rig.broker.serving.pulls.waiting[living(rig).identity].values()

    assert [consumer.group for consumer in waiting.consumers] == [living(rig), twin(rig)]


def test_redriven_deliveries_are_settled_under_the_name_of_the_dead_letters(rig: Rig) -> None:
    redrive(rig)
    given = rig.pull()
    low = pulls(given)[0]

    assert rig.ask(Ack("g", "c", GRAVE, [low, low])) == Done([])
    assert rig.ask(Extend("g", "c", GRAVE, [low + 1, low + 1])) == Done([])
    assert rig.ask(Release("g", "c", GRAVE, [low + 2, low + 2])) == Done([])
    assert rig.ask(Nack("g", "c", GRAVE, [low + 3, low + 3], 500)) == Done([])
    assert rig.ask(Ack("g", "c", GRAVE, [low, low])) == Done([low, low])
    assert spans(rig.pull()) == [(2, 1, 0)]
    rig.wait(500)
    assert spans(rig.pull()) == [(3, 1, 1)]
    assert (twin(rig).acked, living(rig).acked) == (1, 0)


def test_redriven_dead_letter_that_dies_again_lies_there_once_more(rig: Rig) -> None:
    redrive(rig, 2, 3)
    reject(rig, rig.pull(), "still no such customer")

    found = letters(rig)
    assert [letter.body for letter in found][6:] == [b"a1", b"b1"]
    assert [letter.known["subject"] for letter in found] == [SUBJECT] * 6 + [GRAVE] * 2
    assert [letter.known["sequence"] for letter in found][6:] == [2, 3]
    assert found[6].known["reason"] == "still no such customer"
    assert (living(rig).buried, twin(rig).buried) == (6, 2)
    assert redrive(rig) == 4 + 2
    assert len(rig.broker.state.partitions) == 2


@pytest.mark.parametrize("checkpoint", [False, True])
def test_redriven_ones_that_died_again_outlive_a_restart(rig: Rig, checkpoint: bool) -> None:
    redrive(rig, 2, 3)
    reject(rig, rig.pull())
    before = bodies(rig, "before")
    if checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.restart()

    assert bodies(rig, "after") == before
    assert (living(rig).buried, twin(rig).buried, twin(rig).failed) == (6, 2, {})


def test_redriven_dead_letters_wait_for_their_group_over_a_restart(rig: Rig) -> None:
    redrive(rig, 0, 3)
    rig.restart()
    assert rig.ask(Pull("g", "d", [SUBJECT], 10, 1 << 20, 0)) is not None
    rig.wait(10)
    rig.restart()
    rig.wait(rig.settings.consumer_gone_ms)

    assert sum(grant.count for grant in rig.pull().grants) == 4


def test_consumer_that_says_goodbye_gives_back_what_was_redriven(rig: Rig) -> None:
    redrive(rig, 0, 0)
    rig.pull()
    rig.ask(Goodbye("the pod stops"))

    assert spans(rig.pull(consumer="d")) == [(0, 1, 1)]


def test_redriven_dead_letters_of_cold_segments_are_found() -> None:
    rig = hasty_rig(broker=TINY)
    for _ in range(12):
        bury(rig, b"tide")
    rig.restart()
    assert redrive(rig) == 12
    for _ in range(20):
        for command in acks(rig.pull()):
            rig.ask(command)

    assert twin(rig).acked == 12


def test_dead_letters_that_are_redriven_stay_until_they_are_handled() -> None:
    rig = hasty_rig(replace(HASTY, dead_letter_seconds=60), replace(TINY, retention_seconds=60))
    for _ in range(9):
        bury(rig, b"tide")
    redrive(rig, 0, 0)
    rig.wait(200_000)
    [grant] = rig.pull().grants
    assert (grant.subject, grant.first_sequence) == (GRAVE, 0)
    rig.ask(Ack("g", "c", GRAVE, pulls(rig.pull()) or [grant.pull_sequence, grant.pull_sequence]))
    rig.wait(200_000)

    assert rig.broker.state.by_name[GRAVE.encode()].first_kept > 0
    assert redrive(rig, 0, 0) == 0


BRIEF = replace(TINY, retention_seconds=60)


def test_dead_letters_that_were_all_purged_keep_no_segment_any_more() -> None:
    rig = hasty_rig(broker=BRIEF)
    for _ in range(9):
        bury(rig, b"tide")
    rig.wait(200_000)
    assert rig.broker.logs.messages.start == 0, "they are kept for 30 days"

    assert purge(rig) == 9
    rig.wait(20_000)
    assert rig.broker.logs.messages.start > 0
    assert waiting(rig.broker.state, living(rig)) == 0
    rig.restart()
    assert waiting(rig.broker.state, living(rig)) == 0


def test_one_dead_letter_that_waits_keeps_its_segment() -> None:
    rig = hasty_rig(broker=BRIEF)
    for _ in range(9):
        bury(rig, b"tide")
    purge(rig, 0, 0, 2, 8)
    rig.wait(200_000)

    assert bodies(rig)[:2] == [b"tide", b"tide"]
    assert rig.broker.state.by_name[GRAVE.encode()].first_kept <= 1


def test_redriven_dead_letters_keep_their_segment_until_they_are_acknowledged() -> None:
    rig = hasty_rig(replace(HASTY, lease_ms=10**6), BRIEF)
    for _ in range(9):
        bury(rig, b"tide")
    assert redrive(rig) == 9
    rig.wait(200_000)
    assert rig.broker.logs.messages.start == 0, "they wait for their group"
    held: list[Command] = []
    while given := acks(rig.pull()):
        held += given
    rig.wait(20_000)
    assert rig.broker.logs.messages.start == 0, "their group has them"

    for command in held:
        rig.ask(command)
    rig.wait(20_000)
    assert rig.broker.logs.messages.start > 0
    assert twin(rig).acked == 9


def test_what_is_declared_later_holds_for_what_is_redriven_too(rig: Rig) -> None:
    redrive(rig, 0, 0)
    declare(rig, replace(HASTY, suspended=True))
    assert rig.pull().grants == []

    declare(rig, replace(HASTY, lease_ms=7000))
    assert [grant.subject for grant in rig.pull().grants] == [GRAVE]
    assert twin(rig).settings.lease_ms == 7000


def test_group_row_has_each_message_in_one_place(rig: Rig) -> None:
    def row() -> tuple[object, ...]:
        [found] = list(group_rows(rig.broker.state))
        return tuple(found[name] for name in ("lag", "in_flight", "failed", "dead", "acked"))

    assert row() == (0, 0, 0, 6, 0)
    redrive(rig, 0, 3)
    purge(rig, 5, 5)
    assert row() == (4, 0, 0, 1, 0)
    [held] = rig.pull(2).grants
    rig.send(b"new")
    assert row() == (3, 2, 0, 1, 0)
    rig.ask(Nack("g", "c", GRAVE, [held.pull_sequence] * 2, delay_ms=50_000))
    assert row() == (3, 1, 1, 1, 0)
    rig.ask(Release("g", "c", GRAVE, [held.pull_sequence + 1] * 2))
    assert row() == (4, 0, 1, 1, 0)
    while given := rig.pull().grants:
        for grant in given:
            rig.ask(
                Ack("g", "c", grant.subject, [grant.pull_sequence, grant.pull_sequence + grant.count - 1])
            )
    assert row() == (0, 0, 1, 1, 4)
