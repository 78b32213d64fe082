"""A broker's service in virtual time, without a network: for what lives in its process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from samples.brokers import empty_disk
from sim.life import Life
from sim.loop import SimLoop
from sim.network import Network
from sim.weather import CALM, Weather
from tidemill_broker.doors import Service, recover
from tidemill_broker.settings import BrokerSettings
from tidemill_host.persist import Lanes

Result = TypeVar("Result")
START_MS = 1_780_000_000_000


class LoopClock:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return START_MS + int(self._loop.now * 1000)

    def seconds(self) -> float:
        return self._loop.now


class Indoors:
    """One service; ``call`` does something in its loop, ``pass_time`` lets it work."""

    def __init__(self, weather: Weather = CALM, settings: BrokerSettings | None = None) -> None:
        self.loop = SimLoop("indoors", weather.order)
        Network(self.loop, "indoors", weather).add_host("a")
        self._life = Life(self.loop, "a", 1)
        self.settings = settings or BrokerSettings(durability="low")
        self.disk = empty_disk(weather=weather)
        self.service: Service
        self.call(self._serve)

    def restart(self) -> None:
        """Killed and started again on the same disk."""
        self.call(lambda: self.service.close("killed"))
        self.disk.kill()
        self.call(self._serve)

    def _serve(self) -> None:
        clock = LoopClock(self.loop)
        broker, _ = recover(self.disk.mount(), self.settings, clock.now_ms())
        lanes = Lanes(*(ThreadPoolExecutor(1) for _ in range(3)))
        self.service = Service(broker, self.disk.mount(), lanes, clock)
        self.service.turn.start()

    def call(self, work: Callable[[], Result]) -> Result:
        async def called() -> Result:
            return work()

        task = self._life.context.run(self.loop.create_task, called())
        return self.loop.run_until_complete(task)

    def pass_time(self, seconds: float) -> None:
        done = self.loop.create_future()
        self.loop.at(self.loop.now + seconds, done.set_result, None)
        self.loop.run_until_complete(done)

    def close(self) -> None:
        self.call(lambda: self.service.close("the end"))
        assert self.loop.errors == []
        self.loop.dissolve()
