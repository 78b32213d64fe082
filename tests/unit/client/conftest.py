"""A broker in memory behind a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from samples.towns import Build, build_town
from tidemill import Address, Client, ClientSettings
from tidemill.memory import MemoryBroker, Peer, StoredGroup
from tidemill_wire.columns import Batch
from tidemill_wire.commands import Ack, Adopt, Command, Done, Goodbye, SendBatches


class Recorder(MemoryBroker):
    """Notes what is said, in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[Command] = []
        self.patient = False
        """Keeps the leases of connections that were lost, as a broker does for a while. Only a goodbye ends them."""
        self.busy = False
        """Takes no acks now."""
        self.adopts = True
        """Takes failures of others, and does nothing with them."""
        self.stopping = False
        """Takes nothing any more, whatever it has."""
        self.silent = False
        """Stores, and does not say so."""
        self.turned_away = 0
        """So many SENDs were refused because of that."""

    def handle(self, peer: Peer, correlation: int, command: Command) -> None:
        self.said.append(command)
        if isinstance(command, Goodbye):
            super().gone(peer)
        elif isinstance(command, Adopt) and self.adopts:
            peer.say(Done(count=Batch(bytearray(command.batch)).header.messages), correlation)
        elif isinstance(command, Adopt):
            peer.fail(correlation, "not_found", "no such group")
        elif isinstance(command, SendBatches) and self.stopping:
            self.turned_away += 1
            peer.fail(correlation, "shutting_down", "the broker is about to stop")
        elif isinstance(command, SendBatches) and self.silent:
            self.store(command.batches)
        elif isinstance(command, Ack) and self.busy:
            peer.fail(correlation, "disk_full", "full")
        else:
            super().handle(peer, correlation, command)

    def gone(self, peer: Peer) -> None:
        if self.patient:
            peer.members.clear()
        super().gone(peer)


@dataclass
class Place:
    """A broker that can be stopped and started, on one port."""

    broker: Recorder = field(default_factory=Recorder)
    port: int = 0
    server: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(self.broker.protocol, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self.server is not None
        self.server.close()
        self.drop()
        await self.server.wait_closed()

    def drop(self) -> None:
        """Cut all connections."""
        for peer in list(self.broker.peers):
            assert peer.transport is not None
            peer.transport.abort()

    async def routes(self) -> tuple[Address, ...]:
        return (Address("g0", "127.0.0.1", self.port),)

    def group(self, subject: str = "a", group: str = "g") -> StoredGroup:
        return self.broker.groups[subject, group]

    def client(self, **options: Any) -> Client:
        options.setdefault("settings", ClientSettings(backoff_max_s=0.05))
        return Client("localhost:1", fetch=self.routes, **options)


Serve = Callable[[], AbstractAsyncContextManager[Place]]


@pytest.fixture
def serve() -> Serve:
    @asynccontextmanager
    async def serving() -> AsyncIterator[Place]:
        place = Place()
        await place.start()
        try:
            yield place
        finally:
            await place.stop()

    return serving


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Let the loop turn until something is so; the test's deadline ends what never will be."""

    async def waiting(condition: Callable[[], object]) -> None:
        while not condition():  # noqa: ASYNC110 - there is no event for what another part of the loop does
            await asyncio.sleep(0)

    return waiting


@pytest.fixture
def town(serve: Serve) -> Build:
    return partial(build_town, serve)
