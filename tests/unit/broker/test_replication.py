"""A master and its slaves: what waits for whom, what is copied, what is cut."""

from __future__ import annotations

from dataclasses import replace

from samples.brokers import SUBJECT, pulls
from samples.replicas import Group
from tidemill_broker.partitions import SubjectSettings
from tidemill_wire.commands import Ack, Command, Done
from tidemill_wire.replication import Chunk, Reached


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


def test_with_a_slave_that_is_only_wished_in_an_answer_waits_for_the_disk() -> None:
    """It has the message, and meta would not elect it yet: when the master's power fails the slave does not count."""
    group = Group("a", "b")
    group.appoint(1, "a", ["a"])
    group.run()
    group.tick(1000)
    assert group["a"].stand(asks=True).wish == ("a", "b")
    group["a"].holds_syncs = True

    number = group["a"].send(b"tide", number=1)
    group.run()
    assert group["a"].sent_at(number) is None
    group["a"].sync()
    group["a"].pump()
    assert group["a"].sent_at(number) == [0]


def test_a_slave_that_lacks_what_was_committed_without_it_is_not_wished_in() -> None:
    """It was there a moment ago, and nobody knows yet that it is cut off."""
    group = Group("a", "b")
    group.appoint(1, "a", ["a"])
    group.tick(1000)
    group.passes = lambda _target, command: not isinstance(command, Chunk)
    number = group["a"].send(b"tide", number=1)
    group.run()
    assert group["a"].sent_at(number) == [0]
    assert group["a"].stand(asks=True).wish is None

    group.passes = lambda _target, _command: True
    group.run()
    assert group["a"].stand(asks=True).wish == ("a", "b")


def test_a_person_who_looks_makes_nobody_wait() -> None:
    group = Group("a", "b")
    group.appoint(1, "a", ["a"])
    group.tick(1000)
    assert group["a"].stand().wish == ("a", "b")

    group.passes = lambda _target, command: not isinstance(command, Chunk)
    number = group["a"].send(b"two", number=2)
    group.run()

    assert group["a"].sent_at(number) is not None


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


def test_places_and_declarations_do_not_go_back_when_the_former_master_leads_again() -> None:
    """What was declared and never used, and what was acked elsewhere meanwhile, are as they were said last."""
    group = Group("a", "b")
    group.appoint(1, "a", ["a", "b"])
    settings = SubjectSettings("high", 3600, 0, 1 << 20)
    group["a"].broker.intake.declare("never.used", settings, group["a"].now_ms)
    for number in range(1, 5):
        group["a"].send(b"tide", number=number)
    group.run()
    group.appoint(2, "b", ["a", "b"])
    given = group.pull("b")
    group["b"].say(Ack("g", "c", SUBJECT, pulls(given)))
    group.run()
    group.appoint(3, "a", ["a", "b"])

    state = group["a"].broker.state
    assert state.by_name[b"never.used"].settings == settings
    assert group.pull("a").grants == []
    assert [(one.cursor, one.acked) for one in state.groups.values()] == [(4, 4)]
