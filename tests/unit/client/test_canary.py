"""What a canary concludes, from what it sent, what it was answered and what it saw."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.canary.failovers import Interruptions
from tidemill.canary.judge import Judge, Sighting
from tidemill.canary.options import CanarySettings
from tidemill.canary.page import CanaryStatistics
from tidemill.canary.probes import Body, group_manifest, parse_body, subject_manifest
from tidemill.canary.stream import EXPECTED_MAX, Came
from tidemill_wire.declarations import ConsumerGroup, Subject, parse_manifests

PATIENCE_MS = 10_000
GAP_MS = 3_000
SLOW_MS = 1_000
KEPT_MS = 400 * 3_600_000


class Flight:
    """A judge, and a clock."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.judge = Judge(
            self.now_ms,
            patience_ms=PATIENCE_MS,
            slow_ms=SLOW_MS,
            gaps_ms=(GAP_MS, GAP_MS),
            kept_ms=KEPT_MS,
        )

    def send(self) -> int:
        number = self.judge.send(self.now_ms)
        assert number is not None
        return number

    def store(self, number: int) -> None:
        self.judge.answered(number, self.now_ms, f"id-{number}", later=False)

    def see(self, number: int, epoch: int = 1, sequence: int | None = None, attempts: int = 0) -> None:
        place = number if sequence is None else sequence
        self.judge.seen(Sighting(False, number, place, epoch, attempts), self.now_ms)

    def round(self, epoch: int = 1, waits_ms: int = 0) -> int:
        """One is sent, answered and seen."""
        number = self.send()
        self.now_ms += waits_ms
        self.store(number)
        self.see(number, epoch)
        return number

    def rounds(self, milliseconds: int, epoch: int = 1) -> None:
        """One a second."""
        end_ms = self.now_ms + milliseconds
        while self.now_ms < end_ms:
            self.now_ms += 1_000
            self.round(epoch)
            self.judge.look(self.now_ms)

    def said(self) -> dict[str, Any]:
        return self.judge.to_map(self.now_ms)


@pytest.fixture
def flight() -> Flight:
    return Flight()


def test_a_probe_that_was_answered_and_that_others_went_by_is_lost(flight: Flight) -> None:
    gone = flight.send()
    flight.store(gone)

    flight.rounds(PATIENCE_MS)
    assert flight.judge.now.tally.lost == 0
    flight.rounds(2_000)

    assert flight.judge.now.tally.lost == 1
    assert flight.judge.lost_of_late == [f"id-{gone}"]


def test_a_broker_that_is_away_loses_nothing(flight: Flight) -> None:
    """However long: what counts is time in which others came."""
    flight.store(flight.send())

    for _ in range(100):
        flight.now_ms += 3_600_000
        flight.judge.look(flight.now_ms)
        flight.round()

    assert flight.judge.now.tally.lost == 0
    assert flight.judge.now.expected == 1


def test_a_probe_that_comes_after_it_was_lost_is_found(flight: Flight) -> None:
    gone = flight.send()
    flight.store(gone)
    flight.rounds(2 * PATIENCE_MS)

    flight.see(gone)
    flight.see(gone)

    tally = flight.judge.now.tally
    assert (tally.lost, tally.found, tally.seen) == (1, 1, tally.sent)
    assert flight.judge.doubled[Came.REDELIVERED] == 1


@pytest.mark.parametrize("seen", [True, False], ids=["came", "did-not-come"])
def test_of_a_probe_whose_send_failed_nothing_is_expected(flight: Flight, seen: bool) -> None:
    doubtful = flight.send()
    flight.judge.failed(doubtful, flight.now_ms, later=False)
    if seen:
        flight.see(doubtful)

    flight.rounds(2 * PATIENCE_MS)

    assert flight.judge.now.tally.lost == 0
    assert flight.judge.now.tally.failed == 1
    assert flight.judge.now.expected == 0


def test_a_probe_under_way_holds_up_no_verdict(flight: Flight) -> None:
    flight.send()
    gone = flight.send()
    flight.store(gone)

    flight.rounds(2 * PATIENCE_MS)

    assert flight.judge.lost_of_late == [f"id-{gone}"]


def test_a_probe_that_is_seen_before_its_answer_is_not_expected_any_more(flight: Flight) -> None:
    quick = flight.send()
    flight.see(quick)
    flight.store(quick)

    flight.rounds(2 * PATIENCE_MS)

    assert flight.judge.now.tally.lost == 0


def test_what_comes_twice_is_told_apart(flight: Flight) -> None:
    once, acked, twice = flight.round(), flight.round(), flight.round()
    flight.judge.acked(acked, later=False)

    flight.see(once)
    flight.see(acked)
    flight.see(twice, sequence=99)

    assert flight.judge.doubled == {Came.REDELIVERED: 1, Came.ACKNOWLEDGED: 1, Came.STORED_TWICE: 1}
    assert flight.judge.now.tally.seen == 3


