"""The broker's end of one connection to the broker in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill.memory_stores import EPOCH
from tidemill_wire.commands import Command, Failed, Hello, Pull, Pulled, encode_command
from tidemill_wire.connection import Connection, Received, Rejected, Role
from tidemill_wire.errors import KIND_BY_NAME, CorruptBatch

if TYPE_CHECKING:
    from tidemill.memory import MemoryBroker

NAME = "memory"


class Peer(asyncio.Protocol):
    """The broker's end of one connection."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.members: dict[tuple[str, str, str], None] = {}
        self.transport: asyncio.Transport | None = None
        self._broker = broker
        self._connection = Connection(Role.SERVER)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]  # uvloop's are no asyncio.Transport
        self._broker.peers[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._broker.gone(self)

    def data_received(self, data: bytes) -> None:
        for event in self._connection.feed(data):
            match event:
                case Received(_, Hello()):
                    assert self.transport is not None
                    if self._broker.answers:
                        self.transport.write(self._connection.welcome(NAME, EPOCH))
                case Received(correlation, command):
                    try:
                        self._broker.handle(self, correlation, command)
                    except CorruptBatch as error:
                        self.fail(correlation, "corrupt_batch", str(error))
                case Rejected(correlation, error):
                    self.fail(correlation, error.kind.name, error.detail)

    def say(self, command: Command, correlation: int) -> None:
        """An answer."""
        if self.transport is None or not self._broker.answers:
            return
        batches = command.batches if isinstance(command, Pulled) else b""
        self.transport.write(encode_command(command, correlation, trailing=len(batches)))
        if batches:
            self.transport.write(batches)

    def fail(self, correlation: int, name: str, detail: str) -> None:
        """An answer that says no."""
        self.say(Failed(KIND_BY_NAME[name].number, detail), correlation)


@dataclass(slots=True, eq=False)
class Waiting:
    """A pull that found nothing."""

    peer: Peer
    correlation: int
    pull: Pull
    timer: asyncio.TimerHandle = field(init=False)


def others(peers: Iterable[Peer], peer: Peer, name: str, pull: Pull) -> bool:
    """Whether another consumer of the group is connected."""
    return any(
        member[:2] == (name, pull.group) and (one is not peer or member[2] != pull.consumer)
        for one in peers
        for member in one.members
    )
