"""Seeks and suspensions: where a group goes on, and that nothing of before counts there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import NOW_MS, SUBJECT, TINY, Rig, files_of, pulls, put_file, spans
from tidemill_wire.commands import Ack, Command, Done, Extend, Nack, Pull, Pulled, Release
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.kinds import Place
from tidemill_wire.steering import Seek, Sought, Suspend

PATIENT = replace(TINY, lease_ms=600_000, consumer_gone_ms=10**9)


def sequences(pulled: Command | None) -> list[int]:
    """Of all that was given for the first time; a seek leaves nothing else."""
    assert isinstance(pulled, Pulled)
    assert all(grant.attempts == 0 for grant in pulled.grants)
    return [one.first_sequence + index for one in pulled.grants for index in range(one.count)]


def seek(rig: Rig, place: Place, value: int = 0, *, rehearsal: bool = False) -> Sought:
    answer = rig.ask(Seek("g", SUBJECT, place, value, rehearsal))
    if answer is None:  # a read had to come first
        answer = rig.answers.pop(rig.correlation)
    assert isinstance(answer, Sought), answer
    return answer


@pytest.fixture
def rig() -> Rig:
    """Ten messages a second apart; of the first six, two are held, two failed, two acked."""
    made = Rig(PATIENT)
    for _ in range(10):
        made.send(b"tide")
        made.wait(1000)
    held = pulls(made.pull(6))
    first = held[0]
    made.ask(Ack("g", "c", SUBJECT, [first, first + 1]))
    made.ask(Nack("g", "c", SUBJECT, [first + 2, first + 3], 60_000))
    return made


@pytest.mark.parametrize(
    "place, value, sequence",
    [
        (Place.EARLIEST, 0, 0),
        (Place.LATEST, 0, 10),
        (Place.SEQUENCE, 3, 3),
        (Place.SEQUENCE, 10**15, 10),
        (Place.TIME, 0, 0),
        (Place.TIME, NOW_MS + 1, 1),
        (Place.TIME, NOW_MS + 3000, 3),
        (Place.TIME, NOW_MS + 3001, 4),
        (Place.TIME, NOW_MS + 9001, 10),
        (Place.TIME, 2**63 - 1, 10),
    ],
)
def test_group_goes_on_exactly_there(rig: Rig, place: Place, value: int, sequence: int) -> None:
    rehearsed = seek(rig, place, value, rehearsal=True)
    sought = seek(rig, place, value)

    again, skipped = max(0, 6 - sequence), max(0, sequence - 6)
    assert sought == rehearsed == Sought(6, sequence, again, skipped, 2, 2)
    assert sequences(rig.pull()) == list(range(sequence, 10))


def test_rehearsal_does_nothing(rig: Rig) -> None:
    seek(rig, Place.LATEST, rehearsal=True)

    group = rig.broker.state.groups[1]
    assert (group.cursor, group.in_flight, group.failed_count()) == (6, 2, 2)


@pytest.mark.parametrize("kind", [Ack, Nack, Extend, Release])
def test_what_was_held_before_is_void_and_said_to_be_lost(rig: Rig, kind: type) -> None:
    group = rig.broker.state.groups[1]
    held = [(one.pull, one.pull + one.count - 1) for one in group.consumers["c"].held()]
    seek(rig, Place.EARLIEST)
    ranges = [number for pair in held for number in pair]

    assert rig.ask(kind("g", "c", SUBJECT, ranges)) == Done(ranges)
    assert (group.acked, group.in_flight, group.cursor, group.failed) == (2, 0, 0, {})


def test_leases_of_before_end_without_effect(rig: Rig) -> None:
    seek(rig, Place.EARLIEST)
    rig.pull(10)
    rig.wait(600_000 - 1)

    assert rig.broker.state.groups[1].failed == {}
    assert rig.broker.counters.leases_ended == 0


def test_waiting_pull_is_served_at_once(rig: Rig) -> None:
    rig.pull()
    assert rig.ask(Pull("g", "d", [SUBJECT], 100, 1 << 20, 60_000)) is None
    waiting = rig.correlation

    seek(rig, Place.SEQUENCE, 8)

    assert sequences(rig.answers[waiting]) == [8, 9]


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_seek_survives_a_restart(rig: Rig, with_checkpoint: bool) -> None:
    seek(rig, Place.SEQUENCE, 4)
    if with_checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.restart()

    assert sequences(rig.pull()) == [4, 5, 6, 7, 8, 9]


def test_time_to_come_is_waited_for_and_a_restart_does_not_forget_it(rig: Rig) -> None:
    assert seek(rig, Place.TIME, rig.now_ms + 5000).sequence == 10
    rig.send(b"too early")
    rig.restart()
    rig.wait(5000)
    rig.send(b"in time")

    assert spans(rig.pull()) == [(11, 1, 0)]


def test_clock_that_is_set_back_hides_nothing_from_a_group_that_has_begun(rig: Rig) -> None:
    rig.pull(1, group="then", start=NOW_MS + 9000)
    rig.now_ms -= 5000
    rig.send(b"stored earlier, it seems")

    assert spans(rig.pull(group="then")) == [(10, 1, 0)]


def test_time_is_found_in_rows_that_have_to_be_read() -> None:
    """Three thousand rows of one sealed run are three windows."""
    rig = Rig(replace(PATIENT, segment_bytes=1 << 20, segment_batches=3000))
    rig.pull(1)
    for _ in range(3100):
        rig.now_ms += 10
        rig.send(b"tide")
    start_ms = rig.now_ms - 3099 * 10
    for wanted in (0, 1, 1023, 1024, 1025, 2047, 2048, 2999, 3000, 3099):
        assert seek(rig, Place.TIME, start_ms + 10 * wanted).sequence == wanted
        assert seek(rig, Place.TIME, start_ms + 10 * wanted - 9).sequence == wanted


def test_new_group_that_begins_at_a_time_begins_exactly_there() -> None:
    rig = Rig(replace(PATIENT, segment_bytes=1 << 20, segment_batches=3000))
    for _ in range(3100):
        rig.now_ms += 10
        rig.send(b"tide")
    start_ms = rig.now_ms - 3099 * 10
    for wanted in (0, 1023, 1024, 2500, 3050):
        assert spans(rig.pull(1, group=f"g{wanted}", start=start_ms + 10 * wanted)) == [(wanted, 1, 0)]


def test_sequences_that_a_group_was_given_are_not_used_again_though_it_went_back() -> None:
    """The seek takes the cursor away by which recovery knows what was given; a power cut takes the messages."""
    rig = Rig()
    rig.send(b"a", b"b", b"c")
    rig.pull()
    seek(rig, Place.EARLIEST)
    rig.restart()  # the action log is read anew, and has no checkpoint before it
    files = files_of(rig.disk, "message")
    for name in files:
        put_file(rig.disk, name, b"")
    rig.start()

    assert rig.send(b"d").first_sequences == [3]


def test_group_that_is_not_there_cannot_be_moved(rig: Rig) -> None:
    wrong = Seek("nobody", SUBJECT, Place.LATEST)

    assert rig.refused(wrong) == KIND_BY_NAME["not_found"].number
    assert rig.refused(Suspend("g", "nothing", True)) == KIND_BY_NAME["not_found"].number


def test_seek_of_a_peer_that_is_gone_while_rows_are_read_is_given_up() -> None:
    rig = Rig(replace(PATIENT, segment_batches=6))
    rig.fill(20)
    rig.pull()
    rig.restart()
    rig.holds_reads = True
    assert rig.ask(Seek("g", SUBJECT, Place.TIME, NOW_MS)) is None
    rig.disconnect(rig.peers[0])
    rig.load()

    assert rig.broker.state.groups[1].cursor == 20


def test_suspended_group_is_given_nothing_and_may_settle_what_it_holds(rig: Rig) -> None:
    group = rig.broker.state.groups[1]
    assert rig.ask(Suspend("g", SUBJECT, True)) == Done([])
    rig.wait(60_000)

    assert rig.pull().grants == []
    held = [(one.pull, one.pull + one.count - 1) for one in group.consumers["c"].held()]
    assert rig.ask(Ack("g", "c", SUBJECT, [number for pair in held for number in pair])) == Done([])
    assert (group.acked, group.cursor) == (4, 6)


def test_suspended_group_costs_no_turn_while_its_failures_are_due(rig: Rig) -> None:
    rig.ask(Suspend("g", SUBJECT, True))
    rig.ask(Pull("g", "d", [SUBJECT], 100, 1 << 20, 60_000))
    rig.wait(60_000)
    rig.ask(Pull("g", "d", [SUBJECT], 100, 1 << 20, 60_000))
    rig.broker.ticked(rig.now_ms)
    rig.pump()

    assert rig.wake_at_ms > rig.now_ms + 10


def test_suspension_survives_a_restart_and_ends_when_it_is_said(rig: Rig) -> None:
    rig.ask(Suspend("g", SUBJECT, True))
    rig.restart()
    assert rig.ask(Pull("g", "d", [SUBJECT], 100, 1 << 20, 60_000)) is None
    waiting = rig.correlation

    rig.ask(Suspend("g", SUBJECT, False))

    assert sequences(rig.answers[waiting]) == [6, 7, 8, 9]
