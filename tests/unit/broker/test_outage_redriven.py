"""A pause is one for a group and for what is redriven from its dead letters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, Rig, pulls
from samples.graves import HASTY, bodies, hasty_rig, living, twin
from tidemill_wire.commands import Ack, Nack, Pull, Pulled, Redrive
from tidemill_wire.limits import PROBE_MS_MAX, PROBE_MS_MIN

PATIENT = replace(HASTY, attempts_max=5, lease_ms=600_000, backoff_ms=(100, 300))


def fail(rig: Rig, given: Pulled) -> None:
    rig.ask(Nack("g", "c", SUBJECT, pulls(given), -1, "the database is away"))


def probe(rig: Rig) -> Pulled:
    """The one message that is given out, of the subject or of its dead letters."""
    given = rig.pull()
    assert [grant.count for grant in given.grants] == [1]
    assert rig.pull(consumer="d").grants == [], "one at a time"
    return given


def redriven_rig() -> Rig:
    """Forty dead letters of a group are redriven."""
    rig = hasty_rig(PATIENT)
    rig.send(*[b"tide"] * 40)
    rig.ask(Nack("g", "c", SUBJECT, pulls(rig.pull()), reason="no", reject=True))
    assert len(bodies(rig)) == 40
    return rig


def test_pause_reaches_what_is_redriven_and_burns_none_of_its_attempts() -> None:
    rig = redriven_rig()
    rig.send(*[b"mill"] * 30)
    fail(rig, rig.pull())
    assert living(rig).paused is not None
    assert twin(rig).paused == living(rig).paused
    rig.ask(Redrive(SUBJECT, "g", []))
    assert rig.pull().grants == []
    rig.wait(PROBE_MS_MIN)
    for _ in range(10):
        [grant] = probe(rig).grants
        rig.ask(Nack("g", "c", grant.subject, [grant.pull_sequence] * 2, -1, "the database is away"))
        rig.wait(PROBE_MS_MAX)

    assert {failure.attempts for failure in twin(rig).failed.values()} == {0}
    assert twin(rig).failed


def test_outage_that_redriven_messages_meet_pauses_the_whole_group_until_a_probe_of_either_is_handled() -> (
    None
):
    rig = redriven_rig()
    rig.ask(Redrive(SUBJECT, "g", []))
    [grant] = rig.pull().grants
    rig.ask(Nack("g", "c", grant.subject, [grant.pull_sequence, grant.pull_sequence + 39], -1, "away"))
    assert twin(rig).paused is not None
    assert living(rig).paused == twin(rig).paused
    rig.send(b"mill", b"race")
    rig.wait(PROBE_MS_MIN)
    [grant] = probe(rig).grants
    other = rig.connect()
    assert rig.ask(Pull("g", "d", [SUBJECT], 100, 1 << 20, 30_000), other) is None
    waiting = rig.correlation
    rig.ask(Ack("g", "c", grant.subject, [grant.pull_sequence] * 2))

    assert living(rig).paused is None
    assert twin(rig).paused is None
    assert rig.answers.pop(waiting).grants


@pytest.mark.parametrize("checkpoint", [False, True])
def test_pause_of_both_outlives_a_restart(checkpoint: bool) -> None:
    rig = redriven_rig()
    rig.send(*[b"mill"] * 30)
    fail(rig, rig.pull())
    if checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.restart()

    assert living(rig).paused is not None
    assert twin(rig).paused == living(rig).paused
    assert twin(rig).health is living(rig).health
