"""Recovery: the valid prefix is served, a torn tail is cut and kept aside, damage is refused with its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import (
    SUBJECT,
    TINY,
    Rig,
    batch_of,
    copy_of,
    files_of,
    pulls,
    put_file,
    read_file,
    remove_file,
    spans,
)
from sim.disk import SimDisk
from tidemill_broker.snapshots import pack_state
from tidemill_journal.checkpoint import checkpoint_file
from tidemill_journal.entries import run_file
from tidemill_journal.errors import CorruptLog
from tidemill_wire.commands import Ack, Nack, Pulled, SendBatches

BATCH_BYTES = len(batch_of(b"tide"))
WIDE = replace(TINY, segment_bytes=1 << 20, lease_ms=40_000_000, consumer_gone_ms=10**9)
OPEN = f"message/{0:020}.log"
ACTION = f"action/{0:020}.log"


def cut(disk: SimDisk, name: str, size: int) -> None:
    put_file(disk, name, read_file(disk, name)[:size])


def flip(disk: SimDisk, name: str, position: int) -> None:
    data = bytearray(read_file(disk, name))
    data[position] ^= 1
    put_file(disk, name, bytes(data))


def sequences(pulled: Pulled) -> list[int]:
    return [number for first, count, _ in spans(pulled) for number in range(first, first + count)]


def everything(rig: Rig) -> list[int]:
    """What a group that begins now is given."""
    found: list[int] = []
    group = f"everything-{len(rig.broker.state.groups)}"
    while given := sequences(rig.pull(group=group)):
        found += given
    return found


def checkpointed(rig: Rig) -> None:
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()


def said(rig: Rig) -> bytes:
    """The whole state but for the life it is in."""
    state = rig.broker.state
    boot, pull, state.boot, state.next_pull = state.boot, state.next_pull, 0, 0
    packed = pack_state(state, 0, 0)
    state.boot, state.next_pull = boot, pull
    return packed


def busy(settings=WIDE) -> Rig:
    """Batches, deliveries, acks, failures, two groups."""
    rig = Rig(settings)
    rig.fill(10)
    low = pulls(rig.pull(8))[0]
    rig.ask(Ack("g", "c", SUBJECT, [low, low + 1, low + 4, low + 4]))
    rig.ask(Nack("g", "c", SUBJECT, [low + 6, low + 6], 5000))
    rig.pull(3, group="other")
    return rig


def test_empty_folder_becomes_an_empty_broker() -> None:
    rig = Rig()

    assert (rig.broker.state.boot, rig.report.actions_replayed) == (1, 0)
    assert read_file(rig.disk, ACTION)
    rig.power_cut()
    assert rig.broker.state.boot == 2, "the START record had been synced"


@pytest.mark.parametrize("settings", [WIDE, TINY])
def test_killed_broker_is_what_it_was(settings) -> None:
    rig = busy(settings)
    before = said(rig)
    for _ in range(3):
        rig.restart()
        assert said(rig) == before
    assert everything(rig) == list(range(10))


def test_state_after_a_checkpoint_is_the_same_with_less_to_replay() -> None:
    rig = busy()
    checkpointed(rig)
    rig.fill(2)
    before = said(rig)
    rig.restart()

    assert said(rig) == before
    assert rig.report.checkpoint == 1
    assert (rig.report.batches_replayed, rig.report.actions_replayed) == (2, 0)


def test_pull_sequences_of_different_lives_never_meet() -> None:
    rig = busy()
    first = pulls(rig.pull(1))
    rig.restart()

    assert pulls(rig.pull(1))[0] >> 40 == (first[0] >> 40) + 1


def test_torn_tail_of_the_message_log_is_cut_and_kept_aside() -> None:
    rig = Rig(WIDE)
    rig.fill(3)
    tail = read_file(rig.disk, OPEN)[2 * BATCH_BYTES : -5]
    cut(rig.disk, OPEN, 3 * BATCH_BYTES - 5)
    rig.restart()

    assert rig.report.cut_bytes == {"message": BATCH_BYTES - 5}
    assert read_file(rig.disk, f"aside/message-{0:020}.log.{2 * BATCH_BYTES}") == tail
    assert len(read_file(rig.disk, OPEN)) == 2 * BATCH_BYTES
    assert rig.send(b"next").first_sequences == [2]
    rig.restart()
    assert rig.report.cut_bytes == {}
    assert everything(rig) == [0, 1, 2]


def test_torn_tail_of_the_action_log_is_cut_and_kept_aside() -> None:
    rig = busy()
    data = read_file(rig.disk, ACTION)
    cut(rig.disk, ACTION, len(data) - 1)
    rig.restart()

    assert rig.report.cut_bytes["action"] > 0
    assert any(name.startswith(f"aside/action-{0:020}.log.") for name in files_of(rig.disk, "aside"))
    assert everything(rig) == list(range(10))


@pytest.mark.parametrize("again", [False, True])
def test_cut_at_the_first_byte_of_a_segment_loses_none_before_it(again: bool) -> None:
    """The last segment is all torn, and the one before it was sealed and has a run."""
    rig = Rig()
    rig.fill(6)
    if again:
        checkpointed(rig)
    rig.fill(1)
    last = files_of(rig.disk, "message")[-1]
    cut(rig.disk, last, 50)
    rig.restart()
    assert everything(rig) == list(range(6))
    assert rig.send(b"next").first_sequences == [6]
    rig.fill(7)
    checkpointed(rig)
    rig.restart()

    assert rig.report.checkpoint > 0
    assert everything(rig) == list(range(14))
    rig.fill(1)
    rig.restart()
    assert everything(rig) == list(range(15))


def test_cut_at_the_first_byte_of_an_action_segment_recovers() -> None:
    rig = Rig(replace(WIDE, action_segment_bytes=256))
    rig.fill(3)
    for _ in range(12):
        rig.ask(Nack("g", "c", SUBJECT, pulls(rig.pull(1))))
    last = files_of(rig.disk, "action")[-1]
    cut(rig.disk, last, 8)
    rig.restart()
    before = said(rig)
    rig.restart()

    assert said(rig) == before
    assert everything(rig) == [0, 1, 2]


def test_segments_behind_a_torn_one_are_set_aside() -> None:
    rig = Rig()
    rig.fill(14)
    first, second, third = files_of(rig.disk, "message")
    cut(rig.disk, second, 3 * BATCH_BYTES + 1)
    rig.restart()

    assert files_of(rig.disk, "message") == [first, second]
    assert any(name.startswith("aside/" + third.replace("/", "-")) for name in files_of(rig.disk, "aside"))
    assert everything(rig) == list(range(9))
    assert rig.send(b"next").first_sequences == [9]


@pytest.mark.parametrize("place", [0, 3 * BATCH_BYTES + 50])
def test_damage_below_what_was_synced_is_refused_with_its_position(place: int) -> None:
    rig = Rig(WIDE)
    rig.fill(6)
    rig.wait(5000)
    flip(rig.disk, OPEN, place)

    with pytest.raises(CorruptLog, match="tidemill inspect log") as caught:
        rig.restart()
    assert (caught.value.file, caught.value.position) == (OPEN, place // BATCH_BYTES * BATCH_BYTES)
    assert files_of(rig.disk, "aside") == []


def test_same_damage_above_what_was_synced_is_a_torn_tail() -> None:
    rig = Rig(WIDE)
    rig.fill(6)
    flip(rig.disk, OPEN, 3 * BATCH_BYTES + 50)
    rig.restart()

    assert everything(rig) == [0, 1, 2]


def test_damage_of_the_action_log_below_what_was_synced_is_refused() -> None:
    """Only a record behind the damage can know that."""
    rig = busy()
    rig.wait(2000)
    rig.fill(2)
    rig.wait(2000)
    flip(rig.disk, ACTION, 45)

    with pytest.raises(CorruptLog) as caught:
        rig.restart()
    assert (caught.value.file, caught.value.position) == (ACTION, 40)


def test_missing_segment_below_what_was_synced_is_refused() -> None:
    rig = Rig()
    rig.fill(20)
    rig.wait(5000)
    remove_file(rig.disk, files_of(rig.disk, "message")[1])

    with pytest.raises(CorruptLog, match="the next begins at"):
        rig.restart()


@pytest.mark.parametrize("damage", ["missing", "short", "head", "directory", "empty"])
def test_run_that_is_missing_or_damaged_is_made_again(damage: str) -> None:
    rig = Rig()
    rig.fill(20)
    checkpointed(rig)
    good = read_file(rig.disk, run_file(0))
    match damage:
        case "missing":
            remove_file(rig.disk, run_file(0))
        case "short":
            cut(rig.disk, run_file(0), len(good) - 1)
        case "head":
            flip(rig.disk, run_file(0), 11)
        case "directory":
            flip(rig.disk, run_file(0), 40)
        case _:
            put_file(rig.disk, run_file(0), b"")
    rig.restart()

    assert rig.report.runs_rebuilt == 1
    assert read_file(rig.disk, run_file(0)) == good
    assert everything(rig) == list(range(20))


def test_damaged_checkpoint_is_passed_over_for_the_one_before() -> None:
    rig = busy()
    checkpointed(rig)
    rig.fill(3)
    checkpointed(rig)
    rig.fill(1)
    before = said(rig)
    flip(rig.disk, checkpoint_file(2), 30)
    rig.restart()

    assert (rig.report.checkpoint, rig.report.checkpoints_passed_over) == (1, 1)
    assert said(rig) == before
    checkpointed(rig)
    assert files_of(rig.disk, "checkpoint")[-1] == checkpoint_file(3), "a number is not used twice"


def test_all_checkpoints_damaged_is_a_longer_replay() -> None:
    rig = busy()
    for _ in range(3):
        checkpointed(rig)
        rig.fill(1)
    before = said(rig)
    for name in files_of(rig.disk, "checkpoint"):
        put_file(rig.disk, name, b"")
    rig.restart()

    assert (rig.report.checkpoint, rig.report.checkpoints_passed_over) == (0, 3)
    assert said(rig) == before


def test_log_shorter_than_its_checkpoint_is_refused() -> None:
    rig = busy()
    checkpointed(rig)
    cut(rig.disk, OPEN, 5 * BATCH_BYTES)

    with pytest.raises(CorruptLog, match="checkpoint 1"):
        rig.restart()


def test_subject_whose_name_was_lost_is_named_again() -> None:
    """Its batch reached the disk, the action that named it did not."""
    rig = Rig(WIDE)
    started = len(read_file(rig.disk, ACTION))
    rig.fill(2)
    cut(rig.disk, ACTION, started)
    rig.restart()
    assert everything(rig) == [0, 1]
    rig.send(b"x", subject="order.paid")
    rig.restart()

    assert set(rig.broker.state.by_name) == {SUBJECT.encode(), b"order.paid"}
    assert everything(rig) == [0, 1]


def test_sequences_that_a_group_was_given_are_not_used_again() -> None:
    rig = Rig(WIDE)
    rig.fill(4)
    rig.pull()
    cut(rig.disk, OPEN, BATCH_BYTES)
    rig.restart()

    assert rig.send(b"x").first_sequences == [4]
    assert sequences(rig.pull(group="other")) == [0, 4]
    rig.restart()
    assert rig.send(b"y").first_sequences == [5]


def test_producer_is_known_after_a_restart_by_checkpoint_and_log() -> None:
    rig = Rig(WIDE)
    for sequence in range(1, 4):
        rig.ask(SendBatches(batch_of(b"x", sequence=sequence)))
    checkpointed(rig)
    for sequence in range(4, 7):
        rig.ask(SendBatches(batch_of(b"x", sequence=sequence)))
    rig.restart()
    answers = [rig.ask(SendBatches(batch_of(b"x", sequence=sequence))) for sequence in (1, 2, 3, 6, 7)]

    assert [answer.first_sequences for answer in answers if answer is not None] == [[-1], [1], [2], [5], [6]]


def test_power_cut_after_a_kill_takes_nothing_that_the_next_life_believed() -> None:
    """The killed life had not synced the sealed segments; the next one counts on them."""
    for seed in range(20):
        rig = Rig(TINY, copy_of(Rig().disk, seed))
        rig.fill(14)
        rig.restart()
        rig.wait(5000)
        rig.power_cut()
        assert everything(rig) == list(range(14))


def test_data_that_is_there_is_never_touched_by_a_refused_start() -> None:
    rig = Rig()
    rig.fill(20)
    rig.wait(5000)
    flip(rig.disk, OPEN, 200)
    before = {name: read_file(rig.disk, name) for name in rig.disk.names.cached}
    with pytest.raises(CorruptLog):
        rig.restart()

    assert {name: read_file(rig.disk, name) for name in rig.disk.names.cached} == before


def test_name_that_nobody_knows_below_the_checkpoint_is_damage() -> None:
    """Batches below it are not checked byte by byte, but a subject that is not in the checkpoint cannot be."""
    rig = Rig(WIDE)
    rig.fill(3)
    checkpointed(rig)
    flip(rig.disk, OPEN, BATCH_BYTES + 104)

    with pytest.raises(CorruptLog):
        rig.restart()
