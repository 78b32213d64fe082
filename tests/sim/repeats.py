"""Requests that a broker decides twice, counted: the first answer was on its way when the connection ended.

TCP brings nothing twice. What comes twice is what a client says again over its next connection, because nobody answered
it: so a connection that is cut between the broker's decision and the client's reading is the natural repetition. Resets
at a segment, kills of links and silent links make it; these probes prove that they do, kind by kind.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tidemill_broker.intake import Taken
from tidemill_broker.machine import Broker
from tidemill_host.machine import Peer
from tidemill_wire.commands import Ack, Pull
from tidemill_wire.connection import Event, Received
from tidemill_wire.ranges import pairs

PROBES = ("sends_repeated", "acks_repeated", "pulls_repeated")


def watch_repeats(broker: Broker, probes: Counter[str]) -> None:
    """Count in ``probes`` what one life decides again.

    A SEND is recognised by its producer's numbers; an ACK names deliveries that an earlier one has acked; a PULL over a
    new connection does not hold what its consumer had been given over the one before.
    """
    intake: Any = broker.intake
    machine: Any = broker
    take, received = broker.intake.take, broker.received
    acked: set[int] = set()

    def note_and_take(buffer: bytearray, now_ms: int, *more: Any) -> Taken:
        taken = take(buffer, now_ms, *more)
        probes["sends_repeated"] += taken.repeated
        return taken

    def note_and_receive(peer: Peer, event: Event, now_ms: int) -> None:
        command = event.command if isinstance(event, Received) else None
        taken_back = broker.counters.messages_taken_back
        received(peer, event, now_ms)
        if isinstance(command, Pull):
            probes["pulls_repeated"] += broker.counters.messages_taken_back > taken_back
        elif isinstance(command, Ack) and broker.serving.knows(peer):
            named = {pull for first, last in pairs(command.ranges) for pull in range(first, last + 1)}
            probes["acks_repeated"] += not named.isdisjoint(acked)
            acked.update(named)

    intake.take, machine.received = note_and_take, note_and_receive
