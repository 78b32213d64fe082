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
    Extended,
    FailedDeliveries,
    FailureDetail,
    GroupNamed,
    GroupPaused,
    Parked,
    Pulled,
    PullRun,
    Reason,
    Sought,
    Started,
    SubjectNamed,
)
from tidemill_broker.history import History
from tidemill_broker.standings import Standing, conclude, sentence_of, standing_of
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


DETAIL = FailureDetail("no amount", "ValueError", "shop.py:7", "1f2e3d4c")
PARK = Parked(1, 60_000, [PULL + 1, PULL + 1], 5000, DETAIL)


def test_message_that_holds_its_key_up_is_parked_also_when_its_lease_was_renewed_since() -> None:
    done = (POD, pulled(), PARK, Extended(1, 90_000, [PULL, PULL + 2]))
    parked = told(state_after(*NAMED, *done), 1, *done)
    other = told(state_after(*NAMED, *done), 2, *done)

    assert (parked.state, parked.consumer, parked.until_ms, parked.detail) == (
        "parked",
        "pod-1",
        5000,
        DETAIL,
    )
    sentence = sentence_of(parked, str)
    assert sentence == "parked by pod-1, which holds its order key up and tries it again 5000 (no amount)"
    assert (other.state, other.until_ms) == ("leased", 90_000)


def test_message_that_was_parked_and_handled_is_acked() -> None:
    done = (POD, pulled(), PARK, Acked(1, [PULL, PULL + 2]))

    assert told(state_after(*NAMED, *done), 1, *done).state == "acked"


def test_retry_is_told_with_the_reason_of_this_message_and_not_of_the_last_one_alike() -> None:
    other = FailureDetail("no amount in order 2", "ValueError", "shop.py:7", DETAIL.fingerprint)
    done = (
        POD, pulled(),
        FailedDeliveries(1, 5000, Reason.NACK, [PULL, PULL], 1400, 1, DETAIL),
        FailedDeliveries(1, 5000, Reason.NACK, [PULL + 1, PULL + 1], 1400, 1, other),
    )  # fmt: skip

    assert told(state_after(*NAMED, *done), 0, *done).detail == DETAIL
    assert told(state_after(*NAMED, *done), 1, *done).detail == other


def test_pause_is_told_with_its_mistake_since_when_and_when_the_next_one_is_tried() -> None:
    done = (
        POD, pulled(),
        FailedDeliveries(1, 5000, Reason.NACK, [PULL, PULL + 2], 1400, 1, DETAIL),
        GroupPaused(1, 1500, DETAIL.fingerprint),
    )  # fmt: skip
    state = state_after(*NAMED, *done)
    state.groups[1].health.probe_at_ms = 2500
    sentence = sentence_of(told(state, 0, *done), str)
    state.groups[1].health.probe = PULL + 9
    probed = sentence_of(told(state, 0, *done), str)

    assert sentence == (
        "failed once (no amount), due again 5000; the group is paused since 1500, as everything fails alike: "
        "no amount (1f2e3d4c); the next one is tried 2500"
    )
    assert probed.endswith("no amount (1f2e3d4c); one is being tried")


def test_record_of_an_end_that_names_nobody_is_read_still() -> None:
    """As it was written before."""
    done = (pulled(), Acked(1, [PULL, PULL + 2]), ConsumerForgotten(1))
    standing = told(state_after(*NAMED, POD, *done), 1, *done)

    assert standing.state == "passed over"


def test_lease_that_was_renewed_up_to_its_limit_is_told_with_its_end_and_why_it_was_over() -> None:
    over = FailedDeliveries(1, 2500, Reason.HELD_TOO_LONG, [PULL, PULL + 2], 2500)
    limited = Pulled(1, 2000, [PullRun(PULL, 0, 3, 0)], 2500)
    done = (POD, limited, Extended(1, 3000, [PULL, PULL + 2]), over)
    standing = told(state_after(*NAMED, *done), 1, *done)

    assert [(event.what, event.until_ms) for event in standing.events] == [
        ("pulled", 2000),
        ("extended", 2500),
        ("held too long", 2500),
    ]
    assert sentence_of(standing, str).startswith("failed once (it was held for longer than the group allows")


def test_what_a_delay_service_keeps_is_a_further_failure_and_told_until_when() -> None:
    done = (pulled(), Acked(1, [PULL, PULL + 2], 90_000_000))
    standing = told(state_after(*NAMED, POD, *done), 1, POD, *done)

    assert (standing.state, standing.attempts, standing.until_ms) == ("kept", 1, 90_000_000)
    assert (
        sentence_of(standing, lambda ms: f"at {ms}")
        == "failed once, kept by the delay service and given to this group again at 90000000"
    )
