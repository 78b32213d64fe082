"""What a subject declares of messages for later is obeyed by whatever sends for later, or gives another time."""

from __future__ import annotations

from typing import Any

import pytest

from samples.delays import NOW_MS, OTHER_SUBJECT, SUBJECT, DelayRig, id_of
from tidemill_delay.attendance import DelayAttendance
from tidemill_delay.bounds import BoundOf, Told, any_time, not_told
from tidemill_ledger.attendance import Identity
from tidemill_wire.asking import MetaRefused, Request
from tidemill_wire.columns import Content
from tidemill_wire.commands import Command, Failed, Sent
from tidemill_wire.errors import KIND_BY_NUMBER
from tidemill_wire.fields import again_for
from tidemill_wire.limits import CLOCKS_APART_MS
from tidemill_wire.recurrence import Recurrence
from tidemill_wire.replication import Ends, Stood
from tidemill_wire.timing import Cancel, Changed, Reschedule, Target

HOUR_MS = 3_600_000
FORBIDDEN: BoundOf = {SUBJECT: 0}.get
AN_HOUR: BoundOf = {SUBJECT: 3600}.get
KEY = Target(subject=SUBJECT, timer_key="k")


def rig_with(bound_of: BoundOf) -> DelayRig:
    rig = DelayRig()
    rig.delay.intake.bound_of = bound_of
    return rig


def refusals(answer: Command | None) -> list[str]:
    """The names of the errors, one for each batch, or that of the whole."""
    if isinstance(answer, Failed):
        return [answer.error.kind.name]
    assert isinstance(answer, Sent), answer
    return [KIND_BY_NUMBER[number].name for _, number, _ in answer.refused]


@pytest.mark.parametrize("subject", [SUBJECT, again_for(SUBJECT, "billing")])
def test_subject_that_forbids_it_takes_nothing_for_later_whoever_sends_it(subject: str) -> None:
    """A program, a client that spooled it until it is past, or a consumer whose failure is to wait for days."""
    rig = rig_with(FORBIDDEN)
    for due_ms in (NOW_MS + HOUR_MS, NOW_MS + 1, NOW_MS, NOW_MS - HOUR_MS):
        answer = rig.send([b"tide"], due_ms, subject=subject)
        assert refusals(answer) == ["delay_not_allowed"]
        assert answer.refused[0][2] == f"subject {SUBJECT!r} takes no messages for later"
    assert not rig.send([b"mill"], NOW_MS + HOUR_MS, subject=OTHER_SUBJECT).refused
    assert rig.delay.state.messages == 1


@pytest.mark.parametrize("subject", [SUBJECT, again_for(SUBJECT, "billing")])
def test_what_is_further_ahead_than_its_subject_allows_is_refused_and_never_comes_sooner(
    subject: str,
) -> None:
    """All of a batch, for it is kept as a whole. A sender's clock may be ahead of this one."""
    rig = rig_with(AN_HOUR)
    assert not rig.send([b"a"], NOW_MS + HOUR_MS + CLOCKS_APART_MS, subject=subject).refused
    late = NOW_MS + HOUR_MS + CLOCKS_APART_MS + 1
    answer = rig.send([b"b", b"c"], NOW_MS, late, subject=subject)
    assert refusals(answer) == ["delay_not_allowed"]
    assert answer.refused[0][2].endswith("for 3605 s ahead, 3600 s are allowed")
    assert rig.delay.state.messages == 1


def test_what_was_taken_before_is_told_so_when_it_is_sent_again_and_comes() -> None:
    """Its answer got lost, and meanwhile a person has changed the declaration."""
    rig = DelayRig()
    taken = rig.send_as(1, [b"tide"], NOW_MS + 1000)
    rig.delay.intake.bound_of = FORBIDDEN
    assert rig.send_as(1, [b"tide"], NOW_MS + 1000) == taken
    rig.wait(2000)
    assert [body for _, _, body in rig.arrived] == [b"tide"]


