"""Pulls: failures first, new messages then, within the room that was asked for, from memory or from cold windows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import NOW_MS, SUBJECT, TINY, Rig, batch_of, pulls, put_file, read_file, spans
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.settings import BrokerSettings
from tidemill_journal.entries import run_file
from tidemill_wire import limits
from tidemill_wire.columns import split_batches
from tidemill_wire.commands import Ack, Done, Nack, Pull, Pulled, Release, SendBatches
from tidemill_wire.errors import KIND_BY_NAME

BATCH_BYTES = len(batch_of(b"tide"))


def bodies(pulled: Pulled) -> list[bytes]:
    """The messages that were granted, cut out of the batches they came in."""
    batches = split_batches(pulled.batches)
    found: list[bytes] = []
    for grant in pulled.grants:
        for batch in batches[: grant.batches]:
            first = max(grant.first_sequence, batch.header.first_sequence) - batch.header.first_sequence
            end = grant.first_sequence + grant.count - batch.header.first_sequence
            found += batch.bodies(first, min(end, batch.header.messages) - 1)
        batches = batches[grant.batches :]
    assert batches == []
    return found


def declare(rig: Rig, settings: GroupSettings) -> None:
    partition = rig.broker.state.by_name[SUBJECT.encode()]
    rig.broker.members.declare_group(partition, "g", (0, 0), settings, rig.now_ms)
    rig.pump()


def settle(kind: type[Ack | Nack | Release], ranges: list[int], consumer: str = "c"):
    return kind("g", consumer, SUBJECT, ranges)


def nack(ranges: list[int]) -> Nack:
    """Due again at once."""
    return Nack("g", "c", SUBJECT, ranges, delay_ms=0)


def test_everything_that_is_there_is_given_once_in_its_order() -> None:
    rig = Rig()
    for index in range(20):
        rig.send(b"%d" % (2 * index), b"%d" % (2 * index + 1))

    first = rig.pull(7)
    rest = rig.pull()

    assert bodies(first) + bodies(rest) == [b"%d" % index for index in range(40)]
    assert sum(grant.count for grant in first.grants) == 7
    assert rig.pull().grants == []


def test_part_of_a_batch_is_given_and_the_rest_later() -> None:
    rig = Rig()
    rig.send(b"a", b"b", b"c")

    assert [bodies(rig.pull(1)) for _ in range(4)] == [[b"a"], [b"b"], [b"c"], []]


def test_answer_stays_below_its_bytes_but_for_the_first_batch() -> None:
    rig = Rig()
    rig.fill(5)
    rig.send(bytes(500))
    rig.send(b"last")

    sizes = [len(rig.pull(size=size).batches) for size in (1, 2 * BATCH_BYTES, 3 * BATCH_BYTES - 1, 1, 1)]
    assert sizes[:3] == [BATCH_BYTES, 2 * BATCH_BYTES, 2 * BATCH_BYTES]
    assert sizes[3] > 500
    assert sizes[4] > 0


def test_batches_that_lie_side_by_side_travel_as_one_slice() -> None:
    rig = Rig(replace(TINY, segment_bytes=1 << 20))
    rig.send(b"a")
    rig.send(b"b")
    rig.send(b"other", subject="order.paid")
    rig.send(b"c")
    slices: list[int] = []
    deliver = rig._deliver
    rig._deliver = lambda send: (slices.append(len(send.slices)), deliver(send))[1]

    assert bodies(rig.pull()) == [b"a", b"b", b"c"]
    assert slices == [2]


def test_due_failures_come_before_new_messages_the_earliest_first() -> None:
    rig = Rig()
    rig.fill(10)
    given = pulls(rig.pull(6))
    low = given[0]
    rig.ask(Nack("g", "c", SUBJECT, [low + 4, low + 5], 100))
    rig.ask(Nack("g", "c", SUBJECT, [low, low + 1], 200))

    assert spans(rig.pull(2)) == [(6, 2, 0)], "nothing is due yet"
    rig.wait(200)
    assert spans(rig.pull(5)) == [(4, 2, 1), (0, 2, 1), (8, 1, 0)]


def test_part_of_a_failure_is_given_and_the_rest_stays_due() -> None:
    rig = Rig()
    rig.fill(4)
    rig.ask(nack(pulls(rig.pull())))

    assert [spans(rig.pull(3)), spans(rig.pull(3))] == [[(0, 3, 1)], [(3, 1, 1)]]


def test_failure_does_not_wait_for_room_in_bytes_that_it_can_never_have() -> None:
    rig = Rig()
    rig.send(bytes(800))
    rig.ask(nack(pulls(rig.pull())))

    assert spans(rig.pull(size=1)) == [(0, 1, 1)]


def test_released_messages_are_given_to_another_as_if_never_given() -> None:
    rig = Rig()
    rig.fill(3)
    rig.ask(settle(Release, pulls(rig.pull())))

    assert spans(rig.pull(consumer="d")) == [(0, 3, 0)]


def test_messages_of_gaps_are_passed_over() -> None:
    """A power cut took 6 to 9, which had been given out: they are nobody's, and what comes behind is given."""
    rig = Rig()
    rig.fill(6)
    file = "message/" + f"{0:020}.log"
    before = read_file(rig.disk, file)
    rig.fill(4)
    rig.pull(10)
    for name in [name for name in rig.disk.names.cached if name.startswith("message/") and name != file]:
        put_file(rig.disk, name, b"")
    put_file(rig.disk, file, before)
    rig.restart()

    assert rig.send(b"next").first_sequences == [10], "a sequence is never used twice"
    assert spans(rig.pull(group="others")) == [(0, 6, 0), (10, 1, 0)]
    assert spans(rig.pull(consumer="d")) == [(10, 1, 0)]
    rig.wait(TINY.consumer_gone_ms + TINY.lease_ms)
    rig.ask(Ack("g", "d", SUBJECT, [0, 2**62]))
    seen = [spans(rig.pull(consumer="e")) for _ in range(3)]
    assert [(0, 6, 1)] in [sorted(span for span in one if span[0] < 6) for one in seen], seen
    assert not any(6 <= first < 10 for one in seen for first, _, _ in one)


