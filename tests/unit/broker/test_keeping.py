"""Housekeeping: what nobody waits for is synced in time, checkpoints know nothing that can be lost, old segments go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, files_of, pulls, spans
from tidemill_broker.action_records import decode_action
from tidemill_broker.actions import Synced
from tidemill_broker.partitions import SubjectSettings
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.snapshots import pack_partition
from tidemill_journal.checkpoint import checkpoint_file
from tidemill_ledger.scanning import RecordScanner
from tidemill_wire import limits
from tidemill_wire.commands import Ack, Nack

HOUR_MS = 3_600_000
SHORT = replace(TINY, retention_seconds=3600, lease_ms=10 * HOUR_MS, consumer_gone_ms=10 * HOUR_MS)
QUIET = replace(TINY, checkpoint_interval_ms=100 * HOUR_MS)


def synced_records(rig: Rig) -> list[Synced]:
    segments = rig.broker.logs.actions
    found: list[Synced] = []
    for base in segments.bases:
        reader = rig.disk.mount().open(segments.file(base)).read
        for record in RecordScanner(reader, base, segments.end_of(base), base):
            action = decode_action(record)
            if isinstance(action, Synced):
                found.append(action)
    return found


def test_what_nobody_waits_for_is_synced_within_the_interval() -> None:
    rig = Rig()
    rig.wait(7_000)
    rig.send(b"x")
    assert not rig.broker.logs.all_synced
    rig.wait(TINY.sync_interval_ms + 1)

    assert rig.broker.logs.synced_message_position == rig.broker.logs.messages.end


def test_what_is_of_the_class_low_alone_waits_longer_for_a_sync() -> None:
    rig = Rig(replace(QUIET, durability="low", low_sync_interval_ms=9_000))
    rig.send(b"w")
    rig.pull()
    rig.wait(20_000)
    rig.send(b"x")
    rig.ask(Ack("g", "c", SUBJECT, pulls(rig.pull())))
    rig.wait(8_900)

    assert rig.broker.logs.synced_message_position < rig.broker.logs.messages.end
    rig.wait(200)
    assert rig.broker.logs.synced_message_position == rig.broker.logs.messages.end


def test_what_is_of_the_class_low_alone_wakes_nobody_before_its_sync_is_due() -> None:
    rig = Rig(replace(QUIET, durability="low", low_sync_interval_ms=9_000))
    rig.send(b"w")
    rig.wait(20_000)
    woken: list[int] = []
    ticked = rig.broker.ticked
    rig.broker.ticked = lambda now_ms: (woken.append(now_ms), ticked(now_ms))[1]
    began_ms = rig.now_ms
    for _ in range(95):
        rig.send(b"x")
        rig.wait(100)

    assert [at_ms - began_ms for at_ms in woken] == [9_000]
    assert rig.broker.logs.synced_message_position > 0


def test_one_message_of_another_class_has_all_synced_in_its_own_time() -> None:
    rig = Rig(replace(QUIET, durability="low", low_sync_interval_ms=9_000))
    rig.wait(20_000)
    rig.broker.intake.declare("hasty", SubjectSettings("normal", 10**6, 0, 1000), rig.now_ms)
    rig.wait(20_000)
    rig.send(b"x")
    rig.wait(100)
    rig.send(b"y", subject="hasty")
    rig.wait(QUIET.sync_interval_ms + 1)

    assert rig.broker.logs.synced_message_position == rig.broker.logs.messages.end


def test_sync_comes_in_time_under_a_stream_of_sends_too() -> None:
    rig = Rig()
    for _ in range(20):
        rig.send(b"x")
        rig.wait(100)
        behind = rig.broker.logs.messages.end - rig.broker.logs.synced_message_position
        assert behind <= 8 * 168


def test_disk_is_asked_once_and_not_while_it_works() -> None:
    rig = Rig()
    rig.holds_syncs = True
    rig.send(b"x")
    rig.wait(TINY.sync_interval_ms + 1)

    assert rig.wants_sync
    rig.sync()
    rig.wait(60_000)
    assert rig.broker.logs.messages.end == rig.broker.logs.synced_message_position


def test_synced_records_say_what_had_been_synced_and_bring_about_no_others() -> None:
    rig = Rig(QUIET)
    for _ in range(3):
        rig.send(b"x")
        rig.wait(2000)
    records = synced_records(rig)
    rig.wait(60_000)

    assert synced_records(rig) == records
    assert 3 <= len(records) <= 6
    assert records == sorted(records, key=lambda one: one.message_position)
    assert records[-1].message_position == rig.broker.logs.messages.end
    assert all(one.action_position <= rig.broker.logs.actions.end for one in records)


def test_checkpoint_waits_until_the_disk_has_what_it_knows() -> None:
    rig = Rig()
    rig.send(b"x")
    rig.holds_syncs = True
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    rig.send(b"after")
    assert files_of(rig.disk, "checkpoint") == []
    assert not rig.broker.keeping.settled

    rig.sync()
    rig.pump()
    assert files_of(rig.disk, "checkpoint") == [checkpoint_file(1)]
    assert rig.broker.keeping.settled


def test_checkpoint_of_an_idle_broker_is_written_at_once() -> None:
    rig = Rig()
    rig.wait(2000)
    assert rig.broker.logs.all_synced
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()

    assert files_of(rig.disk, "checkpoint") == [checkpoint_file(1)]


def test_checkpoints_are_made_after_events_time_or_bytes_but_not_at_once() -> None:
    rig = Rig(BrokerSettings(durability="low", checkpoint_events=10, checkpoint_pause_ms=5000))
    rig.fill(20)
    rig.wait(4_000)
    assert files_of(rig.disk, "checkpoint") == []
    rig.wait(7_000)
    assert len(files_of(rig.disk, "checkpoint")) == 1
    rig.fill(1)
    rig.wait(50_000)
    assert len(files_of(rig.disk, "checkpoint")) == 1
    rig.wait(20_000)
    assert len(files_of(rig.disk, "checkpoint")) == 2
    rig.wait(HOUR_MS)
    assert len(files_of(rig.disk, "checkpoint")) == 2, "nothing happened"


def test_five_checkpoints_are_kept_the_newest() -> None:
    rig = Rig()
    for _ in range(8):
        rig.send(b"x")
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()

    names = [checkpoint_file(number) for number in range(4, 9)]
    assert limits.CHECKPOINTS_KEPT == 5
    assert files_of(rig.disk, "checkpoint") == names
    rig.restart()
    assert (rig.report.checkpoint, rig.report.batches_replayed) == (8, 0)
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    assert files_of(rig.disk, "checkpoint")[-1] == checkpoint_file(9)


def test_segments_past_their_retention_go_the_oldest_first() -> None:
    rig = Rig(SHORT)
    rig.fill(12)
    rig.wait(HOUR_MS // 2)
    rig.fill(8)
    rig.wait(HOUR_MS // 2 + 11_000)

    assert rig.broker.logs.messages.start == 6 * 168 * 2
    assert rig.broker.state.partitions[1].first_kept == 12
    assert len(files_of(rig.disk, "consume")) == 1
    assert spans(rig.pull(group="new"))[0][0] == 12
    rig.restart()
    assert rig.broker.state.partitions[1].first_kept == 12


def test_segment_stays_until_a_checkpoint_remembers_who_sent_what_is_in_it() -> None:
    rig = Rig(replace(QUIET, retention_seconds=3600, checkpoint_pause_ms=100 * HOUR_MS))
    rig.fill(12)
    rig.wait(2 * HOUR_MS)
    kept = rig.broker.logs.messages.start
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    rig.wait(11_000)
    known = pack_partition(rig.broker.state.partitions[1])
    rig.restart()

    assert kept == 0
    assert rig.broker.logs.messages.start > 0
    assert pack_partition(rig.broker.state.partitions[1]) == known


def test_checkpoint_is_made_soon_when_a_segment_waits_for_one() -> None:
    rig = Rig(replace(QUIET, retention_seconds=3600))
    rig.fill(12)
    rig.wait(HOUR_MS + 21_000)

    assert rig.broker.logs.messages.start > 0


def test_idle_broker_that_was_started_again_drops_what_its_checkpoint_remembers() -> None:
    rig = Rig(replace(QUIET, retention_seconds=3600))
    rig.fill(12)
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    rig.restart()
    rig.wait(2 * HOUR_MS)

    assert rig.broker.logs.messages.start > 0


def test_open_segment_is_never_dropped() -> None:
    rig = Rig(SHORT)
    rig.fill(3)
    rig.wait(10 * HOUR_MS)

    assert len(files_of(rig.disk, "message")) == 1
    assert spans(rig.pull()) == [(0, 3, 0)]


def test_segment_stays_while_one_of_its_subjects_wants_it() -> None:
    rig = Rig(SHORT)
    rig.broker.intake.declare("kept", SubjectSettings("low", 100 * 3600, 0, 1000), rig.now_ms)
    rig.fill(5)
    rig.send(b"x", subject="kept")
    rig.fill(12)
    rig.wait(2 * HOUR_MS)

    assert rig.broker.logs.messages.start == 0
    rig.wait(100 * HOUR_MS)
    assert rig.broker.logs.messages.start > 0


def test_subject_larger_than_its_bound_drops_its_oldest_segment() -> None:
    rig = Rig(replace(SHORT, retention_seconds=1000 * 3600))
    rig.broker.intake.declare(SUBJECT, SubjectSettings("low", 10**6, 2000, 1000), rig.now_ms)
    rig.fill(30)
    rig.wait(21_000)

    kept = rig.broker.state.partitions[1].size
    assert 2000 <= kept < 2000 + 1008


@pytest.mark.parametrize("kind", ["lease", "failure"])
def test_segment_that_a_group_still_needs_is_kept(kind: str) -> None:
    rig = Rig(SHORT)
    rig.fill(18)
    given = pulls(rig.pull(8))
    low = given[0]
    rig.ask(Ack("g", "c", SUBJECT, [low, low + 6]))
    if kind == "failure":
        rig.ask(Nack("g", "c", SUBJECT, [low + 7, low + 7], limits.NACK_DELAY_MS_MAX))
    rig.wait(2 * HOUR_MS)

    assert rig.broker.logs.messages.start == 1008, "message 7 is in the second segment"
    if kind == "failure":
        rig.wait(limits.NACK_DELAY_MS_MAX)
        low = pulls(rig.pull(1))[0]
    else:
        low += 7
    rig.ask(Ack("g", "c", SUBJECT, [low, low]))
    rig.wait(11_000)
    assert rig.broker.logs.messages.start == 2016


def test_messages_that_a_group_never_pulled_are_counted_when_they_go() -> None:
    rig = Rig(SHORT)
    rig.fill(13)
    given = pulls(rig.pull(2))
    rig.ask(Ack("g", "c", SUBJECT, given))
    rig.pull(1, group="late", start=-2)
    rig.wait(2 * HOUR_MS)

    assert rig.broker.keeping.expired_messages == 12 - 2
    assert spans(rig.pull(group="g")) == [(12, 1, 0)]


def test_action_log_goes_when_no_checkpoint_needs_it() -> None:
    rig = Rig(replace(SHORT, action_segment_bytes=256))
    rig.fill(2)
    for _ in range(60):
        given = pulls(rig.pull(1))
        rig.ask(Nack("g", "c", SUBJECT, given, delay_ms=0))
    rig.wait(30_000)
    start = rig.broker.logs.actions.start
    for _ in range(7):
        rig.fill(1)
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.wait(11_000)

    assert start == 0
    assert rig.broker.logs.actions.start > 0
    assert rig.broker.logs.actions.end - rig.broker.logs.actions.start >= 10 * 256
    before = rig.broker.state.groups[1].failed_count(), rig.broker.state.groups[1].in_flight
    rig.restart()
    assert (rig.broker.state.groups[1].failed_count(), rig.broker.state.groups[1].in_flight) == before


def test_broker_wakes_no_sooner_than_it_has_to() -> None:
    rig = Rig(QUIET)
    rig.wait(60_000)
    ticks: list[int] = []
    ticked = rig.broker.ticked
    rig.broker.ticked = lambda now_ms: (ticks.append(now_ms), ticked(now_ms))[1]
    rig.wait(60_000)

    assert len(ticks) <= 7, "an idle broker looks at its retention every ten seconds"


def test_stamps_of_a_clock_that_was_ahead_keep_nothing_for_longer_once_the_clock_is_right() -> None:
    rig = Rig(SHORT)
    ahead_ms = 1000 * HOUR_MS
    rig.now_ms += ahead_ms
    rig.fill(8)  # a segment and a bit
    rig.now_ms -= ahead_ms
    rig.restart()
    rig.fill(8)
    rig.wait(2 * HOUR_MS)

    assert rig.broker.state.partitions[1].first_kept > 8
