"""A stage: a simulated loop with a network and two hosts, and nothing going wrong unless a test asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from sim.life import Life
from sim.loop import SimLoop
from sim.network import Network
from sim.seal import collect
from sim.weather import CALM, Weather


class Stage:
    def __init__(self, weather: Weather = CALM, seed: str = "stage") -> None:
        self.loop = SimLoop(seed, weather.order)
        self.network = Network(self.loop, seed, weather)
        self.lives: dict[str, Life] = {}
        for name in ("world", "a", "b"):
            self.network.add_host(name)
            self.lives[name] = Life(self.loop, name, 1)

    def spawn(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.lives[node].context.run(self.loop.create_task, coroutine)

    def run(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(self.spawn(node, coroutine))

    def run_for(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))


@pytest.fixture(autouse=True)
def buried() -> Iterator[None]:
    """What dead processes left open is collected here, not in somebody else's test."""
    yield
    collect()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.loop.dissolve()


@pytest.fixture
def make_stage() -> Iterator[Any]:
    made: list[Stage] = []

    def make(weather: Weather = CALM, seed: str = "stage") -> Stage:
        made.append(Stage(weather, seed))
        return made[-1]

    yield make
    for each in made:
        each.loop.dissolve()
