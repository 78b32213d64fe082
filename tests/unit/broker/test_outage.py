"""A group whose deliveries all fail alike is paused: single messages are tried, and no attempt counts meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, Rig, pulls, spans
from samples.graves import HASTY, ROOMY, bodies, hasty_rig, living
from tidemill_broker.settings import BrokerSettings
from tidemill_wire.commands import Ack, Goodbye, Nack, Pull, Pulled, Release
from tidemill_wire.limits import OUTAGE_FAILURES_MIN, PROBE_MS_MAX, PROBE_MS_MIN

PATIENT = replace(HASTY, attempts_max=5, lease_ms=600_000, backoff_ms=(100, 300))


def fail(rig: Rig, given: Pulled, reason: str = "the database is away", delay_ms: int = -1) -> None:
    rig.ask(Nack("g", "c", SUBJECT, pulls(given), delay_ms, reason))


def paused_rig(messages: int = 30, broker: BrokerSettings = ROOMY) -> Rig:
    """A group in its pause, with ``messages`` that failed once each and as many that were not given out."""
    rig = hasty_rig(PATIENT, broker)
    for _ in range(messages):
        rig.send(b"tide")
    given = rig.pull()
    for _ in range(messages):
        rig.send(b"mill")
    fail(rig, given)
    assert living(rig).paused is not None
    return rig


def probe(rig: Rig) -> Pulled:
    """The one message that is given out."""
    given = rig.pull()
    assert [grant.count for grant in given.grants] == [1]
    assert rig.pull(consumer="d").grants == [], "one at a time"
    return given


def attempts(rig: Rig) -> set[int]:
    return {failure.attempts for failure in living(rig).failed.values()}


def test_twenty_failures_alike_pause_a_group_and_nineteen_do_not() -> None:
    rig = hasty_rig(PATIENT)
    rig.send(*[b"tide"] * (OUTAGE_FAILURES_MIN - 1))
    fail(rig, rig.pull())
    assert living(rig).paused is None
    rig.send(b"one more")
    fail(rig, rig.pull())

    assert living(rig).paused is not None
    assert rig.broker.counters.groups_paused == 1


def test_group_in_which_one_of_four_is_handled_is_not_paused() -> None:
    rig = hasty_rig(PATIENT)
    rig.send(b"tide")
    fail(rig, rig.pull())  # of a group that never failed nobody counts the acks
    for _ in range(10):
        rig.send(*[b"tide"] * 4)
        low = pulls(rig.pull(4))[0]
        rig.ask(Ack("g", "c", SUBJECT, [low, low]))
        rig.ask(Nack("g", "c", SUBJECT, [low + 1, low + 3], -1, "no"))

    assert living(rig).paused is None


@pytest.mark.parametrize("delay_ms", [0, 1000])
def test_handler_that_says_when_is_not_broken(delay_ms: int) -> None:
    rig = hasty_rig(PATIENT)
    rig.send(*[b"tide"] * 100)
    fail(rig, rig.pull(), delay_ms=delay_ms)

    assert living(rig).paused is None


def test_messages_that_are_rejected_pause_nobody() -> None:
    rig = hasty_rig(PATIENT)
    rig.send(*[b"tide"] * 100)
    rig.ask(Nack("g", "c", SUBJECT, pulls(rig.pull()), reason="no", reject=True))

    assert living(rig).paused is None
    assert len(bodies(rig)) == 100


def test_different_mistakes_pause_nobody() -> None:
    rig = hasty_rig(PATIENT)
    for number in range(100):
        rig.send(b"tide")
        fail(rig, rig.pull(), "abc"[number % 3])

    assert living(rig).paused is None


def test_paused_group_is_given_one_message_at_a_time_and_none_before_its_time() -> None:
    rig = paused_rig()
    assert rig.pull().grants == []
    rig.wait(PROBE_MS_MIN - 1)
    assert rig.pull().grants == []
    rig.wait(1)

    probe(rig)
    rig.wait(10 * PROBE_MS_MAX)
    assert rig.pull().grants == [], "the probe is still in somebody's hands"


def test_pull_that_waits_is_given_the_probe_when_its_time_has_come() -> None:
    rig = paused_rig()
    assert rig.ask(Pull("g", "c", [SUBJECT], 100, 1 << 20, 30_000)) is None
    rig.wait(PROBE_MS_MIN - 1)
    assert rig.correlation not in rig.answers
    rig.wait(1)

    assert spans(rig.answers.pop(rig.correlation)) == [(0, 1, 1)]


def test_group_resumes_at_once_when_its_probe_was_handled() -> None:
    rig = paused_rig()
    rig.wait(PROBE_MS_MIN)
    given = probe(rig)
    other = rig.connect()
    assert rig.ask(Pull("g", "d", [SUBJECT], 100, 1 << 20, 30_000), other) is None
    waiting = rig.correlation
    rig.ask(Ack("g", "c", SUBJECT, pulls(given)))

    assert living(rig).paused is None
    assert sum(grant.count for grant in rig.answers.pop(waiting).grants) == 59
    rig.wait(100_000)
    assert living(rig).paused is None


def test_no_attempt_counts_while_a_group_is_paused() -> None:
    rig = paused_rig()
    rig.wait(PROBE_MS_MIN)
    held = attempts(rig)
    for _ in range(20):
        rig.wait(PROBE_MS_MAX)
        fail(rig, probe(rig))

    assert held == {1}
    assert attempts(rig) == {1} or attempts(rig) == {0, 1}
    assert bodies(rig) == []


def test_what_was_in_hands_when_the_pause_began_does_not_count_either() -> None:
    rig = hasty_rig(replace(PATIENT, attempts_max=1))
    rig.send(*[b"tide"] * 40)
    low = pulls(rig.pull())[0]
    declare_more = replace(PATIENT, attempts_max=3)
    rig.broker.members.declare_group(rig.broker.state.partitions[1], "g", (0, 0), declare_more, rig.now_ms)
    rig.ask(Nack("g", "c", SUBJECT, [low, low + 24], -1, "no"))
    assert living(rig).paused is not None
    rig.ask(Nack("g", "c", SUBJECT, [low + 25, low + 29], -1, "no"))
    rig.ask(Nack("g", "c", SUBJECT, [low + 30, low + 34], 500, "no"))
    rig.ask(Goodbye("the pod stops"))

    found = {first: failure.attempts for first, failure in living(rig).failed.items()}
    assert found == {0: 1, 25: 0, 30: 0, 35: 0}


def test_message_at_its_last_attempt_outlives_an_outage() -> None:
    rig = hasty_rig(replace(PATIENT, attempts_max=2))
    rig.send(*[b"tide"] * 30)
    fail(rig, rig.pull())
    for _ in range(10):
        rig.wait(PROBE_MS_MAX)
        fail(rig, probe(rig))
    assert bodies(rig) == []
    rig.wait(PROBE_MS_MAX)
    rig.ask(Ack("g", "c", SUBJECT, pulls(probe(rig))))
    assert living(rig).paused is None
    rig.wait(1000)
    given = rig.pull(5)
    fail(rig, given)

    assert bodies(rig) == [b"tide"] * 5, "now it counts"


def test_message_that_is_rejected_while_the_group_is_paused_is_buried() -> None:
    rig = paused_rig()
    rig.wait(PROBE_MS_MIN)
    rig.ask(Nack("g", "c", SUBJECT, pulls(probe(rig)), reason="never", reject=True))

    assert bodies(rig) == [b"tide"]
    assert living(rig).paused is not None


def end_by_nack(rig: Rig, given: Pulled) -> None:
    fail(rig, given)


def end_by_delay(rig: Rig, given: Pulled) -> None:
    fail(rig, given, delay_ms=0)


def end_by_release(rig: Rig, given: Pulled) -> None:
    rig.ask(Release("g", "c", SUBJECT, pulls(given)))


def end_by_goodbye(rig: Rig, given: Pulled) -> None:
    rig.ask(Goodbye("the pod stops"))


def end_by_lease(rig: Rig, given: Pulled) -> None:
    rig.wait(PATIENT.lease_ms)


ENDS = [end_by_nack, end_by_delay, end_by_release, end_by_goodbye, end_by_lease]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_probe_that_was_not_handled_is_followed_by_another_one_later_and_later(end) -> None:
    rig = paused_rig()
    rig.wait(PROBE_MS_MIN)
    for pause_ms in (2000, 4000, 8000, 16_000, 30_000, 30_000):
        given = probe(rig)
        end(rig, given)
        assert living(rig).paused is not None
        rig.wait(pause_ms - 1)
        assert rig.pull().grants == [], end
        rig.wait(1)
    assert attempts(rig) <= {0, 1}


def test_probe_of_a_consumer_that_is_gone_is_followed_by_another_one() -> None:
    rig = paused_rig(broker=replace(ROOMY, consumer_gone_ms=5000))
    rig.wait(PROBE_MS_MIN)
    probe(rig)
    rig.broker.disconnected(rig.peers[0], rig.now_ms)
    rig.pump()
    rig.wait(rig.settings.consumer_gone_ms)
    other = rig.connect()
    assert rig.pull(consumer="d", peer=other).grants == []
    rig.wait(2 * PROBE_MS_MIN)

    assert [grant.count for grant in rig.pull(consumer="d", peer=other).grants] == [1]


def test_word_about_deliveries_that_somebody_else_holds_ends_no_probe() -> None:
    rig = paused_rig()
    rig.pull(consumer="d")
    rig.wait(PROBE_MS_MIN)
    given = probe(rig)
    for kind in (Ack, Release, Nack):
        rig.ask(kind("g", "d", SUBJECT, [0, 1 << 62]))
    rig.wait(PROBE_MS_MAX)
    assert rig.pull().grants == []
    assert living(rig).paused is not None

    rig.ask(Ack("g", "c", SUBJECT, pulls(given)))
    assert living(rig).paused is None


@pytest.mark.parametrize("checkpoint", [False, True])
def test_pause_outlives_a_restart_and_is_probed_at_once(checkpoint: bool) -> None:
    rig = paused_rig()
    rig.wait(PROBE_MS_MIN)
    if checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.restart()

    assert living(rig).paused is not None
    given = probe(rig)
    rig.ask(Ack("g", "c", SUBJECT, pulls(given)))
    rig.restart()
    assert living(rig).paused is None


def test_paused_group_with_nothing_to_try_keeps_nobody_awake() -> None:
    rig = hasty_rig(replace(PATIENT, backoff_ms=(3_600_000,)))
    rig.send(*[b"tide"] * 30)
    fail(rig, rig.pull())
    assert rig.ask(Pull("g", "c", [SUBJECT], 100, 1 << 20, 60_000)) is None
    ticks: list[int] = []
    ticked = rig.broker.ticked
    rig.broker.ticked = lambda now_ms: (ticks.append(now_ms), ticked(now_ms))[1]
    rig.wait(60_000)

    assert len(ticks) < 100
    assert rig.answers.pop(rig.correlation).grants == []


def test_new_message_is_a_probe_when_nothing_else_is_due() -> None:
    rig = hasty_rig(replace(PATIENT, backoff_ms=(3_600_000,)))
    rig.send(*[b"tide"] * 30)
    fail(rig, rig.pull())
    rig.wait(PROBE_MS_MIN)
    rig.send(b"new")

    assert spans(rig.pull()) == [(30, 1, 0)]


def test_group_is_paused_again_when_all_fails_again() -> None:
    rig = paused_rig()
    rig.wait(PROBE_MS_MIN)
    rig.ask(Ack("g", "c", SUBJECT, pulls(probe(rig))))
    assert living(rig).paused is None
    rig.wait(1000)
    fail(rig, rig.pull())

    assert living(rig).paused is not None
    assert rig.broker.counters.groups_paused == 2


CRASHING = replace(PATIENT, lease_ms=1000, backoff_ms=(100,))


def test_consumers_that_die_one_after_the_other_pause_a_group_and_one_that_dies_does_not() -> None:
    rig = hasty_rig(replace(PATIENT, backoff_ms=(100,)), replace(ROOMY, consumer_gone_ms=500))
    rig.send(*[b"tide"] * 100)
    for paused in (False, True):
        peer = rig.connect()
        assert rig.pull(consumer="d", peer=peer).grants
        rig.broker.disconnected(peer, rig.now_ms)
        rig.wait(700)
        assert (living(rig).paused is not None) is paused

    mark = living(rig).paused[1]
    assert living(rig).errors[mark].detail.reason.startswith("its consumer was gone")
    assert attempts(rig) == {1}, "those by which it was noticed do not count"


def test_leases_that_end_and_end_again_pause_a_group_and_no_attempt_counts_from_then_on() -> None:
    rig = hasty_rig(CRASHING)
    rig.send(*[b"tide"] * 100)
    for paused in (False, True):
        assert rig.pull().grants
        rig.wait(CRASHING.lease_ms + 1)
        assert (living(rig).paused is not None) is paused
    rig.wait(PROBE_MS_MIN)
    held = attempts(rig)
    for _ in range(10):
        probe(rig)
        rig.wait(PROBE_MS_MAX + CRASHING.lease_ms)

    assert held == {1}
    assert attempts(rig) == {1}
    assert bodies(rig) == []


def test_group_whose_others_handle_what_they_are_given_is_not_paused_by_one_that_dies_again_and_again() -> (
    None
):
    rig = hasty_rig(replace(PATIENT, backoff_ms=(100,)), replace(ROOMY, consumer_gone_ms=500))
    rig.send(*[b"tide"] * 1000)
    for _ in range(5):
        peer = rig.connect()
        assert rig.pull(20, consumer="d", peer=peer).grants
        rig.broker.disconnected(peer, rig.now_ms)
        rig.ask(Ack("g", "c", SUBJECT, pulls(rig.pull(100))))
        rig.wait(700)

    assert living(rig).paused is None
