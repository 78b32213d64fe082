"""What recurs: the next occurrence is placed before the present one leaves, and nothing makes one come twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from samples.batches import CREATED_MS
from samples.delays import NOW_MS, SUBJECT, DelayRig, id_of, later
from tidemill_host.zones import offset_in
from tidemill_wire.columns import Content
from tidemill_wire.commands import SendBatches, Sent
from tidemill_wire.recurrence import Recurrence
from tidemill_wire.timing import Cancel, Changed, ListTimers, Reschedule, Target, Waiting

MINUTE_MS = 60_000
FIRST_MS = (NOW_MS // MINUTE_MS + 1) * MINUTE_MS
KEY = Target(subject=SUBJECT, timer_key="k")


def recur(rig: DelayRig, missed: str = "all", text: str = "* * * * *", sequence: int = 1) -> None:
    said = Recurrence(FIRST_MS, missed, "UTC", text).encode()
    rig.send_as(sequence, [b"tide"], FIRST_MS, content=Content([b"tide"], timer_keys=["k"], cron=said))


def times(rig: DelayRig) -> list[int]:
    """In which minute each one came, counted from the first."""
    return [(at_ms - FIRST_MS) // MINUTE_MS for at_ms, _, _ in rig.arrived]


def end(rig: DelayRig, target: Target = KEY) -> Changed:
    answer = rig.ask(Cancel(target))
    assert isinstance(answer, Changed), answer
    return answer


def test_it_comes_each_minute_with_another_id_until_it_is_cancelled() -> None:
    rig = DelayRig()
    recur(rig)
    rig.wait(5 * MINUTE_MS)
    assert times(rig) == [0, 1, 2, 3, 4]
    ids = [identity for _, identity, _ in rig.arrived]
    assert ids[0] == id_of(1)
    assert len(set(ids)) == 5
    assert end(rig).changed == 1
    rig.wait(5 * MINUTE_MS)
    assert times(rig) == [0, 1, 2, 3, 4]
    assert rig.delay.state.waiting == 0


@pytest.mark.parametrize("death", ["restart", "power_cut"])
def test_whatever_dies_between_occurrences_none_is_lost_or_comes_twice(death: str) -> None:
    rig = DelayRig()
    recur(rig)
    for turn in range(30):
        rig.deaf = turn % 3 == 1
        rig.wait(20_000)
        rig.deaf = False
        getattr(rig, death)()
    rig.wait(MINUTE_MS)
    assert times(rig) == list(range(len(rig.arrived)))
    assert len(rig.arrived) == 11


@pytest.mark.parametrize(
    ("missed", "wanted"), [("all", [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 10]), ("once", [9, 10]), ("none", [10])]
)
def test_what_was_missed_while_the_service_was_down_comes_as_the_sender_wants(
    missed: str, wanted: list[int]
) -> None:
    rig = DelayRig()
    recur(rig, missed)
    rig.now_ms = FIRST_MS + 9 * MINUTE_MS + 10_000
    rig.restart()
    rig.wait(MINUTE_MS)
    assert times(rig) == wanted


def test_a_short_delay_is_nothing_missed() -> None:
    rig = DelayRig()
    recur(rig, "none")
    rig.now_ms = FIRST_MS + 30_000
    rig.restart()
    rig.wait(MINUTE_MS)
    assert times(rig) == [0, 1]


def test_another_time_is_of_the_next_occurrence_only() -> None:
    rig = DelayRig()
    recur(rig)
    rig.wait(FIRST_MS - NOW_MS + 1_000)
    assert rig.ask(Reschedule(KEY, FIRST_MS + 90_000)) == Changed(1, 1)
    rig.wait(3 * MINUTE_MS)
    assert [at_ms - FIRST_MS for at_ms, _, _ in rig.arrived] == [0, 90_000, 120_000, 180_000]


def test_the_expression_is_listed() -> None:
    rig = DelayRig()
    recur(rig, text="*/2 * * * *")
    rig.wait(4 * MINUTE_MS)
    answer = rig.ask(ListTimers(SUBJECT, "", 0, 1 << 60, "", 10))
    assert isinstance(answer, Waiting)
    assert [row.cron for row in answer.rows] == ["*/2 * * * * UTC"]


def test_a_series_is_ended_by_the_id_of_the_occurrence_that_waits() -> None:
    rig = DelayRig()
    recur(rig)
    rig.wait(2 * MINUTE_MS)
    answer = rig.ask(ListTimers(SUBJECT, "", 0, 1 << 60, "", 10))
    assert isinstance(answer, Waiting)
    assert end(rig, Target(id=answer.rows[0].id)) == Changed(1, 0)
    rig.restart()
    rig.wait(3 * MINUTE_MS)
    assert times(rig) == [0, 1]


def test_a_cancel_that_meets_an_occurrence_whose_tick_has_begun_ends_the_series() -> None:
    rig = DelayRig()
    recur(rig)
    rig.holds_reads = True
    rig.wait(FIRST_MS - NOW_MS + 10)
    rig.ask(Cancel(KEY))  # it is met after its tick has begun, and before its piece is read
    for _ in range(10):
        rig.load()
        rig.pump()
    rig.holds_reads = False
    rig.power_cut()
    rig.wait(3 * MINUTE_MS)
    assert times(rig) == [0]


def test_while_the_disk_is_full_the_series_waits() -> None:
    from tidemill_wire.errors import Unavailable

    rig = DelayRig()
    recur(rig)
    rig.delay.intake.refusal = Unavailable("disk_full", "it is")
    rig.wait(3 * MINUTE_MS)
    assert rig.arrived == []
    assert rig.delay.recurring.refused["disk_full"] > 0
    rig.delay.intake.refusal = None
    rig.wait(MINUTE_MS)
    assert len(rig.arrived) == 4


def refused(rig: DelayRig, content: Content, due: Sequence[int] = (FIRST_MS,)) -> str:
    answer = rig.ask(SendBatches(later(content.bodies, due, content=content)))
    assert isinstance(answer, Sent)
    [(_, _, detail)] = answer.refused
    return detail


def test_what_cannot_recur_is_refused() -> None:
    rig, good = DelayRig(), Recurrence(FIRST_MS, "all", "UTC", "* * * * *").encode()
    assert "one message" in refused(rig, Content([b"a", b"b"], cron=good), (FIRST_MS, FIRST_MS))
    assert "no time zone" in refused(rig, Content([b"a"], cron=good.replace(b"UTC", b"Nowhere")))
    assert "no cron expression" in refused(rig, Content([b"a"], cron=good.replace(b"* *", b"x *")))
    assert "write once, all or none" in refused(rig, Content([b"a"], cron=good.replace(b"all", b"any")))
    assert "another time than it is due" in refused(rig, Content([b"a"], cron=good), (FIRST_MS + 1,))
    other = good.replace(b"0000000000000000", b"0000000000000001")
    assert "another time" in refused(rig, Content([b"a"], cron=other))
    assert "does not say" in refused(rig, Content([b"a"], cron=b"every day"))


def test_zones_of_this_machine_are_known_by_their_names() -> None:
    assert offset_in("Europe/Berlin")(CREATED_MS // 1000) in (3600, 7200)
    for name in ("Nowhere/Land", "../etc", ""):
        with pytest.raises(ValueError, match="there is no time zone"):
            offset_in(name)


def test_a_cancel_that_begins_before_an_occurrence_is_skipped_ends_the_series() -> None:
    """The look knows the occurrence that is missed; the one that replaces it is placed meanwhile."""
    rig = DelayRig()
    recur(rig, "none")
    rig.now_ms = FIRST_MS + 9 * MINUTE_MS
    rig.disk.kill()
    rig.holds_reads = True
    rig.start()
    rig.ask(Cancel(KEY))
    for _ in range(20):
        rig.reads.reverse()
        rig.load()
        rig.pump()
    rig.holds_reads = False
    rig.wait(3 * MINUTE_MS)
    assert rig.delay.state.waiting == 0
    assert len(rig.arrived) <= 1


def test_a_cancel_long_after_many_occurrences_ends_the_series_once() -> None:
    rig = DelayRig()
    recur(rig)
    rig.wait(12 * MINUTE_MS)
    answer = end(rig)
    assert answer.changed == 1
    assert answer.gone > 0
    assert end(rig).changed == 0
    rig.restart()
    rig.wait(2 * MINUTE_MS)
    assert len(rig.arrived) == 12
    assert rig.delay.state.waiting == 0
