"""When what failed is due again, which mistakes are the same, and when a group has stopped working."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill_broker.actions import FailureDetail, Reason
from tidemill_broker.failures import HALF_LIFE_MS, Errors, Health, due_after
from tidemill_broker.group_settings import GroupSettings
from tidemill_wire.fingerprints import fingerprint_of
from tidemill_wire.limits import DOOMED_MS, OUTAGE_FAILURES_MIN, PROBE_MS_MAX, PROBE_MS_MIN

NOW_MS = 1_780_000_000_000
POLICY = GroupSettings(attempts_max=6, retry_ms_min=60_000, backoff_ms=(1000, 2000, 4000))
LONG_AGO = NOW_MS - 60_000


@pytest.mark.parametrize(
    "attempts, reason, delay_ms, due_ms",
    [
        (0, Reason.NACK, -1, 1000),
        (1, Reason.NACK, -1, 2000),
        (2, Reason.NACK, -1, 4000),
        (3, Reason.NACK, -1, 4000),
        (9, Reason.NACK, -1, 4000),
        (0, Reason.NACK, 0, 0),
        (3, Reason.NACK, 30_000, 30_000),
        (0, Reason.LEASE_ENDED, -1, 0),
        (1, Reason.LEASE_ENDED, -1, 1000),
        (2, Reason.LEASE_ENDED, -1, 2000),
        (9, Reason.LEASE_ENDED, -1, 4000),
        (0, Reason.CONSUMER_GONE, -1, 0),
        (1, Reason.CONSUMER_GONE, -1, 1000),
    ],
)
def test_failure_waits_as_its_group_says(attempts: int, reason: Reason, delay_ms: int, due_ms: int) -> None:
    assert due_after(POLICY, (attempts, NOW_MS), reason, delay_ms, NOW_MS) == NOW_MS + due_ms


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("delay_ms", [-1, 0, 30_000])
@pytest.mark.parametrize(
    "attempts, since_ms, doomed",
    [
        (5, LONG_AGO, True),
        (50, LONG_AGO, True),
        (4, LONG_AGO, False),
        (5, LONG_AGO + 1, False),
        (50, 0, False),
    ],
)
def test_message_dies_of_its_attempts_and_its_time(
    attempts: int, since_ms: int, doomed: bool, reason: Reason, delay_ms: int
) -> None:
    due_ms = due_after(POLICY, (attempts, since_ms), reason, delay_ms, NOW_MS)

    assert (due_ms == DOOMED_MS) is doomed


def test_without_a_least_time_attempts_alone_count() -> None:
    assert due_after(replace(POLICY, retry_ms_min=0, attempts_max=1), (0, 0), 1, -1, NOW_MS) == DOOMED_MS


@pytest.mark.parametrize(
    "one, other",
    [
        (("order 17 failed", "", ""), ("order 42 failed", "", "")),
        (("at 0x7f00beef", "", ""), ("at 0x7f00cafe", "", "")),
        (
            ("no 123e4567-e89b-12d3-a456-426614174000", "", ""),
            ("no 00000000-1111-2222-3333-444444444444", "", ""),
        ),
        (("customer 3", "KeyError", "shop.py:7"), ("another text", "KeyError", "shop.py:7")),
    ],
)
def test_the_same_mistake_has_the_same_mark(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert fingerprint_of(*one) == fingerprint_of(*other)


def test_different_mistakes_have_different_marks() -> None:
    mistakes = [
        ("", "", ""), ("no customer", "", ""), ("no order", "", ""), ("x", "KeyError", ""), ("x", "ValueError", ""),
        ("x", "KeyError", "a.py:1 in f"), ("x", "KeyError", "a.py:1 in g"), ("x", "", "a.py:1 in g"),
    ]  # fmt: skip
    marks = [fingerprint_of(*mistake) for mistake in mistakes]

    assert len(set(marks)) == len(mistakes)
    assert all(len(mark) == 8 and int(mark, 16) >= 0 for mark in marks)


def test_mark_of_a_text_that_is_no_unicode_is_made_all_the_same() -> None:
    assert fingerprint_of("\ud800", "", "") == fingerprint_of("\ud800", "", "")


def test_outage_is_many_failures_that_are_alike() -> None:
    health = Health()

    assert not health.note_failed("a", OUTAGE_FAILURES_MIN - 1, NOW_MS)
    assert health.note_failed("a", 1, NOW_MS)


def test_four_of_five_deliveries_must_fail_alike() -> None:
    health = Health()
    health.note_acked(21, NOW_MS)

    assert not health.note_failed("a", 83, NOW_MS)
    assert health.note_failed("a", 1, NOW_MS), "84 of 105"


def test_failures_of_other_kinds_speak_against_an_outage() -> None:
    health = Health()
    assert not any(health.note_failed("abc"[number % 3], 10, NOW_MS) for number in range(30))


def test_what_is_long_ago_counts_less() -> None:
    health = Health()
    health.note_acked(1000, NOW_MS)
    health.note_failed("a", 40, NOW_MS)

    health.fade(NOW_MS + HALF_LIFE_MS)
    assert (health.acked, health.failed) == (500, {"a": 20})
    health.fade(NOW_MS)
    assert health.acked == 500, "time that goes back changes nothing"
    health.fade(NOW_MS + 8 * HALF_LIFE_MS)
    assert health.failed == {}, "less than half a message is none"
    assert health.note_failed("b", OUTAGE_FAILURES_MIN, NOW_MS + 8 * HALF_LIFE_MS)


def test_probes_come_more_and_more_seldom() -> None:
    health = Health()
    health.begin_pause(NOW_MS)
    pauses: list[int] = [health.probe_at_ms - NOW_MS]
    for _ in range(8):
        health.probe = 7
        health.probe_failed(NOW_MS)
        assert health.probe is None
        pauses.append(health.probe_at_ms - NOW_MS)

    assert pauses == [PROBE_MS_MIN * 2**n if 2**n < 30 else PROBE_MS_MAX for n in range(9)]
    health.end_pause()
    health.begin_pause(NOW_MS)
    assert health.probe_at_ms == NOW_MS + PROBE_MS_MIN, "the next outage begins anew"


def test_only_the_latest_errors_are_kept() -> None:
    errors = Errors()
    for number in range(Errors.KEPT + 3):
        errors.note(FailureDetail(f"r{number}", "", "", f"{number}"), 2, NOW_MS + number)
    errors.note(FailureDetail("again", "", "", "3"), 5, NOW_MS + 99)

    assert len(errors) == Errors.KEPT
    assert "2" not in errors
    assert (errors["3"].detail.reason, errors["3"].messages, errors["3"].last_ms) == ("again", 7, NOW_MS + 99)
    assert list(Errors.from_list(errors.to_list()).items()) == list(errors.items())
