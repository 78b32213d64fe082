"""Dead letters: what is hopeless is copied once, with all it came with and why, and is nobody's any more."""

from __future__ import annotations

from dataclasses import replace

from samples.brokers import SUBJECT, TINY, Rig, batch_of, pulls, put_file, read_file, spans
from samples.graves import (
    GRAVE,
    HASTY,
    ROOMY,
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
from tidemill_broker.graves import waiting
from tidemill_broker.partitions import SubjectSettings
from tidemill_wire import limits
from tidemill_wire.commands import Done, Nack, Pull, Redrive, SendBatches, Sent
from tidemill_wire.errors import KIND_BY_NAME, Unavailable


def fail(rig: Rig, **more: object) -> None:
    """The group is given what is due, and fails."""
    given = rig.pull()
    assert given.grants
    rig.ask(Nack("g", "c", SUBJECT, pulls(given), reason="no such customer", **more))


def test_message_is_tried_as_often_as_its_group_says_and_then_lies_in_the_dead_letters() -> None:
    rig = hasty_rig(replace(HASTY, attempts_max=3))
    rig.send(b"tide", b"mill")
    fail(rig)
    rig.wait(99)
    assert rig.pull().grants == []
    rig.wait(1)
    fail(rig)
    rig.wait(300)
    assert bodies(rig) == []
    fail(rig)

    assert bodies(rig, "another") == [b"tide", b"mill"]
    rig.wait(10**7)
    assert rig.pull().grants == []
    assert (living(rig).buried, living(rig).failed, living(rig).in_flight) == (2, {}, 0)
    assert rig.broker.counters.messages_buried == 2


def test_message_is_tried_for_as_long_as_its_group_says() -> None:
    rig = hasty_rig(replace(HASTY, retry_ms_min=1000))
    rig.send(b"tide")
    for wait_ms in (100, 300, 300, 300):
        fail(rig)
        assert bodies(rig, f"after {rig.now_ms}") == []
        rig.wait(wait_ms)
    fail(rig)

    [letter] = letters(rig)
    assert letter.known["attempts"] == 5
    assert letter.known["failed_at"] - letter.known["since"] == 1000


def test_group_without_dead_letters_drops_and_counts() -> None:
    rig = hasty_rig(replace(HASTY, dead_letters=False))
    rig.send(b"tide", b"mill")
    reject(rig, rig.pull())

    assert GRAVE.encode() not in rig.broker.state.by_name
    assert (living(rig).buried, rig.broker.counters.dead_dropped) == (2, 2)
    assert living(rig).failed == {}
    rig.restart()
    assert (living(rig).buried, living(rig).failed) == (2, {})


def test_subject_without_dead_letters_has_none_of_any_group_and_has_them_again_when_it_says_so() -> None:
    """Also of one that was redriven, whose letter lies there since before."""
    rig = hasty_rig(HASTY)
    bury(rig, b"before")
    kept = rig.broker.state.by_name[SUBJECT.encode()].settings
    rig.broker.intake.declare(SUBJECT, replace(kept, dead_letters=False), rig.now_ms)
    bury(rig, b"tide", b"mill")
    assert (bodies(rig), rig.broker.counters.dead_dropped) == ([b"before"], 2)
    assert rig.ask(Redrive(SUBJECT, "g", [])) == Done([], count=1)
    reject(rig, rig.pull())
    assert rig.broker.counters.dead_dropped == 3

    rig.restart()
    assert (living(rig).buried, living(rig).failed, waiting(rig.broker.state, living(rig))) == (3, {}, 0)
    bury(rig, b"dropped, as it is remembered")
    assert rig.broker.counters.dead_dropped == 1
    rig.broker.intake.declare(SUBJECT, kept, rig.now_ms)
    bury(rig, b"after")
    assert bodies(rig, "another")[-1] == b"after"


def test_dead_letters_that_are_there_are_kept_for_as_long_as_is_declared_later() -> None:
    """Not only from the next one on that dies, which may never come."""
    rig = hasty_rig(replace(HASTY, dead_letter_seconds=3600))
    rig.broker.dead_letters.declared(living(rig), rig.now_ms)
    assert GRAVE.encode() not in rig.broker.state.by_name, "who has none needs no place for them"
    bury(rig, b"tide")
    declare(rig, replace(HASTY, dead_letter_seconds=60))
    rig.broker.dead_letters.declared(living(rig), rig.now_ms)
    rig.pump()
    assert rig.broker.state.by_name[GRAVE.encode()].settings.retention_seconds == 60
    rig.restart()
    assert rig.broker.state.by_name[GRAVE.encode()].settings.retention_seconds == 60


def test_message_that_a_power_cut_took_is_void_and_its_neighbours_are_buried() -> None:
    """Sequences 1 to 3 of a failure are in no batch: they lie where the log ends, and before what came later."""
    rig = hasty_rig(broker=TINY)
    rig.send(b"a")
    file = "message/" + f"{0:020}.log"
    before = read_file(rig.disk, file)
    rig.send(b"b", b"c", b"d")
    given = rig.pull()
    put_file(rig.disk, file, before)
    rig.restart()
    assert rig.send(b"e").first_sequences == [4]
    rig.pull()
    low = pulls(given)[0]
    rig.ask(Nack("g", "c", SUBJECT, [low, low + 10], reject=True))

    assert bodies(rig) == [b"a"]
    assert rig.broker.counters.messages_voided == 3
    assert living(rig).buried == 1


def test_while_the_disk_is_full_what_is_doomed_waits_and_is_buried_later() -> None:
    rig = hasty_rig()
    rig.send(b"tide")
    given = rig.pull()
    rig.broker.intake.refusal = Unavailable("disk_full", "3 % are free")
    reject(rig, given)
    assert GRAVE.encode() not in rig.broker.state.by_name
    rig.wait(60_000)
    assert list(living(rig).doomed) == [0]
    assert rig.pull().grants == []

    rig.broker.intake.refusal = None
    rig.wait(10_000)
    assert bodies(rig) == [b"tide"]


def test_disk_that_becomes_full_while_the_message_is_read_changes_nothing() -> None:
    rig = hasty_rig()
    rig.holds_reads = True
    rig.send(b"tide")
    reject(rig, rig.pull())
    rig.broker.intake.refusal = Unavailable("disk_full", "3 % are free")
    rig.load()
    rig.pump()
    assert list(living(rig).doomed) == [0]

    rig.broker.intake.refusal = None
    rig.holds_reads = False
    rig.wait(10_000)
    assert bodies(rig) == [b"tide"]


def test_what_is_doomed_waits_for_no_more_reads_than_may_be_under_way() -> None:
    rig = hasty_rig()
    rig.holds_reads = True
    rig.fill(20)
    low = pulls(rig.pull())[0]
    scattered = [number for pull in range(low, low + 20, 2) for number in (pull, pull)]
    rig.ask(Nack("g", "c", SUBJECT, scattered, reject=True))
    counts: list[int] = []
    while rig.reads:
        counts.append(len(rig.reads))
        rig.reads, later = rig.reads[:1], rig.reads[1:]
        rig.load()
        rig.reads = later
        rig.pump()

    assert max(counts) == limits.DEAD_READS_MAX
    assert len(counts) == 10
    rig.holds_reads = False
    assert len(letters(rig)) == 10


def test_what_is_doomed_is_found_in_cold_segments() -> None:
    rig = hasty_rig(broker=replace(TINY, consumer_gone_ms=10**6))
    rig.fill(14)
    given = rig.pull()
    rig.restart()
    rig.pull()
    reject(rig, given)

    assert len(letters(rig)) == 14
    assert living(rig).buried == 14


def test_dead_letters_are_as_durable_as_their_subject_and_kept_as_long_as_the_group_says() -> None:
    rig = hasty_rig(replace(HASTY, dead_letter_seconds=777))
    rig.broker.intake.declare(SUBJECT, SubjectSettings("high", 3600, 1 << 30, 5000), rig.now_ms)
    bury(rig, b"tide")

    grave = rig.broker.state.by_name[GRAVE.encode()]
    assert grave.settings == SubjectSettings("high", 777, 0, limits.MESSAGE_BYTES_MAX)
    declare(rig, replace(HASTY, dead_letter_seconds=888, lease_ms=2000))
    bury(rig, b"mill")
    assert grave.settings.retention_seconds == 888
    assert twin(rig).settings.lease_ms == 2000


def test_dead_letter_of_a_subject_of_class_high_is_seen_when_it_is_on_the_disk() -> None:
    rig = hasty_rig()
    rig.broker.intake.declare(SUBJECT, SubjectSettings("high", 3600, 0, 5000), rig.now_ms)
    rig.send(b"tide")
    given = rig.pull()
    rig.holds_syncs = True
    reject(rig, given)
    assert bodies(rig, "early") == []
    rig.sync()
    rig.pump()

    assert bodies(rig) == [b"tide"]


def test_nobody_sends_to_dead_letters() -> None:
    rig = hasty_rig()
    bury(rig, b"tide")
    for subject in (GRAVE, "%dead%a%b", "%"):
        answer = rig.ask(SendBatches(batch_of(b"x", subject=subject, producer=7, sequence=1)))
        assert isinstance(answer, Sent)
        assert [number for _, number, _ in answer.refused] == [KIND_BY_NAME["invalid_subject"].number]
    rig.restart()

    assert bodies(rig) == [b"tide"]


def test_subject_too_many_for_dead_letters_keeps_what_is_doomed() -> None:
    rig = hasty_rig(broker=replace(ROOMY, subjects_max=1))
    bury(rig, b"tide")
    assert list(living(rig).doomed) == [0]
    rig.broker.intake._subjects_max = 2
    rig.wait(10_000)

    assert bodies(rig) == [b"tide"]


def test_dead_letters_outlive_a_restart() -> None:
    for checkpoint in (False, True):
        rig = hasty_rig()
        bury(rig, b"tide", b"mill")
        rig.send(b"more")
        if checkpoint:
            rig.broker.keeping.checkpoint(rig.now_ms)
            rig.pump()
        rig.restart()

        assert bodies(rig) == [b"tide", b"mill"]
        assert (living(rig).buried, living(rig).failed) == (2, {})
        assert spans(rig.pull()) == [(2, 1, 0)]


def test_groups_of_one_subject_have_dead_letters_of_their_own() -> None:
    rig = hasty_rig()
    rig.send(b"tide")
    reject(rig, rig.pull())
    given = rig.pull(group="h")
    rig.ask(Nack("h", "c", SUBJECT, pulls(given), reason="other", reject=True))

    assert bodies(rig) == [b"tide"]
    assert b"%dead%order.created%h" in rig.broker.state.by_name
    assert group_at(rig, SUBJECT).buried == 1


def test_expired_dead_letters_are_not_counted_as_messages_that_nobody_pulled() -> None:
    rig = hasty_rig(replace(HASTY, dead_letter_seconds=60), replace(TINY, retention_seconds=60))
    for _ in range(9):
        bury(rig, b"tide")
    rig.wait(200_000)

    assert rig.broker.logs.messages.start > 0
    assert rig.broker.keeping.expired_messages == 0


def test_message_stays_until_the_disk_has_its_dead_letter() -> None:
    settings = replace(TINY, retention_seconds=1, sync_interval_ms=10**9)
    rig = hasty_rig(replace(HASTY, lease_ms=10**6), settings)
    rig.fill(7)
    given = rig.pull()
    rig.wait(20_000)
    rig.holds_syncs = True
    reject(rig, given)
    rig.wait(30_000)
    assert rig.broker.logs.messages.start == 0
    assert rig.wants_sync

    rig.holds_syncs = False
    rig.sync()
    rig.wait(10_000)
    assert rig.broker.logs.messages.start > 0
    assert len(letters(rig)) == 7


def test_acks_of_others_go_on_while_messages_are_buried() -> None:
    rig = hasty_rig()
    rig.send(b"a", b"b", b"c")
    given = rig.pull()
    low = pulls(given)[0]
    rig.ask(Nack("g", "c", SUBJECT, [low + 1, low + 1], reject=True))
    for command in acks(given):
        rig.ask(command)

    assert bodies(rig) == [b"b"]
    assert (living(rig).acked, living(rig).buried) == (2, 1)
    assert rig.ask(Pull("g", "c", [SUBJECT], 1, 1, 0)).grants == []


def test_burials_without_end_do_not_keep_segments_for_ever() -> None:
    """There is always a copy that the disk has not got yet."""
    settings = replace(TINY, retention_seconds=1, sync_interval_ms=500)
    rig = hasty_rig(replace(HASTY, dead_letter_seconds=1), settings)
    rig.holds_syncs = True
    for _ in range(400):
        bury(rig, b"tide")
        rig.wait(50)
        rig.sync()
        bury(rig, b"mill")
        rig.wait(50)

    assert rig.broker.logs.messages.start > 0