def test_what_recurs_is_bounded_by_its_first_time_and_goes_on_when_its_subject_changes() -> None:
    """What comes after was promised with the first one, and is ended by its timer key."""

    def recur(rig: DelayRig, first_ms: int, sequence: int) -> Sent:
        said = Recurrence(first_ms, "all", "UTC", "* * * * *").encode()
        content = Content([b"tide"], timer_keys=["k"], cron=said)
        return rig.send_as(sequence, [b"tide"], first_ms, content=content)

    rig, minute_ms = rig_with(AN_HOUR), 60_000
    first_ms = (NOW_MS // minute_ms + 1) * minute_ms
    assert refusals(recur(rig, first_ms + 2 * HOUR_MS, 1)) == ["delay_not_allowed"]
    assert not recur(rig, first_ms, 2).refused
    rig.delay.intake.bound_of = FORBIDDEN
    assert refusals(recur(rig, first_ms, 3)) == ["delay_not_allowed"]
    rig.wait(3 * minute_ms)
    assert len(rig.arrived) == 3
    answer = rig.ask(Cancel(KEY))
    assert isinstance(answer, Changed)
    assert answer.changed == 1


@pytest.mark.parametrize("by_id", [False, True])
def test_what_waits_is_given_no_time_that_its_subject_does_not_allow(by_id: bool) -> None:
    """It keeps the time that it has, and may be cancelled; and it may be given out now."""
    rig = DelayRig()
    rig.send([b"tide"], NOW_MS + HOUR_MS // 2, timer_keys=["k"])
    target = Target(id=id_of(1)) if by_id else KEY
    rig.delay.intake.bound_of = AN_HOUR
    assert refusals(rig.ask(Reschedule(target, NOW_MS + 2 * HOUR_MS))) == ["delay_not_allowed"]
    assert rig.ask(Reschedule(target, NOW_MS + HOUR_MS)) == Changed(1, 0)
    rig.delay.intake.bound_of = FORBIDDEN
    assert refusals(rig.ask(Reschedule(target, NOW_MS + 1000))) == ["delay_not_allowed"]
    assert rig.ask(Reschedule(target, NOW_MS)) == Changed(1, 0)
    rig.wait(1000)
    assert [body for _, _, body in rig.arrived] == [b"tide"]


def test_master_that_was_not_told_refuses_until_it_is_and_has_what_it_has() -> None:
    rig = DelayRig()
    rig.send_as(1, [b"tide"], NOW_MS + 1000, timer_keys=["k"])
    rig.delay.intake.bound_of = not_told
    assert refusals(rig.send_as(2, [b"mill"], NOW_MS + 1000)) == ["not_told"]
    assert refusals(rig.ask(Reschedule(KEY, NOW_MS + 2000))) == ["not_told"]
    assert not rig.send_as(1, [b"tide"], NOW_MS + 1000).refused
    rig.delay.intake.bound_of = any_time
    assert not rig.send_as(2, [b"mill"], NOW_MS + 1000).refused
    rig.wait(2000)
    assert sorted(body for _, _, body in rig.arrived) == [b"mill", b"tide"]


# -- how a delay group is told -----------------------------------------------------------------------------------

MASTER = Stood("d0-0", "master", 2, 5, 2, Ends(80, 90), Ends(80, 90), "d0-0")
SLAVE = Stood("d0-1", "slave", 2, 5, 2, Ends(80, 90), Ends(80, 90), "d0-0")


class Beats:
    """What a delay service asks, beat by beat, and is answered."""

    def __init__(self) -> None:
        identity = Identity("d0", "d0-0", 7, "a:7402", "a:7403", "f1", service="delay")
        self.attendance = DelayAttendance(identity)
        self.attendance.beat(MASTER)
        self.attendance.answered(200, {})

    def beat(self, declared: int, answer: Any, stood: Stood = MASTER) -> list[object]:
        """What follows the answer to a heartbeat; ``answer`` is that to what is asked then."""
        self.attendance.beat(stood)
        found: list[object] = []
        due: object = self.attendance.answered(200, {"epoch": 2, "version": 5, "declared": declared})
        while due is not None:
            found.append(due)
            due = self.attendance.answered(200, answer if isinstance(due, Request) else None)
        return found


def test_master_asks_what_is_declared_at_first_and_when_there_is_news() -> None:
    beats = Beats()
    asked = Request("/v1/brokers/declared", {"group": "d0", "known": 0})
    told = {"revision": 7, "later": [["orders", 0], ["bills", 60]]}
    assert beats.beat(7, told, SLAVE) == []
    assert beats.beat(7, told) == [asked, Told(7, {"orders": 0, "bills": 60})]
    assert beats.beat(7, told) == []
    news = Request("/v1/brokers/declared", {"group": "d0", "known": 7})
    assert beats.beat(8, {"revision": 9, "later": []}) == [news, Told(9, {})]


def test_replica_of_meta_that_is_behind_is_asked_again_and_an_earlier_version_says_nothing() -> None:
    beats = Beats()
    assert len(beats.beat(7, {"revision": 6, "later": []})) == 1
    assert beats.beat(7, {"revision": 7})[1:] == [Told(7, {})]


@pytest.mark.parametrize(
    "answer", [{}, {"revision": 7, "later": [["orders"]]}, {"revision": 7, "later": [3]}]
)
def test_answer_that_cannot_be_read_ends_the_beat(answer: Any) -> None:
    with pytest.raises(MetaRefused, match=r"declared|delays"):
        Beats().beat(7, answer)
