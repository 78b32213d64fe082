"""What becomes visible together is there before anybody is given some of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, batch_of
from tidemill_wire.commands import Pull, Pulled, SendBatches
from tidemill_wire.connection import Received
from tidemill_wire.lanes import lane_name

HIGH = replace(TINY, durability="high", lease_ms=60_000, segment_bytes=1 << 20)


@pytest.mark.parametrize("turns", [1, 2])
def test_of_lanes_that_are_shown_together_the_higher_one_is_given_first(turns: int) -> None:
    """Whether they came in one turn, or in two whose messages one sync makes durable: seed 8891 of the simulator."""
    rig = Rig(HIGH)
    for priority in (0, 7):
        rig.send(b"before", priority=priority)
        rig.pull()
    assert rig.ask(Pull("g", "c", [SUBJECT], 10, 1 << 20, 10_000)) is None
    waits = rig.correlation
    rig.holds_syncs = True

    for priority in (0, 7):
        batch = batch_of(b"together", priority=priority, sequence=1)
        rig.broker.received(rig.peers[0], Received(100 + priority, SendBatches(batch)), rig.now_ms)
        if turns == 2:
            rig.pump()
    rig.pump()
    assert waits not in rig.answers
    rig.sync()
    rig.pump()

    answer = rig.answers.pop(waits)
    assert isinstance(answer, Pulled)
    assert [grant.subject for grant in answer.grants] == [lane_name(SUBJECT, 7)]
