"""What is left of a subject on a broker, as meta is told before it removes the subject if it is empty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from samples.brokers import SUBJECT, TINY, Rig, batch_of
from samples.graves import bury, hasty_rig
from tidemill_broker.doors.status import left_of
from tidemill_wire.commands import Ack, Pull, Pulled, SendBatches, Sent
from tidemill_wire.ranges import pairs

PRIORITY = 5


def left(rig: Rig, subject: str = SUBJECT) -> dict[str, Any]:
    return left_of(rig.broker.state, subject)


def take(rig: Rig, count: int, group: str = "g", subject: str = SUBJECT) -> None:
    """Pull and ack."""
    answer = rig.ask(Pull(group, "c", [subject], count, 1 << 20, 0, -1))
    assert isinstance(answer, Pulled)
    for grant in answer.grants:
        ranges = [grant.pull_sequence, grant.pull_sequence + grant.count - 1]
        assert list(pairs(ranges))
        rig.ask(Ack(group, "c", grant.subject, ranges))
    rig.pump()


def test_nothing_is_left_when_all_groups_have_acked_all_and_what_is_kept_is_told() -> None:
    rig = Rig(replace(TINY, lease_ms=10**6))
    assert left(rig) == {"subject": SUBJECT, "left": 0, "kept": 0, "groups": []}
    rig.send(b"1", b"2")
    assert left(rig) == {"subject": SUBJECT, "left": 0, "kept": 2, "groups": []}

    rig.pull(1)
    assert left(rig)["left"] == 2
    rig.restart()
    assert left(rig)["left"] == 2
    take(rig, 2, "other")
    assert left(rig)["left"] > 0
    assert left(rig)["groups"] == ["g", "other"]


def test_a_lane_and_a_further_partition_count_as_their_subject_and_others_do_not() -> None:
    rig = Rig(replace(TINY, lease_ms=10**6))
    rig.send(b"1")
    take(rig, 1)
    assert left(rig) == {"subject": SUBJECT, "left": 0, "kept": 1, "groups": ["g"]}

    rig.send(b"urgent", priority=PRIORITY)
    assert left(rig) == {"subject": SUBJECT, "left": 1, "kept": 2, "groups": ["g"]}
    take(rig, 1)
    assert left(rig)["left"] == 0
    rig.send(b"1", subject="other")
    rig.broker.intake.found(f"{SUBJECT}#1", rig.now_ms)
    rig.pump()
    assert left(rig) == {"subject": SUBJECT, "left": 0, "kept": 2, "groups": ["g"]}
    answer = rig.ask(SendBatches(batch_of(b"1", subject=f"{SUBJECT}#1", producer=9, sequence=1)))
    assert isinstance(answer, Sent)
    assert left(rig)["kept"] == 3
    assert left(rig)["groups"] == [], "nobody consumes from the further partition"


def test_dead_letters_are_left() -> None:
    rig = hasty_rig()
    bury(rig, b"1")

    assert left(rig)["left"] == 1