def test_new_group_is_not_held_up_by_a_tail_that_is_gone() -> None:
    rig = Rig()
    rig.fill(3)
    file = "message/" + f"{0:020}.log"
    whole = read_file(rig.disk, file)
    rig.pull(2, group="slow")
    rig.pull()
    put_file(rig.disk, file, whole[:BATCH_BYTES])
    rig.restart()

    assert spans(rig.pull(group="new")) == [(0, 1, 0)]
    assert rig.pull(group="new").grants == []
    assert rig.pull(group="slow").grants == []


def test_subjects_of_one_pull_take_turns() -> None:
    rig = Rig()
    for subject in ("a", "b", "c"):
        rig.fill(6, subject)
    subjects = [{grant.subject for grant in rig.pull(1, subjects=["a", "b", "c"]).grants} for _ in range(9)]

    assert [len(one) for one in subjects] == [1] * 9
    assert sorted(name for one in subjects for name in one) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3


def test_new_group_begins_where_it_asks_to() -> None:
    rig = Rig()
    rig.fill(8)
    rig.now_ms += 1000
    rig.fill(4)

    assert spans(rig.pull(group="all")) == [(0, 6, 0), (6, 6, 0)]
    assert rig.pull(group="last", start=-2).grants == []
    assert spans(rig.pull(group="then", start=NOW_MS + 1)) == [(8, 4, 0)]
    assert rig.pull(group="later", start=NOW_MS + 5000).grants == []
    rig.fill(1)
    assert spans(rig.pull(group="last")) == [(12, 1, 0)]
    assert rig.pull(group="later").grants == [], "stored before its time, too"
    rig.now_ms += 5000
    rig.fill(1)
    assert spans(rig.pull(group="later")) == [(13, 1, 0)]


