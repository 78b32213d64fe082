"""A group of delay services: what was answered is delivered once, whoever is master by then, out of equal hours."""

from __future__ import annotations

from typing import Any

import pytest

from samples.brokers import files_of, read_file
from samples.calendars import Calendar, Calendars
from samples.delays import BROKER, HOUR_MS, NOW_MS, later
from tidemill_wire.columns import Content
from tidemill_wire.commands import Command, Done, SendBatches, Sent
from tidemill_wire.recurrence import Recurrence
from tidemill_wire.replication import Chunk, Handover, Log, Reached


def hours(one: Calendar) -> dict[str, bytes]:
    return {file: read_file(one.disk, file) for file in files_of(one.disk, "schedule")}


def pair(**more: object) -> Calendars:
    group = Calendars("a", "b", **more)
    group.lead(1, "a", "b")
    return group


def test_a_slave_has_the_same_hours_byte_for_byte() -> None:
    group = pair()
    for number in range(1, 8):
        group["a"].send_later([b"%d" % number, b"x" * number], NOW_MS + number * HOUR_MS // 2, number=number)
    group.pass_time(2 * HOUR_MS, HOUR_MS // 20)

    assert group.arrived
    assert hours(group["a"]) == hours(group["b"])
    assert hours(group["a"])
    assert group["b"].delay.state.waiting == group["a"].delay.state.waiting > 0


def test_a_message_is_answered_and_sent_when_every_replica_in_sync_has_it() -> None:
    group = pair()
    group.passes = lambda _target, command: not isinstance(command, Reached)
    number = group["a"].send_later([b"tide"], NOW_MS - 1, number=1)
    group.run()
    assert not group.taken("a", number)
    assert group.arrived == []

    group.passes = lambda _target, _command: True
    group.run()
    assert group.taken("a", number)
    assert group.arrived == [b"tide"]


def test_the_slave_goes_on_where_its_master_ended() -> None:
    group = pair()
    for number in range(1, 6):
        group["a"].send_later([b"%d" % number], NOW_MS + 4_000 * number, number=number)
    group.run()
    group.pass_time(9_000)
    before = list(group.arrived)
    group.cut = {"a"}
    group["a"].disk.kill()
    group.lead(2, "b")
    group.pass_time(20_000)

    assert before == [b"1", b"2"]
    assert group.arrived == [b"1", b"2", b"3", b"4", b"5"]


def test_what_was_on_its_way_when_the_master_died_is_sent_again_and_recognised() -> None:
    group = pair()
    group["a"].deaf = True
    group["a"].send_later([b"1", b"2"], NOW_MS + 1_000, number=1)
    group.run()
    group.pass_time(2_000)
    assert group.arrived == [b"1", b"2"]
    group.cut = {"a"}
    group.lead(2, "b")
    group.pass_time(2_000)

    assert group.arrived == [b"1", b"2"]
    assert group["b"].delay.state.waiting == 0


def test_a_master_sends_nothing_that_others_may_not_have() -> None:
    group = pair()
    group["a"].send_later([b"tide"], NOW_MS + 5_000, number=1)
    group.run()
    group.cut = {"a"}
    group["a"].restart()
    group.appoint(2, "b", ["a", "b"])
    group["b"].meet()
    group.run()
    for _ in range(20):
        group["b"].tick(500)
    assert group.arrived == []

    group.cut = set()
    group.run()
    group.pass_time(1_000)
    assert group.arrived == [b"tide"]


def test_what_only_a_deposed_master_had_is_cut_from_its_hours_too() -> None:
    group = pair()
    group["a"].send_later([b"both"], NOW_MS + HOUR_MS, number=1)
    group.run()
    group.cut = {"b"}
    group.restart("b")
    group["a"].send_later([b"a alone"], NOW_MS + HOUR_MS, number=2)
    group.restart("a")
    group.cut = {"a"}
    group.lead(2, "b")
    group["b"].send_later([b"b, later"], NOW_MS + HOUR_MS, number=3)
    group.run()
    group.cut = set()
    group.run()

    assert group["a"].log("message") == group["b"].log("message")
    assert group["a"].log("action") == group["b"].log("action")
    assert hours(group["a"]) == hours(group["b"])
    assert b"a alone" not in b"".join(hours(group["a"]).values())


def fill(group: Calendars, name: str, first: int, count: int) -> None:
    """So much that logs lose their beginning."""
    for number in range(first, first + count):
        group[name].send_later([b"%d" % number * 50], NOW_MS + (number % 7) * HOUR_MS, number=number)
        group.tick(700)


def test_a_slave_with_nothing_is_sent_the_hours_when_the_log_has_lost_what_they_are_made_of() -> None:
    group = Calendars("a", "b", catch_up_bytes=1)
    group.cut = {"b"}
    group.lead(1, "a")
    fill(group, "a", 1, 120)
    assert group["a"].delay.logs.messages.start > 0
    group.cut = set()
    group.run()
    group.tick(1000)
    group.tick(1000)
    assert hours(group["b"]) == hours(group["a"])

    group.lead(2, "b", "a")
    group.pass_time(9 * HOUR_MS, HOUR_MS // 10)
    assert sorted(group.arrived) == sorted(b"%d" % number * 50 for number in range(1, 121))


@pytest.mark.parametrize("after", [1, 5, 12])
def test_a_slave_that_dies_while_it_copies_begins_again(after: int) -> None:
    group = Calendars("a", "b", catch_up_bytes=1)
    group.cut = {"b"}
    group.lead(1, "a")
    fill(group, "a", 1, 120)
    seen: list[Chunk] = []

    def passes(_target: str, command: Command) -> bool:
        if isinstance(command, Chunk):
            if len(seen) >= after:
                return False
            seen.append(command)
        return True

    group.cut, group.passes = set(), passes
    group.run()
    group.restart("b", power=True)
    group.passes = lambda _target, _command: True
    group.appoint(1, "a", ["a"], to="b")
    group.tick(1000)
    group.tick(1000)

    assert after < 3 or {chunk.log for chunk in seen} >= {Log.SNAPSHOT, Log.FILES}
    assert hours(group["b"]) == hours(group["a"])
    assert group["b"].delay.state.waiting == group["a"].delay.state.waiting > 0


def test_hours_that_are_over_go_on_the_slave_as_well_and_not_before_it_is_certain() -> None:
    group = pair()
    group["a"].send_later([b"1"], NOW_MS + 1_000, number=1)
    group["a"].send_later([b"2"], NOW_MS + 5 * HOUR_MS, number=2)
    group.run()
    group.pass_time(5_000)
    group.passes = lambda _target, command: not isinstance(command, Reached)
    group.pass_time(3 * HOUR_MS, HOUR_MS // 20)
    assert group["b"].delay.state.closed_ms > NOW_MS
    assert len(hours(group["b"])) == len(hours(group["a"])) == 6  # two hours of three files

    group.passes = lambda _target, _command: True
    group.pass_time(10_000)
    assert len(hours(group["b"])) == 3
    assert hours(group["a"]) == hours(group["b"])


def test_a_master_that_hands_over_writes_nothing_more_and_asks_again_when_nobody_comes() -> None:
    group = pair()
    master = group["a"]
    master.deaf = True
    master.send_later([b"1"], NOW_MS + 500, number=1)
    group.run()
    group.pass_time(1_000)
    assert group.arrived == [b"1"]
    handed_over = master.say(Handover("b"))
    group.run()
    assert isinstance(master.answers[handed_over], Done)

    ends = master.delay.logs.actions.end
    master.say_as(1, Sent([0]), BROKER)
    assert BROKER in master.dropped
    assert master.delay.logs.actions.end == ends
    master.machine.disconnected(BROKER, master.now_ms)
    master.deaf = False
    group.pass_time(6_000)
    master.meet()
    group.run()

    assert group.arrived == [b"1"]
    assert master.delay.state.waiting == 0


@pytest.mark.parametrize("power", [False, True])
def test_a_slave_finds_the_files_that_its_checkpoint_knows_whenever_it_is_restarted(power: bool) -> None:
    group = pair(checkpoint_interval_ms=20_000)
    for number in range(1, 9):
        due_ms = NOW_MS + number * HOUR_MS // 4
        group["a"].send_later([b"%d" % number], due_ms, number=number)
    for turn in range(60):
        group.pass_time(16_000, 8_000)
        if turn % 3 == 0:
            group.restart("b", power=power)
            group.appoint(1, "a", ["a", "b"], to="b")

    assert group["b"].delay.state.closed_ms > NOW_MS
    assert group.arrived == [b"%d" % number for number in range(1, 9)]


def test_a_slave_makes_no_checkpoint_of_what_may_be_cut() -> None:
    """There must be one below each cut: of what lies below it, the log may be gone."""
    group = pair(checkpoint_interval_ms=2_000, checkpoint_events=3)
    slave = group["b"]
    group["a"].send_later([b"1"], NOW_MS + HOUR_MS, number=1)
    group.run()
    group.pass_time(10_000)
    before = files_of(slave.disk, "checkpoint")
    assert before
    group.passes = lambda _target, command: not isinstance(command, Reached)
    for number in range(2, 12):
        group["a"].send_later([b"%d" % number], NOW_MS + HOUR_MS, number=number)
    group.pass_time(30_000)
    assert slave.delay.logs.messages.end == group["a"].delay.logs.messages.end
    assert files_of(slave.disk, "checkpoint") == before

    group.passes = lambda _target, _command: True
    group.pass_time(10_000)
    assert files_of(slave.disk, "checkpoint") != before


def test_a_slave_knows_what_follows_what_and_goes_on_with_a_series() -> None:
    group = pair()
    first_ms = NOW_MS + 60_000
    said = Recurrence(first_ms, "all", "UTC", "* * * * *").encode()
    content = Content([b"tide"], timer_keys=["k"], cron=said)
    batch = later(content.bodies, [first_ms], sequence=1, content=content)
    group["a"].say(SendBatches(batch))
    group.pass_time(150_000, 5_000)
    assert len(group.arrived) == 2
    assert series(group["a"]) == series(group["b"]) != {}
    assert hours(group["a"]) == hours(group["b"])

    group.cut = {"a"}
    group["a"].disk.kill()
    group.lead(2, "b")
    group.pass_time(120_000, 5_000)
    assert len(group.arrived) == 4


def series(one: Calendar) -> dict[int, Any]:
    return {start_ms: hour.series for start_ms, hour in one.delay.state.hours.items() if hour.series}
