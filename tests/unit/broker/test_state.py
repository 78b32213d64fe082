"""The fold: what each action makes of the state, and a snapshot that says all of it."""

from __future__ import annotations

import pytest

from samples.actions import BOOT, PULL, SETTINGS
from tidemill_broker.actions import (
    Acked,
    Action,
    ConsumerForgotten,
    ConsumerNamed,
    Extended,
    FailedDeliveries,
    GroupNamed,
    Pulled,
    PullRun,
    Reason,
    Released,
    Started,
    SubjectNamed,
    Synced,
    Voided,
)
from tidemill_broker.groups import Failure, Group
from tidemill_broker.snapshots import pack_state, unpack_state
from tidemill_broker.state import State
from tidemill_journal.errors import CorruptRecord
from tidemill_wire.batch import SINGLES_FROM


def folded(*actions: Action) -> tuple[State, Group]:
    """A group with one consumer in a subject of 100 messages."""
    state = State()
    state.apply(Started(BOOT))
    state.apply(SubjectNamed(1, "order.created", SETTINGS))
    state.partitions[1].next_sequence = 100
    state.apply(GroupNamed(1, 1, "billing", 0, 0, {"lease_ms": 1000}))
    state.apply(ConsumerNamed(1, 1, "pod"))
    for action in actions:
        state.apply(action)
        state.check()
    return state, state.groups[1]


def pulled(count: int = 10, deadline_ms: int = 500) -> Pulled:
    return Pulled(1, deadline_ms, [PullRun(PULL, 0, count, 0)])


def test_pull_moves_the_cursor_and_numbers_the_next_one() -> None:
    state, group = folded(pulled())

    assert (group.cursor, group.in_flight, state.next_pull) == (10, 10, PULL + 10)
    assert state.leases.next_end() is not None


def test_pull_beyond_a_gap_takes_the_cursor_there() -> None:
    _, group = folded(Pulled(1, 500, [PullRun(PULL, 50, 1, 0)]))

    assert (group.cursor, group.in_flight) == (51, 1)


def test_ack_says_how_many_it_really_concerned() -> None:
    state, group = folded(pulled())

    assert state.apply(Acked(1, [PULL, PULL + 3, PULL + 3, PULL + 5])) == 6
    assert state.apply(Acked(1, [PULL, PULL + 9])) == 4
    assert state.apply(Acked(1, [PULL, PULL + 9])) == 0
    assert state.apply(Acked(77, [PULL, PULL + 9])) == 0
    assert (group.acked, group.in_flight) == (10, 0)


def test_failed_deliveries_are_due_with_another_attempt() -> None:
    _, group = folded(pulled(), FailedDeliveries(1, 700, Reason.NACK, [PULL + 2, PULL + 4]))

    assert group.failed == {2: Failure(2, 3, 1, 700)}
    assert group.in_flight == 7


def test_released_deliveries_are_due_at_once_with_the_attempts_they_had() -> None:
    _, group = folded(
        pulled(),
        FailedDeliveries(1, 700, Reason.NACK, [PULL, PULL + 9]),
        Pulled(1, 900, [PullRun(PULL + 10, 0, 10, 1)]),
        Released(1, [PULL + 10, PULL + 14]),
    )

    assert group.failed == {0: Failure(0, 5, 1, 0)}
    assert group.in_flight == 5


def test_failure_that_is_pulled_again_leaves_the_cursor_where_it_is() -> None:
    _, group = folded(
        pulled(),
        FailedDeliveries(1, 700, Reason.NACK, [PULL + 2, PULL + 4]),
        Pulled(1, 900, [PullRun(PULL + 10, 2, 2, 1)]),
    )

    assert (group.cursor, group.in_flight) == (10, 9)
    assert group.failed == {4: Failure(4, 1, 1, 700)}


def test_lease_that_ends_first_is_found_after_splits_and_extensions() -> None:
    state, _ = folded(
        Pulled(1, 500, [PullRun(PULL, 0, 10, 0)]),
        Pulled(1, 600, [PullRun(PULL + 10, 10, 1, 0)]),
        Acked(1, [PULL + 3, PULL + 3]),
        Extended(1, 800, [PULL, PULL + 2]),
    )
    ends: list[tuple[int, int, int]] = []
    while (ended := state.leases.next_end()) is not None:
        deadline_ms, consumer, delivery = ended
        ends.append((deadline_ms, delivery.pull - PULL, delivery.count))
        consumer.take(delivery.pull, delivery.pull + delivery.count - 1)

    assert ends == [(500, 4, 6), (600, 10, 1), (800, 0, 3)]


