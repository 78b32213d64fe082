"""How many probes are remembered, and what becomes of those for which there is no room."""

from __future__ import annotations

from tidemill.canary.stream import EXPECTED_MAX, REMEMBERED_MAX, Came, Stream

PATIENCE_MS = 10_000
GAP_MS = 3_000
KEPT_MS = 6 * 3_600_000


def test_with_too_many_that_do_not_come_nothing_is_sent() -> None:
    stream = Stream(PATIENCE_MS, GAP_MS, KEPT_MS)
    for at_ms in range(EXPECTED_MAX):
        assert stream.send(at_ms, at_ms) is not None

    assert stream.send(EXPECTED_MAX, EXPECTED_MAX) is None
    assert stream.tally.held_back == 1


def test_sends_that_fail_for_hours_do_not_keep_the_next_ones_from_being_sent() -> None:
    """Nothing comes while they fail, so no attention gives them up."""
    stream = Stream(PATIENCE_MS, GAP_MS, KEPT_MS)
    for at_ms in range(2 * EXPECTED_MAX):
        probe = stream.send(at_ms, at_ms)
        assert probe is not None
        stream.failed(probe.number, at_ms)

    assert stream.tally.held_back == 0


def test_what_came_is_remembered_for_a_bounded_time() -> None:
    stream = Stream(PATIENCE_MS, GAP_MS, KEPT_MS)
    for number in range(1, REMEMBERED_MAX + 2):
        stream.send(number, number)
        assert stream.seen(number, number, number)[0] is Came.FIRST

    assert stream.seen(1, 1, 9_999)[0] is Came.UNKNOWN
    assert stream.seen(2, 2, 9_999)[0] is Came.REDELIVERED
