"""Keeps a connection to a peer: the machine has one as soon as the other side is there, and again after it was lost.

The machine hears ``connected``, and then the WELCOME of the other side as its first command: nobody who dials in can
say that. From then on it is a connection like any other, with the same patience and back-pressure.
"""

from __future__ import annotations

import asyncio
from typing import cast

from tidemill_host.server import Server, ServerConnection
from tidemill_host.silence import probe
from tidemill_wire.commands import Welcome
from tidemill_wire.connection import Connection, Event, Received, Role

CONNECT_SECONDS = 3.0
PAUSE_SECONDS_LEAST = 0.1
PAUSE_SECONDS_MOST = 2.0


class Dialer:
    """One peer. ``keep`` runs until it is cancelled."""

    def __init__(self, server: Server, host: str, port: int) -> None:
        self._server = server
        self._host = host
        self._port = port

    async def keep(self) -> None:
        """Dial; when the connection is lost, dial again, after a pause that grows while nobody answers."""
        caller = self._server.caller
        pause = PAUSE_SECONDS_LEAST
        while True:
            dialed = DialedConnection(self._server)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await caller.connect(lambda: dialed, self._host, self._port)  # noqa: B023
                await dialed.lost
            except (OSError, TimeoutError):
                pause = min(2 * pause, PAUSE_SECONDS_MOST)
            else:
                pause = PAUSE_SECONDS_LEAST if dialed.welcomed else min(2 * pause, PAUSE_SECONDS_MOST)
            await asyncio.sleep(pause)


class DialedConnection(ServerConnection):
    """A connection that this side began."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._wire = Connection(Role.CLIENT)
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.welcomed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            probe(sock)
        cast("asyncio.Transport", transport).write(
            self._wire.greet(self._server.name, self._server.caller.token())
        )

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.lost.done():
            self.lost.set_result(None)

    def _open(self, events: list[Event]) -> list[Event]:
        """Hand the WELCOME to the machine, too: that is how it learns whom it reached."""
        assert self._peer is not None
        first = events[0]
        if not (isinstance(first, Received) and isinstance(first.command, Welcome)):
            self.abort()
            return []
        self.welcomed = self._met = True
        self._server.turn.connected(self._peer)
        return events
