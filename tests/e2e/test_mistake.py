"""A mistake in the broker: it ends at once and says so, and the next start has all that was answered."""

from __future__ import annotations

import json
import sys

import pytest

from e2e.conftest import MakeQueue
from e2e.peers import Numbers, RawPeer
from tidemill_wire.commands import Pull, Pulled, SendBatches, encode_command

pytestmark = pytest.mark.e2e

MISTAKEN = """
import sys
from tidemill_broker.__main__ import main
from tidemill_broker.machine import Broker

def wrong(*_):
    raise AssertionError("what nobody had foreseen")

take = Broker._take

def take_two(self, *more):
    if self.counters.batches:
        wrong()
    take(self, *more)

Broker._take = take_two
sys.exit(main(sys.argv[1:]))
"""
"""A broker whose code breaks down in the second SEND."""


def test_broker_that_breaks_down_says_where_and_ends_and_its_messages_are_there(
    make_queue: MakeQueue,
) -> None:
    numbers = Numbers()
    mistaken = make_queue(command=(sys.executable, "-c", MISTAKEN)).start()
    with RawPeer(mistaken) as peer, RawPeer(mistaken) as other:
        assert peer.refused_batches(numbers.batch("kept", [b"answered"])) == []
        peer.say(encode_command(SendBatches(numbers.batch("kept", [b"lost"])), 77))
        assert peer.closed
        assert other.closed, "nobody is served any more"
    assert mistaken.wait_end() == 1

    event, sentence = mistaken.errors.strip().splitlines()
    said = json.loads(event)
    assert said["event"] == "the service broke down"
    assert said["error"] == "AssertionError('what nobody had foreseen')"
    assert "take_two" in said["traceback"]
    assert sentence.startswith(
        "tidemill: the broker made a mistake (AssertionError('what nobody had foreseen'))"
    )
    assert "start again, and report the line above" in sentence

    queue = make_queue().start()
    with RawPeer(queue) as peer:
        pulled = peer.ask(Pull("g", "c", ["kept"], 10, 1 << 20, 0))
        assert isinstance(pulled, Pulled)
        assert b"answered" in bytes(pulled.batches)
        assert b"lost" not in bytes(pulled.batches)
