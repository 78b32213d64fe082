"""Groups that are moved, suspended, in order or given once, while what fails is retried, buried, or pauses them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, batch_of, pulls, spans
from tidemill_broker.group_settings import ORDERED, GroupSettings
from tidemill_broker.groups import Group
from tidemill_wire.columns import Content
from tidemill_wire.commands import Ack, Command, Done, Nack, Pull, Pulled, Redrive, SendBatches
from tidemill_wire.fields import dead_subject
from tidemill_wire.filters import parse_filter
from tidemill_wire.kinds import Mode, Place
from tidemill_wire.limits import OUTAGE_FAILURES_MIN
from tidemill_wire.steering import Seek, Sought, Suspend

DEAD_SUBJECT = dead_subject(SUBJECT, "g")
SETTINGS = replace(
    TINY, lease_ms=600_000, consumer_gone_ms=600_000, broadcast_silence_ms=1_200_000, segment_bytes=1 << 20
)


@pytest.fixture
def rig() -> Rig:
    made = Rig(SETTINGS)
    made.fill(10)
    return made


def group_of(rig: Rig, subject: str = SUBJECT) -> Group:
    group = rig.broker.state.group_of(subject, "g")
    assert group is not None
    return group


def declare(rig: Rig, settings: GroupSettings) -> None:
    partition = rig.broker.state.by_name[SUBJECT.encode()]
    rig.broker.members.declare_group(partition, "g", (0, 0), settings, rig.now_ms)
    rig.pump()


def reject(rig: Rig, *numbers: int) -> Command | None:
    ranges = [number for one in numbers for number in (one, one)]
    return rig.ask(Nack("g", "c", SUBJECT, ranges, reason="no", reject=True))


def seek(rig: Rig, value: int) -> None:
    assert isinstance(rig.ask(Seek("g", SUBJECT, Place.SEQUENCE, value)), Sought)


def in_order(messages: int = 100, wait_ms: int = 1000) -> Pull:
    return Pull("g", "c", [SUBJECT], messages, 1 << 20, wait_ms, mode=Mode.EXCLUSIVE)


def dead(rig: Rig) -> int:
    grave = rig.broker.state.by_name.get(DEAD_SUBJECT.encode())
    return grave.next_sequence if grave is not None else 0


def test_burial_under_way_of_a_failure_that_a_seek_made_void_does_nothing(rig: Rig) -> None:
    first = pulls(rig.pull(3))[0]
    rig.holds_reads = True
    reject(rig, first)
    seek(rig, 5)
    rig.load()
    rig.pump()

    group = group_of(rig)
    assert (group.doomed, group.failed, group.buried, dead(rig)) == ({}, {}, 0, 0)
    assert spans(rig.pull(1)) == [(5, 1, 0)]


def test_burial_under_way_buries_what_failed_again_after_a_seek(rig: Rig) -> None:
    rig = Rig(SETTINGS)
    rig.send(b"a", b"b", b"c")
    number = pulls(rig.pull(3))[0]
    rig.holds_reads = True
    reject(rig, number, number + 1)
    seek(rig, 0)
    number = pulls(rig.pull(3))[0]
    reject(rig, number)
    rig.holds_reads = False
    rig.load()
    rig.pump()

    group = group_of(rig)
    assert (group.doomed, group.failed, group.buried, dead(rig)) == ({}, {}, 1, 1)


def test_twin_is_not_moved_and_gets_what_is_redriven(rig: Rig) -> None:
    number = pulls(rig.pull(3))[0]
    reject(rig, number)
    assert dead(rig) == 1
    seek(rig, 9)

    assert rig.ask(Redrive(SUBJECT, "g", [])) == Done([], 1)
    found = [one.subject for _ in range(2) for one in rig.pull().grants]
    assert sorted(found) == sorted([DEAD_SUBJECT, SUBJECT])


@pytest.mark.parametrize("with_checkpoint", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_burials_before_a_seek_stay_as_they_are_over_a_restart(
    rig: Rig, with_checkpoint: bool, twice: bool
) -> None:
    """What is given again after the seek is neither taken for buried, nor put back among the failures."""
    reject(rig, pulls(rig.pull(1))[0])
    seek(rig, 0)
    if with_checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.holds_reads = True
    reject(rig, pulls(rig.pull(1))[0])
    assert dead(rig) == 1
    rig.restart()
    if twice:
        rig.restart()
    rig.holds_reads = False
    rig.load()
    rig.wait(1)

    assert (group_of(rig).doomed, group_of(rig).failed, dead(rig)) == ({}, {}, 2)


def test_seek_ends_a_pause_and_keeps_the_errors(rig: Rig) -> None:
    rig.fill(OUTAGE_FAILURES_MIN)
    ranges = pulls(rig.pull(OUTAGE_FAILURES_MIN))
    rig.ask(Nack("g", "c", SUBJECT, ranges, reason="away", error="OSError", place="x:1"))
    group = group_of(rig)
    assert group.paused is not None
    seek(rig, 0)

    assert group.paused is None
    assert len(group.errors) == 1
    assert sum(count for _, count, _ in spans(rig.pull(7))) == 7
    rig.restart()
    assert group_of(rig).paused is None


def test_what_was_rejected_in_order_is_buried_and_the_rest_goes_on(rig: Rig) -> None:
    declare(rig, GroupSettings(consumption=ORDERED))
    answer = rig.ask(in_order(4))
    assert isinstance(answer, Pulled)
    number = pulls(answer)[0]
    rig.holds_reads = True
    assert rig.ask(in_order(wait_ms=60_000)) is not None  # the rest; then one waits
    assert rig.ask(in_order(wait_ms=60_000)) is None
    waiting = rig.correlation

    reject(rig, number)
    rig.fill(1)
    assert waiting not in rig.answers
    assert group_of(rig).in_flight == 9  # it comes never, so nothing behind it is taken back
    rig.holds_reads = False
    rig.load()
    rig.pump()

    given = rig.answers[waiting]
    assert isinstance(given, Pulled)
    assert given.ordered
    assert spans(given) == [(10, 1, 0)]
    assert dead(rig) == 1


def test_group_in_order_that_keeps_no_dead_letters_goes_on_at_once(rig: Rig) -> None:
    declare(rig, GroupSettings(consumption=ORDERED, dead_letters=False))
    answer = rig.ask(in_order(4))
    assert isinstance(answer, Pulled)
    assert rig.ask(in_order(wait_ms=60_000)) is not None
    assert rig.ask(in_order(wait_ms=60_000)) is None
    waiting = rig.correlation
    reject(rig, pulls(answer)[0])
    rig.fill(1)

    given = rig.answers[waiting]
    assert isinstance(given, Pulled)
    assert spans(given) == [(10, 1, 0)]
    assert group_of(rig).in_flight == 10


def test_retry_in_order_blocks_until_it_is_due_and_time_brings_it(rig: Rig) -> None:
    declare(rig, GroupSettings(consumption=ORDERED))
    answer = rig.ask(in_order(3))
    assert isinstance(answer, Pulled)
    rig.ask(Nack("g", "c", SUBJECT, pulls(answer)[:1] * 2, 5000))
    assert rig.ask(in_order(wait_ms=60_000)) is None
    waiting = rig.correlation
    rig.wait(4999)
    assert waiting not in rig.answers
    rig.wait(1)
    given = rig.answers[waiting]
    assert isinstance(given, Pulled)
    assert spans(given)[0] == (0, 1, 1)


def test_suspended_group_is_given_nothing_that_is_redriven(rig: Rig) -> None:
    reject(rig, pulls(rig.pull(10))[0])
    assert rig.ask(Suspend("g", SUBJECT, True)) == Done([])
    rig.ask(Redrive(SUBJECT, "g", []))
    assert spans(rig.pull()) == []

    assert rig.ask(Suspend("g", SUBJECT, False)) == Done([])
    assert [grant.subject for grant in rig.pull().grants] == [DEAD_SUBJECT]


def test_probe_that_is_given_once_ends_a_pause(rig: Rig) -> None:
    rig.fill(OUTAGE_FAILURES_MIN)
    ranges = pulls(rig.pull(OUTAGE_FAILURES_MIN))
    rig.ask(Nack("g", "c", SUBJECT, ranges, reason="away", error="OSError", place="x:1"))
    group = group_of(rig)
    rig.wait(group.health.probe_at_ms - rig.now_ms)
    rig.ask(Pull("g", "c", [SUBJECT], 100, 1 << 20, 0, once=True))

    assert group.paused is None


def test_paused_group_asks_for_no_alarm_that_brings_nothing(rig: Rig) -> None:
    """The probe is due, and all that failed is due later: it is woken then, not every millisecond."""
    rig = Rig(SETTINGS)
    rig.fill(OUTAGE_FAILURES_MIN)
    ranges = pulls(rig.pull(OUTAGE_FAILURES_MIN))
    rig.ask(Nack("g", "c", SUBJECT, ranges, 300_000, reason="away", error="OSError", place="x:1"))
    due_ms = rig.now_ms + 300_000
    group = group_of(rig)
    assert rig.ask(Pull("g", "c", [SUBJECT], 100, 1 << 20, 400_000)) is None
    waiting = rig.correlation
    rig.wait(group.health.probe_at_ms + 1 - rig.now_ms)
    assert rig.wake_at_ms > rig.now_ms + 10
    rig.wait(due_ms - 1 - rig.now_ms)
    assert waiting not in rig.answers
    rig.wait(1)
    assert len(spans(rig.answers[waiting])) == 1  # type: ignore[arg-type]


def test_forgotten_broadcast_group_leaves_its_dead_letters_to_the_one_of_its_name_that_comes(
    rig: Rig,
) -> None:
    def pull() -> Pulled:
        answer = rig.ask(Pull("g", "c", [SUBJECT], 1, 1 << 20, 1000, mode=Mode.BROADCAST, base="all"))
        assert isinstance(answer, Pulled)
        return answer

    reject(rig, pulls(pull())[0])
    rig.disconnect(rig.peers[0])
    rig.wait(SETTINGS.consumer_gone_ms + SETTINGS.broadcast_silence_ms + 1)
    assert rig.broker.state.group_of(SUBJECT, "g") is None
    assert dead(rig) == 1
    rig.restart()

    first = pull()
    rig.ask(Ack("g", "c", SUBJECT, pulls(first)))
    assert rig.ask(Redrive(SUBJECT, "g", [])) == Done([], 1)
    assert DEAD_SUBJECT in [grant.subject for _ in range(2) for grant in pull().grants]


def test_consumer_in_order_that_comes_back_begins_with_what_it_did_not_ack(rig: Rig) -> None:
    """It says with its first pull whose fate it has told; the broker need not have heard of it."""
    declare(rig, GroupSettings(consumption=ORDERED))
    answer = rig.ask(in_order(4))
    assert isinstance(answer, Pulled)
    first, last = pulls(answer)[0], pulls(answer)[-1]
    rig.ask(Ack("g", "c", SUBJECT, [first, first]))
    peer = rig.connect()
    again = rig.ask(replace(in_order(2), held=[]), peer)

    assert isinstance(again, Pulled)
    assert spans(again) == [(1, 2, 0)]
    assert rig.ask(Ack("g", "c", SUBJECT, [first + 1, last]), peer) == Done([first + 1, last])


def test_what_lies_behind_something_lost_in_order_is_taken_back_though_it_is_held(rig: Rig) -> None:
    declare(rig, GroupSettings(consumption=ORDERED))
    answer = rig.ask(in_order(4))
    assert isinstance(answer, Pulled)
    first, last = pulls(answer)[0], pulls(answer)[-1]
    again = rig.ask(replace(in_order(9), held=[first, first, first + 2, last]), rig.connect())

    assert isinstance(again, Pulled)
    assert spans(again)[0] == (1, 1, 0)
    assert group_of(rig).in_flight == 1 + 9


def test_who_has_the_lock_is_served_though_another_consumer_waits_for_longer(rig: Rig) -> None:
    rig.connect()
    assert isinstance(rig.ask(in_order()), Pulled)
    assert rig.ask(replace(in_order(wait_ms=60_000), consumer="d"), peer=2) is None
    other = rig.correlation
    assert rig.ask(in_order(wait_ms=60_000)) is None
    mine = rig.correlation
    rig.send(b"new")

    given = rig.answers[mine]
    assert isinstance(given, Pulled)
    assert spans(given) == [(10, 1, 0)]
    assert other not in rig.answers


def test_group_in_order_that_joins_a_pattern_keeps_what_it_was_given(rig: Rig) -> None:
    """It was not there when the consumer said what it holds; nothing can have been lost."""
    wish = Pull("h", "c", ["order.*"], 1, 1 << 20, 1000, start=-2, mode=Mode.EXCLUSIVE)
    assert rig.ask(replace(wish, held=[], fresh=True, wait_ms=60_000)) is None
    waiting = rig.correlation
    rig.send(b"first", b"second", subject="order.paid")
    given = rig.answers[waiting]
    assert isinstance(given, Pulled)
    assert spans(given) == [(0, 1, 0)]

    following = rig.ask(wish)
    assert isinstance(following, Pulled)
    assert spans(following) == [(1, 1, 0)]


def test_filtered_group_goes_back_to_what_it_had_passed_over(rig: Rig) -> None:
    def pull() -> list[tuple[int, int, int]]:
        answer = rig.ask(Pull("g", "c", [SUBJECT], 100, 1 << 20, 0, filter=parse_filter(["vip"], False)))
        if answer is None:
            answer = rig.answers.pop(rig.correlation)
        assert isinstance(answer, Pulled)
        return spans(answer)

    rig = Rig(SETTINGS)
    for number in range(6):
        content = Content([b"tide"], tags=[["vip"] if number in (1, 4) else ["other"]])
        rig.ask(SendBatches(batch_of(sequence=number, content=content)))
    assert pull() == [(1, 1, 0), (4, 1, 0)]
    seek(rig, 0)
    assert pull() == [(1, 1, 0), (4, 1, 0)]
    seek(rig, 2)
    assert pull() == [(4, 1, 0)]
    assert pull() == []