def test_order_of_storing_and_of_coming_are_two_things(flight: Flight) -> None:
    first, second, third, fourth = (flight.send() for _ in range(4))
    flight.see(second, sequence=2)
    flight.see(first, sequence=1)
    assert (flight.judge.stored_out_of_order, flight.judge.delivered_out_of_order) == (0, 1)

    flight.see(fourth, sequence=3)
    flight.see(third, sequence=4)
    assert (flight.judge.stored_out_of_order, flight.judge.delivered_out_of_order) == (1, 2)


def test_one_that_was_given_out_before_may_come_late(flight: Flight) -> None:
    first, second = flight.send(), flight.send()
    flight.see(second)
    flight.see(first, attempts=1)

    assert (flight.judge.stored_out_of_order, flight.judge.delivered_out_of_order) == (0, 0)


def test_a_failover_is_measured_from_the_first_send_without_an_answer_to_the_next_with_one(
    flight: Flight,
) -> None:
    flight.rounds(3_000)
    flight.now_ms += 1_000
    began_ms, waiting = flight.now_ms, []
    for _ in range(7):
        waiting.append(flight.send())
        flight.now_ms += 1_000
    assert flight.judge.interrupted_ms(flight.now_ms) == flight.now_ms - began_ms
    for number in waiting:
        flight.store(number)
        flight.see(number, epoch=2)
    flight.rounds(PATIENCE_MS, epoch=2)

    [failover] = flight.judge.failovers.recent
    assert (failover.epoch, failover.rto_ms, failover.rpo, failover.settled) == (2, 7_000, 0, True)
    assert flight.judge.interrupted_ms(flight.now_ms) == 0


def test_a_failover_that_lost_something_has_it_as_its_rpo(flight: Flight) -> None:
    flight.rounds(3_000)
    gone = [flight.send(), flight.send()]
    for number in gone:
        flight.store(number)
    flight.rounds(PATIENCE_MS - 1_000, epoch=2)
    [failover] = flight.judge.failovers.recent
    assert not failover.settled

    flight.rounds(5_000, epoch=2)
    assert (failover.rpo, failover.settled) == (2, True)

    flight.see(gone[0], epoch=2)
    assert failover.rpo == 1


def test_what_is_lost_long_after_a_failover_is_not_its(flight: Flight) -> None:
    flight.rounds(3_000)
    flight.rounds(3_000, epoch=2)
    flight.store(flight.send())
    flight.rounds(2 * PATIENCE_MS, epoch=2)

    assert flight.judge.now.tally.lost == 1
    assert [one.rpo for one in flight.judge.failovers.recent] == [0]


def test_a_hand_over_that_nobody_waited_for_took_as_long_as_its_first_probe(flight: Flight) -> None:
    flight.rounds(3_000)
    flight.round(epoch=2, waits_ms=40)

    assert [one.rto_ms for one in flight.judge.failovers.recent] == [40]


def test_a_new_master_that_is_seen_before_the_answer_comes_is_measured_once() -> None:
    waiting = Interruptions(SLOW_MS)
    waiting.sent(1, 0)
    assert waiting.tell(9_000) == 9_000
    assert waiting.answered(1, 9_001) == 9_001

    assert waiting.tell(9_500) is None


def test_sends_that_fail_at_once_are_an_interruption_too() -> None:
    waiting = Interruptions(SLOW_MS)
    waiting.sent(1, 0)
    waiting.answered(1, 5)
    for number in range(2, 12):
        waiting.sent(number, 500 * number)
        waiting.failed(number)
    assert waiting.since(6_000) == 1_000

    waiting.sent(12, 6_000)
    waiting.answered(12, 6_005)
    assert (waiting.since(6_005), waiting.tell(6_005)) == (None, 5_005)


def test_an_interruption_of_long_ago_is_of_no_failover() -> None:
    waiting = Interruptions(SLOW_MS)
    waiting.sent(1, 0)
    waiting.answered(1, 5_000)

    assert waiting.tell(60_000) is None


def test_another_canary_of_the_name_leaves_nothing_to_judge(flight: Flight) -> None:
    flight.store(flight.send())
    flight.judge.crowded(flight.now_ms)
    for _ in range(5):
        flight.now_ms += 1_000
        flight.store(flight.send())
        flight.judge.look(flight.now_ms)
    assert flight.judge.now.tally.unjudged == 6
    assert flight.said()["crowded"]

    flight.now_ms += PATIENCE_MS
    flight.rounds(3 * PATIENCE_MS)
    assert flight.judge.now.tally.lost == 0
    assert not flight.said()["crowded"]


@pytest.mark.parametrize("later", [False, True])
def test_what_retention_may_have_taken_is_not_judged(flight: Flight, later: bool) -> None:
    """The canary's group was suspended for longer than its probes are kept."""
    judge = flight.judge
    due_ms = flight.now_ms + 2_000 if later else None
    gone = judge.send(flight.now_ms, due_ms)
    assert gone is not None
    judge.answered(gone, flight.now_ms, "id-gone", later=later)
    flight.now_ms += KEPT_MS
    judge.look(flight.now_ms)
    stream = judge.later if later else judge.now
    assert stream.expected == 1

    flight.now_ms += 2_001
    flight.rounds(3 * PATIENCE_MS)

    assert judge.lost_of_late == []
    assert (stream.expected, stream.tally.unjudged) == (0, 1)


