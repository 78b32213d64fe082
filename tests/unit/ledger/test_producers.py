"""What is remembered of producers: their last batches, of as many of them as is said, whoever comes besides."""

from __future__ import annotations

from tidemill_ledger.producers import Remembering
from tidemill_wire import limits
from tidemill_wire.batch import SINGLES_FROM

MOST = limits.PRODUCERS_REMEMBERED_MAX


def test_the_last_five_batches_are_told_from_older_and_newer_ones() -> None:
    memory = Remembering()
    for number in range(1, 8):
        memory.remember(1, number, 10 * number)

    said = [memory.repeated(1, number) for number in (1, 2, 3, 7, 8)]

    assert said == [-1, -1, 30, 70, None]


def test_as_many_producers_as_is_said_are_remembered_and_those_silent_for_longest_go() -> None:
    memory = Remembering()
    for producer in range(5 * MOST):
        memory.remember(producer, 1, producer)
        memory.remember(MOST, producer + 1, producer)  # never silent

        newest = range(max(0, producer - MOST + 2), producer + 1)
        assert memory.repeated(newest[0], 1) is not None
        assert len(memory.producers) <= MOST + MOST // 8

    assert memory.repeated(0, 1) is None
    assert memory.repeated(MOST, 5 * MOST) == 5 * MOST - 1
    assert all(memory.repeated(producer, 1) == producer for producer in newest)


def test_producers_of_one_batch_push_out_each_other_and_nobody_else() -> None:
    memory = Remembering()
    memory.remember(1, 1, 0)
    for number in range(2 * limits.SINGLES_REMEMBERED_MAX):
        memory.remember(SINGLES_FROM + number, 1, number)

    assert memory.repeated(1, 1) == 0
    assert memory.repeated(SINGLES_FROM, 1) is None
    assert len(memory.singles) == limits.SINGLES_REMEMBERED_MAX
