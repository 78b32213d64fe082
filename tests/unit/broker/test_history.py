"""What became of a message, from records that begin somewhere in its life."""

from __future__ import annotations

import pytest

from samples.actions import SETTINGS
from tidemill_broker.action_records import encode_action
from tidemill_broker.actions import (
    Acked,
    Action,
    Buried,
    ConsumerForgotten,
    ConsumerNamed,
    FailedDeliveries,
    GroupNamed,
    Pulled,
    PullRun,
    Reason,
    Sought,
    Started,
    SubjectNamed,
)
from tidemill_broker.history import History, Standing, conclude, standing_of
from tidemill_broker.state import State
from tidemill_journal.records import Record
from tidemill_wire.limits import DOOMED_MS

PULL = 1 << 40
NAMED = (
    Started(1),
    SubjectNamed(1, "order.created", SETTINGS),
    GroupNamed(1, 1, "billing", 0, 0, {}),
    SubjectNamed(2, "other", SETTINGS),
    GroupNamed(2, 2, "billing", 0, 0, {}),
)
POD, OTHER = ConsumerNamed(1, 1, "pod-1"), ConsumerNamed(2, 2, "pod-2")
GONE = ConsumerForgotten(1, 1, "pod-1")


def state_after(*actions: Action) -> State:
    state = State()
    for action in actions:
        state.apply(action)
        for partition in state.partitions.values():
            partition.next_sequence = 100
    return state


def told(state: State, sequence: int, *read: Action) -> Standing:
    """Where a message of the first subject stands, when only these records are read."""
    history = History(state, 1, sequence)
    for _ in range(2):
        for number, action in enumerate(read):
            kind, body = encode_action(action)
            history.note(Record(0, 0, 1000 + number, 0, kind, body), lambda _position: 0)
        if not history.read_again():
            break
    return conclude(standing_of(state.groups[1], sequence), history.events[1], 0.0)


def pulled(consumer: int = 1, first: int = 0, count: int = 3) -> Pulled:
    return Pulled(consumer, 2000, [PullRun(PULL + first, first, count, 0)])


def test_ack_of_a_consumer_that_is_gone_is_told_when_its_name_lies_before_what_is_read() -> None:
    done = (pulled(), Acked(1, [PULL, PULL + 2]), GONE)
    standing = told(state_after(*NAMED, POD, *done), 1, *done)

    assert (standing.state, standing.consumer) == ("acked", "pod-1")
    assert [event.what for event in standing.events] == ["pulled", "acked"]


def test_events_of_consumers_that_are_known_and_not_known_stand_in_their_order() -> None:
    again = Pulled(3, 9000, [PullRun(PULL + 50, 0, 3, 1)])
    done = (
        pulled(), FailedDeliveries(1, 1500, Reason.NACK, [PULL, PULL + 2], 1400), GONE,
        ConsumerNamed(3, 1, "pod-3"), again,
    )  # fmt: skip
    standing = told(state_after(*NAMED, POD, *done), 1, *done)

    assert [(event.what, event.consumer) for event in standing.events] == [
        ("pulled", "pod-1"),
        ("failed", "pod-1"),
        ("pulled", "pod-3"),
    ]
    assert (standing.state, standing.consumer) == ("leased", "pod-3")


@pytest.mark.parametrize("sequence", [0, 2])
def test_consumer_of_another_subject_that_is_gone_is_told_of_nowhere(sequence: int) -> None:
    done = (pulled(2), Acked(2, [PULL, PULL + 2]), ConsumerForgotten(2, 2, "pod-2"))
    standing = told(state_after(*NAMED, OTHER, *done), sequence, *done)

    assert standing.state == "waiting"
    assert standing.events == []


def test_ack_behind_a_move_of_the_group_is_none_also_of_who_is_gone() -> None:
    done = (pulled(), Sought(1, 50, 0), Acked(1, [PULL, PULL + 2]), GONE)
    standing = told(state_after(*NAMED, POD, *done), 1, *done)

    assert [event.what for event in standing.events] == ["pulled", "moved"]
    assert standing.state == "passed over"


def test_what_a_consumer_that_is_gone_let_die_is_told_with_its_attempts() -> None:
    died = FailedDeliveries(1, DOOMED_MS, Reason.LEASE_ENDED, [PULL, PULL + 2], 1400)
    done = (pulled(), died, GONE, Buried(1, 0, 3, 4096))
    standing = told(state_after(*NAMED, POD, *done), 1, *done)

    assert (standing.state, standing.attempts) == ("dead", 1)
    assert [event.what for event in standing.events] == ["pulled", "lease ended", "dead"]


def test_record_of_an_end_that_names_nobody_is_read_still() -> None:
    """As it was written before."""
    done = (pulled(), Acked(1, [PULL, PULL + 2]), ConsumerForgotten(1))
    standing = told(state_after(*NAMED, POD, *done), 1, *done)

    assert standing.state == "passed over"
