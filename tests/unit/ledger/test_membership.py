"""Who is master when: epochs that are begun once, logs that part, and hand-overs."""

from __future__ import annotations

import pytest

from samples.brokers import TINY
from samples.replicas import CLIENT, Group, Replica
from tidemill_broker.doors import recover
from tidemill_ledger.following import Follower
from tidemill_wire.appointments import Appointment
from tidemill_wire.commands import Done, Failed
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.replication import Chunk, Ends, Follow, Handover, Log, Marks, Reached
from tidemill_wire.settings import SettingsError

HOUR_MS = 3_600_000


def group_of_two() -> Group:
    group = Group("a", "b")
    group.appoint(1, "a", ["a", "b"])
    return group


def test_a_slave_and_a_fenced_broker_say_who_is_master() -> None:
    group = group_of_two()
    fenced = Replica("c")

    for replica, said in ((group["b"], "a is the master"), (fenced, "waits to be told")):
        number = replica.send(b"tide", number=1)
        answer = replica.answers[number]
        assert isinstance(answer, Failed)
        assert answer.number == KIND_BY_NAME["not_master"].number
        assert said in answer.detail
        assert KIND_BY_NAME["not_master"].retryable


def test_a_deposed_master_commits_nothing_and_its_tail_is_cut_and_kept_aside() -> None:
    group = group_of_two()
    group["a"].send(b"one", number=1)
    group.run()
    group.cut.add("b")
    group.unlink("b")
    lost = group["a"].send(b"lost", number=2)

    group.appoint(2, "b", ["b"], to="b")
    group["b"].send(b"kept", number=3, producer=10)
    assert group["a"].sent_at(lost) is None

    group.appoint(2, "b", ["b"], to="a")
    assert group["a"].log("message") == group["b"].log("message")
    assert group["a"].log("action") == group["b"].log("action")
    assert any(b"lost" in data for data in group["a"].log("aside").values())


def test_epochs_that_went_different_ways_meet_at_the_last_common_one() -> None:
    group = Group("a", "b", "c")
    group.appoint(1, "a", ["a", "b", "c"])
    group["a"].send(b"one", number=1)
    group.run()
    common = group["c"].stand().ends
    group.cut |= {"b", "c"}
    group.unlink("b")
    group.unlink("c")
    group["a"].send(b"tail of a", number=2)
    group.appoint(2, "b", ["b"], to="b")
    group["b"].send(b"tail of b", number=3, producer=10)
    group.restart("b")

    group.appoint(3, "c", ["c"], to="c")
    group["c"].send(b"c goes on", number=4, producer=11)
    group.cut.clear()
    group.appoint(3, "c", ["c"])

    assert [start.epoch for start in group["a"].broker.state.epochs] == [1, 3]
    assert Ends(*group["a"].broker.state.epochs[-1][1:]) == common
    for name in ("a", "b"):
        assert group[name].log("message") == group["c"].log("message")
        assert group[name].log("action") == group["c"].log("action")


def test_an_epoch_is_begun_once() -> None:
    group = group_of_two()
    group.restart("a")

    answer = group["a"].appoint(Appointment("g", 1, "a", ("a", "b"), ("a", "b"), 0))

    assert isinstance(answer, Failed)
    assert "has begun epoch 1" in answer.detail


def test_an_old_appointment_is_refused() -> None:
    group = group_of_two()
    group.appoint(2, "b", ["b"])

    answer = group["b"].appoint(Appointment("g", 1, "a", ("a", "b"), ("a", "b"), 9))

    assert isinstance(answer, Failed)
    assert "an old appointment" in answer.detail


def test_a_stranger_is_not_fed() -> None:
    group = group_of_two()
    stranger = Replica("x")
    group.replicas["x"] = stranger
    stranger.appoint(Appointment("g", 1, "a", ("a", "b", "x"), ("a", "b"), 0))
    group.run()

    assert not stranger.log("message")


@pytest.mark.parametrize("power", [False, True])
def test_pull_sequences_of_two_masters_never_meet(power: bool) -> None:
    group = group_of_two()
    group["a"].send(b"one", number=1)
    group.run()
    given = group.pull("a").grants[0].pull_sequence
    group.restart("a", power=power)
    group.appoint(2, "b", ["b"], to="b")

    assert group["b"].broker.state.next_pull >> 40 > given >> 40


def test_a_lone_broker_that_was_in_a_group_says_how_to_start_it() -> None:
    group = group_of_two()

    with pytest.raises(SettingsError, match="TIDEMILL_REPLICATED=true"):
        recover(group["a"].disk.mount(), TINY, group["a"].now_ms)


