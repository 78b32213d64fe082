"""What is in flight is bounded, of a subject and to an identity: what is beyond waits, and comes when there is room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, pulls
from tidemill_broker.doors.service import subject_settings
from tidemill_broker.doors.status import group_rows
from tidemill_broker.gate import Removal
from tidemill_broker.partitions import SubjectSettings
from tidemill_wire.commands import Ack, Command, Failed, Nack, Pull, Pulled, Redrive, Release, Settle
from tidemill_wire.declarations import API_VERSION, Subject, parse_manifest
from tidemill_wire.errors import KIND_BY_NUMBER
from tidemill_wire.kinds import Place
from tidemill_wire.quotas import IN_FLIGHT_WAIT_MS, Bound
from tidemill_wire.steering import Seek

SETTINGS = SubjectSettings("low", 3600, 0, 1 << 20)
SHOP, OTHER = Bound("token:shop", 3), Bound("token:other", 3)
WAIT_MS = 5_000


def ask(
    rig: Rig,
    bound: Bound | None = SHOP,
    *,
    consumer: str = "c",
    group: str = "g",
    wait_ms: int = 0,
    subjects: tuple[str, ...] = (SUBJECT,),
    peer: int = 1,
    once: bool = False,
    messages: int = 1000,
) -> Command | None:
    """A pull as whoever is bounded so."""
    pull = Pull(group, consumer, subjects, messages, 1 << 20, wait_ms, once=once, bound=bound)
    return rig.ask(pull, peer)


def given(answer: Command | None) -> int:
    assert isinstance(answer, Pulled), answer
    return sum(grant.count for grant in answer.grants)


def refusal(answer: Command | None) -> tuple[str, str, int]:
    assert isinstance(answer, Failed), answer
    return KIND_BY_NUMBER[answer.number].name, answer.detail, answer.wait_ms


def later(rig: Rig, correlation: int) -> Command | None:
    return rig.answers.pop(correlation, None)


def acked(
    rig: Rig, answer: Command | None, *, consumer: str = "c", group: str = "g", count: int = 1 << 20
) -> None:
    assert isinstance(answer, Pulled)
    numbers = pulls(answer)
    rig.ask(Ack(group, consumer, SUBJECT, [numbers[0], min(numbers[1], numbers[0] + count - 1)]))


def declare(rig: Rig, most: int, subject: str = SUBJECT) -> None:
    rig.broker.intake.declare(subject, replace(SETTINGS, in_flight_max=most), rig.now_ms)
    rig.pump()


def test_an_identity_is_given_as_much_as_it_may_have_and_is_told_why_not_more() -> None:
    rig = Rig()
    rig.fill(10)
    assert given(ask(rig)) == 3
    name, detail, wait_ms = refusal(ask(rig))
    assert (name, wait_ms) == ("over_quota", IN_FLIGHT_WAIT_MS)
    assert "the quota of token:shop is used up: 3 messages in flight here" in detail
    assert given(ask(rig, OTHER, consumer="d")) == 3
    assert given(ask(rig, None, consumer="e")) == 4
    assert rig.broker.counters.refused["over_quota"] == 1
    assert dict(rig.broker.intake.quotas.told_to_wait.rows("others")) == {"token:shop": 1}


def test_all_groups_subjects_consumers_and_connections_of_an_identity_count_together() -> None:
    rig = Rig()
    for subject in (SUBJECT, "other"):
        rig.fill(10, subject)
    peer = rig.connect()
    assert given(ask(rig, messages=1)) == 1
    assert given(ask(rig, consumer="d", messages=1, peer=peer)) == 1
    assert given(ask(rig, group="h", subjects=("other",))) == 1
    assert refusal(ask(rig, group="i"))[0] == "over_quota"


@pytest.mark.parametrize("wait_ms", [0, 200, 900])
def test_who_has_waited_long_enough_is_to_ask_again_at_once(wait_ms: int) -> None:
    """And who does not wait at the broker, waits before asking again: nobody goes round and round."""
    rig = Rig()
    rig.fill(5)
    ask(rig)
    answer = ask(rig, wait_ms=wait_ms)
    correlation = rig.correlation
    if wait_ms:
        assert answer is None
        rig.wait(wait_ms)
        answer = later(rig, correlation)
    assert refusal(answer)[2] == max(1, IN_FLIGHT_WAIT_MS - wait_ms)


SETTLEMENTS: dict[str, type[Settle]] = {"acked": Ack, "failed": Nack, "handed back": Release}


@pytest.mark.parametrize(
    "how", [*SETTLEMENTS, "the lease ends", "the consumer is gone", "the group goes on elsewhere"]
)
def test_a_pull_that_waits_is_given_what_there_is_room_for_when_something_is_settled(how: str) -> None:
    """In another group of the same identity: nobody there would be asked otherwise."""
    rig = Rig()
    rig.fill(10)
    peer = rig.connect()
    first = ask(rig, peer=peer)
    assert isinstance(first, Pulled)
    assert ask(rig, group="h", consumer="d", wait_ms=600_000) is None
    waiting = rig.correlation
    if how in SETTLEMENTS:
        held = pulls(first)
        rig.ask(SETTLEMENTS[how]("g", "c", SUBJECT, [held[0], held[0]]))
    elif how == "the lease ends":
        rig.wait(rig.settings.lease_ms + 1)
    elif how == "the consumer is gone":
        rig.disconnect(peer)
        rig.wait(rig.settings.consumer_gone_ms + 1)
    else:
        rig.ask(Seek("g", SUBJECT, Place.EARLIEST))
    assert given(later(rig, waiting)) == (1 if how in SETTLEMENTS else 3)
    rig.broker.check()


def test_one_that_is_full_does_not_keep_others_of_its_group_waiting() -> None:
    """The first in line may be given nothing; who comes behind it may."""
    rig = Rig()
    rig.fill(3)
    ask(rig)
    assert ask(rig, wait_ms=WAIT_MS) is None
    full = rig.correlation
    assert ask(rig, OTHER, consumer="d", wait_ms=WAIT_MS) is None
    free = rig.correlation
    rig.send(b"x")
    assert later(rig, full) is None
    assert given(later(rig, free)) == 1


def test_what_one_subject_has_no_room_for_another_may_give_to_the_same_pull() -> None:
    rig = Rig()
    declare(rig, 1)
    rig.fill(3)
    rig.fill(3, "other")
    assert given(ask(rig, None)) == 1
    both = (SUBJECT, "other")
    assert given(ask(rig, None, subjects=both)) == 3
    assert refusal(ask(rig, None, subjects=both))[1].startswith(f"the quota of subject {SUBJECT} is used up")


def test_a_pull_for_which_there_is_nothing_is_told_so_however_full_it_is() -> None:
    rig = Rig()
    rig.fill(3)
    assert given(ask(rig)) == 3
    assert given(ask(rig)) == 0


def test_a_subject_has_one_bound_for_all_groups_lanes_partitions_and_dead_letters() -> None:
    rig = Rig()
    declare(rig, 4)
    further = f"{SUBJECT}#1"
    rig.broker.intake.found(further, rig.now_ms)
    rig.pump()
    rig.send(b"x", priority=4)
    rig.send(b"x")
    rig.send(b"x", subject=further)
    buried = ask(rig, None, messages=1)
    assert isinstance(buried, Pulled)
    rig.ask(Nack("g", "c", buried.grants[0].subject, pulls(buried), -1, "broken", reject=True))
    rig.pump()
    rig.ask(Redrive(SUBJECT, "g", []))
    assert given(ask(rig, None, messages=1)) == 1
    assert given(ask(rig, None, messages=1)) == 1
    assert given(ask(rig, None, subjects=(further,))) == 1
    assert given(ask(rig, None, group="h")) == 1
    assert refusal(ask(rig, None, group="i"))[0] == "over_quota"
    rig.broker.check()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_consumers_held_before_a_restart_is_theirs_who_pull_for_them(*, checkpoint: bool) -> None:
    rig = Rig()
    declare(rig, 100)
    rig.fill(10)
    assert given(ask(rig)) == 3
    if checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.restart()
    assert refusal(ask(rig))[0] == "over_quota"
    assert given(ask(rig, None, consumer="d")) == 7
    rig.broker.check()


def test_what_is_handled_at_once_is_not_in_flight() -> None:
    rig = Rig()
    rig.fill(10)
    assert [given(ask(rig, once=True)) for _ in range(4)] == [3, 3, 3, 1]


def test_another_bound_holds_from_the_next_pull_on() -> None:
    rig = Rig()
    rig.fill(10)
    first = ask(rig)
    assert given(ask(rig, Bound(SHOP.name, 5))) == 2
    assert refusal(ask(rig, Bound(SHOP.name, 1)))[0] == "over_quota"
    acked(rig, first, count=2)
    assert refusal(ask(rig, Bound(SHOP.name, 1)))[0] == "over_quota"
    assert given(ask(rig, None)) == 5


def test_a_bound_that_is_lifted_lets_those_go_on_who_wait() -> None:
    rig = Rig()
    declare(rig, 1)
    rig.fill(5)
    assert given(ask(rig, None)) == 1
    assert ask(rig, None, group="h", wait_ms=WAIT_MS) is None
    waiting = rig.correlation
    declare(rig, 0)
    rig.wait(1)
    assert given(later(rig, waiting)) == 5


def test_a_group_that_is_kept_back_says_so_until_it_is_not() -> None:
    rig = Rig()
    rig.fill(5)
    first = ask(rig)
    ask(rig)
    (row,) = list(group_rows(rig.broker.state))
    assert row["over_quota"] == "token:shop"
    acked(rig, first)
    (row,) = list(group_rows(rig.broker.state))
    assert row["over_quota"] is None


def test_a_subject_that_is_removed_leaves_nothing_in_flight() -> None:
    rig = Rig()
    declare(rig, 2)
    rig.fill(5)
    assert given(ask(rig)) == 2
    rig.fill(5, "other")
    rig.broker.removing.obey([Removal(SUBJECT, "", 1)], rig.now_ms)
    rig.pump()
    rig.broker.check()
    assert given(ask(rig, subjects=("other",))) == 3


def test_a_broker_takes_the_share_of_its_partitions_and_one_at_least() -> None:
    manifest = {
        "apiVersion": API_VERSION, "kind": "Subject", "metadata": {"name": SUBJECT},
        "spec": {"quota": {"inFlight": 4}},
    }  # fmt: skip
    subject = parse_manifest(manifest)
    assert isinstance(subject, Subject)
    assert subject_settings(subject, TINY).in_flight_max == 4
    assert subject_settings(subject, TINY, (1, 3)).in_flight_max == 2
    assert subject_settings(subject, TINY, (1, 100)).in_flight_max == 1
    settings = subject_settings(subject, TINY, (2, 3))
    assert SubjectSettings.from_map(settings.to_map()) == settings
    assert SubjectSettings.from_map(SETTINGS.to_map()).in_flight_max == 0
