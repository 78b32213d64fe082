"""A broker behind its data port, on a simulated network, and guests who say frames to it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from samples.brokers import empty_disk
from sim.disk import SimDisk
from sim.life import Life
from sim.loop import SimLoop
from sim.network import Network
from sim.weather import CALM, Weather
from tidemill_broker.doors import Service, recover
from tidemill_broker.settings import BrokerSettings
from tidemill_host.persist import Lanes
from tidemill_wire.commands import Command, Failed, Hello, encode_command
from tidemill_wire.connection import Connection, Received, Role
from tidemill_wire.errors import KIND_BY_NUMBER, RemoteProtocolError

PORT = 7400
HELLO = encode_command(Hello(1, 1, "a test"), 0)


class LoopClock:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return 1_780_000_000_000 + int(self._loop.now * 1000)

    def seconds(self) -> float:
        return self._loop.now


class Guest(asyncio.Protocol):
    """A client that keeps what it is told."""

    def __init__(self) -> None:
        self.wire = Connection(Role.CLIENT)
        self.heard: list[Command | Failed] = []
        self.closed = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            events = self.wire.feed(data)
        except RemoteProtocolError:
            return
        self.heard += [
            event.command
            if isinstance(event, Received)
            else Failed(event.error.kind.number, event.error.detail)
            for event in events
        ]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def say(self, *commands: Command) -> None:
        for command in commands:
            self.transport.write(encode_command(command, 1))

    @property
    def refusals(self) -> list[str]:
        return [KIND_BY_NUMBER[one.number].name for one in self.heard if isinstance(one, Failed)]


class Stage:
    """A broker behind its port on host ``a``, guests on host ``b``."""

    def __init__(self, weather: Weather = CALM) -> None:
        self.loop = SimLoop("server", weather.order)
        self.network = Network(self.loop, "server", weather)
        self.lives: dict[str, Life] = {}
        for name in ("a", "b"):
            self.network.add_host(name)
            self.lives[name] = Life(self.loop, name, 1)
        self.disk: SimDisk = empty_disk(weather=weather)
        self.service: Service
        self.run("a", self._serve())

    async def _serve(self) -> None:
        clock = LoopClock(self.loop)
        broker, _ = recover(self.disk.mount(), BrokerSettings(durability="low"), clock.now_ms())
        lanes = Lanes(*(ThreadPoolExecutor(1) for _ in range(3)))
        self.service = Service(broker, self.disk.mount(), lanes, clock)
        await self.service.listen("0.0.0.0", PORT)

    def run(self, node, coroutine):
        return self.loop.run_until_complete(self.lives[node].context.run(self.loop.create_task, coroutine))

    def pass_time(self, seconds: float) -> None:
        done = self.loop.create_future()
        self.loop.at(self.loop.now + seconds, done.set_result, None)
        self.loop.run_until_complete(done)

    def guest(self, first: bytes = HELLO) -> Guest:
        _, guest = self.run("b", self.loop.create_connection(Guest, "a", PORT))
        guest.transport.write(first)
        self.pass_time(0.1)
        return guest

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.service.server.statistics.refused)
