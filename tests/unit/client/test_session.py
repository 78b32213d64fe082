"""A connection that comes back: soon to a broker that begins elsewhere, and without storming anybody."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from sim.life import Life
from sim.loop import SimLoop
from sim.network import Network
from sim.weather import CALM
from tidemill import Address, ClientSettings
from tidemill.session import BEGINNING_PAUSE_S, Session, Watchers
from tidemill_wire.commands import Welcome, encode_command

FORMER, NEXT = Address("g0", "former", 7400), Address("g0", "next", 7400)
STEPS_DOWN_S, APPOINTED_S = 5.0, 5.4
"""The former master takes no work from then on; from then on meta says who is next, and says so in its streams."""


class Handed:
    """A broker group that is handed over, as a session meets it. Meta may not answer at all."""

    def __init__(self, seed: int, *, begins_s: float, meta_answers: bool = True) -> None:
        self.loop = SimLoop(f"session {seed}")
        Network(self.loop, "", CALM).add_host("client")
        self.begins_s = begins_s
        """From then on the next master's port is open."""
        self.meta_answers = meta_answers
        self.asked = 0
        self.dialled: list[str] = []
        self.up_s = -1.0
        self._is_up = asyncio.Event()
        self._transports: list[Transport] = []
        settings = ClientSettings(
            connect=self._connect, random=random.Random(seed), stay_awake=False, seconds=self.loop.time
        )
        self.session = Session(self._locate, settings, Watchers(self._up, lambda _error: None))

    async def _locate(self) -> Address:
        self.asked += 1
        if not self.meta_answers and self.loop.time() >= STEPS_DOWN_S:
            with suppress(TimeoutError):  # a black hole: as long as a client asks when it knows somebody
                async with asyncio.timeout(1.0):
                    await self.loop.create_future()
            return FORMER
        return NEXT if self.loop.time() >= APPOINTED_S else FORMER

    async def _connect(self, protocol: Callable[[], Any], host: str, _port: int) -> Any:
        self.dialled.append(host)
        open_now = self.loop.time() < STEPS_DOWN_S if host == "former" else self.loop.time() >= self.begins_s
        if not open_now:
            raise ConnectionRefusedError(111, "Connection refused")
        link = protocol()
        transport = Transport(link)
        self._transports.append(transport)
        link.connection_made(transport)
        transport.receive(encode_command(Welcome(1, host, 0), 0))
        return transport, link

    def _up(self, link: Any) -> None:
        if link.address == NEXT:
            self.up_s = self.loop.time()
            self._is_up.set()

    async def _play(self) -> None:
        task = asyncio.ensure_future(self.session.run())
        self.loop.call_at(STEPS_DOWN_S, self._transport_ends)
        self.loop.call_at(APPOINTED_S, self.session.moved, NEXT)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.begins_s + 10 - self.loop.time()):
                await self._is_up.wait()
        task.cancel()
        await asyncio.wait([task])

    def _transport_ends(self) -> None:
        self._transports[-1].abort()

    def run(self) -> Handed:
        life = Life(self.loop, "client", 1)
        self.loop.run_until_complete(life.context.run(self.loop.create_task, self._play()))
        self.loop.dissolve()
        return self


class Transport(asyncio.Transport):
    """Takes all that is written, and hands over what it is told to."""

    def __init__(self, link: Any) -> None:
        super().__init__()
        self._link = link
        self._closing = False

    def receive(self, data: bytes) -> None:
        buffer = self._link.get_buffer(-1)
        buffer[: len(data)] = data
        self._link.buffer_updated(len(data))

    def write(self, data: Any) -> None:
        """Nobody reads it."""

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._link.connection_lost, None)


@pytest.mark.parametrize("meta_answers", [True, False])
@pytest.mark.parametrize("begins_s", [5.41, 5.7, 6.0])
def test_a_broker_that_begins_elsewhere_is_found_as_soon_as_it_listens(
    begins_s: float, meta_answers: bool
) -> None:
    """Whatever failed before, and also when the replica of meta that is asked does not answer any more."""
    for seed in range(40):
        handed = Handed(seed, begins_s=begins_s, meta_answers=meta_answers).run()
        assert 0 <= handed.up_s - begins_s < BEGINNING_PAUSE_S + 0.05, (seed, handed.up_s)


def test_nobody_is_asked_while_it_is_known_where_the_broker_begins() -> None:
    """Thousands of clients hear of it at once, and meta has something else to do then."""
    for seed in range(20):
        handed = Handed(seed, begins_s=6.5).run()
        dialled_next = handed.dialled.count("next")
        assert handed.asked <= 1 + handed.dialled.count("former")
        assert 4 <= dialled_next <= 1.1 / (BEGINNING_PAUSE_S / 2) * 2


def test_a_broker_that_does_not_begin_is_dialled_less_and_less() -> None:
    for seed in range(20):
        handed = Handed(seed, begins_s=30.0).run()
        assert handed.dialled.count("next") < 60, seed
