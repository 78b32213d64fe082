"""Priority lanes: higher first, none starves, and all that a group is promised holds in each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from samples.brokers import SUBJECT, TINY, Rig, batch_of, spans
from tidemill_broker.group_settings import BROADCAST, ORDERED, GroupSettings
from tidemill_broker.queries import Query, Span, view_of
from tidemill_broker.snapshots import pack_state, unpack_state
from tidemill_wire.columns import Batch
from tidemill_wire.commands import Ack, Done, Failed, Nack, Pull, Pulled, Release, SendBatches, Sent
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.grants import Piece, add_pieces
from tidemill_wire.kinds import Mode, Place, Start
from tidemill_wire.lanes import first_of_lane, lane_name, priority_of
from tidemill_wire.limits import LANE_SHARE
from tidemill_wire.steering import Seek, Sought, Suspend

CALM = replace(TINY, lease_ms=60_000, segment_bytes=1 << 20)


def subjects(pulled: Pulled) -> list[str]:
    return [grant.subject for grant in pulled.grants]


def count_of(pulled: Pulled) -> int:
    return sum(grant.count for grant in pulled.grants)


def bodies_of(pulled: Pulled) -> list[bytes]:
    pieces: list[Piece] = []
    at = 0
    for grant in pulled.grants:
        at = add_pieces(grant, pulled.batches, at, pieces)
    return [body for piece in pieces for body in Batch(piece.batch).bodies(piece.rows[0], piece.rows[-1])]


def drained(rig: Rig, most: int = 1000, **more: Any) -> list[bytes]:
    """All that a group is given, in the order in which it is."""
    bodies: list[bytes] = []
    while (pulled := rig.pull(most, **more)).grants:
        bodies += bodies_of(pulled)
    return bodies


# -- in ---------------------------------------------------------------------------------------------------------


def test_each_priority_has_sequences_of_its_own_and_a_lane_is_made_by_its_first_message() -> None:
    rig = Rig(CALM)

    assert list(rig.send(b"plain").first_sequences) == [0]
    assert len(rig.broker.state.partitions) == 1
    assert list(rig.send(b"a", b"b", priority=5).first_sequences) == [5 << 48]
    assert list(rig.send(b"c", priority=5).first_sequences) == [(5 << 48) + 2]
    assert [one.name for one in rig.broker.state.partitions.values()] == [SUBJECT, lane_name(SUBJECT, 5)]


def test_a_batch_that_comes_twice_is_known_in_its_lane() -> None:
    rig = Rig(CALM)
    batch = batch_of(b"once", producer=5, sequence=1, priority=2)

    first, second = rig.ask(SendBatches(bytearray(batch))), rig.ask(SendBatches(bytearray(batch)))

    assert isinstance(first, Sent)
    assert isinstance(second, Sent)
    assert list(first.first_sequences) == list(second.first_sequences) == [2 << 48]


def test_a_priority_above_the_highest_is_refused_by_its_name() -> None:
    rig = Rig(CALM)

    answer = rig.ask(SendBatches(batch_of(b"too high", priority=8)))

    assert isinstance(answer, Sent)
    assert [(number, detail) for _, number, detail in answer.refused] == [
        (KIND_BY_NAME["invalid_priority"].number, "'8' is no priority")
    ]
    assert rig.broker.state.lanes == {}


def test_nobody_sends_to_a_lane_by_its_name() -> None:
    rig = Rig(CALM)
    rig.send(b"x", priority=5)

    answer = rig.ask(SendBatches(batch_of(b"x", subject=lane_name(SUBJECT, 5))))

    assert isinstance(answer, Sent)
    assert [number for _, number, _ in answer.refused] == [KIND_BY_NAME["invalid_subject"].number]


# -- out --------------------------------------------------------------------------------------------------------


def test_higher_lanes_come_first_and_each_in_its_order() -> None:
    rig = Rig(CALM)
    for number, priority in enumerate([0, 7, 3, 0, 7, 3]):
        rig.send(b"%d/%d" % (priority, number), priority=priority)

    assert drained(rig) == [b"7/1", b"7/4", b"3/2", b"3/5", b"0/0", b"0/3"]


def test_no_lane_starves_while_a_higher_one_always_has_something() -> None:
    rig = Rig(CALM)
    rig.send(*[b"low"] * 100)
    given: list[bytes] = []
    for _ in range(40):
        rig.send(*[b"high"] * 10, priority=7)
        pulled = rig.pull(8)
        given += bodies_of(pulled)
        rig.ask(
            Ack(
                "g",
                "c",
                pulled.grants[0].subject,
                [pulled.grants[0].pull_sequence, pulled.grants[-1].pull_sequence],
            )
        )

    assert len(given) // (LANE_SHARE + 2) <= given.count(b"low") <= len(given) // LANE_SHARE


def test_a_group_that_is_new_begins_in_all_lanes_where_it_says() -> None:
    rig = Rig(CALM)
    rig.send(b"old")
    rig.send(b"old, high", priority=4)

    assert drained(rig, group="late", start=Start.LATEST) == []
    rig.send(b"new, high", priority=4)
    rig.send(b"new", priority=0)

    assert drained(rig, group="late", start=Start.LATEST) == [b"new, high", b"new"]
    assert drained(rig, group="early") == [b"old, high", b"new, high", b"old", b"new"]


def test_a_lane_that_is_younger_than_a_group_is_the_groups_from_its_first_message_on() -> None:
    rig = Rig(CALM)
    rig.pull(group="late", start=Start.LATEST)
    rig.send(b"high", priority=4)

    assert drained(rig, group="late", start=Start.LATEST) == [b"high"]


def test_who_waits_for_a_subject_is_given_the_first_message_of_a_new_lane() -> None:
    rig = Rig(CALM)
    assert rig.ask(Pull("g", "c", [SUBJECT], 10, 1 << 20, 10_000)) is None
    waits = rig.correlation
    rig.send(b"urgent", priority=6)

    answer = rig.answers.pop(waits)

    assert isinstance(answer, Pulled)
    assert subjects(answer) == [lane_name(SUBJECT, 6)]


def test_acks_nacks_and_leases_are_of_the_lane() -> None:
    rig = Rig(CALM)
    rig.send(b"a", b"b", b"c", priority=6)
    [grant] = rig.pull(3).grants
    pull = grant.pull_sequence

    assert rig.ask(Ack("g", "c", grant.subject, [pull, pull])) == Done([])
    assert rig.ask(Nack("g", "c", grant.subject, [pull + 1, pull + 1], 0)) == Done([])
    assert rig.ask(Release("g", "c", grant.subject, [pull + 2, pull + 2])) == Done([])
    rig.send(b"newer, and as high", priority=6)

    assert sorted(spans(rig.pull(10))) == [
        (first_of_lane(6) + 1, 1, 1),
        (first_of_lane(6) + 2, 1, 0),
        (first_of_lane(6) + 3, 1, 0),
    ]


def test_what_failed_in_a_lane_comes_before_what_is_new_there_and_behind_higher_lanes() -> None:
    rig = Rig(CALM)
    rig.send(b"failed")
    [grant] = rig.pull().grants
    rig.ask(Nack("g", "c", SUBJECT, [grant.pull_sequence, grant.pull_sequence], 0))
    rig.send(b"new")
    rig.send(b"high", priority=1)

    assert drained(rig) == [b"high", b"failed", b"new"]


def test_in_flight_is_bounded_for_all_lanes_together() -> None:
    rig = Rig(CALM)
    rig.send(b"a", b"b")
    rig.broker.members.declare_group(
        rig.broker.state.partitions[1], "g", (0, 0), GroupSettings(in_flight_max=2), rig.now_ms
    )
    rig.send(b"c", b"d", priority=1)
    pulled = rig.pull(1)
    assert count_of(rig.pull(10)) == 1
    assert not rig.pull(10).grants
    assert rig.ask(Pull("g", "c", [SUBJECT], 10, 1 << 20, 10_000)) is None
    waits = rig.correlation

    number = pulled.grants[0].pull_sequence
    rig.ask(Ack("g", "c", pulled.grants[0].subject, [number, number]))

    answer = rig.answers.pop(waits)
    assert isinstance(answer, Pulled)
    assert subjects(answer) == [SUBJECT], "room in one lane is room in all"


def test_at_most_once_acks_in_each_lane() -> None:
    rig = Rig(CALM)
    rig.send(b"high", priority=2)
    rig.send(b"low")
    pull = Pull("g", "c", [SUBJECT], 10, 1 << 20, 0, once=True)

    assert [isinstance(rig.ask(pull), Pulled) for _ in range(3)] == [True] * 3
    assert [one.acked for one in rig.broker.state.family(rig.broker.state.groups[1])] == [1, 1]


def test_settings_and_suspension_are_one_for_all_lanes() -> None:
    rig = Rig(CALM)
    rig.send(b"high", priority=2)
    rig.send(b"low")
    rig.pull(1)

    rig.ask(Suspend("g", SUBJECT, True))
    assert not rig.pull().grants
    rig.ask(Suspend("g", SUBJECT, False))
    assert drained(rig) == [b"low"]


# -- elsewhere ----------------------------------------------------------------------------------------------------


def seek(rig: Rig, place: Place, value: int = 0) -> Sought | Failed:
    answer = rig.ask(Seek("g", SUBJECT, place, value, False))
    assert isinstance(answer, Sought | Failed)
    return answer


def test_a_seek_to_an_end_or_a_time_moves_all_lanes() -> None:
    rig = Rig(CALM)
    rig.send(b"low 1")
    rig.send(b"high 1", priority=2)
    rig.wait(1000)
    between_ms = rig.now_ms
    rig.send(b"low 2")
    rig.send(b"high 2", priority=2)
    everything = drained(rig)

    answer = seek(rig, Place.EARLIEST)
    assert isinstance(answer, Sought)
    assert (answer.again, answer.in_flight) == (4, 4)
    assert drained(rig) == everything == [b"high 1", b"high 2", b"low 1", b"low 2"]
    seek(rig, Place.TIME, between_ms)
    assert drained(rig) == [b"high 2", b"low 2"]
    seek(rig, Place.EARLIEST)
    answer = seek(rig, Place.LATEST)
    assert isinstance(answer, Sought)
    assert answer.skipped == 4
    assert drained(rig) == []


def test_a_seek_to_a_sequence_moves_the_lane_that_it_is_of() -> None:
    rig = Rig(CALM)
    rig.send(b"low")
    rig.send(b"high 1", b"high 2", priority=2)
    drained(rig)

    seek(rig, Place.SEQUENCE, first_of_lane(2) + 1)
    assert drained(rig) == [b"high 2"]
    seek(rig, Place.SEQUENCE, 0)
    assert drained(rig) == [b"low"]


def test_browsing_shows_all_lanes_by_their_sequences() -> None:
    rig = Rig(CALM)
    rig.send(b"low 1")
    rig.send(b"high", priority=2)
    rig.send(b"low 2")
    partition = rig.broker.state.partitions[1]

    def browse(span: Span, *, newest: bool = False) -> list[bytes]:
        view = view_of(rig.broker.state, rig.broker.logs.messages, partition)
        query = Query(view, rig.files.read, lambda _: None)
        return [found.body for found in query.browse(span, newest).messages]

    assert browse(Span()) == [b"low 1", b"low 2", b"high"]
    assert browse(Span(), newest=True) == [b"high", b"low 2", b"low 1"]
    assert browse(Span(first=first_of_lane(2))) == [b"high"]


# -- in order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("consumption", [ORDERED, BROADCAST])
def test_a_group_in_order_is_one_consumers_in_all_lanes(consumption: str) -> None:
    rig = Rig(CALM)
    rig.send(b"high", priority=2)
    rig.send(b"low")
    mode = Mode.EXCLUSIVE if consumption == ORDERED else Mode.BROADCAST
    first = rig.ask(Pull("g", "c", [SUBJECT], 1, 1 << 20, 5000, mode=mode))
    assert isinstance(first, Pulled)
    assert bodies_of(first) == [b"high"]

    other = rig.connect()
    second = rig.ask(Pull("g", "d", [SUBJECT], 10, 1 << 20, 0, mode=mode), other)
    assert isinstance(second, Pulled)
    assert not second.grants, "the lock is of the group, not of a lane"
    again = rig.ask(
        Pull("g", "c", [SUBJECT], 10, 1 << 20, 0, mode=mode, held=[first.grants[0].pull_sequence] * 2)
    )
    assert isinstance(again, Pulled)
    assert bodies_of(again) == [b"low"]


def test_a_silent_broadcast_group_is_forgotten_in_all_lanes() -> None:
    rig = Rig(replace(CALM, broadcast_silence_ms=30_000))
    rig.send(b"high", priority=2)
    rig.ask(Pull("g", "c", [SUBJECT], 1, 1 << 20, 0, mode=Mode.BROADCAST))
    rig.disconnect(rig.peers[0])
    rig.wait(120_000)

    assert rig.broker.state.groups == {}
    assert rig.broker.state.kin == {}


# -- a restart ------------------------------------------------------------------------------------------------------


def busy() -> Rig:
    rig = Rig(CALM)
    rig.send(b"low 1")
    rig.send(b"high 1", b"high 2", priority=2)
    [grant] = rig.pull(1).grants
    rig.ask(Nack("g", "c", grant.subject, [grant.pull_sequence] * 2, 5000))
    rig.pull(1)
    return rig


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_restart_finds_every_lane_as_it_was(checkpoint: bool) -> None:
    rig = busy()
    if checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
        rig.send(b"high 3", priority=2)
    before = pack_state(rig.broker.state, 0, 0)
    rig.restart()
    rig.broker.state.boot -= 1
    rig.broker.state.next_pull = unpack_state(before)[0].next_pull

    assert pack_state(rig.broker.state, 0, 0) == before
    rig.broker.check()


def test_sealed_segments_are_found_again_lane_by_lane() -> None:
    rig = Rig(replace(TINY, lease_ms=60_000))
    for number in range(30):
        rig.send(b"%02d" % number, priority=number % 3)
    rig.restart()
    rig.restart()

    wanted = [b"%02d" % number for priority in (2, 1, 0) for number in range(priority, 30, 3)]
    assert sorted(drained(rig)) == sorted(wanted)


def test_a_lane_whose_naming_a_power_cut_took_is_named_again_and_its_groups_with_it() -> None:
    rig = Rig(CALM)
    rig.send(b"plain")
    rig.pull(group="late", start=Start.LATEST)
    rig.sync()
    rig.send(b"high", priority=2)
    actions = rig.broker.logs.actions
    file = actions.file(actions.open_base)
    inode = rig.disk.names.cached[file]
    del inode.cached[len(inode.durable) :]
    rig.restart()

    assert drained(rig, group="late", start=Start.LATEST) == [b"high"]


def test_no_sequence_of_a_lane_is_used_twice() -> None:
    rig = Rig(CALM)
    rig.sync()
    rig.send(b"taken", priority=3)
    rig.pull()
    actions = rig.broker.logs.actions
    rig.files.sync([actions.file(actions.open_base)])
    rig.power_cut()

    sent = rig.send(b"later", priority=3)
    assert priority_of(sent.first_sequences[0]) == 3
    assert sent.first_sequences[0] > first_of_lane(3)
