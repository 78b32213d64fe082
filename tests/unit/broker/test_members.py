"""Consumers and their connections: who comes back in time keeps what it holds, who stays away loses it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, pulls, spans
from tidemill_broker.action_records import encode_action
from tidemill_broker.group_settings import GroupSettings
from tidemill_host.machine import Peer
from tidemill_wire.commands import Ack, Done, Extend, Failed, Goodbye, Hello, Ping, Pull, Pulled
from tidemill_wire.connection import Rejected
from tidemill_wire.errors import KIND_BY_NAME, Refused

PATIENT = replace(TINY, lease_ms=600_000, consumer_gone_ms=10_000)


@pytest.fixture
def rig() -> Rig:
    """Six messages, three of them held by consumer ``c``."""
    made = Rig(PATIENT)
    made.fill(6)
    made.pull(3)
    return made


def test_consumer_whose_connection_ends_keeps_what_it_holds_for_a_while(rig: Rig) -> None:
    rig.disconnect(rig.peers[0])
    other = rig.connect()

    rig.wait(9_999)
    assert spans(rig.pull(3, consumer="d", peer=other)) == [(3, 3, 0)]
    rig.wait(1)
    assert spans(rig.pull(3, consumer="d", peer=other)) == [(0, 3, 1)]


def test_consumer_that_comes_back_in_time_over_another_connection_loses_nothing(rig: Rig) -> None:
    other = rig.connect()
    rig.pull(1, peer=other)
    rig.disconnect(rig.peers[0])
    rig.wait(60_000)

    assert rig.broker.state.groups[1].failed == {}
    assert rig.broker.state.groups[1].in_flight == 4


def test_every_consumer_begins_as_gone_after_a_restart(rig: Rig) -> None:
    rig.restart()
    rig.wait(10_000)

    assert spans(rig.pull(consumer="d")) == [(0, 3, 1), (3, 3, 0)]


def test_consumer_that_is_gone_for_good_is_forgotten_and_may_come_back(rig: Rig) -> None:
    rig.disconnect(rig.peers[0])
    rig.wait(10_000)
    assert rig.broker.state.consumers == {}
    other = rig.connect()

    assert spans(rig.pull(1, peer=other)) == [(0, 1, 1)]
    assert list(rig.broker.state.consumers) == [2]
    rig.restart()
    assert list(rig.broker.state.consumers) == [2]


def test_goodbye_hands_over_at_once_and_counts_as_failed(rig: Rig) -> None:
    other = rig.connect()
    rig.ask(Goodbye("the pod stops"))

    assert spans(rig.pull(3, consumer="d", peer=other)) == [(0, 3, 1)]


def test_who_says_goodbye_is_not_given_its_own_messages_again(rig: Rig) -> None:
    """Its waiting pull is over with it."""
    rig.pull(3)
    assert rig.ask(Pull("g", "c", [SUBJECT], 10, 1 << 20, 5000)) is None
    waiting = rig.correlation
    rig.ask(Goodbye("the pod stops"))

    answer = rig.answers.get(waiting)
    assert answer is None or (isinstance(answer, Pulled) and answer.grants == [])
    assert rig.broker.state.groups[1].in_flight == 0


def test_waiting_pull_of_a_connection_that_ended_is_given_nothing(rig: Rig) -> None:
    rig.pull(3)
    other = rig.connect()
    assert rig.ask(Pull("g", "d", [SUBJECT], 10, 1 << 20, 50_000), other) is None
    rig.disconnect(other)
    rig.send(b"new")

    assert rig.broker.state.groups[1].in_flight == 6
    assert rig.broker.serving.pulls.waiting == {}


def test_lease_that_ends_is_given_to_whoever_waits() -> None:
    rig = Rig()
    rig.fill(2)
    rig.pull()
    assert rig.ask(Pull("g", "d", [SUBJECT], 10, 1 << 20, 5000)) is None
    rig.wait(TINY.lease_ms - 1)
    assert rig.correlation not in rig.answers
    rig.wait(1)

    assert spans(rig.answers[rig.correlation]) == [(0, 2, 1)]
    assert rig.broker.counters.leases_ended == 1


def test_consumer_with_very_many_scattered_deliveries_can_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ranges do not fit one record of the action log."""
    monkeypatch.setattr("tidemill_wire.limits.RANGES_MAX", 2)
    rig = Rig(replace(PATIENT, segment_bytes=1 << 20))
    rig.send(*(b"x" for _ in range(20)))
    low = pulls(rig.pull())[0]
    rig.ask(Ack("g", "c", SUBJECT, [number for at in range(low, low + 20, 2) for number in (at, at)]))
    sizes: list[int] = []
    act = rig.broker.logs.act
    rig.broker.logs.act = lambda action, now: (sizes.append(len(encode_action(action)[1])), act(action, now))[
        1
    ]

    rig.ask(Goodbye("the pod stops"))

    assert rig.broker.state.groups[1].failed_count() == 10
    assert max(sizes) <= 32 + 2 * 16


