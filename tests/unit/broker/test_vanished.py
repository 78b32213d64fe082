"""Pods that somebody says are gone: their consumers' leases end at once, and who lives after all loses only time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, spans
from tidemill_wire.commands import Ack, Done, Pull
from tidemill_wire.kinds import Mode
from tidemill_wire.pods import mark_of

POD = "0e4f6c1a-5f0e-4a57-9d2c-8a3a4d1f2b6e"
CONSUMER = f"python{mark_of(POD)}0123456789abcdef"


@pytest.fixture
def rig() -> Rig:
    """Six messages, three of them held in the pod, and one elsewhere."""
    made = Rig(replace(TINY, lease_ms=600_000, consumer_gone_ms=10_000))
    made.fill(6)
    made.pull(3, consumer=CONSUMER)
    made.pull(1, consumer="other")
    return made


def vanish(rig: Rig, *pods: str) -> None:
    rig.broker.vanished(pods, rig.now_ms)
    rig.pump()


def test_what_a_pod_held_is_given_to_others_at_once_and_after_a_restart_too(rig: Rig) -> None:
    vanish(rig, POD)
    rig.restart()
    rig.wait(1_000)

    assert spans(rig.pull(3, consumer="next")) == [(0, 3, 1)]
    assert rig.broker.state.groups[1].in_flight == 4, "what another one held it holds"


@pytest.mark.parametrize("pod", [POD[:-1], "f" + POD, POD.upper(), "another-pod"])
def test_other_pods_have_nothing_to_do_with_it(rig: Rig, pod: str) -> None:
    vanish(rig, pod)

    assert rig.broker.state.groups[1].in_flight == 4
    assert rig.broker.state.groups[1].failed == {}


def test_a_consumer_that_lives_hears_that_its_leases_are_lost_and_goes_on(rig: Rig) -> None:
    [delivery] = rig.broker.state.groups[1].consumers[CONSUMER].held()
    ranges = [delivery.pull, delivery.pull + delivery.count - 1]
    vanish(rig, POD)

    assert rig.ask(Ack("g", CONSUMER, SUBJECT, ranges)) == Done(ranges)
    rig.wait(1_000)
    assert sum(count for _, count, _ in spans(rig.pull(10, consumer=CONSUMER))) == 5


def test_a_pull_of_who_is_gone_is_answered_with_nothing_and_given_nothing_more(rig: Rig) -> None:
    """Its connection may look alive for a while yet."""
    rig.pull(2, consumer="rest")
    waits = rig.correlation + 1
    assert rig.ask(Pull("g", CONSUMER, [SUBJECT], 10, 1 << 20, 60_000, -1)) is None
    vanish(rig, POD)
    assert waits in rig.answers

    rig.wait(1_000)
    assert spans(rig.pull(3, consumer="next")) == [(0, 3, 1)]


def test_a_group_in_order_goes_by_its_time(rig: Rig) -> None:
    rig.send(b"one", subject="ordered")
    asked = Pull("g", CONSUMER, ["ordered"], 1, 1 << 20, 1_000, mode=Mode.EXCLUSIVE)
    rig.ask(asked)
    [group] = [one for one in rig.broker.state.groups.values() if one.ordered]
    assert group.in_flight == 1

    vanish(rig, POD)

    assert group.in_flight == 1