def test_a_canary_whose_probes_were_all_taken_sends_again() -> None:
    judge = Flight().judge
    for at_ms in range(EXPECTED_MAX):
        number = judge.send(at_ms)
        assert number is not None
        judge.answered(number, at_ms, "id", later=False)
    assert judge.send(EXPECTED_MAX) is None

    judge.look(EXPECTED_MAX + KEPT_MS)
    assert judge.send(EXPECTED_MAX + KEPT_MS) is not None


def test_where_nothing_is_sent_on_purpose_nothing_is_silent(flight: Flight) -> None:
    flight.rounds(3_000)
    flight.judge.rest(flight.now_ms, rests=True)
    flight.now_ms += 3_600_000
    assert flight.said()["silent_ms"] == 0

    flight.judge.rest(flight.now_ms, rests=False)
    flight.now_ms += 5_000
    flight.judge.rest(flight.now_ms, rests=False)
    assert flight.said()["silent_ms"] == 5_000
    flight.round()
    assert flight.said()["silent_ms"] == 0


def test_a_probe_for_later_is_as_late_as_it_comes_after_its_time(flight: Flight) -> None:
    judge, due_ms = flight.judge, flight.now_ms + 2_000
    for number in (1, 2, 3):
        assert judge.send(flight.now_ms, due_ms) == number
        judge.answered(number, flight.now_ms, "id", later=True)
    early, late = 1, 2
    judge.seen(Sighting(True, early, 1, 1, 0), due_ms - 1)
    judge.seen(Sighting(True, late, 2, 1, 0), due_ms + 250)

    assert judge.early == 1
    assert (judge.delay_error.count, judge.delay_error.total) == (2, 0.25)
    assert judge.later.tally.lost == 0


def test_a_probe_for_later_is_lost_when_others_for_later_go_by(flight: Flight) -> None:
    judge = flight.judge
    gone = judge.send(flight.now_ms, flight.now_ms + 2_000)
    assert gone is not None
    judge.answered(gone, flight.now_ms, "id-gone", later=True)
    flight.rounds(3 * PATIENCE_MS)
    assert judge.later.tally.lost == 0, "the delay service may be away"

    for _ in range(2 * PATIENCE_MS // 1_000):
        number = judge.send(flight.now_ms, flight.now_ms + 2_000)
        assert number is not None
        judge.answered(number, flight.now_ms, "id", later=True)
        flight.now_ms += 1_000
        judge.seen(Sighting(True, number, number, 1, 0), flight.now_ms)
        judge.look(flight.now_ms)
    assert judge.lost_of_late == ["id-gone"]


@pytest.mark.parametrize("later", [False, True])
def test_a_probe_says_what_it_is_and_nothing_else_does(later: bool) -> None:
    body = Body("zone-a", "00ff00ff00ff00ff", later, 17, 1_700_000_000_000)

    assert parse_body(body.to_bytes()) == body
    assert parse_body(body.to_bytes() + b" ") is None
    assert parse_body(b"") is None


def test_its_subject_lies_on_its_broker_group_and_no_other() -> None:
    subject, group = parse_manifests([subject_manifest("g1", 3600), group_manifest("g1", "zone-a")])

    assert isinstance(subject, Subject)
    assert (subject.name, subject.retention_seconds) == ("tidemill.canary.g1", 3600)
    assert subject.spec.placement is not None
    assert subject.spec.placement.broker_groups == ("g1",)
    assert isinstance(group, ConsumerGroup)
    assert (group.subject, group.name) == ("tidemill.canary.g1", "zone-a")


def test_the_page_has_all_numbers_of_a_group(flight: Flight) -> None:
    flight.rounds(3_000)
    flight.rounds(2_000, epoch=2)

    page = CanaryStatistics({"g0": flight.judge}, frozenset({"g0"}), flight.now_ms).prometheus()

    assert 'tidemill_canary_seen_total{group="g0",kind="now"} 5' in page
    assert 'tidemill_canary_end_to_end_seconds_bucket{group="g0",le="+Inf"} 5' in page
    assert 'tidemill_canary_end_to_end_seconds_count{group="g0"} 5' in page
    assert 'tidemill_canary_failovers_total{group="g0"} 1' in page
    assert 'tidemill_canary_trouble{group="g0"} 1' in page


@pytest.mark.parametrize(
    "wrong",
    [{"interval_s": 0.0}, {"later_every_s": -1.0}, {"later_s": 4000.0}, {"patience_s": 0.0}],
    ids=lambda one: next(iter(one)),
)
def test_settings_out_of_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="out of its range"):
        CanarySettings(**wrong)  # type: ignore[arg-type]
