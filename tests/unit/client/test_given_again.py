"""A message that is given out again to the consumer whose handler is at it still: its lease was lost meanwhile."""

from __future__ import annotations

import pytest

from samples.brokers import batch_of
from tidemill.delivery import Delivery, idle
from tidemill.message import Message


class Told:
    """As much of a settler as an end of a delivery asks for."""

    def __init__(self) -> None:
        self.released: list[list[int]] = []

    def release(self, _subject: str, ranges: list[int]) -> None:
        self.released.append(ranges)

    def parted(self, _delivery: Delivery, _into: list[Delivery]) -> None:
        return


def delivery(pull: int, count: int, first: int = 0, subject: str = "s") -> Delivery:
    """Messages of one batch of ten, from ``first`` on."""
    batch = memoryview(batch_of(*(b"%d" % number for number in range(10))))
    made = Delivery(subject, 0, pull, (batch, first, count))
    made.settler = Told()  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("opened", [True, False])
def test_message_at_work_is_not_idle_in_what_was_given_out_last(opened: bool) -> None:
    at_work, again = delivery(100, 2), delivery(200, 4)
    at_work.open()
    Message(at_work, 1).begin()
    if opened:
        again.open()

    found = idle([at_work, again], "s")

    assert found == [(at_work, [0]), (again, [0, 2, 3])]
    assert again.at_work == [201, 201], "its lease is renewed, and it is said to be held"


def test_what_is_settled_or_of_another_subject_is_left_alone() -> None:
    at_work, again, other = delivery(100, 2), delivery(200, 2), delivery(300, 2, subject="t")
    for one in (at_work, again, other):
        one.open()
    Message(at_work, 0).begin()
    again.settle(0, 0)

    assert idle([at_work, again, other], "s") == [(at_work, [1]), (again, [0, 1])]
    assert again.at_work == other.at_work == []


def test_it_is_given_back_when_the_handler_has_ended() -> None:
    at_work, again = delivery(100, 1), delivery(200, 1)
    at_work.open()
    Message(at_work, 0).begin()
    idle([at_work, again], "s")
    message = Message(again, 0)
    assert message.kept

    message.release()

    assert again.settler.released == [[200, 200]]  # type: ignore[attr-defined]
    assert not message.kept


def test_without_a_handler_at_work_nothing_is_opened() -> None:
    waiting = delivery(100, 3)

    assert idle([waiting], "s") == [(waiting, [0, 1, 2])]
    assert not hasattr(waiting, "bodies")
