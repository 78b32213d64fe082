"""The queue of keys: what comes first, who waits for how long, and that nothing is looked at by two at once."""

from __future__ import annotations

import random

from tidemill_operator.work import BACKOFF_MS_MAX, BACKOFF_MS_MIN, WorkQueue


def a_queue() -> WorkQueue[str]:
    return WorkQueue(random.Random(1))


def test_a_key_that_is_added_twice_is_taken_once() -> None:
    queue = a_queue()
    queue.add("a", 0)
    queue.add("a", 1)
    assert queue.take(1) == "a"
    assert queue.take(1) is None


def test_a_key_that_is_added_while_it_is_taken_comes_again_when_it_is_done() -> None:
    queue = a_queue()
    queue.add("a", 0)
    queue.take(0)
    queue.add("a", 1)
    assert queue.take(1) is None, "two at once"
    queue.done("a", 2)
    assert queue.take(2) == "a"


def test_deletions_come_first_and_then_who_waits_longest() -> None:
    queue = a_queue()
    queue.add("young", 5)
    queue.add("old", 1)
    queue.add("deleted", 7, urgent=True)
    assert [queue.take(9), queue.take(9), queue.take(9)] == ["deleted", "old", "young"]


def test_a_waiting_key_becomes_urgent_when_it_is_deleted() -> None:
    queue = a_queue()
    queue.add("a", 0)
    queue.add("b", 1)
    queue.add("b", 2, urgent=True)
    assert [queue.take(2), queue.take(2), queue.take(2)] == ["b", "a", None]


def test_who_asks_for_another_look_gets_it_then_and_not_before() -> None:
    queue = a_queue()
    queue.add("a", 0)
    queue.take(0)
    queue.done("a", 0, again_ms=100)
    assert queue.next_ms() == 100
    assert queue.take(99) is None
    assert queue.take(100) == "a"


def test_failures_wait_longer_each_time_and_never_beyond_the_bound() -> None:
    queue = a_queue()
    pauses: list[int] = []
    now_ms = 0
    queue.add("a", now_ms)
    for _ in range(200):
        assert queue.take(now_ms) == "a"
        pauses.append(queue.failed("a", now_ms))
        now_ms += pauses[-1]
    assert max(pauses[:1]) <= BACKOFF_MS_MIN
    assert max(pauses) <= BACKOFF_MS_MAX
    assert max(pauses[20:]) > BACKOFF_MS_MAX * 0.9, "the bound is never come near"
    assert min(pauses[20:]) < BACKOFF_MS_MAX * 0.1, "without jitter all would come at once"


def test_a_pause_that_was_asked_for_is_kept() -> None:
    queue = a_queue()
    queue.add("a", 0)
    queue.take(0)
    assert queue.failed("a", 0, at_least_ms=60_000) >= 60_000


def test_success_makes_the_next_failure_a_first_one() -> None:
    queue = a_queue()
    for _ in range(5):
        queue.add("a", 0)
        queue.take(0)
        queue.failed("a", 0)
    queue.add("a", 0)
    queue.take(0)
    queue.done("a", 0)
    assert queue.failures("a") == 0


def test_a_change_ends_a_pause() -> None:
    queue = a_queue()
    queue.add("a", 0)
    queue.take(0)
    queue.failed("a", 0, at_least_ms=60_000)
    queue.add("a", 10)
    assert queue.take(10) == "a"


def test_a_change_during_a_try_that_fails_does_not_repeat_it_at_once_for_ever() -> None:
    queue = a_queue()
    queue.add("a", 0)
    for now_ms in (0, 0, 0):
        if queue.take(now_ms) is None:
            break
        queue.add("a", now_ms)
        queue.failed("a", now_ms, at_least_ms=50)
    assert queue.take(49) is None


def test_the_numbers_say_how_many_wait_and_for_how_long() -> None:
    queue = a_queue()
    queue.add("a", 100)
    queue.add("b", 400)
    assert queue.depth(500) == 2
    assert queue.oldest_ms(500) == 400
    queue.take(500)
    assert queue.depth(500) == 1
    assert a_queue().next_ms() is None
