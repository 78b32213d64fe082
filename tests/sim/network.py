"""The simulated network: hosts, listeners, links, and what goes wrong between them.

Fault model. Hosts are full-mesh linked; each ordered pair has its own latency and may be blocked (partitions can be
one-way), clogged until an instant (all arrives, late), or cut by RST. A host is up or without power. A connection
attempt to a blocked or powerless host is silent and tries again after 1, 2, 4 … s, ETIMEDOUT after 127 s; to a host
with no listener it is refused at once. A paused process still accepts, in its kernel. What a connection in use goes
through is told in ``transport``. Not modelled: datagrams, TLS, bandwidth, overflow of the accept backlog.

Partitions and clogs are counted per pair, so that overlapping faults heal one by one. Triggers at the nth segment a
host sends (``reset_at_segment``) hit the windows that faults at random times miss.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from sim.life import LIFE, Life
from sim.loop import SimLoop
from sim.pipe import RETRANSMIT_FIRST_S, Pipe
from sim.sockets import FakeSocket
from sim.transport import SimTransport
from sim.weather import Weather

SYN_RETRY_FIRST_S = 1.0
SYN_GIVE_UP_S = 127.0
FAR_S = 0.07
"""One way, the most. The shortest lease that is drawn, 0.3 s, renewed after a third of it, outlasts the way there and
back: one that does not can be kept by nobody."""
EPHEMERAL_PORT_FIRST = 40_000
ANY_HOST = ("", "0.0.0.0", "::", "*")
LOCAL_HOST = ("localhost", "127.0.0.1", "::1")

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Host:
    """A machine on the network: its kernel's listeners and connections."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.up = True
        self.listeners: dict[int, SimServer] = {}
        self.transports: dict[int, SimTransport] = {}
        self.segments = 0
        self.reset_at_segment = -1
        self.port_next = EPHEMERAL_PORT_FIRST

    def port(self) -> int:
        self.port_next += 1
        return self.port_next


class SimServer(asyncio.AbstractServer):
    """A listener."""

    def __init__(self, network: Network, host: Host, port: int, factory: ProtocolFactory) -> None:
        self.network = network
        self.host = host
        self.port = port
        self.factory = factory
        self.life = LIFE.get(network.loop.outside)
        self.sockets: tuple[FakeSocket, ...] = (FakeSocket((host.address, port), None),)
        host.listeners[port] = self

    def close(self) -> None:
        if self.is_serving():
            del self.host.listeners[self.port]
            self.sockets = ()

    async def wait_closed(self) -> None:
        return None

    def is_serving(self) -> bool:
        return self.host.listeners.get(self.port) is self

    async def start_serving(self) -> None:
        return None

    async def serve_forever(self) -> None:
        try:
            await self.network.loop.create_future()
        finally:
            self.close()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.network.loop


class Attempt:
    """A handshake under way."""

    def __init__(self, source: Host, target: Host, port: int, life: Life) -> None:
        self.source = source
        self.target = target
        self.port = port
        self.life = life
        self.retry_s = SYN_RETRY_FIRST_S
        self.started_at = life.loop.now
        self.done: asyncio.Future[SimTransport] = life.loop.create_future()

    def refuse(self) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "connection refused"))


