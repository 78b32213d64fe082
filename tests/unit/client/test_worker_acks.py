"""Acks that gather: what the broker answers as lost is counted, and the others are acknowledged all the same."""

from __future__ import annotations

import pytest

from tidemill.errors import LeaseLost, TidemillError
from tidemill.tasks import Tasks
from tidemill.worker.acks import Acks
from tidemill.worker.statistics import Counts


class Told:
    """A broker that gives one answer."""

    def __init__(self, answer: bool | TidemillError) -> None:
        self.answer = answer
        self.said: list[list[int]] = []

    async def ack_now(self, _subject: str, ranges: list[int]) -> bool:
        self.said.append(ranges)
        if isinstance(self.answer, TidemillError):
            raise self.answer
        return self.answer


class Handled:
    """A context of a message that was handled."""

    def __init__(self, told: Told, number: int) -> None:
        self.number = number
        self.message = self
        self.origin = told, "a"

    def settle(self) -> int:
        return self.number


@pytest.mark.parametrize(
    "lost, kept, late",
    [([], [1, 2, 3, 7], 0), ([2, 2], [1, 3, 7], 1), ([1, 3], [7], 3), ([1, 9], [], 4)],
)
async def test_only_what_was_lost_is_counted_and_the_others_are_acked(lost, kept, late):
    told = Told(LeaseLost("the lease had ended", lost) if lost else True)
    found: list[int] = []
    counts = Counts()

    async def acked(contexts):
        found.extend(context.number for context in contexts)

    tasks = Tasks(lambda _error: None)
    acks = Acks(0.001, acked, counts, tasks)
    for number in (3, 1, 7, 2):
        acks.add(Handled(told, number))
    await acks.drained()
    await tasks.close()

    assert told.said == [[1, 3, 7, 7]]
    assert (found, counts.lost, counts.spooled) == (kept, late, 0)


@pytest.mark.parametrize("answer", [False, TidemillError("refused")])
async def test_what_was_not_answered_is_not_said_to_be_acked(answer):
    told, found, counts = Told(answer), list[object](), Counts()

    async def acked(contexts):
        found.extend(contexts)

    tasks = Tasks(lambda _error: None)
    acks = Acks(0.001, acked, counts, tasks)
    acks.add(Handled(told, 1))
    await acks.drained()
    await tasks.close()

    assert (found, counts.lost, counts.spooled) == ([], 0, int(answer is False))
