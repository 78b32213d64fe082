"""What is left of a subject on a broker, as meta is told before it removes the subject if it is empty; and of all."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samples.brokers import SUBJECT, TINY, Rig, batch_of
from samples.graves import bury, hasty_rig
from samples.halves import commit, done, half_of, rollback
from samples.replicas import Group
from tidemill_broker.doors.leftovers import LeftoversDoor
from tidemill_broker.doors.service import Service
from tidemill_broker.doors.status import Leftovers, left_of
from tidemill_broker.partitions import SubjectSettings
from tidemill_host.clock import RealClock
from tidemill_host.refusals import HttpRefused
from tidemill_ledger.following import Follower
from tidemill_wire.commands import Ack, Pull, Pulled, SendBatches, Sent
from tidemill_wire.leftovers import Leftover, parse_leftovers
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


# -- of all subjects, for whoever takes the broker away ---------------------------------------------------------


def rows_of(rig: Rig) -> dict[str, Leftover]:
    look = Leftovers(rig.broker.state)
    deque(look.steps(), maxlen=0)
    return {row.subject: row for row in look.rows()}


def said(rig: Rig, subject: str = SUBJECT) -> list[str]:
    row = rows_of(rig).get(subject)
    return [] if row is None else list(row.sentences())


def test_half_messages_are_left_until_somebody_decides() -> None:
    """They are in no group's numbers, and nothing comes in while they wait."""
    rig = Rig(replace(TINY, lease_ms=10**6))
    done(rig, half_of(b"1", b"2"))
    assert said(rig) == [f"2 messages of {SUBJECT} in transactions that nobody has decided"]

    rig.restart()
    assert said(rig) == [f"2 messages of {SUBJECT} in transactions that nobody has decided"]

    done(rig, commit())
    assert said(rig) == []
    assert list(rows_of(rig)[SUBJECT].late(["g"])) == [
        f"g of {SUBJECT}: 2 messages that it has not begun with"
    ]
    rig.pull(1)
    assert said(rig) == [f"g of {SUBJECT}: 1 to consume, 1 in flight"]


def test_a_transaction_that_is_rolled_back_leaves_nothing() -> None:
    rig = Rig(TINY)
    done(rig, half_of(b"1"))
    done(rig, rollback())

    assert rows_of(rig) == {}


def test_what_an_archive_must_have_is_left_until_it_has_it() -> None:
    rig = Rig(replace(TINY, lease_ms=10**6))
    rig.broker.intake.declare(SUBJECT, SubjectSettings("low", 1, 0, 1 << 20, archived=()), rig.now_ms)
    rig.send(b"1", b"2", b"3")
    take(rig, 3)
    assert said(rig) == [f"3 messages of {SUBJECT} that no archive has"]
    assert left(rig)["left"] == 0, "whoever removes a subject wants no archive of it"

    rig.broker.archiving.obey([(SUBJECT, 2)], (), rig.now_ms)
    rig.pump()
    assert said(rig) == [f"1 message of {SUBJECT} that no archive has"]
    rig.broker.archiving.obey([(SUBJECT, 3)], (), rig.now_ms)
    rig.pump()
    assert said(rig) == []


def test_each_subject_is_told_by_itself_and_a_group_by_its_partition() -> None:
    rig = hasty_rig()
    bury(rig, b"1")
    rig.send(b"1", subject="other")
    rig.broker.intake.found("other#1", rig.now_ms)
    rig.pump()
    rig.ask(SendBatches(batch_of(b"1", subject="other#1", producer=9, sequence=1)))
    rig.ask(Pull("late", "c", ["other"], 1, 1 << 20, 0, -1))

    rows = rows_of(rig)

    assert sorted(rows) == [SUBJECT, "other"]
    assert said(rig) == [f"g of {SUBJECT}: 1 dead letters"]
    assert [one.partition for one in rows["other"].undone] == ["other"]
    assert list(rows["other"].late(["late", "never"])) == [
        "late of other: 2 messages that it has not begun with",
        "never of other: 2 messages that it has not begun with",
    ]


def test_a_message_that_goes_on_while_it_is_looked_for_is_not_missed() -> None:
    """The look may pause between any two steps, and a transaction may be committed and consumed meanwhile."""
    for pause in range(20):
        rig = Rig(replace(TINY, lease_ms=10**6))
        rig.send(b"0", subject="other")
        done(rig, half_of(b"1"))
        assert rig.pull(1).grants == []
        look = Leftovers(rig.broker.state)
        for number, _ in enumerate(look.steps()):
            if number == pause:
                done(rig, commit())
                rig.pull(1)
        row = next(one for one in look.rows() if one.subject == SUBJECT)
        assert list(row.sentences()), pause


# -- over HTTP --------------------------------------------------------------------------------------------------


def asked(rig: Any, machine: Any, *, halted: bool = False) -> Any:
    service = SimpleNamespace(broker=rig.broker, machine=machine, is_halted=halted)
    door = LeftoversDoor(cast("Service", service), RealClock())
    [route] = door.routes()
    request: Any = SimpleNamespace()
    response: Any = asyncio.run(answered(route.answer(request, {})))
    return json.loads(response.body)


async def answered(answer: Any) -> Any:
    return await answer


def test_a_master_says_its_epoch_and_what_is_left() -> None:
    rig = Rig(replace(TINY, lease_ms=10**6))
    rig.send(b"1")
    rig.pull(1)

    epoch, rows = parse_leftovers(asked(rig, rig.broker))

    assert epoch == rig.broker.logs.epoch
    assert {row.subject: row for row in rows} == rows_of(rig)


def test_who_leads_no_more_does_not_say_what_is_left() -> None:
    rig = Rig(TINY)

    with pytest.raises(HttpRefused, match="is not the master"):
        asked(rig, rig.broker, halted=True)


def test_a_slave_does_not_say_what_is_left() -> None:
    group = Group("g0-0", "g0-1")
    group.appoint(1, "g0-0", ["g0-0"])
    machine = group["g0-1"].machine
    assert isinstance(machine, Follower)

    with pytest.raises(HttpRefused, match="is not the master"):
        asked(Rig(TINY), machine)