def test_a_master_that_hands_over_takes_no_more_work_and_says_when_the_slave_has_all() -> None:
    group = group_of_two()
    group["a"].send(b"one", number=1)
    group.run()
    group.passes = lambda _target, command: not isinstance(command, Reached)
    late = group["a"].send(b"two", number=2)
    asked = group["a"].say(Handover("b"))
    group.run()
    assert asked not in group["a"].answers
    refused = group["a"].send(b"three", number=3)
    answer = group["a"].answers[refused]
    assert isinstance(answer, Failed)
    assert "hands over to b" in answer.detail
    stood = group["a"].stand()
    assert (stood.role, stood.wish) == ("leaving", None)

    group.passes = lambda _target, _command: True
    group.run()
    assert isinstance(group["a"].answers[asked], Done)
    assert group["a"].sent_at(late) == [1]

    group.appoint(2, "b", ["a", "b"])
    again = group["b"].send(b"three", number=3)
    group.run()
    assert group["b"].sent_at(again) == [2]
    assert not group["a"].log("aside")


def test_a_master_hands_over_to_a_disk_and_not_to_a_page_cache() -> None:
    """Who stops next leaves the slave alone with all, and that may lose its power."""
    group = group_of_two()
    group.passes = lambda _target, command: (
        not isinstance(command, Reached) or command.synced != command.written
    )
    sent = group["a"].send(b"one", number=1)
    group.run()
    assert group["a"].sent_at(sent) == [0]
    asked = group["a"].say(Handover("b"))
    group.run()
    assert asked not in group["a"].answers

    group.passes = lambda _target, _command: True
    group.run()

    assert isinstance(group["a"].answers[asked], Done)


def test_a_master_that_is_not_succeeded_goes_on() -> None:
    group = group_of_two()
    group["a"].ask(Handover("b"))
    group.run()

    for _ in range(6):
        group.tick(1000)
    assert group["a"].stand().role == "master"
    number = group["a"].send(b"tide", number=1)
    group.run()

    assert group["a"].sent_at(number) == [0]


def test_only_a_slave_in_sync_is_handed_over_to() -> None:
    group = Group("a", "b")
    group.appoint(1, "a", ["a"])

    answer = group["a"].ask(Handover("b"))

    assert isinstance(answer, Failed)
    assert answer.detail == "'b' is no slave in sync"


def test_a_second_hand_over_waits_for_the_end_of_the_first() -> None:
    group = group_of_two()
    group["a"].say(Handover("b"))

    answer = group["a"].ask(Handover("b"))

    assert isinstance(answer, Failed)
    assert answer.number == KIND_BY_NAME["too_many_requests"].number
    assert answer.detail == "a hand-over to b is under way"


def test_a_piece_of_another_epoch_is_not_appended() -> None:
    group = group_of_two()
    group["a"].send(b"tide", number=1)
    group.run()
    slave, before = group["b"], group["b"].log("action")
    _, link = group.links["b"]
    ends = slave.stand().ends
    good = group["a"].log("action")["action/00000000000000000000.log"]

    slave.say(
        Chunk(2, Log.ACTIONS, 0, ends.action, Marks.LEVEL, ends, memoryview(bytearray(good[:96]))), link
    )

    assert slave.log("action") == before
    assert link in slave.dropped
    assert isinstance(slave.machine, Follower)
    assert slave.machine.refused_chunks == 1


def test_a_slave_of_another_epoch_is_not_fed() -> None:
    group = group_of_two()

    number = group["a"].say(Follow("b", 2, [], Ends(0, 0)), CLIENT)

    answer = group["a"].answers[number]
    assert isinstance(answer, Failed)
    assert "does not follow" in answer.detail


def test_what_a_slave_of_another_epoch_has_reached_counts_for_nothing() -> None:
    group = group_of_two()
    group.passes = lambda _target, command: not isinstance(command, Chunk)
    number = group["a"].send(b"tide", number=1)
    group.run()
    _, link = group.links["b"]
    ends = group["a"].stand().ends

    group["a"].say(Reached(2, ends, ends), link)

    assert group["a"].sent_at(number) is None


def test_a_new_master_sees_that_the_old_ones_clock_was_ahead_though_it_has_a_checkpoint_of_its_own() -> None:
    """Or what failed would be due when the wrong clock would have said so."""
    group = Group("a", "b", checkpoint_pause_ms=1, checkpoint_events=1)
    group["a"].now_ms += HOUR_MS
    group.appoint(1, "a", ["a", "b"])
    group["a"].send(b"tide", number=1)
    group.run()
    group.pull("a")
    for _ in range(3):
        group.tick(2000)
    assert group["b"].log("checkpoint")

    group.restart("a")
    group.appoint(2, "b", ["b"], to="b")

    deliveries = [one for c in group["b"].broker.state.consumers.values() for one in c.held()]
    failures = [one for g in group["b"].broker.state.groups.values() for one in g.failed.values()]
    assert deliveries or failures
    assert all(one.deadline_ms < group["b"].now_ms + HOUR_MS // 2 for one in deliveries)
    assert all(one.due_ms < group["b"].now_ms + HOUR_MS // 2 for one in failures)


def test_a_master_that_leaves_wakes_up_for_nothing_that_it_does_not_do() -> None:
    """What is due in its broker stays due meanwhile; the host would call it without a rest."""
    group = group_of_two()
    master = group["a"]
    master.send(b"tide", number=1)
    group.run()
    group.pull("a")
    master.ask(Handover("b"))

    master.tick(4_000)

    assert master.machine.ready().wake_at_ms > master.now_ms
