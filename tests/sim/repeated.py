"""The cluster behind a proxy that says again what its clients said: the same SEND, ACK, NACK, EXTEND and RELEASE arrive
twice, the second time over a connection of the proxy's own, at once or seconds later.

Nothing may come of it: no message lies in the log twice, none that was acked comes again, and no lease of another
delivery is touched. A request is said again only to the life that took it, for a proxy forgets what it was refused, and
a power cut may excuse what the log does not know any more. A PULL is not said again: in the name of a consumer, over a
new connection, it is that consumer who came back, and the other one is told that it was replaced.

Checkpoints are packed ahead here, too, one or a few groups and partitions a turn, as where there are thousands.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from sim.cluster import Cluster
from sim.world import Env
from tidemill_broker.doors import Service
from tidemill_broker.intake import Taken
from tidemill_host.local import LocalPeer
from tidemill_host.machine import Peer
from tidemill_wire.commands import Ack, Command, Extend, Nack, Release, SendBatches
from tidemill_wire.connection import Event, Received

SHARE = 0.2
SHARES = (1, 3, 200)
DELAYS_S = (0.0, 0.001, 0.05, 0.5, 3.0)


class Proxy:
    """Hears what one life of the broker decides, and says a share of it again."""

    def __init__(self, service: Service, rng: random.Random, note: Callable[[str], None]) -> None:
        self._peer = LocalPeer(service.server, lambda _answer: None)
        self._rng = rng
        self._note = note
        self._loop = asyncio.get_running_loop()
        broker = service.broker
        intake: Any = broker.intake
        machine: Any = broker
        self._take, self._receive = broker.intake.take, broker.received
        intake.take, machine.received = self.take, self.received

    def take(self, buffer: bytearray, now_ms: int, *more: Any) -> Taken:
        """Copied before: the broker writes its own fields into what it takes."""
        copy = bytearray(buffer)
        taken = self._take(buffer, now_ms, *more)
        if taken.messages and not taken.refused:
            self._maybe_again(SendBatches(copy))
        return taken

    def received(self, peer: Peer, event: Event, now_ms: int) -> None:
        self._receive(peer, event, now_ms)
        if peer == self._peer.number or not isinstance(event, Received):
            return
        if isinstance(event.command, Ack | Nack | Extend | Release):
            self._maybe_again(event.command)

    def _maybe_again(self, command: Command) -> None:
        if self._rng.random() < SHARE:
            self._loop.call_later(self._rng.choice(DELAYS_S), self._again, command)

    def _again(self, command: Command) -> None:
        self._note(f"{command.kind.name.lower()}_said_again")
        self._peer.ask(command).add_done_callback(_unheard)


def _unheard(answer: asyncio.Future[Command]) -> None:
    """Nobody waits for it, so nobody minds what it was."""
    if not answer.cancelled():
        answer.exception()


class Repeated(Cluster):
    """Each life has its proxy."""

    probes = (
        *("sends_repeated", "acks_repeated"),
        *("send_said_again", "ack_said_again", "nack_said_again", "extend_said_again", "release_said_again"),
    )

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self._chance = random.Random(f"{seed}/proxy")

    def _opened(self, service: Service, env: Env) -> None:
        Proxy(service, self._chance, self.note)
        service.broker.keeping.packing.share = self._chance.choice(SHARES)


def make(seed: str) -> Repeated:
    return Repeated(seed)
