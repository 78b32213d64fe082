"""A slave that begins when its master's logs have lost their beginning, or when it lost something itself."""

from __future__ import annotations

import pytest

from samples.brokers import files_of, remove_file
from samples.replicas import Group, Replica
from tidemill_broker.snapshots import pack_partition
from tidemill_ledger.replication import Master
from tidemill_wire.commands import Ack


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


def group_that_has_lost_messages() -> Group:
    """Of producers that sent only what is gone, while the action log has its beginning; the slave has nothing yet."""
    group = Group("a", "b", segment_bytes=1024, retention_seconds=60, checkpoint_pause_ms=1)
    group.cut.add("b")
    group.appoint(1, "a", ["a"])
    for number in range(30):
        group["a"].send(b"tide", number=number, producer=number // 10 + 1)
    group["a"].tick(100_000)
    group["a"].tick(100_000)
    for number in range(30, 40):
        group["a"].send(b"tide", number=number, producer=4)
    assert group["a"].broker.logs.messages.start > 10 * 168
    assert group["a"].broker.logs.actions.start == 0
    group.cut.clear()
    return group


def partitions_of(replica: Replica) -> list[bytes]:
    return [pack_partition(partition) for partition in replica.broker.state.partitions.values()]


def test_a_slave_that_begins_late_remembers_the_producers_of_what_is_gone() -> None:
    group = group_that_has_lost_messages()
    group.run()
    group["a"].send(b"last", number=100)
    group.run()

    assert partitions_of(group["b"]) == partitions_of(group["a"])
    assert group["b"].log("message") == group["a"].log("message")
    assert group["b"].log("action") == group["a"].log("action")
    group.appoint(2, "b", ["b"])
    assert group["b"].sent_at(group["b"].send(b"tide", number=9, producer=1)) == [9]
    assert group["b"].sent_at(group["b"].send(b"new", number=101)) == [41]


@pytest.mark.parametrize("after", range(5))
def test_a_slave_that_dies_while_it_begins_late_begins_again(after: int) -> None:
    group = group_that_has_lost_messages()
    seen = group.break_off(after)
    group.run()
    group.passes = lambda _target, _command: True
    group.restart("b")
    group.appoint(1, "a", ["a"], version=1)
    group["a"].send(b"last", number=100)
    group.run()

    assert len(seen) > after
    assert group["b"].lives > 3
    assert partitions_of(group["b"]) == partitions_of(group["a"])
    assert group["b"].log("message") == group["a"].log("message")


@pytest.mark.parametrize("after", range(5))
def test_half_of_a_copy_is_thrown_away_and_nothing_is_left_of_it(after: int) -> None:
    group = group_that_has_lost_messages()
    group.break_off(after)
    group.run()
    group.restart("b")

    assert files_of(group["b"].disk, "aside") == []
    assert not [file for file in files_of(group["b"].disk, "checkpoint") if file.endswith("copying")]


def test_a_slave_that_has_lost_its_checkpoints_sets_its_logs_aside() -> None:
    """They are not half of a copy: a person may find the checkpoints again, and others may be gone."""
    group = group_that_has_lost_messages()
    group.run()
    for file in files_of(group["b"].disk, "checkpoint"):
        remove_file(group["b"].disk, file)
    logs = files_of(group["b"].disk, "message")
    group.restart("b")

    assert files_of(group["b"].disk, "message") == []
    assert {f"aside/{file.replace('/', '-')}.0" for file in logs} <= set(files_of(group["b"].disk, "aside"))
    group.appoint(1, "a", ["a"], version=1)
    group.run()
    assert group["b"].log("message") == group["a"].log("message")
