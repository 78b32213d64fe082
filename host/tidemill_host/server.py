"""The data port: connections around the sans-IO protocol, bounded in number, in bytes and in patience.

A connection that breaks the protocol is told why and closed with a counted reason; no other connection notices. What
leaves over it is ``outgoing``.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

from tidemill_host.calling import IN_CLEAR, Caller
from tidemill_host.certificates import Watched, names_of
from tidemill_host.files import Files
from tidemill_host.machine import Peer, Send
from tidemill_host.outgoing import Outgoing, Outlet
from tidemill_host.peers import Connected, Statistics
from tidemill_host.persist import Lanes
from tidemill_host.silence import probe, silent_ms
from tidemill_host.turn import Turn
from tidemill_wire import limits
from tidemill_wire.access import NOBODY, Access
from tidemill_wire.commands import Failed, Goodbye, Hello, SendBatches, encode_command
from tidemill_wire.connection import Connection, Event, Received, Rejected, Role, State
from tidemill_wire.errors import KIND_BY_NAME, RemoteProtocolError, WireError
from tidemill_wire.guarding import Gate, Guard

CHECK_SECONDS = 1.0
FRAMES_A_READ = 64
OPEN = Gate(Access())
DENIALS = ("unauthenticated", "forbidden", "grants_unknown")


class Server:
    """All connections of one port."""

    def __init__(self, turn: Turn[Event], files: Files, lanes: Lanes, name: str) -> None:
        self.turn = turn
        self.files = files
        self.lanes = lanes
        self.name = name
        self.epoch = 0
        self.connections_max = limits.CONNECTIONS_MAX
        self.statistics = Statistics()
        self.outlet = Outlet(files, lanes, self.statistics, turn.unsent)
        self.caller: Caller = IN_CLEAR
        self.tls: ssl.SSLContext | None = None
        self.certificates: Watched | None = None
        self.gate = OPEN
        """What may be said here, and by whom."""
        self.connections: dict[Peer, Connected] = {}
        self._next_peer = 1
        self._listener: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        turn.deliver = self._deliver
        turn.drop = self._drop
        turn.eased = self._ease
        self.held: list[ServerConnection] = []  # not read from until the disk has caught up

    async def listen(self, host: str, port: int) -> int:
        """Accept connections; the port that was taken."""
        self._listener = await self._loop.create_server(
            lambda: ServerConnection(self), host, port, backlog=1024, **self._by_tls()
        )
        for sock in self._listener.sockets:
            probe(sock)
        self._check()
        return cast("int", self._listener.sockets[0].getsockname()[1])

    def judge_again(self) -> None:
        """Somebody may have lost what they had: at once when that is known, and once a second as tokens end."""
        if self.gate.access.locked:
            for connection in list(self.connections.values()):
                connection.judge_again()

    def _by_tls(self) -> dict[str, Any]:
        # A handshake that does not end is a HELLO that does not come.
        return {} if self.tls is None else {"ssl": self.tls, "ssl_handshake_timeout": limits.HELLO_MS / 1000}

    def admit(self, connection: ServerConnection) -> Peer | None:
        """A number for a new connection, ``None`` when there are too many."""
        if len(self.connections) >= self.connections_max:
            return None
        self.statistics.connections_opened += 1
        return self.enrol(connection)

    def enrol(self, peer: Connected) -> Peer:
        """A number for a peer, whatever it is."""
        number = Peer(self._next_peer)
        self._next_peer += 1
        self.connections[number] = peer
        return number

    def forget(self, peer: Peer) -> None:
        self.connections.pop(peer, None)

    def stop_listening(self) -> None:
        """No new connections."""
        if self._listener is not None:
            self._listener.close()

    def close(self, reason: str) -> None:
        """Say goodbye to everyone."""
        self.stop_listening()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections.values()):
            connection.goodbye(reason)

    def _ease(self) -> None:
        if self.held and self.turn.backlog_bytes <= limits.BACKLOG_BYTES_MAX // 2:
            held, self.held = self.held, []
            for connection in held:
                connection.let_go()

    def _deliver(self, send: Send) -> None:
        connection = self.connections.get(send.peer)
        if connection is not None:
            connection.send(send)

    def _drop(self, peer: Peer) -> None:
        connection = self.connections.get(peer)
        if connection is not None:
            connection.goodbye("dropped")

    def _check(self) -> None:
        """Once a second: close who is too slow, and the largest when half frames hold too much memory."""
        now = self._loop.time()
        self.judge_again()
        pending = 0
        for connection in list(self.connections.values()):
            connection.check(now)
            pending += connection.pending
        if pending > limits.RECEIVE_BYTES_MAX:
            for largest in sorted(self.connections.values(), key=lambda connection: -connection.pending):
                if pending <= limits.RECEIVE_BYTES_MAX:
                    break
                pending -= largest.pending
                largest.refuse("too_slow", "unfinished frames of all connections hold too much memory")
        self.outlet.check(now)
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)


class ServerConnection(asyncio.BufferedProtocol):
    """One peer. States are those of ``wire.connection``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._wire = Connection(Role.SERVER)
        self._transport: asyncio.Transport | None = None
        self._peer: Peer | None = None
        self._outgoing: Outgoing | None = None
        self._held = False
        self._met = False  # the machine knows of it
        self._waiting_since = 0.0
        self._guard: Guard | None = None
        self._heard = True
        self._ask_at = 0.0
        self._silent_ms = 0

    @property
    def pending(self) -> int:
        """Bytes held for a frame that is not whole."""
        return self._wire.pending

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._waiting_since = asyncio.get_running_loop().time()
        self._outgoing = Outgoing(self._server.outlet, self._transport, self._waiting_since)
        self._peer = self._server.admit(self)
        if self._peer is None:
            self.refuse("too_many_connections", f"{self._server.connections_max} connections are open")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._outgoing is not None:
            self._outgoing.close()
        if self._peer is not None:
            self._server.forget(self._peer)
            if self._guard is not None:
                self._guard.left()
            if self._met:
                self._server.turn.disconnected(self._peer, self._silent_ms)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._wire.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        server = self._server
        server.statistics.bytes_received += nbytes
        self._heard = True
        if self._peer is None or self._transport is None or self._transport.is_closing():
            return  # under TLS more may come after this side has closed: nobody has judged who says it
        try:
            opening = self._wire.state is State.OPENING
            events = self._wire.advance(nbytes)
        except RemoteProtocolError as error:
            self.refuse(error.reason, error.detail)
            return
        if events:
            server.statistics.frames_received += len(events)
            self._waiting_since = 0.0
            if opening:
                events = self._open(events)
            if self._guard is not None:
                events = self._judged(events, self._guard)
            for event in events:
                server.turn.post(self._peer, event)
            if (
                server.turn.backlog_bytes > limits.BACKLOG_BYTES_MAX
                and not self._held
                and any(map(_sends, events))
            ):
                self._held = True
                self._transport.pause_reading()
                server.held.append(self)
            if len(events) > FRAMES_A_READ and not self._is_paused:
                # libuv reads up to 32 times in a row: thousands of tiny frames would be one turn of seconds.
                self._transport.pause_reading()
                asyncio.get_running_loop().call_soon(self._go_on)
        if self._wire.pending and not self._waiting_since:
            self._waiting_since = asyncio.get_running_loop().time()
        server.turn.collected(nbytes)

    def _judged(self, events: list[Event], guard: Guard) -> list[Event]:
        """What is not granted becomes a refusal, which the machine answers in its order."""
        now_ms = self._server.turn.now_ms()
        judged = [guard.judge(event, now_ms) for event in events]
        for event in judged:
            if isinstance(event, Rejected) and event.error.kind.name in DENIALS:
                self._server.statistics.refused[event.error.kind.name] += 1
        return judged

    def judge_again(self) -> None:
        error = None if self._guard is None else self._guard.lost(self._server.turn.now_ms())
        if error is not None:
            self.refuse(error.kind.name, error.detail)

    def _go_on(self) -> None:
        transport = self._transport
        if transport is not None and not (self._is_paused or self._held or transport.is_closing()):
            transport.resume_reading()

    def let_go(self) -> None:
        """The disk has caught up: what this one sends is read again. It was not slow, it was not listened to."""
        self._held = False
        self._waiting_since = asyncio.get_running_loop().time() if self._wire.pending else 0.0
        self._go_on()

    def eof_received(self) -> bool:
        return False

    @property
    def _is_paused(self) -> bool:
        return self._outgoing is not None and self._outgoing.paused

    def pause_writing(self) -> None:
        assert self._outgoing is not None
        self._outgoing.pause(asyncio.get_running_loop().time())
        if self._transport is not None:
            self._transport.pause_reading()  # who does not listen is not listened to: answers would pile up

    def resume_writing(self) -> None:
        assert self._outgoing is not None
        self._outgoing.resume()
        self._go_on()

    def send(self, send: Send) -> None:
        """Put a send on the wire, after those before it."""
        assert self._outgoing is not None
        self._outgoing.put(send)

    def refuse(self, reason: str, detail: str, wait_ms: int = 0) -> None:
        """Say what is wrong, count it, close."""
        self._server.statistics.refused[reason] += 1
        if self._transport is not None:
            self._transport.write(encode_command(Failed(KIND_BY_NAME[reason].number, detail, wait_ms), 0))
            self._transport.close()

    def goodbye(self, reason: str) -> None:
        if self._transport is not None:
            if self._wire.state is State.OPEN:
                self._transport.write(encode_command(Goodbye(reason), 0))
            self._transport.close()

    def abort(self) -> None:
        """Close without another word."""
        if self._transport is not None:
            self._transport.abort()

    def check(self, now: float) -> None:
        """Patience: for HELLO, for the rest of a frame, for a peer of which nothing is heard."""
        if self._transport is not None and self._transport.is_closing():
            self._transport.abort()  # it was told why; a peer that does not read even that would stay for ever
            return
        opening = self._wire.state is State.OPENING
        limit = (limits.HELLO_MS if opening else limits.SLOW_FRAME_MS) / 1000
        if self._waiting_since and not self._held and now - self._waiting_since > limit:
            self.refuse(
                "too_slow", "no HELLO came in time" if opening else "the rest of a frame did not come in time"
            )
        elif self._transport is not None:
            self._listen(self._transport, now)

    def _listen(self, transport: asyncio.Transport, now: float) -> None:
        """Whether its machine is there. The kernel is asked only about who says nothing: a question costs some
        microseconds, and there may be 20,000 of them.
        """
        if self._heard:
            self._heard = False
            self._ask_at = now + limits.PEER_SILENT_MS / 2000
        elif now >= self._ask_at:
            silent = silent_ms(transport)
            if silent is not None and silent >= limits.PEER_SILENT_MS:
                self._silent_ms = silent
                self._server.statistics.refused["too_slow"] += 1
                transport.abort()  # whatever was said would wait here for nobody
                return
            self._ask_at = now + max(CHECK_SECONDS, (limits.PEER_SILENT_MS - (silent or 0)) / 1000)

    def _open(self, events: list[Event]) -> list[Event]:
        """Answer the HELLO; what came behind it goes to the machine."""
        assert self._peer is not None
        assert self._transport is not None
        first = events[0]
        assert isinstance(first, Received)
        assert isinstance(first.command, Hello)
        server = self._server
        names = names_of(self._transport.get_extra_info("peercert"))
        try:
            self._guard = server.gate.admit(first.command.token, names, server.turn.now_ms())
        except WireError as error:
            server.gate.told(NOBODY, "HELLO", error.kind.name)
            self.refuse(error.kind.name, error.detail, error.wait_ms)
            return []
        self._transport.write(self._wire.welcome(self._server.name, self._server.epoch))
        self._met = True
        self._server.turn.connected(self._peer)
        return events[1:]


def _sends(event: Event) -> bool:
    return isinstance(event, Received) and isinstance(event.command, SendBatches)