class Network:
    """All hosts and links of a world."""

    def __init__(self, loop: SimLoop, seed: str, weather: Weather) -> None:
        self.loop = loop
        self.seed = seed
        self.weather = weather
        self.hosts: dict[str, Host] = {}
        self.probes: Counter[str] = Counter()
        self._rng = random.Random(f"{seed}/net")
        self._blocked: Counter[tuple[str, str]] = Counter()
        self._cut_at: dict[frozenset[str], float] = {}
        """Since when nothing that is asked between two hosts is answered."""
        self._clogged_until: dict[tuple[str, str], float] = {}
        self._latency: dict[tuple[str, str], float] = {}
        self._handed: dict[Any, SimTransport] = {}
        loop.network = self

    def add_host(self, name: str) -> Host:
        number = len(self.hosts) + 1
        host = self.hosts[name] = Host(name, f"10.0.{number >> 8}.{number & 255}")
        return host

    # -- links and their faults --------------------------------------------------------------------------------

    def block(self, pairs: Iterable[tuple[str, str]]) -> None:
        for pair in pairs:
            self._blocked[pair] += 1
            self._cut_at.setdefault(frozenset(pair), self.loop.now)

    def unblock(self, pairs: Iterable[tuple[str, str]]) -> None:
        for source, target in pairs:
            self._blocked[source, target] -= 1
            if self._blocked[source, target] <= 0 >= self._blocked[target, source]:
                self._cut_at.pop(frozenset((source, target)), None)

    def silence(self, end: SimTransport) -> float:
        """For how long a kernel that asks again and again has not heard of the other end of a connection."""
        far = end.outgoing.target
        since = self._cut_at.get(frozenset((end.host.name, far.host.name)), self.loop.now)
        if far.gone:
            since = min(since, far.gone_at)
        return max(0.0, self.loop.now - max(since, end.heard_at))

    def clog(self, source: str, target: str, until: float) -> None:
        self._clogged_until[source, target] = max(until, self._clogged_until.get((source, target), 0.0))

    def unclog(self) -> None:
        self._clogged_until.clear()

    def unreachable(self, source: Host, target: Host) -> bool:
        return not target.up or self._blocked[source.name, target.name] > 0

    def reset_between(self, name: str, other: str) -> int:
        """RST every connection between two hosts; returns how many there were."""
        mine = [end for end in self.hosts[name].transports.values() if end.outgoing.target.host.name == other]
        for end in mine:
            self._reset_both(end.outgoing)
        return len(mine)

    def segment_left(self, pipe: Pipe) -> bool:
        """Counts segments; True when this one was to be the connection's last."""
        host = pipe.source.host
        host.segments += 1
        if host.segments != host.reset_at_segment:
            return False
        self.probes["reset_at_segment"] += 1
        self.loop.at(self.loop.now, self._reset_both, pipe)
        return True

    def delay(self, pipe: Pipe) -> float:
        """Seconds until a segment that leaves now arrives."""
        return self.hop(pipe.source.host, pipe.target.host)

    def hop(self, source: Host, target: Host) -> float:
        """Seconds from one host to another; more when what is sent is lost, and sent again."""
        seconds = self._link_delay(source, target)
        if self.weather.segment_loss and self._rng.random() < self.weather.segment_loss:
            self.probes["lost_segments"] += 1
            seconds += RETRANSMIT_FIRST_S
        return seconds

    def arrival_back(self, pipe: Pipe) -> float:
        return self.loop.now + self._link_delay(pipe.target.host, pipe.source.host)

    def chunk(self, size: int) -> int:
        """How many of ``size`` arrived bytes a read gets."""
        if self.weather.chunked_reads and size > 1 and self._rng.random() < self.weather.chunked_reads:
            self.probes["chunked_reads"] += 1
            return 1 if self._rng.random() < 0.3 else self._rng.randrange(1, size)
        return size

    def flip(self) -> bool:
        return self._rng.random() < 0.5

    def _link_delay(self, source: Host, target: Host) -> float:
        key = source.name, target.name
        base = self._latency.get(key)
        if base is None:
            base = self._latency[key] = self._base_latency(key)
        seconds = base * (0.8 + 0.4 * self._rng.random())
        if self._clogged_until:
            seconds += max(0.0, self._clogged_until.get(key, 0.0) - self.loop.now)
        return seconds

    def _base_latency(self, key: tuple[str, str]) -> float:
        rng = random.Random(f"{self.seed}/link/{key[0]}>{key[1]}")
        if key[0] == key[1]:
            return 20e-6
        if rng.random() < self.weather.far_links:
            return rng.uniform(0.02, FAR_S)
        return rng.uniform(self.weather.latency_min_s, self.weather.latency_max_s)

    def _reset_both(self, pipe: Pipe) -> None:
        pipe.source.reset()
        pipe.target.reset()

    # -- hosts dying and coming back ---------------------------------------------------------------------------

    def process_died(self, name: str) -> None:
        host = self.hosts[name]
        host.listeners.clear()
        for end in list(host.transports.values()):
            end.process_died()

    def power_lost(self, name: str) -> None:
        host = self.hosts[name]
        host.up = False
        host.listeners.clear()
        for end in list(host.transports.values()):
            end.power_lost()

    def power_back(self, name: str) -> None:
        self.hosts[name].up = True

    def dissolve(self) -> None:
        """The world ends: nobody is to be warned of a connection left open."""
        for host in self.hosts.values():
            for end in host.transports.values():
                end.closed = True
            host.transports.clear()

    # -- what the loop delegates -------------------------------------------------------------------------------

    def here(self) -> Host:
        return self.hosts[LIFE.get(self.loop.outside).node]

    def addresses(self, host: Any, port: Any) -> list[tuple[Any, ...]]:
        address = self._resolve(host).address
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, int(port or 0)))]

    def _resolve(self, name: Any) -> Host:
        text = name.decode() if isinstance(name, bytes) else name
        if text is None or text in ANY_HOST or text in LOCAL_HOST:
            return self.here()
        for host in self.hosts.values():
            if text in (host.name, host.address):
                return host
        raise socket.gaierror(socket.EAI_NONAME, f"name {text!r} is not known")

    def listen(self, factory: ProtocolFactory, name: Any, port: Any, options: dict[str, Any]) -> SimServer:
        if options.get("ssl") or options.get("sock"):
            raise NotImplementedError("TLS and ready-made listeners are not simulated")
        first = name[0] if isinstance(name, (list, tuple)) else name
        host = self._resolve(first)
        number = int(port) if port else host.port()
        if number in host.listeners:
            raise OSError(errno.EADDRINUSE, f"port {number} is in use")
        return SimServer(self, host, number, factory)

    async def connect(
        self, factory: ProtocolFactory, name: Any, port: Any, options: dict[str, Any]
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        if options.get("ssl"):
            raise NotImplementedError("TLS is not simulated")
        sock = options.get("sock")
        if sock is None:
            transport = await self._handshake(name, int(port))
        else:
            transport = self._handed.pop(sock)
            sock.close()
        protocol = factory()
        transport.start(protocol)
        made = self.loop.create_future()
        self.loop.call_soon(_set_unless_cancelled, made)
        try:
            await made
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    async def sock_connect(self, sock: Any, address: tuple[str, int]) -> None:
        """For aiohttp, which makes a real socket, connects it here, and gives it to ``create_connection``."""
        self._handed[sock] = await self._handshake(address[0], address[1])

    async def _handshake(self, name: Any, port: int) -> SimTransport:
        attempt = Attempt(self.here(), self._resolve(name), port, LIFE.get(self.loop.outside))
        self._send_syn(attempt)
        try:
            return await attempt.done
        except asyncio.CancelledError:
            if attempt.done.done() and not attempt.done.cancelled() and not attempt.done.exception():
                attempt.done.result().abort()
            raise

    # -- the handshake -----------------------------------------------------------------------------------------

    def _send_syn(self, attempt: Attempt) -> None:
        self.loop.at(
            self.loop.now + self._link_delay(attempt.source, attempt.target), self._syn_arrives, attempt
        )

    def _syn_arrives(self, attempt: Attempt) -> None:
        source, target = attempt.source, attempt.target
        if attempt.done.done() or not attempt.life.alive:
            return
        if self.unreachable(source, target) or self.unreachable(target, source):
            if self.loop.now - attempt.started_at + attempt.retry_s > SYN_GIVE_UP_S:
                attempt.done.set_exception(TimeoutError(errno.ETIMEDOUT, "connection attempt timed out"))
                return
            self.loop.at(self.loop.now + attempt.retry_s, self._send_syn, attempt)
            attempt.retry_s *= 2
            return
        self.loop.at(self.loop.now + self._link_delay(target, source), self._answered, attempt)

    def _answered(self, attempt: Attempt) -> None:
        server = attempt.target.listeners.get(attempt.port)
        if attempt.done.done() or not attempt.life.alive:
            return
        if not attempt.target.up:
            self._syn_arrives(attempt)  # It lost power meanwhile: try again in vain.
            return
        if server is None:
            attempt.refuse()
            return
        own, peer = (attempt.source.address, attempt.source.port()), (attempt.target.address, attempt.port)
        near = SimTransport(self, attempt.source, attempt.life, _extra(own, peer))
        far = SimTransport(self, attempt.target, server.life, _extra(peer, own))
        near.outgoing = far.incoming = Pipe(self, near, far)
        far.outgoing = near.incoming = Pipe(self, far, near)
        attempt.done.set_result(near)
        self.loop.at(
            self.loop.now + self._link_delay(attempt.source, attempt.target), self._accept, server, far
        )

    def _accept(self, server: SimServer, far: SimTransport) -> None:
        if not far.closed:
            context: contextvars.Context = server.life.context
            self.loop.call_soon(self._accepted, server, far, context=context)

    def _accepted(self, server: SimServer, far: SimTransport) -> None:
        if not far.closed:
            far.start(server.factory())


def _set_unless_cancelled(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _extra(own: tuple[str, int], peer: tuple[str, int]) -> dict[str, Any]:
    return {"sockname": own, "peername": peer, "socket": FakeSocket(own, peer)}
