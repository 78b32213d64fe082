"""Consumers over HTTP: names without a connection.

The broker takes what a consumer holds away from it 10 seconds after its connection ended. A consumer over HTTP has
none between two requests; so each (group, name) is a local peer that lives on: while it is used, while it may hold a
lease, and a little longer. So a client that never comes back loses its leases when they end, not earlier.

    unknown ──use──▶ used ──answered──▶ idle ──no lease, and 30 s──▶ forgotten
                      ▲──────use─────────┘ └──no lease, and others need the room──▶ forgotten

Their names at the broker begin with ``http:``, so that nobody meets a consumer of the data port, and so that the next
life of the broker knows whom it has to keep alive.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tidemill_host.local import LocalPeer
from tidemill_host.server import Server
from tidemill_wire import limits
from tidemill_wire.commands import Command, Pulled, Release
from tidemill_wire.errors import Unavailable

PREFIX = "http:"
NAMELESS = "any"
"""The name of those who give none: a receipt names the delivery, so they may share it."""


@dataclass(eq=False, slots=True)
class HttpConsumer:
    """A name in use. ``held`` counts messages that were given to it and not settled yet."""

    group: str
    name: str
    peer: LocalPeer
    used_ms: int = 0
    held: int = 0
    lease_ms: int = limits.LEASE_MS_DEFAULT
    leased_until_ms: int = 0

    def idle(self, now_ms: int) -> bool:
        """Nobody waits for it, and no lease hangs on it."""
        return not self.peer.waiting and (not self.held or self.leased_until_ms <= now_ms)


class HttpConsumers:
    """All names in use, those that were used last at the end."""

    def __init__(self, server: Server, now_ms: Callable[[], int]) -> None:
        self._server = server
        self._now_ms = now_ms
        self._consumers: OrderedDict[tuple[str, str], HttpConsumer] = OrderedDict()
        self.most = limits.HTTP_CONSUMERS_MAX

    def __len__(self) -> int:
        return len(self._consumers)

    def use(self, group: str, name: str) -> HttpConsumer:
        """The consumer of that name, made when it is new; ``Unavailable`` when there are too many."""
        now_ms = self._now_ms()
        known = self._consumers.get((group, name))
        if known is None:
            self._make_room(now_ms)
            known = self._consumers[group, name] = self._make(group, name)
        self._consumers.move_to_end((group, name))
        known.used_ms = now_ms
        return known

    def granted(self, consumer: HttpConsumer, messages: int, lease_ms: int) -> None:
        """It was given messages under a lease."""
        consumer.held += messages
        consumer.lease_ms = lease_ms
        self.extended(consumer.group, consumer.name)

    def extended(self, group: str, name: str) -> None:
        """The lease of something it holds began anew."""
        consumer = self._consumers.get((group, name))
        if consumer is not None:
            consumer.leased_until_ms = self._now_ms() + consumer.lease_ms

    def settled(self, group: str, name: str, messages: int) -> None:
        """It holds so many messages less."""
        consumer = self._consumers.get((group, name))
        if consumer is not None:
            consumer.held = max(0, consumer.held - messages)

    def adopt(self, group: str, name: str, held: int, leased_until_ms: int) -> HttpConsumer:
        """A consumer of the broker's life before this one, with what it holds."""
        consumer = self.use(group, name)
        consumer.held += held
        consumer.leased_until_ms = max(consumer.leased_until_ms, leased_until_ms)
        return consumer

    def sweep(self) -> None:
        """Forget who was idle for long."""
        now_ms = self._now_ms()
        until = now_ms - limits.HTTP_CONSUMER_IDLE_MS
        over: list[HttpConsumer] = []
        for consumer in self._consumers.values():
            if consumer.used_ms > until:
                break
            if consumer.idle(now_ms):
                over.append(consumer)
        for consumer in over:
            self._forget(consumer)

    def close(self) -> None:
        for consumer in list(self._consumers.values()):
            self._forget(consumer)

    def _make(self, group: str, name: str) -> HttpConsumer:
        peer: LocalPeer = LocalPeer(self._server, lambda answer: hand_back(peer, group, name, answer))
        return HttpConsumer(group, name, peer)

    def _make_room(self, now_ms: int) -> None:
        if len(self._consumers) < self.most:
            return
        for consumer in self._consumers.values():
            if consumer.idle(now_ms):
                self._forget(consumer)
                return
        raise Unavailable(
            "too_many_connections", f"{self.most} consumers hold messages over HTTP, give them fewer names"
        )

    def _forget(self, consumer: HttpConsumer) -> None:
        del self._consumers[consumer.group, consumer.name]
        consumer.peer.close()


def hand_back(peer: LocalPeer, group: str, name: str, answer: Command) -> int:
    """Whoever asked for these messages has gone: somebody else gets them at once, as if never given out."""
    if not isinstance(answer, Pulled):
        return 0
    for grant in answer.grants:
        ranges = [grant.pull_sequence, grant.pull_sequence + grant.count - 1]
        tell(peer, Release(group, PREFIX + name, grant.subject, ranges))
    return sum(grant.count for grant in answer.grants)


def tell(peer: LocalPeer, command: Command) -> None:
    """Ask, and wait for no answer."""
    peer.ask(command).add_done_callback(_heard)


def _heard(done: asyncio.Future[Command]) -> None:
    """When it was refused, the lease ends in its time."""
    if not done.cancelled():
        done.exception()