def test_each_group_has_its_own_place_in_a_subject(rig: Rig) -> None:
    assert [spans(rig.pull(group=group)) for group in ("a", "b")] == [[(0, 6, 0)]] * 2
    assert spans(rig.pull()) == [(3, 3, 0)]


def test_group_that_is_declared_again_keeps_its_place_and_takes_the_lease(rig: Rig) -> None:
    partition = rig.broker.state.partitions[1]
    group = rig.broker.members.declare_group(partition, "g", (0, 0), GroupSettings(lease_ms=1234), rig.now_ms)

    assert (group.cursor, group.settings.lease_ms, group.in_flight) == (3, 1234, 3)
    assert rig.pull().lease_ms == 1234


def test_commands_of_a_connection_that_nobody_knows_do_nothing(rig: Rig) -> None:
    assert rig.ask(Ping(), peer=99) is None


def test_ping_is_answered_and_strange_commands_are_refused(rig: Rig) -> None:
    assert rig.ask(Ping()) == Done([])
    assert rig.refused(Hello(1, 1, "again")) == KIND_BY_NAME["malformed_command"].number
    rig.broker.received(rig.peers[0], Rejected(99, Refused("limit_exceeded", "too much")), rig.now_ms)
    rig.pump()
    assert rig.broker.counters.refused == {"malformed_command": 1, "limit_exceeded": 1}


def test_draining_broker_refuses_what_is_new_and_answers_who_waits(rig: Rig) -> None:
    low = pulls(rig.pull(3))[0]
    assert rig.ask(Pull("g", "c", [SUBJECT], 1, 1, 5000)) is None
    waiting = rig.correlation
    rig.broker.drain()
    rig.pump()

    shutting_down = KIND_BY_NAME["shutting_down"].number
    assert rig.answers.pop(waiting).number == shutting_down
    assert rig.refused(Pull("g", "c", [SUBJECT], 1, 1, 5000)) == shutting_down
    assert rig.ask(Ack("g", "c", SUBJECT, [low, low + 2])) == Done([])


def hello_again(rig: Rig, *held: int, fresh: bool = False, consumer: str = "c") -> Pulled:
    """The first pull of a new connection."""
    pull = Pull("g", consumer, [SUBJECT], 10, 1 << 20, 0, held=held, fresh=fresh)
    answer = rig.ask(pull, rig.connect())
    assert isinstance(answer, Pulled)
    return answer


def test_what_a_consumer_does_not_know_it_has_is_given_again_at_once_and_burns_no_attempt(rig: Rig) -> None:
    """The answer to its pull was lost with the connection."""
    assert spans(hello_again(rig)) == [(0, 3, 0), (3, 3, 0)]
    assert rig.broker.counters.messages_taken_back == 3


def test_what_an_earlier_process_of_the_name_had_counts_as_an_attempt(rig: Rig) -> None:
    """It may have died of one of them."""
    assert spans(hello_again(rig, fresh=True)) == [(0, 3, 1), (3, 3, 0)]


