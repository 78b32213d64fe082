"""Partitions: sequences move on, the last five batches of a producer are remembered, runs and rows find a sequence."""

from __future__ import annotations

import pytest

from tidemill_broker.partitions import Partition, StoredRun, SubjectSettings
from tidemill_journal.entries import layout_runs, pack_size
from tidemill_wire.batch import SINGLES_FROM, Flags

SETTINGS = SubjectSettings("normal", 3600, 0, 1024)


def partition() -> Partition:
    return Partition(1, "order.created", SETTINGS)


def sealed(one: Partition, base: int) -> None:
    """What a sealed segment does to its partitions."""
    rows = one.recent
    one.recent = type(rows)()
    one.runs.append(StoredRun(layout_runs([(1, rows)], base)[1], rows))


def filled() -> Partition:
    """0 to 9 and 10 to 19 sealed, 20 to 24 in the open segment."""
    one = partition()
    for index in range(5):
        one.stored(5 * index, 100 * index, pack_size(100, 5), 1000 + index)
        if index in {1, 3}:
            sealed(one, index * 100 - 100)
    return one


def test_sequence_moves_on_by_the_messages_of_a_batch() -> None:
    one = partition()
    one.stored(0, 0, pack_size(100, 7), 1)
    one.stored(7, 100, pack_size(100, 1), 2)

    assert (one.next_sequence, one.first_kept, one.visible) == (8, 0, 0)
    with pytest.raises(AssertionError):
        one.stored(7, 200, pack_size(100, 1), 3)


@pytest.mark.parametrize(
    "sequence, base", [(0, 0), (9, 0), (10, 200), (19, 200), (20, None), (24, None), (99, None)]
)
def test_run_of_a_sequence_is_found(sequence: int, base: int | None) -> None:
    stored = filled().run_for(sequence)

    assert (None if stored is None else stored.run.base) == base


def test_oldest_kept_message_is_that_of_the_oldest_run() -> None:
    one = filled()
    assert (one.first_kept, one.size) == (0, 400)
    del one.runs[0]
    assert (one.first_kept, one.size) == (10, 200)
    del one.runs[0]
    assert (one.first_kept, one.size) == (20, 0)
    one.recent = type(one.recent)()
    assert one.first_kept == 25


def test_last_five_batches_of_a_producer_are_known() -> None:
    one = partition()
    for sequence in range(1, 8):
        assert one.repeated(7, sequence) is None
        one.remember(7, sequence, 10 * sequence)

    assert [one.repeated(7, sequence) for sequence in range(9)] == [-1, -1, -1, 30, 40, 50, 60, 70, None]
    assert one.repeated(8, 3) is None


def test_batch_between_remembered_ones_that_was_never_stored_is_new() -> None:
    """It was refused, and the next one was taken before its producer heard of that."""
    one = partition()
    one.remember(7, 1, 0)
    one.remember(7, 3, 10)
    assert one.repeated(7, 2) is None
    one.remember(7, 2, 20)
    for sequence in range(4, 7):
        one.remember(7, sequence, 10 * sequence)

    assert [one.repeated(7, sequence) for sequence in range(8)] == [-1, -1, 20, 10, 40, 50, 60, None]


def test_batch_with_order_keys_that_later_ones_have_passed_is_not_stored_late() -> None:
    """Its producer has given it up before it sent the next one."""
    one = partition()
    one.remember(7, 1, 0)
    one.remember(7, 3, 10)

    assert one.repeated(7, 2, Flags.ORDERED) == -1
    assert one.repeated(7, 3, Flags.ORDERED) == 10
    assert one.repeated(7, 4, Flags.ORDERED) is None


def test_producer_of_one_batch_is_told_by_both_its_numbers() -> None:
    """So that a foreign client whose id happens to be so high loses nothing."""
    one = partition()
    one.remember(SINGLES_FROM, 5, 10)

    assert one.repeated(SINGLES_FROM, 4) is None
    assert one.repeated(SINGLES_FROM, 6) is None
    assert one.repeated(SINGLES_FROM, 5) == 10


def test_check_finds_what_can_never_be() -> None:
    one = filled()
    one.check()
    one.visible = 26
    with pytest.raises(AssertionError):
        one.check()
    one.visible = 25
    one.runs.reverse()
    with pytest.raises(AssertionError):
        one.check()


def test_settings_are_read_as_they_were_written() -> None:
    assert SubjectSettings.from_map(SETTINGS.to_map()) == SETTINGS


def test_configured_durability_counts_at_once() -> None:
    one = partition()
    one.configure(SubjectSettings("high", 1, 2, 3))

    assert (one.synced, one.settings.retention_bytes) == (True, 2)
