"""However often a lease is renewed, it ends at its limit, which a delivery has from the moment it was pulled."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from samples.brokers import SUBJECT, TINY, Rig, pulls, spans
from samples.graves import HASTY, letters
from tidemill_broker.actions import Reason
from tidemill_broker.failures import SILENT
from tidemill_broker.group_settings import ORDERED, GroupSettings
from tidemill_broker.snapshots import pack_state, unpack_state
from tidemill_broker.standings import sentence_of, standing_of
from tidemill_wire.commands import Ack, Done, Extend

LEASE_MS, LIMIT_MS = 1000, 2500
LIMITED = GroupSettings(lease_ms=LEASE_MS, lease_ms_max=LIMIT_MS, backoff_ms=(100,))
PATIENT = replace(TINY, segment_bytes=1 << 20, consumer_gone_ms=10**9)


def rig_with(settings: GroupSettings = LIMITED) -> Rig:
    """Three messages, and a group."""
    rig = Rig(PATIENT)
    rig.fill(3)
    declare(rig, settings)
    return rig


def declare(rig: Rig, settings: GroupSettings) -> None:
    rig.broker.members.declare_group(rig.broker.state.partitions[1], "g", (0, 0), settings, rig.now_ms)


def renew(rig: Rig, held: list[int], parked_ms: int = -1) -> list[int]:
    """The ranges that are lost."""
    answer = rig.ask(Extend("g", "c", SUBJECT, held, parked_ms))
    assert isinstance(answer, Done)
    return list(answer.lost)


def renewed_for(rig: Rig, held: list[int], milliseconds: int) -> None:
    """Time passes, and the consumer renews all of its leases as often as clients do."""
    end = rig.now_ms + milliseconds
    while rig.now_ms < end:
        rig.wait(min(LEASE_MS // 4, end - rig.now_ms))
        renew(rig, held)


def deadlines(rig: Rig) -> list[int]:
    return [one.deadline_ms - rig.now_ms for one in rig.broker.state.groups[1].consumers["c"].held()]


def in_order(messages: int) -> tuple[Rig, list[int]]:
    """A consumer of a group in order holds so many."""
    rig = rig_with(replace(LIMITED, consumption=ORDERED))
    assert rig.pull(messages).grants == [], "its lock has to be on the disk first"
    rig.sync()
    rig.pump()
    return rig, pulls(rig.pull(messages))


def test_lease_that_is_renewed_for_ever_ends_at_the_limit() -> None:
    rig = rig_with()
    held = pulls(rig.pull(1))
    renewed_for(rig, held, LIMIT_MS - 1)
    assert deadlines(rig) == [1]
    assert rig.broker.state.groups[1].failed == {}

    rig.wait(1)
    assert renew(rig, held) == held
    [failure] = rig.broker.state.groups[1].failed.values()
    assert (failure.attempts, failure.due_ms) == (1, rig.now_ms)
    assert failure.fingerprint == SILENT[Reason.HELD_TOO_LONG].fingerprint
    assert spans(rig.pull(1, consumer="d")) == [(0, 1, 1)]
    assert rig.broker.counters.leases_ended == 1


def test_lease_that_nobody_renews_ends_as_ever() -> None:
    rig = rig_with()
    rig.pull(1)
    rig.wait(LEASE_MS)

    [failure] = rig.broker.state.groups[1].failed.values()
    assert failure.fingerprint == SILENT[Reason.LEASE_ENDED].fingerprint


def test_what_is_acked_before_the_limit_is_done() -> None:
    rig = rig_with()
    held = pulls(rig.pull(3))
    renewed_for(rig, held, LIMIT_MS - 1)

    assert rig.ask(Ack("g", "c", SUBJECT, held)) == Done([])
    rig.wait(10 * LIMIT_MS)
    assert rig.pull().grants == []


def test_a_group_without_a_limit_may_hold_for_ever() -> None:
    rig = rig_with(replace(LIMITED, lease_ms_max=0))
    held = pulls(rig.pull(1))
    renewed_for(rig, held, 20 * LIMIT_MS)

    assert renew(rig, held) == []
    assert deadlines(rig) == [LEASE_MS]


def test_a_lease_that_is_longer_than_the_limit_runs_to_its_end() -> None:
    """As of a group that declares a lease of two hours and no limit."""
    rig = rig_with(replace(LIMITED, lease_ms_max=LEASE_MS // 2))
    rig.pull(1)

    assert deadlines(rig) == [LEASE_MS]


def test_the_next_who_is_given_the_message_has_the_whole_time_again() -> None:
    rig = rig_with()
    renewed_for(rig, pulls(rig.pull(1)), LIMIT_MS)
    held = pulls(rig.pull(1))
    renewed_for(rig, held, LIMIT_MS - 1)

    assert renew(rig, held) == []


def test_the_limit_is_what_it_was_when_the_message_was_given_out() -> None:
    rig = rig_with()
    held = pulls(rig.pull(1))
    declare(rig, replace(LIMITED, lease_ms_max=10 * LIMIT_MS))
    renewed_for(rig, held, LIMIT_MS)
    assert renew(rig, held) == held

    held = pulls(rig.pull(1))
    declare(rig, LIMITED)
    renewed_for(rig, held, 9 * LIMIT_MS)
    assert renew(rig, held) == []


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_restart_does_not_forget_the_limit(checkpoint: bool) -> None:
    rig = rig_with()
    held = pulls(rig.pull(1))
    renewed_for(rig, held, LIMIT_MS // 2)
    if checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.restart()
    renewed_for(rig, held, LIMIT_MS // 2 - 1)
    assert deadlines(rig) == [1]
    rig.wait(1)

    assert renew(rig, held) == held


def test_a_clock_that_is_set_back_moves_the_limit_with_it() -> None:
    rig = rig_with()
    held = pulls(rig.pull(1))
    renew(rig, held)
    rig.now_ms -= 3_600_000
    rig.restart()
    renewed_for(rig, held, LIMIT_MS - 1)
    assert deadlines(rig) == [1]
    rig.wait(1)

    assert renew(rig, held) == held


def test_a_checkpoint_of_before_there_were_limits_has_none() -> None:
    rig = rig_with()
    rig.pull(1)
    state = rig.broker.state
    [delivery] = state.groups[1].consumers["c"].held()
    row = (delivery.pull, delivery.first, delivery.count, 0, delivery.deadline_ms, 0, "")
    new = pack_state(state, 1, 2)
    values = msgpack.unpackb(new, strict_map_key=False)
    assert values["groups"][0][8][0][2] == [[*row, delivery.limit_ms]]
    values["groups"][0][8][0][2] = [row]
    [found] = unpack_state(msgpack.packb(values))[0].groups[1].consumers["c"].held()
    assert (found.deadline_ms, found.limit_ms) == (delivery.deadline_ms, 0)


def test_one_that_is_parked_is_a_new_attempt_with_the_whole_time_from_then_on() -> None:
    """Its handler has ended; what the limit bounds is a handler that does not."""
    rig, held = in_order(3)
    first = [held[0], held[0]]
    rig.wait(LEASE_MS // 2)
    assert renew(rig, first, parked_ms=700) == []
    rig.wait(LEASE_MS - 1)
    assert renew(rig, first) == []
    assert rig.broker.state.groups[1].failed_count() == 2, "the others have their own leases"
    renewed_for(rig, first, 700 + LIMIT_MS - 2 * LEASE_MS)
    assert renew(rig, first) == []
    assert deadlines(rig) == [LEASE_MS]
    rig.wait(2)
    assert renew(rig, first) == first, "its new limit, counted from when it is tried again"
    rig.wait(LEASE_MS - 1)

    marks = {one.first: one.fingerprint for one in rig.broker.state.groups[1].failed.values()}
    assert marks == {
        0: SILENT[Reason.HELD_TOO_LONG].fingerprint,
        1: SILENT[Reason.LEASE_ENDED].fingerprint,
    }


def test_in_order_a_renewal_that_is_cut_short_is_called_lost_and_the_lease_runs_to_the_limit() -> None:
    """Else its consumer would believe, by its own clock, in more than it has."""
    rig, held = in_order(2)
    rig.wait(LEASE_MS - 1)
    assert renew(rig, held) == []
    rig.wait(LEASE_MS - 1)
    assert renew(rig, held) == held
    assert deadlines(rig) == [LIMIT_MS - 2 * (LEASE_MS - 1)] * len(deadlines(rig))
    assert rig.ask(Ack("g", "c", SUBJECT, [held[0], held[0]])) == Done([])
    rig.wait(LIMIT_MS - 2 * (LEASE_MS - 1))

    [failure] = rig.broker.state.groups[1].failed.values()
    assert (failure.first, failure.fingerprint) == (1, SILENT[Reason.HELD_TOO_LONG].fingerprint)


def test_handlers_that_hang_pause_no_group() -> None:
    """Their attempts are an hour apart: nothing is burnt that a pause would save."""
    rig = Rig(PATIENT)
    rig.send(*(b"x" for _ in range(60)))
    declare(rig, LIMITED)
    for consumer in ("c", "d", "e"):
        rig.pull(20, consumer=consumer)
    for _ in range(LIMIT_MS // 500):
        rig.wait(500)
        for consumer in ("c", "d", "e"):
            held = [(one.pull, one.count) for one in rig.broker.state.groups[1].consumers[consumer].held()]
            for pull, count in held:
                rig.ask(Extend("g", consumer, SUBJECT, [pull, pull + count - 1]))

    assert rig.broker.state.groups[1].failed_count() == 60
    assert rig.broker.state.groups[1].paused is None


def test_a_message_says_where_it_stands_and_its_dead_letter_says_why() -> None:
    settings = replace(LIMITED, attempts_max=HASTY.attempts_max, retry_ms_min=0)
    rig = rig_with(settings)
    renewed_for(rig, pulls(rig.pull(1)), LIMIT_MS)
    sentence = sentence_of(standing_of(rig.broker.state.groups[1], 0), str)
    assert "it was held for longer than the group allows" in sentence

    renewed_for(rig, pulls(rig.pull(1)), LIMIT_MS)
    assert letters(rig)[0].known["reason"].startswith("it was held for longer than the group allows")