def test_extension_counts_what_is_held_and_never_shortens_a_lease() -> None:
    state, group = folded(pulled(deadline_ms=500))

    assert state.apply(Extended(1, 400, [PULL + 8, PULL + 20])) == 2
    assert {one.deadline_ms for one in group.consumers["pod"].held()} == {500}


def test_extension_concerns_only_the_messages_it_names() -> None:
    """A handler that hangs is not kept alive by the others of its run."""
    state, group = folded(pulled(10, 500), Extended(1, 900, [PULL + 3, PULL + 4]))

    held = [(one.pull - PULL, one.count, one.deadline_ms) for one in group.consumers["pod"].held()]
    assert held == [(0, 3, 500), (3, 2, 900), (5, 5, 500)]
    ended = state.leases.next_end()
    assert ended is not None
    assert ended[0] == 500


def test_settings_that_change_keep_what_is_there() -> None:
    state, group = folded(
        pulled(),
        SubjectNamed(1, "order.created", {**SETTINGS, "durability": "low"}),
        GroupNamed(1, 1, "billing", 99, 99, {"lease_ms": 5}),
    )

    assert not state.partitions[1].synced
    assert (group.cursor, group.start_ms, group.settings.lease_ms, group.in_flight) == (10, 0, 5, 10)
    assert state.group_of("order.created", "billing") is group
    assert state.group_of("order.created", "others") is None
    assert state.group_of("order.paid", "billing") is None


def test_consumer_that_is_gone_for_good_leaves_its_number_unused() -> None:
    state, group = folded(ConsumerForgotten(1))

    assert (state.consumers, group.consumers, state.next_consumer) == ({}, {}, 2)


def test_voided_failures_are_gone() -> None:
    _, group = folded(pulled(), FailedDeliveries(1, 9, Reason.NACK, [PULL + 5, PULL + 9]), Voided(1, 5, 3))

    assert group.failed == {8: Failure(8, 2, 1, 9)}


def test_synced_changes_nothing_and_a_start_begins_new_pull_sequences() -> None:
    state, _ = folded(pulled())
    before = pack_state(state, 0, 0)

    assert state.apply(Synced(1, 2)) == 0
    assert pack_state(state, 0, 0) == before
    state.apply(Started(BOOT + 1))
    assert (state.boot, state.next_pull) == (BOOT + 1, BOOT + 1 << 40)


def busy() -> State:
    state, _ = folded(
        pulled(20),
        Acked(1, [PULL + 3, PULL + 3]),
        FailedDeliveries(1, 700, Reason.NACK, [PULL + 5, PULL + 7, PULL + 15, PULL + 19]),
        Extended(1, 800, [PULL, PULL + 1]),
        SubjectNamed(2, "order.paid", SETTINGS),
        GroupNamed(2, 2, "billing", 0, 5, {"lease_ms": 9}),
    )
    state.partitions[2].next_sequence = 7
    state.partitions[1].remember(5, 1, 90)
    state.partitions[1].remember(SINGLES_FROM + 5, 1, 91)
    return state


def test_snapshot_says_everything() -> None:
    state = busy()
    again, message_position, action_position = unpack_state(pack_state(state, 11, 22))

    assert (message_position, action_position) == (11, 22)
    assert pack_state(again, 11, 22) == pack_state(state, 11, 22)
    again.check()
    assert (again.boot, again.next_pull, again.next_consumer) == (BOOT, PULL + 20, 2)
    assert again.groups[1].in_flight == state.groups[1].in_flight
    assert again.groups[1].next_failure() == state.groups[1].next_failure()
    assert again.partitions[1].repeated(5, 1) == 90
    assert again.partitions[1].repeated(SINGLES_FROM + 5, 1) == 91
    ends = again.leases.next_end(), state.leases.next_end()
    assert all(end is not None and end[0] == 500 for end in ends)


def test_action_does_the_same_to_a_state_and_to_its_snapshot() -> None:
    state = busy()
    again, _, _ = unpack_state(pack_state(state, 0, 0))
    for action in (
        Released(1, [PULL, PULL + 100]),
        Pulled(1, 900, [PullRun(PULL + 20, 5, 3, 1)]),
        GroupNamed(3, 2, "audit", 0, 0, {"lease_ms": 1}),
        ConsumerNamed(again.next_consumer, 3, "x"),
    ):
        assert state.apply(action) == again.apply(action)
        assert pack_state(state, 0, 0) == pack_state(again, 0, 0)


@pytest.mark.parametrize(
    "payload", [b"", b"\x90", b"\xc1", b"\x80", b"\x81\xa7version\x63", pack_state(busy(), 1, 2)[:-1]]
)
def test_snapshot_that_cannot_be_read_is_refused_by_name(payload: bytes) -> None:
    with pytest.raises(CorruptRecord):
        unpack_state(payload)
