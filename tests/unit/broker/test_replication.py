"""A master and its slaves: what waits for whom, what is copied, what is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import TINY
from samples.replicas import Group, Replica
from tidemill_broker.doors import recover
from tidemill_broker.replication import Master
from tidemill_broker.settings import SettingsError
from tidemill_wire.appointments import Appointment
from tidemill_wire.commands import Ack, Command, Done, Failed
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.replication import Chunk, Ends, Handover, Reached


def group_of_two() -> Group:
    group = Group("a", "b")
    group.appoint(1, "a", ["a", "b"])
    return group


def test_a_slave_has_its_masters_logs_byte_for_byte() -> None:
    group = Group("a", "b", segment_bytes=1024, action_segment_bytes=512)
    group.appoint(1, "a", ["a", "b"])

    for number in range(20):
        group["a"].send(b"tide", number=number)
        group.run()
        group.pull("a")

    assert group["b"].log("message") == group["a"].log("message")
    assert group["b"].log("action") == group["a"].log("action")
    assert len(group["b"].log("message")) > 2


def test_a_slave_makes_the_runs_and_indexes_that_its_master_makes() -> None:
    group = Group("a", "b", segment_bytes=1024)
    group.appoint(1, "a", ["a", "b"])

    for number in range(20):
        group["a"].send(b"tide", number=number)
        group.run()

    assert group["b"].log("consume") == group["a"].log("consume")
    assert group["b"].log("index") == group["a"].log("index")


def test_an_answer_waits_for_every_replica_in_sync() -> None:
    group = group_of_two()
    group.passes = lambda _target, command: not isinstance(command, Chunk)

    number = group["a"].send(b"tide", number=1)
    group.run()
    assert group["a"].sent_at(number) is None

    group.passes = lambda _target, _command: True
    group.run()
    assert group["a"].sent_at(number) == [0]


def test_messages_are_shown_when_every_replica_in_sync_has_them() -> None:
    group = group_of_two()
    group.passes = lambda _target, command: not isinstance(command, Reached)
    group["a"].send(b"tide", number=1)
    group.run()
    assert group["a"].broker.state.by_name[b"order.created"].visible == 0

    group.passes = lambda _target, _command: True
    group.run()

    assert group["a"].broker.state.by_name[b"order.created"].visible == 1


def test_what_must_be_on_the_disk_must_be_on_every_disk() -> None:
    group = Group("a", "b")
    for replica in group.replicas.values():
        replica.settings = type(replica.settings)(name=replica.name, replicated=True, durability="high")
    group.appoint(1, "a", ["a", "b"])
    group["b"].holds_syncs = True

    number = group["a"].send(b"tide", number=1)
    group.run()
    assert group["a"].sent_at(number) is None

    group["b"].holds_syncs = False
    group["b"].sync()
    group["b"].pump()
    group.run()
    assert group["a"].sent_at(number) == [0]


def test_with_nobody_else_in_sync_an_answer_waits_for_the_disk() -> None:
    group = Group("a", "b")
    group.appoint(1, "a", ["a"])
    group["a"].holds_syncs = True

    number = group["a"].send(b"tide", number=1)
    group.run()
    assert group["a"].sent_at(number) is None

    group["a"].sync()
    group["a"].pump()
    assert group["a"].sent_at(number) == [0]


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


def test_a_new_master_has_what_was_answered_and_goes_on_with_it() -> None:
    group = group_of_two()
    first = group["a"].send(b"one", number=1)
    group.run()
    assert group["a"].sent_at(first) == [0]

    group.cut.add("a")
    group.restart("a")
    group.appoint(2, "b", ["b"], to="b")
    second = group["b"].send(b"two", number=2)

    assert group["b"].sent_at(second) == [1]
    group["b"].send(b"one", number=1, producer=9)
    assert sum(grant.count for grant in group.pull("b").grants) == 2


def test_a_repeated_batch_is_recognised_by_the_next_master() -> None:
    group = group_of_two()
    group["a"].send(b"one", number=1)
    group.run()

    group.appoint(2, "b", ["b"])

    again = group["b"].send(b"one", number=1)
    assert group["b"].sent_at(again) == [0]
    assert group["b"].broker.state.by_name[b"order.created"].next_sequence == 1


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


def test_only_meta_takes_a_slave_out_that_is_gone() -> None:
    group = group_of_two()
    group.cut.add("b")
    group.unlink("b")
    number = group["a"].send(b"tide", number=1)

    for _ in range(10):
        group["a"].tick(1000)
    assert group["a"].sent_at(number) is None
    assert group["a"].stand().wish == ("a",)

    group.appoint(1, "a", ["a"], version=1, to="a")
    assert group["a"].sent_at(number) == [0]


def test_a_slave_that_is_wished_in_is_waited_for_before_the_news_comes() -> None:
    group = Group("a", "b")
    group.appoint(1, "a", ["a"])
    group["a"].send(b"one", number=1)
    group.tick(1000)
    assert group["a"].stand(asks=True).wish == ("a", "b")

    group.passes = lambda _target, command: not isinstance(command, Chunk)
    number = group["a"].send(b"two", number=2)
    group.run()
    assert group["a"].sent_at(number) is None

    group.passes = lambda _target, _command: True
    group.run()
    assert group["a"].sent_at(number) == [1]


def test_a_person_who_looks_makes_nobody_wait() -> None:
    group = Group("a", "b")
    group.appoint(1, "a", ["a"])
    group.tick(1000)
    assert group["a"].stand().wish == ("a", "b")

    group.passes = lambda _target, command: not isinstance(command, Chunk)
    number = group["a"].send(b"two", number=2)
    group.run()

    assert group["a"].sent_at(number) is not None


def test_a_slave_begins_from_nothing_though_the_action_log_has_lost_its_beginning() -> None:
    group = Group(
        "a", "b", segment_bytes=1024, action_segment_bytes=300, checkpoint_pause_ms=1, checkpoint_events=5
    )
    group.cut.add("b")
    group.appoint(1, "a", ["a"])
    for number in range(60):
        group["a"].send(b"tide", number=number)
        pulled = group.pull("a")
        first = pulled.grants[0].pull_sequence
        group["a"].ask(Ack("g", "c", "order.created", [first, first]))
        group["a"].tick(20_000)
    assert group["a"].broker.logs.actions.start > 0

    group.cut.clear()
    group.run()
    group["a"].send(b"last", number=100)
    group.run()

    assert group["b"].log("message") == group["a"].log("message")
    b = group["b"].broker.state
    a = group["a"].broker.state
    assert b.by_name[b"order.created"].next_sequence == a.by_name[b"order.created"].next_sequence
    assert [g.cursor for g in b.groups.values()] == [g.cursor for g in a.groups.values()]
    group.appoint(2, "b", ["b"])
    assert isinstance(group["b"].machine, Master)


def test_a_slave_that_was_killed_goes_on_where_its_logs_end() -> None:
    group = group_of_two()
    group["a"].send(b"one", number=1)
    group.run()
    chunks: list[Command] = []
    group.restart("b")
    group["a"].send(b"two", number=2)
    group.passes = lambda _target, command: not chunks.append(command)
    group.appoint(1, "a", ["a", "b"], to="b")

    assert group["b"].log("message") == group["a"].log("message")
    assert min(one.position for one in chunks if isinstance(one, Chunk) and one.data) > 0


def test_a_slave_that_lost_power_fetches_again_what_it_lost() -> None:
    group = group_of_two()
    for replica in group.replicas.values():
        replica.holds_syncs = replica.name == "b"
    for number in range(10):
        group["a"].send(b"tide", number=number)
        group.run()

    group.restart("b", power=True)
    group.appoint(1, "a", ["a", "b"], to="b")

    assert group["b"].log("message") == group["a"].log("message")
    assert group["b"].log("action") == group["a"].log("action")


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


def test_done_waits_as_sent_does() -> None:
    group = group_of_two()
    group["a"].send(b"one", number=1)
    group.run()
    grant = group.pull("a").grants[0]
    group.passes = lambda _target, command: not isinstance(command, Chunk)

    acked = group["a"].say(Ack("g", "c", "order.created", [grant.pull_sequence, grant.pull_sequence]))
    group.run()
    assert acked not in group["a"].answers

    group.passes = lambda _target, _command: True
    group.run()
    assert isinstance(group["a"].answers[acked], Done)


def test_a_lone_broker_that_was_in_a_group_says_how_to_start_it() -> None:
    group = group_of_two()

    with pytest.raises(SettingsError, match="TIDEMILL_REPLICATED=true"):
        recover(group["a"].disk.mount(), TINY, group["a"].now_ms)


def test_a_batch_that_is_not_as_the_master_has_it_is_fetched_again() -> None:
    group = group_of_two()
    spoiled: list[int] = []

    def spoil(_target: str, command: Command) -> bool:
        if isinstance(command, Chunk) and command.log == 0 and command.data and not spoiled:
            command.data[60] ^= 1
            spoiled.append(1)
        return True

    group.passes = spoil
    group["a"].send(b"tide", number=1)
    group.run()
    group.run()

    assert spoiled
    assert group["b"].log("message") == group["a"].log("message")


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

    group.passes = lambda _target, _command: True
    group.run()
    assert isinstance(group["a"].answers[asked], Done)
    assert group["a"].sent_at(late) == [1]

    group.appoint(2, "b", ["a", "b"])
    again = group["b"].send(b"three", number=3)
    group.run()
    assert group["b"].sent_at(again) == [2]
    assert not group["a"].log("aside")


def test_a_master_that_is_not_succeeded_goes_on() -> None:
    group = group_of_two()
    group["a"].ask(Handover("b"))
    group.run()

    for _ in range(6):
        group.tick(1000)
    number = group["a"].send(b"tide", number=1)
    group.run()

    assert group["a"].sent_at(number) == [0]


def test_only_a_slave_in_sync_is_handed_over_to() -> None:
    group = Group("a", "b")
    group.appoint(1, "a", ["a"])

    assert isinstance(group["a"].ask(Handover("b")), Failed)


def test_a_message_of_the_class_low_waits_for_nobody() -> None:
    group = Group("a", "b")
    for replica in group.replicas.values():
        replica.settings = replace(replica.settings, durability="low")
    group.appoint(1, "a", ["a", "b"])
    group.passes = lambda _target, command: not isinstance(command, Chunk)

    number = group["a"].send(b"tide", number=1)
    group.run()

    assert group["a"].sent_at(number) == [0]
    assert group["a"].broker.state.by_name[b"order.created"].visible == 1