def test_cold_windows_are_read_once_for_all_who_wait() -> None:
    rig = Rig()
    rig.fill(14)
    rig.restart()
    rig.holds_reads = True
    for consumer in ("c", "d"):
        assert rig.ask(Pull("g", consumer, [SUBJECT], 6, 1 << 20, 5000)) is None
    assert [read.slice.file for read in rig.reads] == [run_file(0)]

    rig.load()
    rig.pump()
    assert len(rig.reads) == 1, "the second one waits for the next run"
    rig.load()
    rig.pump()

    assert [spans(rig.answers[key]) for key in sorted(rig.answers)] == [[(0, 6, 0)], [(6, 6, 0)]]
    assert rig.reads == []


def test_pull_that_is_over_before_its_window_came_is_answered_with_nothing() -> None:
    rig = Rig()
    rig.fill(14)
    rig.restart()
    rig.holds_reads = True
    assert rig.ask(Pull("g", "c", [SUBJECT], 6, 1 << 20, 300)) is None
    rig.wait(400)

    answer = rig.answers.pop(rig.correlation)
    assert isinstance(answer, Pulled)
    assert answer.grants == []
    rig.load()
    rig.pump()
    assert spans(rig.pull(6)) == [(0, 6, 0)], "nobody was given what nobody waited for"


def test_window_of_many_batches_is_found_again_after_a_restart() -> None:
    rig = Rig(replace(TINY, segment_bytes=1 << 20, segment_batches=1500))
    frame = [batch_of(b"x", sequence=index + 1) for index in range(1501)]
    rig.ask(SendBatches(bytearray().join(frame)))
    rig.restart()

    assert spans(rig.pull(1023)) == [(0, 1023, 0)]
    assert spans(rig.pull(3)) == [(1023, 1, 0), (1024, 2, 0)]
    assert sum(grant.count for grant in rig.pull(10_000).grants) == 475


def test_pull_waits_for_its_first_message_and_no_longer() -> None:
    rig = Rig()
    assert rig.ask(Pull("g", "c", [SUBJECT], 100, 1 << 20, 5000)) is None
    waiting = rig.correlation
    rig.wait(1000)
    assert waiting not in rig.answers
    rig.send(b"at last")

    assert bodies(rig.answers.pop(waiting)) == [b"at last"]


def test_pull_whose_time_is_over_is_answered_with_nothing() -> None:
    rig = Rig()
    assert rig.ask(Pull("g", "c", [SUBJECT], 100, 1 << 20, 5000)) is None
    rig.wait(4999)
    assert not rig.answers
    rig.wait(1)

    assert [answer.grants for answer in rig.answers.values()] == [[]]


def test_waiting_pulls_are_served_in_the_order_of_their_coming() -> None:
    rig = Rig()
    numbers: list[int] = []
    for consumer in ("c", "d", "e"):
        rig.ask(Pull("g", consumer, [SUBJECT], 1, 1 << 20, 5000))
        numbers.append(rig.correlation)
    rig.fill(2)

    assert [number in rig.answers for number in numbers] == [True, True, False]


def test_failure_that_becomes_due_wakes_who_waits() -> None:
    rig = Rig()
    rig.fill(1)
    rig.ask(Nack("g", "c", SUBJECT, pulls(rig.pull()), 700))
    assert rig.ask(Pull("g", "d", [SUBJECT], 1, 1 << 20, 5000)) is None
    rig.wait(699)
    assert rig.correlation not in rig.answers
    rig.wait(1)

    assert spans(rig.answers[rig.correlation]) == [(0, 1, 1)]


def test_message_is_shown_when_it_is_as_durable_as_its_subject_asks_for() -> None:
    rig = Rig(BrokerSettings(durability="high"))
    rig.holds_syncs = True
    rig.ask(SendBatches(batch_of(b"x")))

    assert rig.pull().grants == []
    rig.sync()
    rig.pump()
    assert spans(rig.pull()) == [(0, 1, 0)]


