"""What the simulator says of lanes: which of them have something that a group can be given."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from samples.brokers import SUBJECT, TINY, Rig, batch_of
from sim.lanes import LaneWatch
from tidemill_broker.actions import Pulled, PullRun
from tidemill_wire.commands import Ack, SendBatches
from tidemill_wire.connection import Received

HIGH = replace(TINY, durability="high", lease_ms=60_000, segment_bytes=1 << 20)


def settled_rig() -> Rig:
    """A group has settled a message of each of two lanes, and one more of the lower lane waits for it."""
    rig = Rig(HIGH)
    for priority in (7, 0):
        rig.send(b"settled", priority=priority)
        [grant] = rig.pull().grants
        rig.ask(Ack("g", "c", grant.subject, [grant.pull_sequence] * 2))
    rig.send(b"waits")
    return rig


def problems_of_giving_lower(rig: Rig) -> list[str]:
    """What is said when the group is given what waits in the lower lane."""
    problems: list[str] = []
    state = rig.broker.state
    head = state.groups[1]
    [consumer] = head.consumers.values()
    action = Pulled(consumer.identity, rig.now_ms + 1000, [PullRun(state.next_pull, 1, 1, 0)])
    LaneWatch(state, problems, Counter()).grants(action, rig.now_ms, 1.0)
    return problems


def test_who_is_given_something_while_a_higher_lane_has_more_is_early() -> None:
    rig = settled_rig()
    rig.send(b"waits, and is higher", priority=7)

    assert problems_of_giving_lower(rig) == [f"lanes: g of {SUBJECT} at 1.000000 s was given 1 early of 1"]


def test_a_lane_with_nothing_but_a_hole_before_what_is_not_shown_yet_does_not_wait() -> None:
    """A power cut took what the group had not got, and what was sent since is not synced: seed 8891."""
    rig = settled_rig()
    [lane] = rig.broker.state.lanes[1].values()
    lane.next_sequence += 6
    lane.visible = lane.next_sequence
    rig.holds_syncs = True
    command = SendBatches(batch_of(b"not shown yet", priority=7))
    rig.broker.received(rig.peers[0], Received(100, command), rig.now_ms)
    rig.pump()
    assert lane.visible < lane.next_sequence

    assert problems_of_giving_lower(rig) == []

    rig.sync()

    assert problems_of_giving_lower(rig) != [], "it is shown now"