def test_what_a_consumer_says_it_holds_stays_with_it(rig: Rig) -> None:
    low = pulls(rig.pull(3))[0]  # the fourth message on

    assert spans(hello_again(rig, low, low + 1)) == [(0, 3, 0), (5, 1, 0)]
    assert rig.ask(Ack("g", "c", SUBJECT, [low, low + 1])) == Done([])


def test_pull_that_does_not_say_what_is_held_changes_nothing(rig: Rig) -> None:
    assert spans(rig.pull(peer=rig.connect())) == [(3, 3, 0)]


def test_what_was_taken_back_is_given_to_whoever_waits(rig: Rig) -> None:
    rig.pull(3, consumer="d")
    other = rig.connect()
    assert rig.ask(Pull("g", "e", [SUBJECT], 10, 1 << 20, 5000), other) is None
    waiting = rig.correlation
    small = Pull("g", "c", [SUBJECT], 1, 1 << 20, 0, held=[])

    rig.ask(small, rig.connect())

    assert spans(rig.answers[waiting]) == [(1, 2, 0)]  # type: ignore[arg-type]


def test_older_connection_of_a_consumer_is_given_nothing_more(rig: Rig) -> None:
    """Neither to the pull that waits there, nor to one that still comes from there."""
    replaced = KIND_BY_NAME["consumer_replaced"].number
    rig.pull(3)
    waits = Pull("g", "c", [SUBJECT], 10, 1 << 20, 5000)
    assert rig.ask(waits) is None
    waiting = rig.correlation

    hello_again(rig)

    refused = rig.answers[waiting]
    assert isinstance(refused, Failed)
    assert refused.number == replaced
    assert rig.refused(waits) == replaced
    assert rig.broker.state.groups[1].in_flight == 6


def test_very_many_scattered_deliveries_are_taken_back_in_several_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidemill_wire.limits.RANGES_MAX", 2)
    rig = Rig(replace(PATIENT, segment_bytes=1 << 20))
    rig.send(*(b"x" for _ in range(20)))
    low = pulls(rig.pull())[0]
    held = [number for at in range(low, low + 20, 2) for number in (at, at)]

    hello_again(rig, *held)

    assert rig.broker.counters.messages_taken_back == 10


def test_group_beyond_the_limit_is_refused_and_counted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill_wire.limits.GROUPS_MAX", 1)
    too_many = KIND_BY_NAME["too_many_groups"].number

    assert rig.refused(Pull("h", "c", [SUBJECT], 1, 1 << 20, 0)) == too_many
    assert spans(rig.pull(3)) == [(3, 3, 0)]
    assert rig.broker.counters.refused["too_many_groups"] == 1


def test_consumer_beyond_the_limit_is_refused_until_another_is_gone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill_wire.limits.CONSUMERS_MAX", 1)
    other = rig.connect()
    pull = Pull("g", "d", [SUBJECT], 3, 1 << 20, 0)

    assert rig.refused(pull, other) == KIND_BY_NAME["too_many_consumers"].number
    assert rig.broker.counters.refused["too_many_consumers"] == 1
    rig.disconnect(rig.peers[0])
    rig.wait(10_000)
    assert isinstance(rig.ask(pull, other), Pulled)


def test_consumer_that_only_extends_over_its_new_connection_is_not_gone() -> None:
    rig = Rig(PATIENT)
    rig.send(b"1")
    [grant] = rig.pull().grants
    rig.broker.disconnected(Peer(1), rig.now_ms)
    rig.broker.connected(Peer(1), rig.now_ms)
    sequence = grant.pull_sequence
    assert rig.ask(Extend("g", "c", SUBJECT, [sequence, sequence])) == Done([])
    rig.wait(PATIENT.consumer_gone_ms - 1)
    assert rig.ask(Extend("g", "c", SUBJECT, [sequence, sequence])) == Done([])
    rig.wait(PATIENT.consumer_gone_ms - 1)

    assert rig.ask(Ack("g", "c", SUBJECT, [sequence, sequence])) == Done([])