def test_group_holds_no_more_than_its_limit() -> None:
    rig = Rig()
    rig.fill(6)
    declare(rig, GroupSettings(in_flight_max=4))
    given = rig.pull()

    assert spans(given) == [(0, 4, 0)]
    assert rig.pull().grants == []
    rig.ask(nack(pulls(given)[:2]))
    assert sum(grant.count for grant in rig.pull().grants) == 4


def test_pull_of_a_full_group_waits_until_something_is_acked() -> None:
    rig = Rig()
    rig.fill(6)
    declare(rig, GroupSettings(in_flight_max=4))
    held = pulls(rig.pull())
    assert rig.ask(Pull("g", "d", [SUBJECT], 10, 1 << 20, 5000)) is None
    waiting = rig.correlation
    rig.wait(100)

    rig.ask(settle(Ack, [held[0], held[0]]))

    answer = rig.answers[waiting]
    assert isinstance(answer, Pulled)
    assert spans(answer) == [(4, 1, 0)]


def test_little_that_came_is_shared_by_all_who_wait() -> None:
    rig = Rig()
    rig.fill(1)
    rig.pull()
    waiting: list[int] = []
    for number in range(10):
        assert rig.ask(Pull("g", f"c{number}", [SUBJECT], 1000, 1 << 20, 5000)) is None
        waiting.append(rig.correlation)

    rig.send(*(b"tide" for _ in range(25)))

    answers = [rig.answers[correlation] for correlation in waiting]
    assert all(isinstance(answer, Pulled) for answer in answers)
    counts = [sum(grant.count for grant in answer.grants) for answer in answers]  # type: ignore[union-attr]
    assert sum(counts) == 25
    assert max(counts) <= 3
    assert min(counts) >= 2


def test_what_is_given_at_most_once_is_acked_in_the_same_turn_and_never_comes_again() -> None:
    rig = Rig()
    rig.fill(3)
    given = rig.ask(Pull("g", "c", [SUBJECT], 2, 1 << 20, 0, once=True))
    group = rig.broker.state.groups[1]
    assert isinstance(given, Pulled)
    assert (spans(given), group.in_flight, group.acked) == ([(0, 2, 0)], 0, 2)
    assert rig.broker.counters.messages_acked == 2

    assert rig.ask(settle(Nack, pulls(given))) == Done(pulls(given))
    rig.disconnect(rig.peers[0])
    rig.restart()
    rig.wait(60_000)

    assert spans(rig.pull()) == [(2, 1, 0)]


def test_answer_to_an_at_most_once_pull_waits_for_the_disk_when_its_subject_does() -> None:
    rig = Rig(BrokerSettings(durability="high"))
    rig.send(b"x")
    rig.sync()
    rig.holds_syncs = True

    assert rig.ask(Pull("g", "c", [SUBJECT], 2, 1 << 20, 0, once=True)) is None
    rig.sync()
    rig.pump()

    assert isinstance(rig.answers[rig.correlation], Pulled)


def test_connection_with_too_many_waiting_pulls_is_refused_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CORRELATIONS_MAX", 2)
    rig = Rig()
    pull = Pull("g", "c", [SUBJECT], 1, 1, 5000)
    assert [rig.ask(pull), rig.ask(pull)] == [None, None]

    assert rig.refused(pull) == KIND_BY_NAME["too_many_requests"].number


def test_ack_of_what_is_not_held_names_it() -> None:
    rig = Rig()
    rig.fill(4)
    low = pulls(rig.pull())[0]

    assert rig.ask(settle(Ack, [low, low + 1])) == Done([])
    assert rig.ask(settle(Ack, [low, low + 3])) == Done([low, low + 1])
    assert rig.refused(settle(Ack, [low, low], "stranger")) == KIND_BY_NAME["lease_lost"].number
    assert rig.broker.counters.messages_acked == 4
